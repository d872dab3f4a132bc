"""Forked children that do one thing for a test."""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn


def forked(work: Callable[[], Any]) -> int:
    """Start a child that does this and exits with 0; with 1 when it raises. Returns its pid."""
    pid = os.fork()
    if pid == 0:
        _do(work)
    return pid


def _do(work: Callable[[], Any]) -> NoReturn:
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(pid: int) -> int:
    """Wait for a child: its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def answered(work: Callable[[], Any]) -> Any:
    """What this returns, as JSON, when a child does it."""
    ours, theirs = os.pipe()

    def tell() -> None:
        os.write(theirs, json.dumps(work()).encode())

    pid = forked(tell)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        answer = pipe.read()
    assert ended(pid) == 0, "the child failed; its traceback is in the captured output"
    return json.loads(answer)


@contextmanager
def idle(before: Callable[[], Any] = lambda: None) -> Iterator[int]:
    """A child that does `before` and then nothing, until the block ends."""
    ready, told = os.pipe()

    def work() -> None:
        before()
        os.write(told, b"1")
        while True:
            signal.pause()

    pid = forked(work)
    os.close(told)
    try:
        assert os.read(ready, 1) == b"1", "the child failed; its traceback is in the captured output"
        yield pid
    finally:
        os.close(ready)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def drop(uid: int) -> None:
    """Become this user for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
