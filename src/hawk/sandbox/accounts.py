"""Numbers of users that a configuration names, looked up in the layers below a sandbox before there is one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from hawk.sandbox.base import UID, USER
from hawk.sandbox.errors import SandboxError

_LONGEST = 1 << 20


def number_of(user: str | int, roots: list[Path]) -> int:
    """The number of a user.

    Args:
        roots: Root directories of the layers, the uppermost first; without any this machine's accounts count.

    Raises:
        SandboxError: Nobody knows a user of that name.
    """
    if user in (USER, "root"):
        return UID if user == USER else 0
    if isinstance(user, int):
        return user
    for text in _tables(roots):
        for line in text.splitlines():
            row = line.split(":")
            if len(row) > 3 and row[0] == user and row[2].isdecimal():
                return int(row[2])
    raise SandboxError(
        f"There is no user {user!r} in the sandbox.",
        remedy="Give a user of its root file system, or a number.",
    )


def _tables(roots: list[Path]) -> Iterator[str]:
    for root in roots or [Path("/")]:
        with contextlib.suppress(OSError):
            yield _read_inside(root)


def _read_inside(root: Path) -> str:
    """`etc/passwd` below `root`, which may be hostile: no link is followed."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    etc = os.open(root / "etc", flags | os.O_DIRECTORY)
    try:
        fd = os.open("passwd", flags, dir_fd=etc)
    finally:
        os.close(etc)
    try:
        return os.read(fd, _LONGEST).decode(errors="surrogateescape")
    finally:
        os.close(fd)
