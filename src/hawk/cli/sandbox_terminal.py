"""Connecting this process's terminal, or its standard streams, to a command in a sandbox.

The sandbox never gets a descriptor of ours: it could read, write or change what is behind it. It gets the far end of
a pseudo-terminal or of pipes made for it, and we carry bytes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

from hawk.cli.context import note
from hawk.errors import UsageError
from hawk.sandbox.door import Door
from hawk.sandbox.errors import KeeperRefusedError, SandboxError
from hawk.sandbox.killing import MARK
from hawk.sandbox.troubles import TEXTS

CHUNK = 1 << 16
WAITING = 1 << 16  # bytes typed ahead of what the command reads
SETTLE = 0.05  # seconds that the last output may take through the pseudo-terminal
NOT_FOUND, NOT_STARTED, TERMINATED = 127, 126, 128 + signal.SIGTERM


def interactive(door: Door, request: dict[str, Any]) -> int:
    """Run a command on a pseudo-terminal of its own, which this terminal shows. Returns its exit code."""
    saved = termios.tcgetattr(0)
    master, slave = os.openpty()
    try:
        termios.tcsetattr(slave, termios.TCSANOW, saved)
        _copy_size(master)
        number = door.send({**_marked(request), "tty": True}, [slave] * 3)
    finally:
        os.close(slave)
    try:
        with _raw(saved), _resizing(master):
            reply = _carry(door, number, master)
    finally:
        os.close(master)
    return _code(reply, request)


def _carry(door: Door, number: int, master: int) -> dict[str, Any]:
    """Bytes both ways until the command has ended: the keeper's answer."""
    os.set_blocking(master, False)
    typed = b""
    listening = {0, master, door.fileno()}
    while True:
        reading = listening if len(typed) < WAITING else listening - {0}
        ready, writable, _ = select.select(reading, [master] if typed else [], [])
        if master in ready and not _show(master):
            listening.discard(master)  # all that had it open have ended; the answer follows
        if 0 in ready:
            data = os.read(0, CHUNK)
            typed += data
            if not data:
                listening.discard(0)
        if writable:
            with contextlib.suppress(BlockingIOError):
                typed = typed[os.write(master, typed) :]
        if door.fileno() in ready:
            reply = door.receive()
            if reply.get("id") == number:
                while select.select([master], [], [], SETTLE)[0] and _show(master):
                    pass
                return reply


def _show(master: int) -> bool:
    """Pass on what the command wrote. False: nothing more comes."""
    try:
        data = os.read(master, CHUNK)
    except BlockingIOError:
        return True
    except OSError as ex:
        if ex.errno != errno.EIO:
            raise
        return False  # as Linux says that the far end is closed
    _write(1, data)
    return bool(data)


@contextlib.contextmanager
def _raw(saved: list[Any]) -> Iterator[None]:
    """Every key goes to the command, Ctrl-C too; whatever ends this, the terminal is as it was."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSAFLUSH, saved)
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _resizing(master: int) -> Iterator[None]:
    before = signal.signal(signal.SIGWINCH, lambda number, frame: _copy_size(master))
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def _copy_size(master: int) -> None:
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(master, termios.TIOCSWINSZ, size)


def piped(door: Door, request: dict[str, Any]) -> int:
    """Run a command with this process's standard streams, over pipes. Returns its exit code; Ctrl-C kills it."""
    stdin, feed = os.pipe()
    ends = [os.pipe() for _ in range(2)]
    ended, tell = os.pipe()
    try:
        number = door.send(_marked(request), [stdin, *(write for _, write in ends)])
    finally:
        for fd in (stdin, *(write for _, write in ends)):
            os.close(fd)
    # Not waited for: it may be waiting for somebody to type.
    threading.Thread(target=_feed, args=(feed,), daemon=True).start()
    drains = [
        threading.Thread(target=_drain, args=(read, target, ended), daemon=True)
        for target, (read, _) in enumerate(ends, 1)
    ]
    for thread in drains:
        thread.start()
    try:
        reply = door.receive(timeout=None)
        while reply.get("id") != number:
            reply = door.receive(timeout=None)
    except KeyboardInterrupt:
        door.ask({"op": "kill", "label": request["label"], "target": number})
        raise
    finally:
        os.close(tell)
    for thread in drains:
        thread.join()
    return _code(reply, request)


def _feed(target: int) -> None:
    """Standard input to the command, until either has enough."""
    with contextlib.suppress(OSError, ValueError):
        while sys.stdin is not None and (data := os.read(sys.stdin.fileno(), CHUNK)):
            _write(target, data)
    os.close(target)


def _drain(source: int, target: int, ended: int) -> None:
    """One output stream of the command. What it started in the background may hold it open: that is not waited for."""
    with contextlib.suppress(OSError):
        while True:
            ready, _, _ = select.select([source, ended], [], [])
            if source in ready:
                data = os.read(source, CHUNK)
                if not data:
                    break
                _write(target, data)
            elif ended in ready:
                break
    os.close(source)  # who still writes learns that nobody reads


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _marked(request: dict[str, Any]) -> dict[str, Any]:
    """With what tells the command's processes from others in the sandbox, so that they can be killed together."""
    mark = f"{request['label']}.shell.{os.getpid()}"
    return {**request, "mark": mark, "env": {**request["env"], MARK: mark}}


def _code(reply: dict[str, Any], request: dict[str, Any]) -> int:
    """Exit code of what ended, or of what did not start, as shells have them.

    Raises:
        SandboxError: The sandbox is gone.
        UsageError: There is no such user in it.
    """
    if "lost" in reply:
        raise SandboxError(
            f"The sandbox {request['label']} is gone: {TEXTS.get(reply['lost'], reply['lost'])}."
        )
    for trouble in reply.get("troubles", ()):
        note(f"[sandbox] {trouble}: {TEXTS[trouble]}")
    if "errno" not in reply:
        code: int = reply["code"]
        return code if code >= 0 else 128 - code
    ex = KeeperRefusedError(reply["errno"], reply["stage"], reply.get("detail", ""))
    match ex.stage:
        case "user":
            raise UsageError(
                f"There is no user {ex.detail!r} in the sandbox.", remedy="--user root, or a number"
            )
        case "single":
            raise UsageError(
                f"There is one user in this sandbox, so nothing runs as {ex.detail!r}.",
                remedy="More than one need Hawk to be started by root.",
            )
        case "exec":
            name = request["argv"][0]
            note(f"{name}: {'not found' if ex.number == errno.ENOENT else os.strerror(ex.number)}")
            return NOT_FOUND if ex.number == errno.ENOENT else NOT_STARTED
        case "cwd":
            note(f"{ex.detail}: {os.strerror(ex.number)}")
            return NOT_STARTED
    raise SandboxError(f"The command did not start: {ex.message}") from ex
