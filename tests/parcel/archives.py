"""Archives as somebody with bad intentions would make them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence

from hawk.core.zstd import Packer, pack


def file(name: str, data: bytes = b"x", **attributes: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, data


def special(name: str, kind: bytes, to: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info, b""


def link(name: str, to: str) -> tuple[tarfile.TarInfo, bytes]:
    return special(name, tarfile.SYMTYPE, to)


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return pack(data.getvalue())


def zeros(before: bytes, count: int) -> bytes:
    """Some bytes and many zeros, packed without ever being in memory."""
    packer = Packer()
    parts: Sequence[bytes] = [packer.feed(before)]
    parts = [*parts, *(packer.feed(bytes(1 << 20)) for _ in range(count >> 20)), packer.finish()]
    return b"".join(parts)
