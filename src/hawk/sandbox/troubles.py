"""Limits of a sandbox that were hit, said as what they are: to the model, the sample's transcript, the status."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hawk.sandbox.box import Box

TEXTS = {
    "oom_killed": "a process was killed: the sandbox's memory limit was reached",
    "disk_full": "the sandbox may not write more: its workspace limit was reached",
    "too_many_processes": "a process could not be started: the sandbox's limit was reached",
    "file_size": "a process was killed: it wrote a file larger than the sandbox may have",
    "cpu_time": "a process was killed: it used all the processor time that one may use",
    "wall_time": "the sandbox was ended: it has lived as long as it may",
}
"""By the name under which the status shows it."""


def record(trouble: str) -> None:
    """Note it in the transcript of the sample that runs, if one does."""
    from inspect_ai.log import transcript

    transcript().info({"sandbox": trouble, "detail": TEXTS[trouble]}, source="hawk")


def told(stderr: str, hit: Iterable[str]) -> str:
    """What a command wrote, and after it the limits that were hit, which are noted too."""
    for trouble in hit:
        separator = "" if not stderr or stderr.endswith("\n") else "\n"
        stderr += f"{separator}[sandbox] {trouble}: {TEXTS[trouble]}\n"
        record(trouble)
    return stderr


def explain_loss(box: Box, reason: str) -> str:
    """Why a sandbox is not there any more."""
    return f"the sandbox {box.label} is gone: {TEXTS.get(reason, reason)}"
