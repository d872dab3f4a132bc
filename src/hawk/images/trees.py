"""A directory as a layer: the same files are the same bytes, whenever and wherever they were put there."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from hawk.images.archive import EPOCH, Layer, file_layer


def pack(
    root: Path,
    target: Path,
    made_by: str,
    *,
    epoch: int = EPOCH,
    owner: tuple[int, int] | None = (0, 0),
    plain: bool = False,
) -> Layer:
    """Write a directory's content as a tar.

    Devices, sockets and pipes are left out, and so are times, names of owners, and extended attributes.

    Args:
        root: Becomes `/`.
        target: The tar.
        made_by: What it is, for `docker history`.
        epoch: The time that everything bears.
        owner: Whose all files are; None: whose they are here.
        plain: Everybody may read everything and only its owner may write, whatever the umask was.

    Raises:
        OSError: A file can't be read.
    """
    seen: dict[tuple[int, int], str] = {}
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in walk(root):
            member = _member(path, path.relative_to(root).as_posix(), seen)
            if member is None:
                continue
            member.mtime = epoch
            if plain:
                member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            if owner is not None:
                member.uid, member.gid = owner
            if member.isreg():
                with path.open("rb") as f:
                    tar.addfile(member, f)
            else:
                tar.addfile(member)
    return file_layer(target, made_by)


def walk(root: Path) -> Iterator[Path]:
    """Everything below a directory, each directory before what is in it, by name."""
    with os.scandir(root) as entries:
        found = sorted(entries, key=lambda entry: os.fsencode(entry.name))
    for entry in found:
        yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from walk(Path(entry.path))


def write(root: Path, name: str | PurePosixPath, content: str, mode: int = 0o644) -> Path:
    """A text file in a tree, with the directories that lead to it."""
    path = root / str(name).lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, "utf-8")
    path.chmod(mode)
    return path


def _member(path: Path, name: str, seen: dict[tuple[int, int], str]) -> tarfile.TarInfo | None:
    info = path.lstat()
    member = tarfile.TarInfo(name)
    member.mode, member.uid, member.gid = stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid
    if stat.S_ISDIR(info.st_mode):
        member.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(info.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, str(path.readlink())
    elif stat.S_ISREG(info.st_mode):
        first = seen.setdefault((info.st_dev, info.st_ino), name) if info.st_nlink > 1 else name
        if first == name:
            member.size = info.st_size
        else:
            member.type, member.linkname = tarfile.LNKTYPE, first
    else:
        return None
    return member
