"""What becomes of a worker's attempts, written down as each ends: `attempts/<pair>/<k>/`.

Once its result is there an attempt is final, whatever is killed afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path

import msgspec
from inspect_ai.util import SandboxEnvironment

from hawk.bridge.attempts import Attempt, interrupt
from hawk.bridge.ended import Ended, verdict_on
from hawk.core.attempts.outcome import Verdict
from hawk.core.attempts.results import Result, SandboxRecord, Workspace
from hawk.core.plan import Plan, PlanTask
from hawk.core.snapshot import SandboxFacts
from hawk.errors import HawkError, StorageError
from hawk.runner.gate import Gate, PairKey, pairs_of
from hawk.runner.records import result_of
from hawk.runner.workerhome import Share
from hawk.sandbox.export import Exported, export_workspace
from hawk.sandbox.pod.provider import PodSandbox
from hawk.sandbox.provider import BubblewrapSandbox
from hawk.store.attempts import read_results, workspace_draft, write_result
from hawk.store.rundir import RunDir

EXPORT_TIME = 120.0
"""Seconds that keeping one workspace may take; what is not done then is not kept."""

CANCELED_EXPORT_TIME = 3.0
"""The same for an attempt that was canceled: its sandbox is to be gone in five."""

MAX_WORKSPACE = 1 << 30
"""Bytes of a workspace that are kept, before it is packed."""

PODS_AT_ONCE = 4
"""Workspaces of pods that are read at once: each is a stream through the cluster's API."""

TURN_TIME = 600.0
"""Seconds for which one waits for its turn."""

_log = logging.getLogger(__name__)

Key = tuple[PairKey, int]


class Evidence:
    """The watcher over a worker's attempts: lets them start in order, keeps what became of them.

    Args:
        plan: The job's.
        share: Tasks of this worker, and how many attempts it may run at once.
        worker: Index of this worker.
    """

    def __init__(self, run_dir: RunDir, plan: Plan, share: Share, worker: int) -> None:
        self._run_dir, self._plan, self._worker = run_dir, plan, worker
        tasks = [task for task in plan.tasks if task.identifier in share.identifiers]
        self._tasks: dict[PairKey, PlanTask] = dict(pairs_of(tasks))
        self._kept: dict[Key, tuple[Path, Workspace] | str] = {}
        self._sandboxes: dict[Key, SandboxRecord] = {}
        self.gate = Gate(
            plan.order,
            tasks,
            share.slots or plan.share(tasks),
            done=self._done(),
            interrupt=interrupt,
            excluded=[((task, sample), attempt) for task, sample, attempt in plan.excluded],
        )

    def _done(self) -> dict[Key, bool]:
        keys = {task.pair(sample_id): key for key, task in self._tasks.items() for sample_id in [key[1]]}
        results, _ = read_results(self._run_dir)
        return {
            (keys[result.pair], result.attempt): result.passed
            for result in results
            if result.pair in keys and result.outcome.produced
        }

    # --- called by the bridge

    def attempt(self, identifier: str, sample_id: str, epoch: int) -> Attempt:
        return self.gate.turn((identifier, sample_id), epoch)

    def begun(self, identifier: str, sample_id: str, epoch: int) -> None:
        self.gate.begun((identifier, sample_id), epoch)

    async def scoring(
        self,
        identifier: str,
        sample_id: str,
        epoch: int,
        sandboxes: dict[str, SandboxEnvironment],
        canceled: bool,
    ) -> None:
        """Keep the workspace as the agent left it, before scorers touch it."""
        key = ((identifier, sample_id), epoch)
        main = next(iter(sandboxes.values()), None)
        if main is None:
            return
        ours = ours_of(main)
        if ours is None:  # what is in it can't be kept
            self._sandboxes[key] = SandboxRecord("other")
            return
        if not self._note(key, provider_of(ours), ours.group.facts()):
            return
        patience = CANCELED_EXPORT_TIME if canceled else EXPORT_TIME
        if isinstance(ours, PodSandbox):
            await self._keep_pod(key, ours, patience)
        else:
            group = ours.group
            await self._keep(
                key, lambda draft: export_workspace(group, draft, max_bytes=MAX_WORKSPACE), patience
            )

    def _note(self, key: Key, provider: str, facts: SandboxFacts) -> bool:
        """Note what there is to say of a sandbox. Returns whether there is still something to be kept in it."""
        self._drop(key)
        self._sandboxes[key] = SandboxRecord(provider, facts.label, facts.troubles, facts.lost)
        if facts.lost is not None:
            self._kept[key] = f"its sandbox was lost: {facts.lost}"
        return facts.lost is None

    async def ended(self, identifier: str, eval_id: str, result: Ended) -> None:
        """Decide what it came to, tell the gate, write it down."""
        pair, epoch = (identifier, result.sample_id), result.epoch
        task = self._tasks.get(pair)
        if task is None:
            return
        record = self._result(task, eval_id, result, self._judged(task, result))
        if record.passed:
            self.gate.passed(pair, epoch)
        kept = self._kept.pop((pair, epoch), None)
        draft = kept[0] if isinstance(kept, tuple) else None
        try:
            await asyncio.to_thread(write_result, self._run_dir, record, workspace=draft)
        except StorageError as ex:  # the log has it; the supervisor writes it later, or the report says so
            _log.warning("result of %s, attempt %d, not written: %s", record.pair, epoch, ex)

    # --- in detail

    def _judged(self, task: PlanTask, result: Ended) -> Verdict:
        return verdict_on(result, self._plan.rules.pass_rule)

    async def _keep_pod(self, key: Key, pod: PodSandbox, patience: float) -> None:
        """Keep a pod's workspace when it is its turn."""
        turn = patience if patience == CANCELED_EXPORT_TIME else TURN_TIME
        try:
            async with asyncio.timeout(turn):
                await self._turns_of_pods.acquire()
        except TimeoutError:
            self._kept[key] = f"too many others were being kept for {turn:.0f} s"
            return
        try:
            await self._keep(
                key,
                lambda draft: pod.keep_workspace(draft, max_bytes=MAX_WORKSPACE, seconds=patience),
                2 * patience,  # it ends by itself, with what has come by then
            )
        finally:
            self._turns_of_pods.release()

    @cached_property
    def _turns_of_pods(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(PODS_AT_ONCE)

    async def _keep(self, key: Key, export: Callable[[Path], Awaitable[Exported]], patience: float) -> None:
        (identifier, sample_id), epoch = key
        pair = self._tasks[identifier, sample_id].pair(sample_id)
        try:
            draft = await asyncio.to_thread(workspace_draft, self._run_dir, pair, epoch)
            async with asyncio.timeout(patience):
                done = await export(draft)
        except TimeoutError:
            self._kept[key] = f"it could not be kept within {patience:.0f} s"
        except (HawkError, OSError) as ex:
            self._kept[key] = str(ex)
        else:
            found = Workspace(done.files, done.bytes, done.size, done.skipped, done.truncated)
            self._kept[key] = draft, found

    def _drop(self, key: Key) -> None:
        """Forget the workspace of an earlier try of the same attempt."""
        kept = self._kept.pop(key, None)
        if isinstance(kept, tuple):
            with contextlib.suppress(OSError):
                kept[0].unlink()

    def _result(self, task: PlanTask, eval_id: str, result: Ended, verdict: Verdict) -> Result:
        key = ((task.identifier, result.sample_id), result.epoch)
        kept = self._kept.get(key)
        record = result_of(task, result, verdict, self._plan)
        return msgspec.structs.replace(
            record,
            reason=self.gate.reason(*key) if result.canceled else record.reason,
            sandbox=self._sandboxes.pop(key, None),
            workspace=kept[1] if isinstance(kept, tuple) else None,
            workspace_error=kept if isinstance(kept, str) else None,
            worker=self._worker,
            eval_id=eval_id,
        )


def ours_of(sandbox: SandboxEnvironment) -> PodSandbox | BubblewrapSandbox | None:
    """The sandbox as one of a provider of ours; None of another's."""
    with contextlib.suppress(TypeError):
        return sandbox.as_type(PodSandbox)
    with contextlib.suppress(TypeError):
        return sandbox.as_type(BubblewrapSandbox)
    return None


def provider_of(sandbox: PodSandbox | BubblewrapSandbox) -> str:
    """What `SandboxRecord.type` says of it."""
    return "pod" if isinstance(sandbox, PodSandbox) else "bubblewrap"
