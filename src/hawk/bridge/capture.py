"""Enumerating an eval set inside Inspect: its tasks, their sample ids, the logs they may resume from.

Inspect's capture manifest counts samples but does not name them, and pairs nothing with earlier logs. Both
are needed before anything runs: totals come from the plan, and a resumed job must not run finished work
again. The definition is executed once, with the manifest's builder wrapped to see the resolved tasks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inspect_ai._eval import evalset
from inspect_ai._eval.eval_set_manifest import EvalSetCapture
from inspect_ai._eval.task.resolved import resolved_task_names
from inspect_ai._eval.task.util import resolve_task_sample_ids, sample_id_filter
from inspect_ai.log import EvalLog, list_eval_logs, read_eval_log

from hawk.bridge.selection import Enumeration
from hawk.core.plan import PlanTask

_BUILDER = "build_eval_set_capture"
_SUBPROCESSES = "max_subprocesses"


def enumerate_eval_set(define: Callable[[], None], logs: Path, manifest: Path) -> Enumeration:
    """Run a definition in capture mode.

    Args:
        define: Calls `eval_set()` once; the capture variable must name `manifest`.
        logs: Log directory of earlier runs; may be empty or missing.
        manifest: Where Inspect writes its manifest.

    Raises:
        RuntimeError: The definition ended without calling `eval_set()`.
        Exception: Whatever the definition raised.
    """
    seen: list[list[list[str]]] = []
    build = getattr(evalset, _BUILDER)

    def build_and_keep_ids(resolved_tasks: list[Any], args: Any, **kwargs: Any) -> EvalSetCapture:
        names = resolved_task_names(resolved_tasks)
        seen.append(
            [
                _sample_ids(task.task, kwargs.get("limit"), kwargs.get("sample_id"), names)
                for task in resolved_tasks
            ]
        )
        # Of the limits on what runs at once, this one alone is not among the options that Inspect writes down.
        caller = sys._getframe(1).f_locals
        kwargs["options"] = {**kwargs["options"], _SUBPROCESSES: caller[_SUBPROCESSES]}
        captured: EvalSetCapture = build(resolved_tasks, args, **kwargs)
        return captured

    setattr(evalset, _BUILDER, build_and_keep_ids)
    try:
        define()
    except SystemExit as ex:
        if ex.code not in (0, None) or not seen:
            raise
    finally:
        setattr(evalset, _BUILDER, build)
    if not seen:
        raise RuntimeError("The definition ended without calling eval_set().")
    captured = EvalSetCapture.model_validate_json(manifest.read_bytes())
    tasks = [
        PlanTask(
            identifier=task.identifier,
            name=task.display_name or task.name,
            model=task.model,
            agent=task.solver,
            sample_ids=ids,
            epochs=task.epochs,
            registry_name=task.registry_name,
            args_hash=task.args_hash,
            sequence=task.sequence,
        )
        for task, ids in zip(captured.tasks, seen[0], strict=True)
    ]
    return Enumeration(tasks=tasks, logs=newest_logs(logs), options=captured.options)


def newest_logs(logs: Path) -> dict[str, str]:
    """The newest readable log of each task identifier. Later attempts are seeded from earlier ones, so it holds all."""
    if not logs.is_dir():
        return {}
    newest: dict[str, str] = {}
    for info in sorted(list_eval_logs(str(logs), recursive=False), key=lambda i: i.mtime or 0):
        try:
            header = read_eval_log(info, header_only=True)
        except Exception:  # noqa: S112  # a torn log of a dead worker: an older one of the task still serves
            continue
        newest[identifier_of_log(header)] = info.name
    return newest


def identifier_of_log(log: EvalLog) -> str:
    """The task identifier that a log belongs to, the same string that capture gives."""
    return evalset.task_identifier(log, None)


def _sample_ids(task: Any, limit: Any, sample_id: Any, task_names: list[str]) -> list[str]:
    """Ids that will run, by Inspect's own rules: an unset id is the position, `sample_id` may be `task:id`."""
    ids = [sample.id if sample.id is not None else i for i, sample in enumerate(task.dataset, start=1)]
    if sample_id is not None:
        resolved = resolve_task_sample_ids(task.name, sample_id, task_names)
        if not resolved:
            return []
        matcher = sample_id_filter(resolved)
        return [str(i) for i in ids if matcher.matches(i)]
    if isinstance(limit, int):
        ids = ids[:limit]
    elif limit is not None:
        ids = ids[limit[0] : limit[1]]
    return [str(i) for i in ids]
