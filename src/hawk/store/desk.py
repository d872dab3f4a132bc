"""The supervisor's desk: a socket at which the server asks for what only a process beside the workers can tell.

One question, one answer, each a JSON document; the end of the question is the end of what is sent.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from hawk.core.recorder.stacks import StackRecord
from hawk.store.rundir import RunDir
from hawk.store.sockets import asked

PATIENCE = 30.0
"""Seconds an answer may take: native frames of several large workers."""


class Question(msgspec.Struct):
    """Ask for the stacks of all workers that live, with native frames or without."""

    native: bool = False


def address(run_base: Path, run_dir: RunDir) -> Path:
    """Where the desk of a job is: a short path, as sockets need."""
    return run_base / f"{hashlib.sha256(str(run_dir.path).encode()).hexdigest()[:12]}.desk"


def ask(run_base: Path, run_dir: RunDir, question: Question) -> list[StackRecord] | None:
    """What the supervisor answers; None when there is none, or it does not answer."""
    try:
        answer = asked(address(run_base, run_dir), msgspec.json.encode(question), PATIENCE)
        return msgspec.json.decode(answer, type=list[StackRecord])
    except (OSError, msgspec.DecodeError):
        return None
