"""A process's threads as `py-spy` sees them from outside: also while C code holds the interpreter.

Linux only; it reads another process's memory, which a machine may forbid.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hawk.core.recorder.stacks import Frame, Thread
from hawk.core.text import one_line

PATIENCE = 10.0
"""Seconds a look may take; native frames of a big process take one or two."""

OWN_THREADS = "hawk-"
"""How the names of the recorder's own threads begin, which say nothing about the evaluation."""


class _Frame(msgspec.Struct):
    name: str
    filename: str
    line: int = 0


class _Thread(msgspec.Struct):
    os_thread_id: int | None = None
    thread_name: str | None = None
    active: bool = False
    owns_gil: bool = False
    frames: list[_Frame] = []


def dump(pid: int, *, native: bool = False, prefix: Sequence[str] = ()) -> list[Thread] | str:
    """The threads of a process, or in one line why they can't be seen.

    Args:
        native: Frames of C code too. The process is held meanwhile; without, it runs on.
        prefix: What the command is started by.
    """
    program = find()
    if program is None:
        return "py-spy is not installed"
    how = ["--native"] if native else ["--nonblocking"]
    try:
        done = subprocess.run(
            [*prefix, program, "dump", "--json", *how, "--pid", str(pid)],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode == 0:
            return [thread for thread in _threads(done.stdout) if not thread.name.startswith(OWN_THREADS)]
    except subprocess.TimeoutExpired:
        return f"py-spy got no answer from the kernel within {PATIENCE:.0f} s"
    except OSError as ex:
        return f"py-spy can't be started: {ex.strerror}"
    except msgspec.DecodeError:
        return "py-spy answered nothing that can be read"
    return _reason(done.stderr.decode("utf-8", "replace"))


def find() -> str | None:
    """Where py-spy is: beside this interpreter, or on the PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def _threads(output: bytes) -> list[Thread]:
    return [
        Thread(
            name=thread.thread_name or "without a name",
            id=thread.os_thread_id or 0,
            frames=tuple(Frame(f.filename, f.line, f.name) for f in reversed(thread.frames)),
            idle=not thread.active,
            gil=thread.owns_gil,
        )
        for thread in msgspec.json.decode(output, type=list[_Thread])
    ]


def _reason(said: str) -> str:
    lower = said.lower()
    if "permission denied" in lower or "operation not permitted" in lower:
        return (
            "this machine forbids to look into another process (ptrace): it takes root, CAP_SYS_PTRACE or "
            "kernel.yama.ptrace_scope=0"
        )
    if "no such process" in lower or "failed to open process" in lower:
        return "the process has gone"
    return one_line(said.removeprefix("Error: "), 200) or "py-spy failed without a word"
