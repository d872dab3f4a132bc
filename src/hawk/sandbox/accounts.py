"""Numbers of users that a configuration names, looked up in the layers below a sandbox before there is one."""

from __future__ import annotations

import contextlib
import os
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
    for row in _rows("passwd", roots or [Path("/")]):
        if row[0] == user:
            return int(row[2])
    raise SandboxError(
        f"There is no user {user!r} in the sandbox.",
        remedy="Give a user of its root file system, or a number.",
    )


def known(uid: int, roots: list[Path]) -> dict[str, dict[str, object]]:
    """What the keeper may know beforehand of a sandbox's default user and root, by name and by number.

    Args:
        roots: As for `number_of`.
    """
    people = _rows("passwd", roots)
    groups = _rows("group", roots)
    if not people:
        people = [
            ["root", "x", "0", "0", "", "/root", ""],
            [USER, "x", str(UID), str(UID), "", f"/home/{USER}", ""],
        ]
    result: dict[str, dict[str, object]] = {}
    for number in {uid, 0}:
        row = next(
            (row for row in people if row[2] == str(number) and len(row) > 5 and row[3].isdecimal()), None
        )
        if row is None:
            continue
        gid = int(row[3])
        member = {int(group[2]) for group in groups if row[0] in group[3].split(",")}
        account: dict[str, object] = {
            "uid": number,
            "gid": gid,
            "groups": sorted({gid, *member}),
            "name": row[0],
            "home": row[5] or "/",
        }
        result[row[0]] = result[str(number)] = account
    return result


def _rows(table: str, roots: list[Path]) -> list[list[str]]:
    """The rows of the uppermost layer's table."""
    for root in roots:
        with contextlib.suppress(OSError):
            rows = [line.split(":") for line in _read_inside(root, table).splitlines()]
            return [row for row in rows if len(row) > 3 and row[2].isdecimal()]
    return []


def _read_inside(root: Path, table: str) -> str:
    """A table in `etc` below `root`, which may be hostile: no link is followed."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    etc = os.open(root / "etc", flags | os.O_DIRECTORY)
    try:
        fd = os.open(table, flags, dir_fd=etc)
    finally:
        os.close(etc)
    try:
        return os.read(fd, _LONGEST).decode(errors="surrogateescape")
    finally:
        os.close(fd)
