"""Killing a command with everything that it started, also what has left its session or its parent.

Keeper side: standard library only. The killer is a child in the sandbox's own pid namespace: it sees no other process.
What a command started is known by descent, by session, and by an environment variable that only `env -i` takes away.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from typing import NoReturn

MARK = "SANDBOX_COMMAND"

_ROUNDS = 200


def inner_pid(pid: int) -> int:
    """The pid of a process in its innermost pid namespace; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
            return next((int(line.split()[-1]) for line in f if line.startswith("NSpid:")), 0)
    except OSError:
        return 0


def run(enter: Callable[[], None], session: int, mark: str) -> NoReturn:
    """In a child of the sandbox's pid namespace: kill until nothing is left. Exit code 1: something still is."""
    code = 1
    try:
        enter()
        code = 0 if _kill_all(session, f"{MARK}={mark}".encode()) else 1
    finally:
        os._exit(code)


def _kill_all(session: int, mark: bytes) -> bool:
    victims: set[int] = {session} - {0}
    for _ in range(_ROUNDS):
        # Stopped first, so that a fork bomb does not outrun the killer.
        found = _find(victims, session, mark)
        if not found:
            return True
        for pid in found - victims:
            _signal(pid, signal.SIGSTOP)
        if found <= victims:
            for pid in found:
                _signal(pid, signal.SIGKILL)
        victims |= found
    return False


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _find(known: set[int], session: int, mark: bytes) -> set[int]:
    me = os.getpid()
    rows: dict[int, tuple[int, int]] = {}
    found: set[int] = set()
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) in (1, me):
            continue
        pid = int(name)
        try:
            with open(f"/proc/{pid}/stat", "rb") as f:
                fields = f.read().rpartition(b")")[2].split()
            if fields[0] in (b"Z", b"X"):
                continue
            rows[pid] = (int(fields[1]), int(fields[3]))
            with open(f"/proc/{pid}/environ", "rb") as f:
                if mark in f.read(1 << 17).split(b"\0"):
                    found.add(pid)
        except OSError:
            continue
    found |= {pid for pid, (parent, its) in rows.items() if its == session or parent in known}
    grown = True
    while grown:
        more = {pid for pid, (parent, _) in rows.items() if parent in found and pid not in found}
        grown = bool(more)
        found |= more
    return found
