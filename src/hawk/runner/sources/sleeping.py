"""What a process sleeps in, in words, from what the kernel says of it: `/proc/<pid>/wchan`, `syscall`, `fd`.

`wchan` is a function of the kernel's, whose name varies with its version; the number of the system call and its first
arguments tell the rest. Where the kernel hides both, nothing is said.
"""

from __future__ import annotations

import contextlib
import os

TIMER, STDIN, PIPE, LOCK = "a timer", "its standard input", "a pipe", "a lock"
NETWORK, CHILD, SIGNAL, DISK = "the network", "a child", "a signal", "the disk"
TERMINAL, CLIENT, SOMETHING = "a terminal", "a client: it serves", "something to happen"

_CALLS = {
    "x86_64": {
        **{0: "read", 1: "write", 19: "read", 23: "select", 270: "select", 7: "poll", 271: "poll"},
        **{232: "epoll", 281: "epoll", 441: "epoll", 35: "sleep", 230: "sleep", 202: "futex", 449: "futex"},
        **{61: "wait", 247: "wait", 73: "flock", 72: "flock", 45: "receive", 47: "receive", 299: "receive"},
        **{43: "accept", 288: "accept", 42: "connect", 34: "pause", 130: "pause", 128: "pause"},
        **{2: "open", 257: "open", 65: "futex", 220: "futex", 44: "send", 46: "send"},
    },
    "aarch64": {
        **{63: "read", 64: "write", 65: "read", 72: "select", 73: "poll", 22: "epoll", 441: "epoll"},
        **{101: "sleep", 115: "sleep", 98: "futex", 449: "futex", 260: "wait", 95: "wait", 32: "flock"},
        **{25: "flock", 207: "receive", 212: "receive", 243: "receive", 202: "accept", 242: "accept"},
        **{203: "connect", 133: "pause", 137: "pause", 56: "open", 193: "futex", 206: "send", 211: "send"},
    },
}
"""Numbers of system calls that wait, by machine."""

_WCHANS = (
    ("nanosleep", TIMER),
    ("pipe", PIPE),
    ("wait_for_partner", PIPE),
    ("fifo_open", PIPE),
    ("n_tty_read", TERMINAL),
    ("futex", LOCK),
    ("setlk", LOCK),
    ("lock_inode_wait", LOCK),
    ("semtimedop", LOCK),
    ("inet_csk_accept", CLIENT),
    ("unix_accept", CLIENT),
    ("unix_stream", NETWORK),
    ("sk_wait", NETWORK),
    ("wait_for_more_packets", NETWORK),
    ("tcp_", NETWORK),
    ("inet_", NETWORK),
    ("do_wait", CHILD),
    ("kernel_wait", CHILD),
    ("sigtimedwait", SIGNAL),
    ("sigsuspend", SIGNAL),
    ("pause", SIGNAL),
    ("io_schedule", DISK),
    ("wait_on_page", DISK),
    ("folio_wait", DISK),
)
"""(part of the function's name, what it is)."""

_BY_CALL = {
    "sleep": TIMER,
    "futex": LOCK,
    "flock": LOCK,
    "wait": CHILD,
    "receive": NETWORK,
    "send": NETWORK,
    "connect": NETWORK,
    "accept": CLIENT,
    "pause": SIGNAL,
}

_MOST_FILES = 64
_MOST_THREADS = 8


def sleeps_in(pid: int, *, threads: bool = True) -> str:
    """What the main thread of a process sleeps in; empty when it runs, has ended, or can't be looked at.

    Args:
        threads: Where that is a lock, as it is of a thread that waits for others, look at the others.
    """
    base = f"/proc/{pid}"
    words = _words(base, pid)
    if words == LOCK and threads:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"{base}/task")[: _MOST_THREADS + 1]:  # noqa: PTH208
                if int(name) != pid and (other := _words(f"{base}/task/{name}", pid)) not in ("", LOCK):
                    return other
    return words


def _words(base: str, pid: int) -> str:
    call = _call(f"{base}/syscall")
    if call is not None:
        name, first, second = call
        match name:
            case "read":
                return _file(pid, first)
            case "write":
                return PIPE if _link(pid, first).startswith("pipe:") else ""
            case "open":
                return PIPE if "fifo" in _read(f"{base}/wchan") or "partner" in _read(f"{base}/wchan") else ""
            case "select":
                return TIMER if first == 0 else _files(pid)
            case "poll":
                return TIMER if second == 0 else _files(pid)
            case "epoll":
                return _files(pid)
            case known if known in _BY_CALL:
                return _BY_CALL[known]
    wchan = _read(f"{base}/wchan")
    return next((words for part, words in _WCHANS if part in wchan), "")


def _call(path: str) -> tuple[str, int, int] | None:
    """Name and first two arguments of the system call that a thread is in."""
    fields = _read(path).split()
    if len(fields) < 3 or not fields[0].isdecimal():
        return None
    name = _CALLS.get(os.uname().machine, {}).get(int(fields[0]))
    return None if name is None else (name, int(fields[1], 16), int(fields[2], 16))


def _file(pid: int, fd: int) -> str:
    link = _link(pid, fd)
    if link.startswith("socket:"):
        return NETWORK
    if link.startswith(("/dev/tty", "/dev/pts", "/dev/console")):
        return TERMINAL
    return STDIN if fd == 0 else PIPE if link.startswith("pipe:") or not link else ""


def _files(pid: int) -> str:
    """What a process that waits for several files at once may wait for."""
    links: list[str] = []
    with contextlib.suppress(OSError):
        links = [_link(pid, int(name)) for name in os.listdir(f"/proc/{pid}/fd")[:_MOST_FILES]]  # noqa: PTH208
    if any(link.startswith("socket:") for link in links):
        return NETWORK
    return PIPE if any(link.startswith("pipe:") for link in links[3:]) else SOMETHING


def _link(pid: int, fd: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{fd}")  # noqa: PTH115
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        with open(path, "rb") as f:  # noqa: PTH123  # thousands a minute
            return f.read(512).decode("ascii", "replace").strip()
    except OSError:
        return ""
