"""What is in the directory that an eval set is submitted from, packed for a runner that has no such directory.

Hidden files, virtual environments and caches stay behind. The archive is the same for the same files.
"""

from __future__ import annotations

import os
import stat
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from hawk.core.zstd import Packer
from hawk.errors import ConfigError, StorageError
from hawk.link.rules import SOURCE
from hawk.store.rundir import RunDir, storage_error

LARGEST = 64 * 1024 * 1024
"""Bytes of all files together: it is held in a pod's ephemeral storage, and carried at each start."""

MOST = 50_000
"""Files and directories."""

LEFT_OUT = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})
"""Directories that are made again where they are needed."""


class _Squeezed:
    """A file to write to that compresses."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out, self._packer = out, Packer()

    def write(self, data: bytes) -> int:
        self._out.write(self._packer.feed(data))
        return len(data)

    def finish(self) -> None:
        self._out.write(self._packer.finish())


def pack_source(run: RunDir, base_dir: Path) -> None:
    """Write `source.tar.zst` of a directory into a run directory; where there is no such directory, leave what is there.

    Raises:
        ConfigError: There is too much in it.
        StorageError: It can't be read, or the archive not be written.
    """
    if not base_dir.is_dir() or base_dir == run.path:
        return
    target = run.path / SOURCE
    draft = run.path / f".{SOURCE}.{os.getpid():08d}"
    try:
        files = list(_files(base_dir))
        with draft.open("wb") as out:
            squeezed = _Squeezed(out)
            with tarfile.open(
                fileobj=cast("IO[bytes]", squeezed), mode="w|", format=tarfile.PAX_FORMAT
            ) as tar:
                for path in files:
                    _add(tar, base_dir, path)
            squeezed.finish()
            out.flush()
            os.fsync(out.fileno())
        draft.chmod(0o600)
        draft.replace(target)
    except OSError as ex:
        raise storage_error(Path(ex.filename or base_dir), ex) from ex
    finally:
        draft.unlink(missing_ok=True)


def _add(tar: tarfile.TarFile, base: Path, path: Path) -> None:
    """Add a file as it is now; one that has gone meanwhile, or can't be read, is left out."""
    name = str(path.relative_to(base))
    try:
        info = tar.gettarinfo(path, name)
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        if info.isreg():
            with path.open("rb") as file:
                tar.addfile(info, file)
        else:
            tar.addfile(info)
    except FileNotFoundError:
        return
    except PermissionError as ex:
        raise StorageError(
            f"{path} can't be read by the server.",
            remedy="Let it be read, or move it out of the eval set's directory.",
            path=str(path),
        ) from ex


def _files(base: Path) -> Iterator[Path]:
    """Files, links within the directory, and directories, in the order of their names.

    Raises:
        ConfigError: There is too much.
    """
    total = count = 0
    sizes: dict[str, int] = {}
    too_much = False
    deadline = time.monotonic() + 10.0
    found: list[Path] = []
    for directory, names, files in os.walk(base):
        here = Path(directory)
        links = [name for name in names if (here / name).is_symlink()]
        names[:] = sorted(name for name in names if name not in links and _kept(here / name))
        found += (here / name for name in names)
        for name in sorted([*files, *links]):
            path = here / name
            if name.startswith("."):
                continue
            status = path.lstat()
            if not (stat.S_ISREG(status.st_mode) or (stat.S_ISLNK(status.st_mode) and _within(path, base))):
                continue
            found.append(path)
            if stat.S_ISREG(status.st_mode):
                total += status.st_size
                top = path.relative_to(base).parts[0]
                sizes[top] = sizes.get(top, 0) + status.st_size
        count = len(found)
        too_much = too_much or total > LARGEST or count > MOST
        if too_much and (count > 4 * MOST or time.monotonic() > deadline):
            break
    if too_much:
        raise _too_much(base, sizes, count)
    return iter(found)


def _kept(directory: Path) -> bool:
    name = directory.name
    return not (name.startswith(".") or name in LEFT_OUT or (directory / "pyvenv.cfg").exists())


def _within(link: Path, base: Path) -> bool:
    target = link.readlink()
    if target.is_absolute():
        return False
    return Path(os.path.normpath(link.parent / target)).is_relative_to(base)


def _too_much(base: Path, sizes: dict[str, int], count: int) -> ConfigError:
    largest = max(sizes, key=lambda name: sizes[name], default="")
    what = f"{base / largest} alone has {sizes.get(largest, 0) / 2**20:,.0f} MiB"
    return ConfigError(
        f"{base} holds {sum(sizes.values()) / 2**20:,.0f} MiB in {count:,} files or more; "
        f"{LARGEST // 2**20} MiB and {MOST:,} can go along to a cluster. {what}.",
        remedy="Submit from a directory that holds what the eval set needs, or bring large files in an image or a volume.",
        problems=[],
    )
