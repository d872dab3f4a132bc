"""What Inspect does around the gate, with attempts that are coroutines: begins those that are let in, cancels those it knows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any

from hawk.core.attempts.policy import Policy, Rules
from hawk.core.plan import PlanTask
from hawk.runner.gate import Gate, PairKey

Key = tuple[str, int]
"""(sample, attempt)"""

SEQUENTIAL = Rules(Policy.SEQUENTIAL)
PARALLEL = Rules(Policy.PARALLEL)
CANCELING = Rules(Policy.PARALLEL, cancel_siblings=True)
PATIENCE = 60.0


def task(
    samples: Sequence[str], runs: int, predicted: Iterable[float | None] = (), name: str = "t"
) -> PlanTask:
    return PlanTask(name, name, "m", list(samples), runs, predicted=list(predicted))


class Inspect:
    """What Inspect does around the gate: begins attempts that were let in, cancels those it knows.

    Args:
        known_after: Tries of `interrupt` that an attempt is not yet known for.
    """

    def __init__(
        self,
        rules: Rules,
        tasks: PlanTask | list[PlanTask],
        slots: int,
        *,
        done: dict[tuple[PairKey, int], bool] | None = None,
        known_after: int = 0,
        excluded: Collection[tuple[PairKey, int]] = (),
    ) -> None:
        self.tasks = tasks if isinstance(tasks, list) else [tasks]
        self.slots = slots
        self.gate = Gate(
            rules, self.tasks, slots, done=done or {}, interrupt=self.interrupt, excluded=excluded
        )
        self.known = {(sample, k) for (_, sample), k in done or {}}
        self.running: dict[Key, asyncio.Event] = {}
        self.started: list[Key] = []
        self.skipped: list[Key] = []
        self.canceled: list[Key] = []
        self.over: set[Key] = set()
        self.most = 0
        self.tries: dict[Key, int] = {}
        self.known_after = known_after
        self._pairs = {sample: (t.identifier, sample) for t in self.tasks for sample in t.sample_ids}

    def interrupt(self, identifier: str, sample: str, attempt: int) -> bool:
        key = (sample, attempt)
        assert self._pairs[sample] == (identifier, sample)
        self.tries[key] = self.tries.get(key, 0) + 1
        if key not in self.running or self.tries[key] <= self.known_after:
            return False
        self.canceled.append(key)
        self.running[key].set()
        return True

    async def attempt(self, key: Key, seconds: float | None = 0.0, *, passes: bool = False) -> None:
        """One attempt: waits for its turn, works (for ever: None), scores, leaves."""
        pair = self._pairs[key[0]]
        turn = self.gate.turn(pair, key[1])
        try:
            if not await turn.admitted():
                self.skipped.append(key)
                return
            self.started.append(key)
            stop = self.running[key] = asyncio.Event()
            self.most = max(self.most, len(self.running.keys() - self.known))
            self.gate.begun(pair, key[1])
            try:
                async with asyncio.timeout(seconds):
                    await stop.wait()
            except TimeoutError:
                if passes:
                    self.gate.passed(pair, key[1])
        finally:
            self.running.pop(key, None)
            self.over.add(key)
            turn.left()

    def plan(self) -> list[Key]:
        """Every attempt, in the order in which Inspect makes them ask: epoch by epoch."""
        return [(sample, k) for t in self.tasks for k in range(1, t.epochs + 1) for sample in t.sample_ids]


async def all_of(attempts: Iterable[Coroutine[Any, Any, None]]) -> None:
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for attempt in attempts:
            group.create_task(attempt)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)
