"""How a keeper is known to others: a file, a lock that it holds, a socket to ask it. Standard library only.

In `<store>/keepers/`: `<name>.json` says whose it is; its lock is held by all of the keeper's processes, so that a file
without one is what a dead keeper left; `<name>.sock` is where a person's commands reach the living.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from typing import Any

from hawk.sandbox.descent import remove_tree

FOLDER = "keepers"


class Presence:
    """One keeper's; made by its first process, inherited by the others.

    Attributes:
        name: Of the keeper.
        door: Listens for who wants to look into a sandbox.
    """

    def __init__(self, store: str, name: str) -> None:
        self._store = store
        self.name = name
        self._folder = os.path.join(store, FOLDER)
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._lock = _take(f"{self._folder}/{name}.json")
        self.door = socket.socket(socket.AF_UNIX)
        # Relative: the path of a socket may have some hundred bytes, and the store may lie deep.
        before = os.open(".", os.O_RDONLY)
        try:
            os.chdir(self._folder)
            self.door.bind(f"{name}.sock")
        finally:
            os.fchdir(before)
            os.close(before)
        self.door.listen(8)
        self.door.setblocking(False)

    def announce(self, about: dict[str, Any]) -> None:
        """Say whose it is."""
        os.pwrite(self._lock, json.dumps({**about, "pid": os.getpid()}).encode(), 0)

    def withdraw(self) -> None:
        """Remove all of it, and what its sandboxes kept on disk."""
        self.door.close()
        remove_scratch(self._store, self.name)
        for kind in ("sock", "json"):
            with contextlib.suppress(OSError):
                os.unlink(f"{self._folder}/{self.name}.{kind}")
        os.close(self._lock)


def _take(path: str) -> int:
    """Make a file and lock it. Who looks at it just then holds its lock for a moment, and may take it for a dead one's."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(fd)):
                return fd
        os.close(fd)


def remove_scratch(store: str, name: str) -> bool:
    """Remove what a keeper's sandboxes kept on disk. False: there was nothing."""
    try:
        fd = os.open(f"{store}/scratch", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        there = name in os.listdir(fd)
        with contextlib.suppress(OSError):
            remove_tree(name, dir_fd=fd)
        return there
    finally:
        os.close(fd)
