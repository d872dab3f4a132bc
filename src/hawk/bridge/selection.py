"""Inspect's external-runner protocol as files: which environment variables, which documents.

Capture enumerates an eval set, selection runs a named share of it, overrides say how (inspect_ai
`_eval/eval_set_{manifest,selection,overrides}.py`). JSON only: the supervisor writes these without importing
Inspect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hawk.core.plan import PlanTask

CAPTURE_ENV = "INSPECT_EVAL_SET_CAPTURE"
SELECTION_ENV = "INSPECT_EVAL_SET_SELECTION"
OVERRIDES_ENV = "INSPECT_EVAL_SET_OVERRIDES"
SELECTION_VERSION = 7


class Enumeration(msgspec.Struct):
    """What capture found, and which log of an earlier run each task may resume from.

    Attributes:
        tasks: One entry a (task, agent, model).
        logs: Newest log by task identifier.
        options: Options of `eval_set()` as the definition passed them.
    """

    tasks: list[PlanTask]
    logs: dict[str, str] = {}
    options: dict[str, Any] = {}


def selection(
    eval_set_id: str, tasks: Iterable[PlanTask], resume: Mapping[str, str], overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """The selection document for one worker.

    Args:
        eval_set_id: Stamped into every log.
        tasks: The worker's share.
        resume: Log to resume from, by task identifier.
        overrides: How to run it: `log_dir`, `max_samples`, …
    """
    return {
        "version": SELECTION_VERSION,
        "eval_set_id": eval_set_id,
        "tasks": [
            {
                "identifier": task.identifier,
                "resume": resume.get(task.identifier),
                "registry_name": task.registry_name,
                "args_hash": task.args_hash,
            }
            for task in tasks
        ],
        "overrides": dict(overrides),
    }


def worker_environment(
    data_home: Path, *, capture: Path | None = None, selected: Path | None = None
) -> dict[str, str]:
    """The variables of a worker process, Inspect's data kept in `data_home` (short: sockets live there)."""
    env = {
        "XDG_DATA_HOME": str(data_home),
        "INSPECT_DISPLAY": "none",
        "INSPECT_PY_LOGGER_FORMAT": "json",
        "INSPECT_LOG_LEVEL": "info",
        "INSPECT_TRANSCRIPT_BOUNDED": "1",
        "INSPECT_EVAL_LOG_FILE_PATTERN": "{task}_{id}",
    }
    if capture is not None:
        env[CAPTURE_ENV] = str(capture)
    if selected is not None:
        env[SELECTION_ENV] = str(selected)
    return env
