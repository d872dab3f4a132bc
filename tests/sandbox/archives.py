"""Archives made by hand: root file systems, images, and such as nobody should send."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from hawk.sandbox.imagearchive import machine

Member = tuple[tarfile.TarInfo, bytes]


def member(
    name: str, content: bytes | str = b"", kind: bytes = tarfile.REGTYPE, link: str = "", **fields: Any
) -> Member:
    """One member; content makes it a file."""
    data = content.encode() if isinstance(content, str) else content
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data)
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    info.mtime = 1_600_000_000
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def folder(name: str, **fields: Any) -> Member:
    return member(name, kind=tarfile.DIRTYPE, **fields)


def symlink(name: str, target: str, **fields: Any) -> Member:
    return member(name, kind=tarfile.SYMTYPE, link=target, **fields)


def hardlink(name: str, target: str) -> Member:
    return member(name, kind=tarfile.LNKTYPE, link=target)


def tar(*members: Member, end: bool = True) -> bytes:
    """The bytes of a tar file; without its end mark if wanted."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
        size = out.tell()
    data = out.getvalue()
    return data if end else data[:size]


def docker_image(*layers: bytes, architecture: str = "", tags: list[str] | None = None) -> list[Member]:
    """The members of what `docker save` wrote until 2024: one directory a layer, equal ones as symlinks."""
    members: list[Member] = []
    paths = []
    first_of: dict[bytes, str] = {}
    for number, layer in enumerate(layers):
        name = f"{number:064x}"
        path = f"{name}/layer.tar"
        paths.append(path)
        members.append(folder(f"{name}/"))
        members.append(member(f"{name}/VERSION", "1.0"))
        if layer in first_of:
            members.append(symlink(path, f"../{first_of[layer]}"))
        else:
            members.append(member(path, layer))
            first_of[layer] = path
    config = json.dumps({"architecture": architecture or machine(), "os": "linux"}).encode()
    digest = hashlib.sha256(config).hexdigest()
    members.append(member(f"{digest}.json", config))
    manifest = [{"Config": f"{digest}.json", "RepoTags": tags or ["some:latest"], "Layers": paths}]
    members.append(member("manifest.json", json.dumps(manifest)))
    return members


class Layout:
    """An OCI layout."""

    def __init__(self) -> None:
        self.members: list[Member] = [folder("blobs"), folder("blobs/sha256")]
        self.manifests: list[dict[str, Any]] = []

    def blob(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.members.append(member(f"blobs/sha256/{digest}", data))
        return f"sha256:{digest}"

    def json(self, value: Any) -> str:
        return self.blob(json.dumps(value).encode())

    def image(self, *layers: bytes, architecture: str = "", compress: bool = True) -> str:
        """An image's manifest: its digest."""
        architecture = architecture or machine()
        return self.json(
            {
                "config": {"digest": self.json({"architecture": architecture, "os": "linux"})},
                "layers": [{"digest": self.blob(gzip.compress(x) if compress else x)} for x in layers],
            }
        )

    def tar(self, *entries: dict[str, Any]) -> bytes:
        index = json.dumps({"schemaVersion": 2, "manifests": entries})
        rest = [member("index.json", index), member("oci-layout", '{"imageLayoutVersion": "1.0.0"}')]
        return tar(*self.members, *rest)


def saved(directory: Path, data: bytes) -> Path:
    path = directory / "archive.tar"
    path.write_bytes(data)
    return path
