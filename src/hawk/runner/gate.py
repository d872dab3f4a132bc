"""The gate of a worker: its attempts start in their policy's order, and those that are not needed any more are stopped.

The decisions are `core.attempts.dispatch`'s. All of it runs on the worker's event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from hawk.core.attempts.dispatch import Cancel, Dispatcher, Order, Skip, Start
from hawk.core.attempts.policy import Rules
from hawk.core.plan import PlanTask

PairKey = tuple[str, str]
"""(task identifier, sample id)"""

GATHERING = 0.25
"""Seconds without a new attempt after which all are taken to have asked: only then can the longest be first."""

RAMP = 12
"""Attempts that start at once: enough to keep two processors busy."""

RAMP_PATIENCE = 0.5
"""Seconds after which an attempt that is still starting makes room for another: it waits for something else than us."""

AGAIN = 0.05
"""Seconds between tries to interrupt an attempt that is between two states in Inspect."""


class Gate:
    """Attempts of one worker.

    Args:
        rules: The policy.
        tasks: The worker's share of the plan.
        slots: Attempts at once.
        done: Attempts that have a result already, and whether they passed.
        excluded: Attempts that never start.
        interrupt: Cancels an attempt that runs; False when it can't be cancelled at this moment.
    """

    def __init__(
        self,
        rules: Rules,
        tasks: Iterable[PlanTask],
        slots: int,
        *,
        done: Mapping[tuple[PairKey, int], bool],
        interrupt: Callable[[str, str, int], bool],
        excluded: Collection[tuple[PairKey, int]] = (),
    ) -> None:
        self._slots = slots
        self._excluded = frozenset(excluded)
        self._interrupt = interrupt
        self._done = dict(done)
        self._turns: dict[tuple[PairKey, int], asyncio.Future[bool]] = {}
        self._reasons: dict[tuple[PairKey, int], str] = {}
        self._left: set[tuple[PairKey, int]] = set()
        self._cancels: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._expected = self._asked = 0
        self._dispatcher: Dispatcher[PairKey] = Dispatcher(rules, slots, RAMP)
        for task in tasks:
            predictions = task.predictions
            for sample_id in task.sample_ids:
                pair = (task.identifier, sample_id)
                self._dispatcher.expect(pair, task.epochs, predictions.get(sample_id))
                for attempt in range(1, task.epochs + 1):
                    if (pair, attempt) in self._excluded:
                        continue
                    passed = self._done.get((pair, attempt))
                    if passed is None:
                        self._expected += 1
                    else:
                        self._carry_out(self._dispatcher.known(pair, attempt, passed=passed))
        if min(slots, RAMP) < self._expected:
            self._dispatcher.slots = 0  # until all have asked

    def turn(self, pair: PairKey, attempt: int) -> Turn:
        """An attempt's place in the order."""
        return Turn(self, pair, attempt)

    def reason(self, pair: PairKey, attempt: int) -> str | None:
        """Why an attempt was canceled, if the gate did it."""
        return self._reasons.get((pair, attempt))

    def begun(self, pair: PairKey, attempt: int) -> None:
        """An attempt's agent is at work."""
        self._carry_out(self._dispatcher.begun(pair, attempt))

    def passed(self, pair: PairKey, attempt: int) -> None:
        """An attempt has passed: what its pair still runs or plans may not be needed any more."""
        self._carry_out(self._dispatcher.passed(pair, attempt))

    async def _admitted(self, pair: PairKey, attempt: int) -> bool:
        if (pair, attempt) in self._done:
            return True  # Inspect takes it from its log: no slot for that
        if (pair, attempt) in self._excluded:
            return False
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._turns[pair, attempt] = turn
        self._left.discard((pair, attempt))  # of a task that is run again
        self._asked += 1
        self._dispatcher.expect(pair, attempt)  # a dataset may be another than it was when the plan was made
        self._carry_out(self._dispatcher.want(pair, [attempt]))
        if self._dispatcher.slots == 0:
            self._gather()
        return await turn

    def _gather(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._asked >= self._expected:
            self._open()
        else:
            self._timer = asyncio.get_running_loop().call_later(GATHERING, self._open)

    def _open(self) -> None:
        self._dispatcher.slots = self._slots
        self._carry_out(self._dispatcher.fill())

    def _leave(self, pair: PairKey, attempt: int) -> None:
        self._left.add((pair, attempt))
        self._turns.pop((pair, attempt), None)
        if (pair, attempt) not in self._done:
            self._carry_out(self._dispatcher.ended(pair, attempt))

    def _carry_out(self, orders: Iterable[Order[PairKey]]) -> None:
        for order in orders:
            key = (order.pair, order.attempt)
            match order:
                case Start() if (turn := self._turns.get(key)) and not turn.done():
                    turn.set_result(True)
                    asyncio.get_running_loop().call_later(
                        RAMP_PATIENCE, self.begun, order.pair, order.attempt
                    )
                case Skip(reason=reason):
                    self._reasons[key] = reason
                    if (turn := self._turns.get(key)) and not turn.done():
                        turn.set_result(False)
                case Cancel(reason=reason):
                    self._reasons[key] = reason
                    task = asyncio.get_running_loop().create_task(self._cancel(order.pair, order.attempt))
                    self._cancels.add(task)
                    task.add_done_callback(self._cancels.discard)

    async def _cancel(self, pair: PairKey, attempt: int) -> None:
        """Interrupt an attempt; one that is just starting is not known to Inspect for a moment."""
        while (pair, attempt) not in self._left and not self._interrupt(*pair, attempt):  # noqa: ASYNC110
            await asyncio.sleep(AGAIN)  # Inspect tells nobody when it gets to know one


class Turn:
    """One attempt's place in the order."""

    def __init__(self, gate: Gate, pair: PairKey, attempt: int) -> None:
        self._gate, self._pair, self._attempt = gate, pair, attempt

    async def admitted(self) -> bool:
        """Wait for its turn; False: it is not needed any more."""
        return await self._gate._admitted(self._pair, self._attempt)

    def left(self) -> None:
        """It is over, whatever came of it: its slot is free."""
        self._gate._leave(self._pair, self._attempt)


def pairs_of(tasks: Iterable[PlanTask]) -> Iterator[tuple[PairKey, PlanTask]]:
    """Every pair of these tasks, with its task."""
    for task in tasks:
        for sample_id in task.sample_ids:
            yield (task.identifier, sample_id), task
