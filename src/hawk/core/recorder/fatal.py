"""Reads what Python's `faulthandler` writes when a process dies of a fatal signal.

Its form (Python 3.11 to 3.14): `Fatal Python error: <what>`, then for each thread `Thread 0x… [name] (most recent
call first):` or `Current thread 0x… (most recent call first):` and lines of `  File "<file>", line <n> in <function>`.
"""

from __future__ import annotations

import re

from hawk.core.recorder.stacks import Frame, StackRecord, Thread

_ERROR = re.compile(r"^Fatal Python error: (.*)$", re.MULTILINE)
_THREAD = re.compile(r"^(Current thread|Thread) 0x([0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):")
_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$')


def read_fatal(text: str, *, at: str) -> StackRecord | None:
    """The threads at the moment of death; None when the text tells of none.

    Args:
        at: When it was written, ISO 8601.
    """
    error = _ERROR.search(text)
    if error is None:
        return None
    record = StackRecord(at=at, worker=0, pid=0, why="fatal", threads_by="faulthandler", live=False)
    record.ended = error[1].strip()
    frames: list[Frame] = []
    for line in text[error.end() :].splitlines():
        if head := _THREAD.match(line):
            frames = []
            died = head[1] == "Current thread"
            thread = Thread(
                name=head[3] or ("the one that died" if died else "another"), id=0, frames=(), gil=died
            )
            record.threads.append(thread)
        elif (frame := _FRAME.match(line)) and record.threads:
            frames.insert(0, Frame(frame[1], int(frame[2]) if frame[2].isdigit() else 0, frame[3]))
            record.threads[-1].frames = tuple(frames)
    return record
