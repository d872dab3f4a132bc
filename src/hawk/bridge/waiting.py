"""What a task of Inspect's waits for, read off the functions in its await chain.

Names of Inspect's functions, private ones too: a name that has changed costs a label, no more. Imports no Inspect.
"""

from __future__ import annotations

from collections.abc import Sequence

from hawk.core.recorder.stacks import Frame

_LABELS: tuple[tuple[str, str, str], ...] = (
    ("inspect_ai/model/_retry.py", "_sleep", "the next try of a model call that failed"),
    ("inspect_ai/approval/_apply.py", "apply_tool_approval", "an approval"),
    ("inspect_ai/util/_sandbox/events.py", "exec", "a command in a sandbox"),
    ("inspect_ai/util/_sandbox/events.py", "read_file", "a file from a sandbox"),
    ("inspect_ai/util/_sandbox/events.py", "write_file", "a file for a sandbox"),
    ("inspect_ai/util/_subprocess.py", "subprocess", "a command on the worker's machine"),
    ("inspect_ai/util/_concurrency.py", "concurrency", "a place among those that may run at once"),
    ("inspect_ai/util/_sandbox/context.py", "init_sandbox_environments_sample", "its sandbox"),
    ("inspect_ai/model/_model.py", "generate", "a model's answer"),
    ("inspect_ai/model/_call_tools.py", "call_tool", "a tool"),
    ("inspect_ai/scorer/_metric.py", "score", "a scorer"),
    ("hawk/evals/scoring.py", "score", "a scorer"),
    ("hawk/bridge/attempts.py", "admitted", "its turn"),
)
"""(end of the file's path, function, what is waited for); of several in one chain, the innermost."""

_HELPERS = frozenset({
    ("inspect_ai/util/_limit.py", "run"),
    ("inspect_ai/hooks/_hooks.py", "_emit_loop"),
    ("inspect_ai/model/_call_tools.py", "run_one"),
    ("inspect_ai/util/_throttle.py", "_deferred_fire"),
    ("inspect_ai/log/_transcript.py", "run"),
})  # fmt: skip
"""Functions that tasks beside an attempt's own run: they watch it, and say nothing of what it waits for."""


def label(frames: Sequence[Frame]) -> str:
    """What a chain waits for, in words that follow "waits for"; empty where nothing is known of it."""
    for frame in reversed(frames):
        name = frame.function.rpartition(".")[2]
        for file, function, words in _LABELS:
            if name == function and frame.file.endswith(file):
                return words
    return ""


def is_helper(frames: Sequence[Frame]) -> bool:
    """Whether a task runs beside an attempt's own work."""
    return any(
        frame.function.rpartition(".")[2] == function and frame.file.endswith(file)
        for frame in frames[:2]
        for file, function in _HELPERS
    )
