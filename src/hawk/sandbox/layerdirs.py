"""Where the layer store keeps what, and what it knows of a layer.

```
<HAWK_HOME>/sandbox/
  layers/<key>/{root/,usr/?,layer.json}   sealed; complete by the rename that puts it here
  building/<key>.<random>/                being built or removed, or left by a process that was killed at it
  damaged/<key>.<random>/                 changed after it was sealed; sandboxes may still run on it
  locks/<key>.build                       held by whoever builds or removes
  locks/<key>.use                         shared by every process that uses the layer; its time is the last use
```
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import msgspec

from hawk.errors import NotFoundError, StorageError, UsageError
from hawk.sandbox.descent import OPEN_DIRECTORY, remove_tree
from hawk.sandbox.layerseal import Seal

LAYERS, BUILDING, DAMAGED, LOCKS = "layers", "building", "damaged", "locks"
BUILD, USE = "build", "use"

FULL = (errno.ENOSPC, errno.EDQUOT)

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Layer(msgspec.Struct, frozen=True):
    """A sealed layer.

    Attributes:
        description: What it was made of, for people.
        bytes: Content of its files.
        files: Everything but directories.
        created: Seconds since 1970.
        digest: SHA-256 of names, types, modes, sizes, times, link targets and contents.
    """

    key: str
    path: Path
    description: str
    bytes: int
    files: int
    created: float
    digest: str

    @property
    def root(self) -> Path:
        """What it puts over `/`."""
        return self.path / "root"

    @property
    def usr(self) -> Path | None:
        """What it puts over `/usr` by itself, if anything."""
        path = self.path / "usr"
        return path if path.is_dir() and not path.is_symlink() else None


class LayerInfo(Layer, frozen=True, kw_only=True):
    """A layer, and how it is used.

    Attributes:
        last_used: Seconds since 1970.
        in_use: Some process uses it now.
    """

    last_used: float
    in_use: bool


class LayerDirs:
    """The directories and lock files of a store.

    Args:
        directory: `<HAWK_HOME>/sandbox`.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def layer(self, key: str) -> Path:
        """Raises: UsageError when that can't be a key."""
        if not _KEY.fullmatch(key):
            raise UsageError(
                f"{key!r} can't be the key of a layer.", remedy="Letters, digits and ._- are allowed."
            )
        return self.directory / LAYERS / key

    def lock(self, key: str, kind: str) -> Path:
        return self.directory / LOCKS / f"{key}.{kind}"

    def new(self, part: str, key: str) -> Path:
        """A name in `building` or `damaged`."""
        return self.directory / part / f"{key}.{secrets.token_hex(4)}"

    def all(self, part: str) -> list[Path]:
        """The directories in one of the parts."""
        try:
            return sorted(path for path in (self.directory / part).iterdir() if path.is_dir())
        except FileNotFoundError:
            return []

    def prepare(self) -> None:
        """Make what is missing, readable by its owner only: setuid programs in it would work for everybody.

        Raises:
            OSError: It can't be made.
        """
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for part in (LAYERS, BUILDING, DAMAGED, LOCKS):
            path = self.directory / part
            path.mkdir(exist_ok=True, mode=0o700)
            if part != LOCKS:
                self.give(path)

    def give(self, path: Path) -> None:
        """Give a directory to the store's owner: root's keepers work with the ids of their sandboxes."""
        if os.geteuid() == 0:
            owner = self.directory.stat()
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)

    def remove_leftovers(self, part: str, key: str) -> None:
        """Remove what was left of a layer; by whoever holds its build lock, so that nobody is at work on it.

        Raises:
            OSError: Something can't be removed.
        """
        fd = os.open(self.directory / part, OPEN_DIRECTORY)
        try:
            for path in self.all(part):
                if path.name.rpartition(".")[0] == key:
                    remove_tree(path.name, dir_fd=fd)
        finally:
            os.close(fd)

    def last_used(self, key: str, otherwise: float) -> float:
        """Seconds since 1970."""
        try:
            return self.lock(key, USE).stat().st_mtime
        except OSError:
            return otherwise

    def describe(self, found: Seal) -> Layer:
        """The layer of a seal."""
        return Layer(
            key=found.key,
            path=self.layer(found.key),
            description=found.description,
            bytes=found.bytes,
            files=found.files,
            created=found.created,
            digest=found.digest,
        )

    @contextlib.contextmanager
    def saying(self, doing: str) -> Iterator[None]:
        """Turn errors of the operating system into such that say where and what to do.

        Raises:
            StorageError: In the place of OSError.
        """
        try:
            yield
        except OSError as ex:
            raise self.error(doing, ex) from ex

    def error(self, doing: str, cause: OSError) -> StorageError:
        if cause.errno in FULL:
            return StorageError(
                f"No room is left in {self.directory} for {doing}.",
                remedy="Free space there, remove unused layers, or set HAWK_HOME to a directory on a larger disk.",
                path=str(self.directory),
            )
        where = f" ({cause.filename})" if cause.filename else ""
        return StorageError(
            f"{self.directory} can't be used for {doing}: {cause.strerror or cause}{where}.",
            remedy="Make it writable for you, or set HAWK_HOME to another directory.",
            path=str(self.directory),
        )


def unknown(key: str) -> NotFoundError:
    return NotFoundError(
        f"There is no layer {key}.", remedy="It is built again when an eval set needs it.", key=key
    )
