"""The job whose attempts are scored again, as the job that does so sees it: its results and what it kept.

The supervisor imports it: nothing heavy here.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path

import msgspec

from hawk.core.attempts.rescored import Key, carried, differences, left_as_it_was, scorable
from hawk.core.attempts.results import Pair, Result, Workspace
from hawk.core.plan import Plan, PlanTask
from hawk.errors import ConfigError
from hawk.store.attempts import WORKSPACE, attempt_directory, read_results, workspace_draft, write_result
from hawk.store.borrowed import other_job, take_over
from hawk.store.rundir import RunDir, storage_error


class Source:
    """A job that has ended, read once.

    Args:
        run_dir: Of the job that scores again; the source lies beside it, or what a pod was given of that lies within.
        job_id: Id of the source.
    """

    def __init__(self, run_dir: RunDir, job_id: str) -> None:
        self.job_id = job_id
        self.run_dir = other_job(run_dir, job_id)
        results, self.problems = read_results(self.run_dir)
        self._results: dict[Key, Result] = {(result.pair, result.attempt): result for result in results}

    def result(self, pair: Pair, attempt: int) -> Result | None:
        """What came of an attempt there; None: nothing."""
        return self._results.get((pair, attempt))

    def excluded(self, tasks: Iterable[PlanTask]) -> tuple[list[tuple[str, str, int]], list[str]]:
        """Planned attempts that can't be scored again, as `Plan.excluded` has them, and what is to be said about that.

        Raises:
            ConfigError: There is nothing else.
        """
        planned = {
            (task.pair(sample_id), attempt): (task.identifier, sample_id, attempt)
            for task in tasks
            for sample_id in task.sample_ids
            for attempt in range(1, task.epochs + 1)
        }
        kept = {key: None for key, result in self._results.items() if scorable(result)}
        left_out = [name for key, name in planned.items() if key not in kept]
        if len(left_out) == len(planned):
            raise ConfigError(
                f"{self.job_id} has no result of any attempt that this eval set would score again.",
                remedy=f"It must describe the same tasks, agents and models; see them with: hawk report {self.job_id}",
            )
        return left_out, [*differences(planned, kept, self.job_id), *self.problems]

    def carried(self, result: Result) -> Result:
        """A new result with what its attempt took; one that the source knows nothing of stays as it is."""
        old = self.result(result.pair, result.attempt)
        return result if old is None else carried(result, old, self.job_id)

    def take_workspace(
        self, run_dir: RunDir, pair: Pair, attempt: int
    ) -> tuple[Path, Workspace] | str | None:
        """The workspace that was kept of an attempt, as a draft among another job's: what it holds; or why there is none.

        It is the same file under another name where the disk can do that, else a copy.

        Raises:
            StorageError: It can't be taken over.
        """
        old = self.result(pair, attempt)
        if old is None or old.workspace is None:
            return None if old is None else old.workspace_error
        file = self.workspace(pair, attempt)
        if not file.is_file():
            return f"it is not in {self.job_id} any more"
        draft = workspace_draft(run_dir, pair, attempt)
        try:
            take_over(file, draft)
        except OSError as ex:
            raise storage_error(draft, ex) from ex
        return draft, old.workspace

    def workspace(self, pair: Pair, attempt: int) -> Path:
        """Where the source keeps what an attempt left, there or not."""
        return attempt_directory(self.run_dir, pair, attempt) / WORKSPACE


def write_carried(run_dir: RunDir, source: Source, result: Result) -> None:
    """Write the result of an attempt that was scored again, with what it took and what was kept of it.

    Raises:
        StorageError: It can't be written.
    """
    kept = source.take_workspace(run_dir, result.pair, result.attempt)
    draft, workspace = kept if isinstance(kept, tuple) else (None, None)
    why = kept if isinstance(kept, str) else None
    record = msgspec.structs.replace(source.carried(result), workspace=workspace, workspace_error=why)
    write_result(run_dir, record, workspace=draft)


def excluded_without_result(plan: Plan, known: Container[Key]) -> list[Key]:
    """Attempts that are not scored again and have no result yet.

    Args:
        known: Those that have one.
    """
    if not plan.excluded:
        return []
    tasks = {task.identifier: task for task in plan.tasks}
    keys = [(tasks[identifier].pair(sample), attempt) for identifier, sample, attempt in plan.excluded]
    return [key for key in keys if key not in known]


def write_excluded(run_dir: RunDir, plan: Plan, source: Source, keys: Iterable[Key]) -> None:
    """Write the results of attempts that are not scored again.

    Without them a pair whose only result has changed from pass to fail would count as undecided.

    Raises:
        StorageError: One can't be written.
    """
    for pair, attempt in keys:
        old = source.result(pair, attempt)
        result = left_as_it_was(pair, attempt, old, source.job_id, generation=plan.generation)
        write_result(run_dir, result)
