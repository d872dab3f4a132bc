"""Killing a command with everything that it started, also what has left its session or its parent.

Keeper side: standard library only. The killer is a child in the sandbox's own pid namespace: it sees no other process.
What a command started is known by descent, by session, and by an environment variable that only `env -i` takes away.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import NamedTuple, NoReturn

MARK = "SANDBOX_COMMAND"

PATIENCE = 10.0
"""Seconds for which one killer tries: what is killed needs a processor to end, and a sandbox may have to wait for one."""

TRIES = 20
"""Killers that are sent, one after another, when those inside kill them."""

_PAUSES = 0.001, 0.05


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
    others: set[tuple[int, int]] = set()
    deadline, (pause, longest) = time.monotonic() + PATIENCE, _PAUSES
    while time.monotonic() < deadline:
        # Stopped first, so that a fork bomb does not outrun the killer.
        found = _find(victims, session, mark, others)
        if not found:
            return True
        for pid in found - victims:
            _signal(pid, signal.SIGSTOP)
        if found <= victims:
            for pid in found:
                _signal(pid, signal.SIGKILL)
            time.sleep(pause)
            pause = min(2 * pause, longest)
        victims |= found
    return False


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _find(known: set[int], session: int, mark: bytes, others: set[tuple[int, int]]) -> set[int]:
    """Processes of the command that live; `others` are (pid, start) of those that are not its, known from before."""
    rows = processes()
    # 0 is the session of what comes from outside, as commands do that are about to enter.
    found = {pid for pid, row in rows.items() if row.parent in known or (session and row.session == session)}
    _add_descendants(found, rows)
    for pid, row in rows.items():
        # Last and once each: a process that does nothing but fork lets nobody look at its memory for a long time.
        if pid not in found and (pid, row.start) not in others:
            if mark in _environment(pid):
                found.add(pid)
            else:
                others.add((pid, row.start))
    _add_descendants(found, rows)
    return found


class Row(NamedTuple):
    """A process: its parent and session, and when it started."""

    parent: int
    session: int
    start: int


def processes() -> dict[int, Row]:
    """All but pid 1, this one and those that have ended."""
    rows = {}
    me = os.getpid()
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) in (1, me):
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as f:
                fields = f.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[0] not in (b"Z", b"X"):
            rows[int(name)] = Row(int(fields[1]), int(fields[3]), int(fields[19]))
    return rows


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return f.read(1 << 17).split(b"\0")
    except OSError:
        return []


def _add_descendants(found: set[int], rows: dict[int, Row]) -> None:
    while more := {pid for pid, row in rows.items() if row.parent in found and pid not in found}:
        found |= more
