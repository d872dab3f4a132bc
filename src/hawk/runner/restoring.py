"""A worker that scores again what the attempts of an earlier job left: puts each back, and writes down its new scores."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from inspect_ai.util import SandboxEnvironment

from hawk.bridge.attempts import watch
from hawk.bridge.ended import Ended, why_unscored
from hawk.bridge.evallog import LogUnreadable
from hawk.bridge.keptsample import KeptSample, Place, find_samples, read_kept_sample
from hawk.bridge.restored import RestorationError, restore_instead_of_solving, without_sandbox
from hawk.core.attempts.outcome import Verdict, judge
from hawk.core.attempts.results import Failure, Outcome, Result
from hawk.core.plan import Plan, PlanTask
from hawk.errors import ConfigError, StorageError
from hawk.runner.evidence import Evidence, Key, ours_of, provider_of
from hawk.runner.rescore import Source
from hawk.runner.workerhome import Share
from hawk.sandbox.pod.provider import PodSandbox
from hawk.sandbox.provider import BubblewrapSandbox
from hawk.sandbox.restore import RestoreError, restore_workspace
from hawk.store.rundir import RunDir

RESTORE_TIME = 600.0
"""Seconds that reading one attempt's transcript, or putting its workspace back, may take."""

AT_ONCE = 4
"""Attempts that are put back at once: a long transcript takes some hundred MiB while it is read."""


def watch_restored(run_dir: RunDir, plan: Plan | None, share: Share | None, worker: int) -> None:
    """Have attempts of this process put back and scored, whatever the definition says of agents.

    Raises:
        ConfigError: There is no plan: nothing may run then.
    """
    if plan is None or share is None or plan.rescore is None:
        raise ConfigError(f"There is no plan by which {run_dir.job_id} scores attempts again.")
    evidence = Rescored(run_dir, plan, share, worker, Source(run_dir, plan.rescore))
    watch(evidence)
    restore_instead_of_solving(evidence)


class Rescored(Evidence):
    """The watcher over attempts that are scored again, and who puts them back.

    Args:
        source: The job that they are of.
    """

    def __init__(self, run_dir: RunDir, plan: Plan, share: Share, worker: int, source: Source) -> None:
        super().__init__(run_dir, plan, share, worker)
        self._source = source
        self._back: set[Key] = set()

    # --- putting back

    async def state(self, identifier: str, sample_id: str, epoch: int) -> KeptSample:
        old = self._old(((identifier, sample_id), epoch))
        self._back.discard(((identifier, sample_id), epoch))  # an earlier try's
        try:
            async with self._turns, asyncio.timeout(RESTORE_TIME):
                place = (await self._places()).get(old.uuid or "")
                if place is None:
                    raise RestorationError(f"the logs of {self._source.job_id} do not have its transcript")
                return await asyncio.to_thread(read_kept_sample, place)
        except LogUnreadable as ex:
            raise RestorationError(str(ex)) from ex
        except TimeoutError:
            raise RestorationError(f"its transcript could not be read within {RESTORE_TIME:.0f} s") from None

    async def sandboxes(
        self, identifier: str, sample_id: str, epoch: int, sandboxes: Mapping[str, SandboxEnvironment]
    ) -> None:
        old = self._old(((identifier, sample_id), epoch))
        file = self._source.workspace(old.pair, old.attempt)
        if old.workspace is None or not file.is_file():
            why = old.workspace_error or "none was kept"
            without_sandbox(
                sandboxes, f"there is no workspace of this attempt in {self._source.job_id}: {why}"
            )
            return
        ours = ours_of(next(iter(sandboxes.values())))
        if ours is None or (old.sandbox is not None and old.sandbox.type != provider_of(ours)):
            without_sandbox(sandboxes, "its workspace can't be put back into a sandbox of another provider")
            return
        try:
            async with self._turns, asyncio.timeout(RESTORE_TIME):
                await _put_back(ours, file, whole=not old.workspace.truncated)
        except RestoreError as ex:
            raise RestorationError(str(ex)) from ex
        except TimeoutError:
            raise RestorationError(
                f"its workspace could not be put back within {RESTORE_TIME:.0f} s"
            ) from None

    def restored(self, identifier: str, sample_id: str, epoch: int) -> None:
        self._back.add(((identifier, sample_id), epoch))

    def _old(self, key: Key) -> Result:
        (identifier, sample_id), epoch = key
        task = self._tasks.get((identifier, sample_id))
        old = None if task is None else self._source.result(task.pair(sample_id), epoch)
        if old is None:
            raise RestorationError(f"{self._source.job_id} has no result of it")
        return old

    @cached_property
    def _turns(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(AT_ONCE)

    @cached_property
    def _finding(self) -> asyncio.Task[dict[str, Place]]:
        return asyncio.create_task(asyncio.to_thread(find_samples, self._source.run_dir.logs))

    async def _places(self) -> dict[str, Place]:
        return await asyncio.shield(self._finding)

    # --- called by the bridge

    async def scoring(
        self,
        identifier: str,
        sample_id: str,
        epoch: int,
        sandboxes: dict[str, SandboxEnvironment],
        canceled: bool,
    ) -> None:
        """Take over the workspace as the agent left it: scorers have not touched that one."""
        key = ((identifier, sample_id), epoch)
        pair = self._tasks[identifier, sample_id].pair(sample_id)
        self._drop(key)
        try:
            kept = await asyncio.to_thread(self._source.take_workspace, self._run_dir, pair, epoch)
        except StorageError as ex:
            kept = str(ex)
        if kept is not None:
            self._kept[key] = kept

    async def ended(self, identifier: str, eval_id: str, result: Ended) -> None:
        await super().ended(identifier, eval_id, result)
        self._back.discard(((identifier, result.sample_id), result.epoch))

    # --- in detail

    def _judged(self, task: PlanTask, result: Ended) -> Verdict:
        """By its new scores, and by the limit that ended it then."""
        key = ((task.identifier, result.sample_id), result.epoch)
        old = self._source.result(task.pair(result.sample_id), result.epoch)
        error = result.error
        if error is None and not result.canceled and key not in self._back:
            error = Failure("NotRestored", "a limit ended it before what it had left was back")
        ended_by_limit = old is not None and old.limit is not None and old.outcome is not Outcome.SCORER_ERROR
        rule = self._plan.rules.pass_rule
        return judge(
            rule,
            values=result.values,
            error=error,
            canceled=result.canceled,
            limit=old.limit if old is not None else None,
            limit_reason=old.reason if old is not None and ended_by_limit else result.limit_reason,
            unscored=why_unscored(result, rule),
        )

    def _result(self, task: PlanTask, eval_id: str, result: Ended, verdict: Verdict) -> Result:
        return self._source.carried(super()._result(task, eval_id, result, verdict))


async def _put_back(ours: PodSandbox | BubblewrapSandbox, file: Path, *, whole: bool) -> None:
    if isinstance(ours, PodSandbox):
        await ours.put_back(file, whole=whole, seconds=RESTORE_TIME)
    else:
        await restore_workspace(ours.group, file, whole=whole)
