"""The gate with attempts that are coroutines on a real event loop, and an `interrupt` that stands in for Inspect's."""

from __future__ import annotations

import asyncio
import random

import pytest

from hawk.core.attempts.policy import Policy, Rules
from hawk.runner import gate as gate_module
from tests.runner.gated import CANCELING, PARALLEL, PATIENCE, SEQUENTIAL, Inspect, Key, all_of, task, until


async def test_the_longest_start_first_though_they_ask_in_file_order() -> None:
    samples = [f"s{i}" for i in range(30)]
    seconds = [float((7 * i) % 30) for i in range(30)]
    inspect = Inspect(PARALLEL, task(samples, 1, seconds), slots=3)
    await all_of(inspect.attempt(key) for key in inspect.plan())
    expected = sorted(samples, key=lambda s: -seconds[samples.index(s)])
    assert [sample for sample, _ in inspect.started] == expected
    assert inspect.most <= 3


async def test_the_longest_of_several_tasks_start_first() -> None:
    tasks = [task(["a", "b"], 1, [1.0, 4.0], "one"), task(["c", "d"], 1, [3.0, 2.0], "two")]
    inspect = Inspect(PARALLEL, tasks, slots=1)
    await all_of(inspect.attempt(key) for key in inspect.plan())
    assert [sample for sample, _ in inspect.started] == ["b", "c", "d", "a"]


async def test_attempts_that_never_ask_hold_up_nobody() -> None:
    """A task that could not start: its attempts are planned, and do not come."""
    tasks = [task(["a", "b", "c"], 1, [1.0, 2.0, 3.0], "one"), task(["x", "y"], 1, [9.0, 9.0], "gone")]
    inspect = Inspect(PARALLEL, tasks, slots=1)
    await all_of(inspect.attempt((sample, 1)) for sample in "abc")
    assert [sample for sample, _ in inspect.started] == ["c", "b", "a"]


async def test_attempts_that_come_late_are_let_in() -> None:
    tasks = [task(["a", "b"], 1, [1.0, 2.0], "one"), task(["x", "y"], 1, [9.0, 9.0], "late")]
    inspect = Inspect(PARALLEL, tasks, slots=1)

    async def late(key: Key) -> None:
        await until(lambda: inspect.over >= {("a", 1), ("b", 1)})
        await inspect.attempt(key)

    await all_of([*(inspect.attempt((s, 1)) for s in "ab"), *(late((s, 1)) for s in "xy")])
    assert [sample for sample, _ in inspect.started] == ["b", "a", "x", "y"]


async def test_a_small_job_waits_for_nobody() -> None:
    """There is room for all: nothing is gained by waiting for the others to ask."""
    inspect = Inspect(PARALLEL, task(["a", "b"], 2), slots=4)
    running = asyncio.create_task(inspect.attempt(("b", 2), None))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert inspect.started == [("b", 2)]
    running.cancel()


async def test_one_by_one_a_second_attempt_waits_for_the_first_and_takes_no_slot_meanwhile() -> None:
    inspect = Inspect(SEQUENTIAL, task(["a", "b"], 2), slots=2)
    spans: dict[Key, int] = {}

    async def attempt(key: Key) -> None:
        await inspect.attempt(key, 0.02)
        spans[key] = len(inspect.over)

    await all_of(attempt(key) for key in reversed(inspect.plan()))  # second attempts ask first
    assert inspect.started[:2] == [("b", 1), ("a", 1)] or inspect.started[:2] == [("a", 1), ("b", 1)]
    assert sorted(inspect.started[2:]) == [("a", 2), ("b", 2)]
    assert spans["a", 1] < spans["a", 2]
    assert spans["b", 1] < spans["b", 2]


async def test_one_by_one_a_pass_spares_the_rest_with_a_reason() -> None:
    inspect = Inspect(SEQUENTIAL, task(["a", "b"], 3), slots=6)
    passing = {("a", 1), ("b", 2)}
    await all_of(inspect.attempt(key, passes=key in passing) for key in inspect.plan())
    assert sorted(inspect.started) == [("a", 1), ("b", 1), ("b", 2)]
    assert sorted(inspect.skipped) == [("a", 2), ("a", 3), ("b", 3)]
    assert inspect.gate.reason(("t", "a"), 3) == "not needed: attempt 1 passed"
    assert inspect.gate.reason(("t", "b"), 3) == "not needed: attempt 2 passed"
    assert inspect.gate.reason(("t", "b"), 1) is None
    assert inspect.tries == {}


async def test_selective_holds_short_pairs_and_runs_long_ones_at_once() -> None:
    rules = Rules(Policy.SELECTIVE, threshold=10.0)
    inspect = Inspect(rules, task(["short", "long", "new"], 2, [5.0, 50.0, None]), slots=6)
    done = [asyncio.create_task(inspect.attempt(key, None)) for key in inspect.plan()]
    await until(lambda: len(inspect.started) == 5)
    assert sorted(inspect.started) == [("long", 1), ("long", 2), ("new", 1), ("new", 2), ("short", 1)]
    inspect.running["short", 1].set()
    await until(lambda: ("short", 2) in inspect.started)
    for event in inspect.running.values():
        event.set()
    await asyncio.gather(*done)


async def test_a_pass_cancels_siblings_as_soon_as_inspect_knows_them() -> None:
    inspect = Inspect(CANCELING, task(["a"], 3), slots=3, known_after=3)
    await all_of(
        [
            inspect.attempt(("a", 1), 0.01, passes=True),
            inspect.attempt(("a", 2), None),
            inspect.attempt(("a", 3), None),
        ]
    )
    assert sorted(inspect.canceled) == [("a", 2), ("a", 3)]
    assert inspect.tries == {("a", 2): 4, ("a", 3): 4}
    assert inspect.gate.reason(("t", "a"), 2) == "not needed: attempt 1 passed"


async def test_a_cancel_gives_up_when_its_attempt_is_over() -> None:
    """It ended by itself: nothing is left to interrupt, and nobody goes on trying."""
    inspect = Inspect(CANCELING, task(["a"], 2), slots=2, known_after=10**9)
    await all_of([inspect.attempt(("a", 1), 0.01, passes=True), inspect.attempt(("a", 2), 0.2)])
    assert inspect.canceled == []
    await until(lambda: not inspect.gate._cancels)
    tried = inspect.tries["a", 2]
    await asyncio.sleep(3 * gate_module.AGAIN)
    assert inspect.tries["a", 2] == tried


async def test_of_two_that_pass_together_neither_is_stopped_afterwards() -> None:
    inspect = Inspect(CANCELING, task(["a"], 3), slots=3)
    pair = ("t", "a")
    first, second = inspect.gate.turn(pair, 1), inspect.gate.turn(pair, 2)
    assert await asyncio.gather(first.admitted(), second.admitted()) == [True, True]
    inspect.gate.passed(pair, 1)
    inspect.gate.passed(pair, 2)
    first.left()
    second.left()
    assert await inspect.gate.turn(pair, 3).admitted() is False
    await until(lambda: not inspect.gate._cancels)
    assert inspect.canceled == []


async def test_known_results_take_no_slot_and_a_known_pass_spares_the_rest() -> None:
    done = {(("t", "a"), 1): True, (("t", "b"), 1): False}
    inspect = Inspect(SEQUENTIAL, task(["a", "b"], 2), slots=1, done=done)
    await all_of(inspect.attempt(key, 0.01) for key in inspect.plan())
    assert sorted(inspect.started) == [("a", 1), ("b", 1), ("b", 2)]  # known ones pass through
    assert inspect.skipped == [("a", 2)]


async def test_a_known_result_passes_while_all_slots_are_taken() -> None:
    done = {(("t", "b"), 1): False}
    inspect = Inspect(PARALLEL, task(["a", "b"], 1), slots=1, done=done)
    first = asyncio.create_task(inspect.attempt(("a", 1), None))
    await until(lambda: inspect.running)
    async with asyncio.timeout(PATIENCE):
        assert await inspect.gate.turn(("t", "b"), 1).admitted()
        inspect.gate.turn(("t", "b"), 1).left()
    inspect.running["a", 1].set()
    await first


async def test_a_waiting_attempt_that_is_torn_down_frees_nothing_it_did_not_have() -> None:
    samples = [f"s{i}" for i in range(6)]
    inspect = Inspect(PARALLEL, task(samples, 1), slots=2)
    tasks = {s: asyncio.create_task(inspect.attempt((s, 1), None)) for s in samples}
    await until(lambda: len(inspect.running) == 2)
    waiting = [s for s in samples if (s, 1) not in inspect.running]
    tasks[waiting[0]].cancel()
    tasks[waiting[1]].cancel()
    await asyncio.wait([tasks[waiting[0]], tasks[waiting[1]]])
    await asyncio.sleep(0.02)
    assert len(inspect.running) == 2
    for event in list(inspect.running.values()):
        event.set()
    await until(lambda: len(inspect.started) == 4)
    assert inspect.most == 2
    for event in list(inspect.running.values()):
        event.set()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert inspect.gate._dispatcher.in_use == 0


async def test_an_attempt_torn_down_in_the_moment_of_its_start_gives_its_slot_back() -> None:
    inspect = Inspect(PARALLEL, task(["a", "b", "c"], 1), slots=1)
    first = asyncio.create_task(inspect.attempt(("a", 1), None))
    second = asyncio.create_task(inspect.attempt(("b", 1), None))
    third = asyncio.create_task(inspect.attempt(("c", 1), 0.0))
    await until(lambda: ("a", 1) in inspect.running)
    turn = inspect.gate._turns[("t", "b"), 1]
    inspect.running["a", 1].set()
    await until(turn.done)  # it has the slot and does not know
    second.cancel()
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait([first, second, third])
    assert ("c", 1) in inspect.started
    assert inspect.gate._dispatcher.in_use == 0


async def test_one_that_takes_long_to_start_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "RAMP", 2)
    monkeypatch.setattr(gate_module, "RAMP_PATIENCE", 0.05)
    pairs = [f"s{i}" for i in range(8)]
    inspect = Inspect(PARALLEL, task(pairs, 1), slots=8)
    turns = [inspect.gate.turn(("t", s), 1) for s in pairs]
    admitted = [asyncio.create_task(turn.admitted()) for turn in turns]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sum(a.done() for a in admitted) <= 2  # nobody says that it has begun
    async with asyncio.timeout(PATIENCE):
        assert await asyncio.gather(*admitted) == [True] * 8


async def test_what_has_begun_makes_room_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "RAMP", 1)
    monkeypatch.setattr(gate_module, "RAMP_PATIENCE", 3600.0)
    inspect = Inspect(PARALLEL, task([f"s{i}" for i in range(20)], 1), slots=20)
    await all_of(inspect.attempt(key, 0.01) for key in inspect.plan())
    assert len(inspect.started) == 20


async def test_what_ended_before_it_began_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "RAMP", 1)
    monkeypatch.setattr(gate_module, "RAMP_PATIENCE", 3600.0)
    inspect = Inspect(PARALLEL, task([f"s{i}" for i in range(5)], 1), slots=5)

    async def fails_to_start(sample: str) -> None:
        turn = inspect.gate.turn(("t", sample), 1)
        assert await turn.admitted()
        turn.left()

    await all_of(fails_to_start(f"s{i}") for i in range(5))
    assert inspect.gate._dispatcher.in_use == 0


async def test_attempts_of_a_task_that_is_run_again_wait_for_slots_and_can_be_canceled() -> None:
    inspect = Inspect(CANCELING, task(["a"], 2), slots=2)
    await all_of([inspect.attempt(("a", 1), 0.01), inspect.attempt(("a", 2), 0.01)])  # both erred
    await all_of([inspect.attempt(("a", 1), 0.05, passes=True), inspect.attempt(("a", 2), None)])
    assert inspect.canceled == [("a", 2)]
    assert inspect.gate._dispatcher.in_use == 0


async def test_an_attempt_that_is_excluded_never_starts_and_holds_up_nobody() -> None:
    inspect = Inspect(SEQUENTIAL, task(["a", "b"], 2), slots=1, excluded=[(("t", "a"), 1), (("t", "b"), 2)])
    await all_of(inspect.attempt(key, 0.01) for key in inspect.plan())
    assert sorted(inspect.started) == [("a", 2), ("b", 1)]
    assert sorted(inspect.skipped) == [("a", 1), ("b", 2)]


async def test_a_sample_that_the_plan_does_not_know_runs_too() -> None:
    """A dataset that is another one each time it is loaded."""
    inspect = Inspect(SEQUENTIAL, task(["a"], 2), slots=1)
    inspect._pairs["new"] = ("t", "new")
    await all_of(inspect.attempt((sample, k), 0.01) for sample in ("a", "new") for k in (1, 2))
    assert len(inspect.started) == 4
    assert inspect.most == 1
    assert inspect.started.index(("new", 1)) < inspect.started.index(("new", 2))


RULES = [
    SEQUENTIAL,
    PARALLEL,
    CANCELING,
    Rules(Policy.SELECTIVE, threshold=5.0),
    Rules(Policy.SELECTIVE, cancel_siblings=True, threshold=5.0),
]


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_happens_everything_ends_within_the_slots(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module, "GATHERING", 0.01)
    monkeypatch.setattr(gate_module, "RAMP_PATIENCE", 0.005)
    monkeypatch.setattr(gate_module, "AGAIN", 0.001)
    dice = random.Random(seed)
    monkeypatch.setattr(gate_module, "RAMP", dice.choice([1, 2, 12]))
    rules = RULES[seed % len(RULES)]
    tasks = [
        task(
            [f"{name}{i}" for i in range(dice.randint(1, 8))],
            dice.randint(1, 4),
            [dice.choice([None, 1.0, 5.0, 9.0]) for _ in range(8)],
            name,
        )
        for name in "xyz"[: dice.randint(1, 3)]
    ]
    keys = [(t.identifier, s, k) for t in tasks for k in range(1, t.epochs + 1) for s in t.sample_ids]
    done = {((name, s), k): dice.random() < 0.3 for name, s, k in keys if dice.random() < 0.15}
    inspect = Inspect(rules, tasks, dice.randint(1, 10), done=done, known_after=dice.randint(0, 2))
    missing = dice.choice([None, *tasks]) if len(tasks) > 1 else None  # a task that could not start
    asking = [key for key in inspect.plan() if missing is None or key[0] not in missing.sample_ids]
    dice.shuffle(asking)
    torn = set(dice.sample(asking, len(asking) // 10))

    async def attempt(key: Key) -> None:
        await asyncio.sleep(0.0 if key in torn else dice.random() * 0.02)
        await inspect.attempt(
            key, 0.0 if key in inspect.known else dice.random() * 0.02, passes=dice.random() < 0.3
        )

    async with asyncio.timeout(PATIENCE):
        running = {key: asyncio.create_task(attempt(key)) for key in asking}
        await asyncio.sleep(dice.random() * 0.02)
        await asyncio.sleep(0)  # all that are torn down have asked
        for key in torn:
            running[key].cancel()
        results = await asyncio.gather(*running.values(), return_exceptions=True)
    assert all(r is None or isinstance(r, asyncio.CancelledError) for r in results)
    assert inspect.gate._dispatcher.in_use == 0
    assert not inspect.running
    assert inspect.most <= inspect.slots
    assert inspect.over == set(asking)
    assert set(asking) - torn <= set(inspect.started) | set(inspect.skipped)
    assert not set(inspect.started) & set(inspect.skipped)
