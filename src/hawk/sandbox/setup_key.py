"""The key of a prepared layer: two setups share one exactly when they would make the same."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from hawk.config.load import nearest_file
from hawk.errors import ConfigError
from hawk.sandbox.options import Common

FORMAT = 1
"""Counts up when the same setup begins to make another layer."""


def setup_key(config: Common, mode: str, base_key: str) -> str | None:
    """Key of the layer that a setup makes: everything that can change it is in the key.

    Reads every local file that the setup names: seconds for gigabytes, so not in an event loop.

    Args:
        config: A sandbox's or a service's configuration, with absolute paths (`load`).
        mode: How ids are mapped (`root` or `user`): the owners of its files.
        base_key: Key of the root file system that it is made on.

    Returns:
        32 hexadecimal digits; None when there is nothing to set up.

    Raises:
        ConfigError: A local file is missing, can't be read, or is neither file, directory nor link.
    """
    setup = config.setup
    if setup.empty:
        return None
    key = _Key()
    # user and workspace too: files and scripts are placed relative to the workspace and belong to its user
    said = {
        "format": FORMAT,
        "mode": mode,
        "base": base_key,
        "user": config.user,
        "workspace": config.workspace,
        "environment": config.environment,
        "setup": setup.model_dump(mode="json", exclude={"files", "script_file", "timeout"}),
    }
    key.add("said", json.dumps(said, sort_keys=True).encode())
    for place, file in setup.files.items():
        key.add("file", place.encode())
        if file.text is not None:
            key.add("text", (file.mode or "0644").encode(), file.text.encode())
        elif file.path is not None:
            key.tree(Path(file.path), f"setup.files: {place}")
    if setup.script_file is not None:
        key.add("script", key.content(Path(setup.script_file), "setup.script_file"))
    return key.hexdigest()[:32]


class _Key:
    """A hash of parts that can't run into each other: each follows its length."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, kind: str, *parts: bytes) -> None:
        for part in (kind.encode(), len(parts).to_bytes(8), *parts):
            self._hash.update(len(part).to_bytes(8))
            self._hash.update(part)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def content(self, path: Path, field: str) -> bytes:
        """Digest of a file, read in pieces."""
        try:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").digest()
        except OSError as ex:
            raise _unreadable(path, field, ex) from ex

    def tree(self, root: Path, field: str) -> None:
        """Add a file, or a directory with all that is in it. A link in it counts as a link, the root as its target."""
        try:
            for name, path, info in _walk(root):
                kind, permissions = stat.S_IFMT(info.st_mode), f"{stat.S_IMODE(info.st_mode):o}".encode()
                if kind == stat.S_IFREG:
                    self.add("regular", name, permissions, self.content(path, field))
                elif kind == stat.S_IFDIR:
                    self.add("directory", name, permissions)
                elif kind == stat.S_IFLNK:
                    self.add("link", name, os.fsencode(path.readlink()))
                else:
                    raise ConfigError(f"{field}: {path} is neither a file, a directory nor a link.")
        except OSError as ex:
            raise _unreadable(Path(ex.filename or root), field, ex) from ex


def _walk(root: Path) -> Iterator[tuple[bytes, Path, os.stat_result]]:
    """(name below the root, path, what it is), in an order that depends on names alone."""
    info = root.stat()
    yield b"", root, info
    todo = [root] if stat.S_ISDIR(info.st_mode) else []
    while todo:
        folder = todo.pop()
        for path in sorted(folder.iterdir()):
            info = path.lstat()
            yield os.fsencode(path.relative_to(root)), path, info
            if stat.S_ISDIR(info.st_mode):
                todo.append(path)


def _unreadable(path: Path, field: str, ex: OSError) -> ConfigError:
    reason = "there is no such file" if isinstance(ex, FileNotFoundError) else ex.strerror
    near = nearest_file(path)
    hint = f" Did you mean {near!r}?" if near is not None else ""
    return ConfigError(f"{field}: {path}: {reason}.{hint}", remedy="Correct the path, or its permissions.")
