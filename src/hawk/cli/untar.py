"""Unpacking what a server exports: a tar stream of plain files below `attempts/`, and nothing else.

A name that could lead elsewhere, a link, a device, a second file of one name: the whole stream is refused. So is one
that ends too early.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from hawk.cli.outfile import unwritable, write_whole
from hawk.cli.text import clean, shorten
from hawk.core.parts import Parts
from hawk.errors import HawkError

ROOT = "attempts"
BLOCK = 512
LONGEST_NAME = 255

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def unpack(parts: Iterable[bytes], directory: Path) -> tuple[int, int]:
    """Unpack a stream into an empty directory, each file whole or not at all.

    Returns:
        How many files it held, and how many bytes.

    Raises:
        HawkError: The stream is damaged, cut, or holds what it must not.
        StorageError: A file can't be written.
    """
    stream = Parts(parts, lambda: HawkError("The export ended too early.", remedy=_AGAIN))
    taken: set[str] = set()
    whole = 0
    while (info := _next(stream)) is not None:
        name = info.name
        if not _is_safe(name):
            raise _refused(f"a file named {_shown(name)}")
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise _refused(f"{_shown(name)}, which is no plain file")
        if name in taken or any(
            f"{name}/".startswith(f"{other}/") for other in _parents(name) if other in taken
        ):
            raise _refused(f"{_shown(name)} a second time")
        taken.add(name)
        _write(directory / name, stream.pieces(info.size))
        stream.skip(-info.size % BLOCK)
        whole += info.size
    return len(taken), whole


def _parents(name: str) -> Iterator[str]:
    parts = name.split("/")
    return ("/".join(parts[:i]) for i in range(1, len(parts)))


def _is_safe(name: str) -> bool:
    parts = name.split("/")
    return (
        len(name) <= LONGEST_NAME
        and len(parts) > 1
        and parts[0] == ROOT
        and all(_PART.fullmatch(part) for part in parts)
    )


def _next(stream: Parts) -> tarfile.TarInfo | None:
    """The next file's header; None at the end, which is a block of zeros."""
    block = stream.take(BLOCK)
    if not any(block):
        return None
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError) as ex:
        raise HawkError("The export is damaged: no header where one must be.", remedy=_AGAIN) from ex
    if info.size < 0:
        raise HawkError("The export is damaged: a file of negative size.", remedy=_AGAIN)
    return info


def _write(path: Path, pieces: Iterator[bytes]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as ex:
        raise unwritable(path.parent, ex) from ex
    write_whole(path, pieces)


_AGAIN = "Export again, into a new directory."


def _refused(what: str) -> HawkError:
    return HawkError(
        f"The export is refused: it holds {what}.",
        remedy="Ask whoever runs the server what is wrong with it.",
    )


def _shown(name: str) -> str:
    return repr(shorten(clean(name), 100))
