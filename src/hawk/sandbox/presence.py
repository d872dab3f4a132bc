"""How a keeper is known to others: a file, a lock that it holds, a socket to ask it. Standard library only.

In `<store>/keepers/`: `<name>.json` says whose it is; its lock is held by all of the keeper's processes, so that a file
without one is what a dead keeper left; `<name>.sock` is where a person's commands reach the living.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
from typing import Any

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
        self._lock = os.open(f"{self._folder}/{name}.json", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
        shutil.rmtree(f"{self._store}/scratch/{self.name}", ignore_errors=True)
        for kind in ("sock", "json"):
            with contextlib.suppress(OSError):
                os.unlink(f"{self._folder}/{self.name}.{kind}")
        os.close(self._lock)
