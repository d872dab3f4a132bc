"""Which disk a server sees: whether a command and its server mean the same file by the same path.

An address does not tell: a server on a cluster is at 127.0.0.1 behind a forwarded port. So a server says a name that it
makes of a file in its `HAWK_HOME`, of the machine and of its root directory; a command that makes the same name of the
same three is where the server is.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

from hawk.config.once import write_once

_FILE = "identity"


def make_place(home: Path) -> str | None:
    """The name of this place; the file that it needs is made. None where it can't be: then nobody is in the same place."""
    try:
        write_once(home / _FILE, secrets.token_hex(16).encode() + b"\n")
    except OSError:
        return None
    return place(home)


def place(home: Path) -> str | None:
    """The name of this place; None where no server has been."""
    try:
        identity = (home / _FILE).read_bytes().strip()
        root = Path("/").stat()  # a container's differs from its machine's
    except OSError:
        return None
    if not identity:
        return None
    parts = [identity, _machine(), f"{root.st_dev}:{root.st_ino}".encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


def _machine() -> bytes:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        return os.uname().nodename.encode()
