"""Results that a worker did not live to write: from the logs, which know of every attempt that ended.

A worker writes a result just after its log. One that is killed between the two leaves an attempt that is finished, will
not run again, and has no result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from hawk.bridge.ended import Ended, ended, verdict_on
from hawk.bridge.evallog import LogCache, LogUnreadable, list_logs
from hawk.bridge.logformat import SampleSummary
from hawk.bridge.loggedsample import read_logged_sample
from hawk.core.attempts.policy import not_needed
from hawk.core.attempts.results import Outcome, Pair, Result, Scored, Usage
from hawk.core.plan import Plan, PlanTask
from hawk.core.status import AttemptKey
from hawk.runner import rows
from hawk.runner.records import result_of
from hawk.runner.rescore import Source, excluded_without_result, write_carried, write_excluded
from hawk.runner.wire import RUN
from hawk.runner.workerhome import Share, directory
from hawk.store.attempts import EARLIER, RESULT, attempt_directory, read_results, write_result
from hawk.store.locks import holder
from hawk.store.rundir import RunDir, read_json


def write_missing(
    run_dir: RunDir, plan: Plan, summaries: Mapping[str, Mapping[AttemptKey, SampleSummary]]
) -> int:
    """Write the results of attempts that have ended and have none of their own; returns how many.

    Those of tasks that a worker runs are left to it: it may be about to write them.

    Args:
        summaries: Of attempts that ended, by task identifier.

    Raises:
        StorageError: One can't be written.
    """
    held = _held(run_dir)
    over = [
        (task, summary)
        for task in plan.tasks
        if task.identifier not in held
        for summary in summaries.get(task.identifier, {}).values()
    ]
    if not over and not plan.excluded:
        return 0
    results, _ = read_results(run_dir)
    known = {(result.pair, result.attempt): result for result in results}
    lacking = list(_lacking(over, known, run_dir))
    logs = _Logs(run_dir.logs if lacking and plan.rescore is None else None)
    missing = _with_reasons([_result(task, summary, logs, plan) for task, summary in lacking], known, plan)
    excluded = excluded_without_result(plan, known)
    if plan.rescore is not None and (missing or excluded):
        source = Source(run_dir, plan.rescore)
        for result in missing:
            write_carried(run_dir, source, result)
        write_excluded(run_dir, plan, source, excluded)
    else:
        for result in missing:
            write_result(run_dir, result)
    return len(missing)


def _held(run_dir: RunDir) -> set[str]:
    """Identifiers of the tasks of workers that live."""
    held: set[str] = set()
    for index in run_dir.worker_indices():
        home = directory(run_dir, RUN, index)
        if holder(home / "lock") is not None and (share := read_json(home / "worker.json", Share)):
            held.update(share.identifiers)
    return held


def _lacking(
    over: Iterable[tuple[PlanTask, SampleSummary]],
    known: Mapping[tuple[Pair, int], Result],
    run_dir: RunDir,
) -> Iterator[tuple[PlanTask, SampleSummary]]:
    for task, summary in over:
        if summary.completed_at is None:
            continue  # Inspect recovered it from a worker that was killed: it was in flight, and runs again
        key = (task.pair(summary.id), summary.epoch)
        before = known.get(key)
        if before is None or (before.uuid != summary.uuid and summary.uuid not in _set_aside(run_dir, *key)):
            yield task, summary


class _Logs:
    """Whole records of attempts, from the newest log that has them.

    Args:
        folder: Of the logs; None: there are none to be read.
    """

    def __init__(self, folder: Path | None) -> None:
        cache, self._found = LogCache(), dict[str, Path]()
        for path in list_logs(folder) if folder is not None else ():
            try:
                rows_there = cache.read(path)[1]
            except LogUnreadable:
                continue
            self._found.update({row.uuid: path for row in rows_there if row.uuid and row.completed_at})

    def read(self, summary: SampleSummary) -> Ended | None:
        """None for one that only a buffer has, or that can't be read."""
        path = self._found.get(summary.uuid or "")
        if path is None:
            return None
        try:
            return ended(read_logged_sample(path, summary.id, summary.epoch), {})
        except LogUnreadable:
            return None


def _result(task: PlanTask, summary: SampleSummary, logs: _Logs, plan: Plan) -> Result:
    whole = logs.read(summary)
    if whole is None:
        record = _from_summary(task, summary, plan)
    else:
        record = result_of(task, whole, verdict_on(whole, plan.rules.pass_rule), plan)
    return msgspec.structs.replace(
        record,
        workspace_error="its worker was killed before the workspace was in its place",
        generation=plan.generation,
    )


def _from_summary(task: PlanTask, summary: SampleSummary, plan: Plan) -> Result:
    """As far as a summary goes: it does not say in which phase an error was, nor whether the agent did anything."""
    verdict = rows.verdict(summary, plan.rules.pass_rule)
    tokens = Usage(input=summary.input_tokens, output=summary.output_tokens, total=summary.total_tokens)
    return Result(
        pair=task.pair(summary.id),
        attempt=summary.epoch,
        outcome=verdict.outcome,
        scores={name: Scored(value) for name, value in summary.scores.items()},
        score=verdict.score,
        started_at=summary.started_at,
        ended_at=summary.completed_at,
        duration=summary.total_time,
        working=summary.working_time,
        usage={task.model: tokens} if summary.total_tokens else {},
        error=verdict.error,
        reason=verdict.reason,
        limit=summary.limit,
        retries=summary.retries or 0,
        fingerprint=plan.fingerprint,
        uuid=summary.uuid,
    )


def _with_reasons(
    missing: list[Result], known: Mapping[tuple[Pair, int], Result], plan: Plan
) -> list[Result]:
    """Canceled attempts with the reason that their worker had for it."""
    if not plan.order.stops_early:
        return missing
    passed: dict[Pair, int] = {}
    for result in [*known.values(), *missing]:
        if result.passed:
            passed[result.pair] = min(result.attempt, passed.get(result.pair, result.attempt))
    return [
        msgspec.structs.replace(result, reason=not_needed(passed[result.pair]))
        if result.outcome is Outcome.CANCELED and result.pair in passed
        else result
        for result in missing
    ]


class _Earlier(msgspec.Struct):
    uuid: str | None = None


def _set_aside(run_dir: RunDir, pair: Pair, attempt: int) -> set[str | None]:
    """The uuids of an attempt's earlier tries: clocks jump, so times do not tell which of two is the later."""
    found = set()
    for file in (attempt_directory(run_dir, pair, attempt) / EARLIER).glob(f"[0-9]*/{RESULT}"):
        with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            found.add(msgspec.json.decode(file.read_bytes(), type=_Earlier).uuid)
    return found
