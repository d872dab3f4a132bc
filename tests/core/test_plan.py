"""Dealing tasks out to workers, and how many attempts run at once, of all and of each worker."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawk.core.plan import ATTEMPT_MEMORY, MAX_AT_ONCE, Plan, PlanTask, ceiling, concurrency, deal


def tasks(*sizes: int) -> list[PlanTask]:
    return [
        PlanTask(
            identifier=str(i),
            name=str(i),
            model="m",
            sample_ids=[str(s) for s in range(n)],
            epochs=1,
            sequence=i,
        )
        for i, n in enumerate(sizes)
    ]


@given(st.lists(st.integers(1, 300), min_size=1, max_size=30), st.integers(1, 16))
def test_every_task_is_dealt_once_and_no_share_is_empty(sizes: list[int], workers: int) -> None:
    shares = deal(tasks(*sizes), workers)
    assert sorted(t.identifier for share in shares for t in share) == sorted(map(str, range(len(sizes))))
    assert len(shares) == min(workers, len(sizes))
    assert all(shares)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=30), st.integers(1, 16))
def test_no_share_is_larger_than_another_by_more_than_one_task(sizes: list[int], workers: int) -> None:
    loads = [sum(t.attempts for t in share) for share in deal(tasks(*sizes), workers)]
    assert max(loads) - min(loads) <= max(sizes)


def test_every_attempt_may_start_at_once() -> None:
    assert concurrency(tasks(10, 250), {}) == {
        "max_tasks": 2,
        "max_samples": 250,
        "max_sandboxes": 260,
        "max_subprocesses": 256,
    }


def test_what_the_eval_set_says_itself_is_left_alone() -> None:
    assert "max_samples" not in concurrency(tasks(10), {"max_samples": 3})


def test_a_huge_job_is_bounded() -> None:
    assert concurrency(tasks(50_000), {})["max_samples"] == MAX_AT_ONCE


def test_the_options_that_a_definition_leaves_empty_are_filled() -> None:
    assert concurrency(tasks(3), {"max_samples": None, "max_tasks": 1}) == {
        "max_samples": 3,
        "max_sandboxes": 3,
        "max_subprocesses": 8,
    }


# --- by what there is to do


def predicted(*seconds: list[float | None], epochs: int = 1) -> list[PlanTask]:
    return [
        msgspec.structs.replace(task, predicted=list(row), epochs=epochs)
        for task, row in zip(tasks(*map(len, seconds)), seconds, strict=True)
    ]


def test_a_task_weighs_what_its_attempts_are_predicted_to_take() -> None:
    known, half, unknown = predicted([10.0, 20.0], [5.0, None], [None, None], epochs=3)
    assert (known.load, half.load, unknown.load) == (90.0, 195.0, 360.0)
    assert tasks(2)[0].load == 120.0
    assert tasks(0)[0].load == 0.0
    assert known.predictions == {"0": 10.0, "1": 20.0}
    assert tasks(2)[0].predictions == {}


def test_one_long_task_is_dealt_against_many_short_ones() -> None:
    dealt = deal(predicted([900.0], [100.0] * 3, [100.0] * 3, [100.0] * 3), 2)
    assert [[t.identifier for t in share] for share in dealt] == [["0"], ["1", "2", "3"]]


times = st.lists(
    st.lists(st.one_of(st.none(), st.floats(0.1, 1e4)), min_size=1, max_size=20), min_size=1, max_size=12
)


@given(times, st.integers(1, 8))
def test_no_share_is_heavier_than_another_by_more_than_one_task(
    seconds: list[list[float | None]], workers: int
) -> None:
    found = predicted(*seconds)
    loads = [sum(task.load for task in share) for share in deal(found, workers)]
    assert max(loads) - min(loads) <= max(task.load for task in found) * (1 + 1e-9)


# --- the ceiling, and each worker's part of it


@given(
    st.integers(1, 100_000),
    st.integers(1, 64),
    st.one_of(st.none(), st.integers(1, 10_000)),
    st.one_of(st.none(), st.integers(0, 1 << 40)),
)
def test_the_ceiling_is_the_least_of_its_bounds_and_says_which(
    total: int, workers: int, asked: int | None, memory: int | None
) -> None:
    slots, why = ceiling(total, workers, asked=asked, memory=memory)
    assert 1 <= slots <= total
    assert slots <= MAX_AT_ONCE * workers
    assert asked is None or slots <= asked
    assert memory is None or slots == 1 or slots * ATTEMPT_MEMORY <= memory
    assert (why == "") == (slots == total)


def test_the_ceiling_names_what_it_is() -> None:
    assert ceiling(474, 2, asked=None, memory=None) == (474, "")
    assert ceiling(474, 2, asked=250, memory=None) == (250, "max_sandboxes: 250")
    assert ceiling(5000, 2, asked=None, memory=None) == (2000, "1000 a worker")
    assert ceiling(474, 2, asked=None, memory=64 << 20) == (16, "64 MiB of free memory")
    assert ceiling(474, 2, asked=474, memory=None) == (474, "")
    assert ceiling(10, 1, asked=None, memory=0) == (1, "0 MiB of free memory")


@given(times, st.integers(1, 4), st.integers(1, 8), st.integers(1, 300))
def test_the_parts_of_the_workers_are_together_no_more_than_the_slots(
    seconds: list[list[float | None]], epochs: int, workers: int, slots: int
) -> None:
    found = predicted(*seconds, epochs=epochs)
    plan = Plan("job", found, slots=min(slots, sum(task.attempts for task in found)))
    shares = deal(found, workers)
    parts = [plan.share(share) for share in shares]
    for part, share in zip(parts, shares, strict=True):
        assert 1 <= part <= sum(task.attempts for task in share)
    if plan.slots == plan.total:
        assert sum(parts) == plan.total
    assert sum(part for part in parts if part > 1) <= plan.slots  # nobody is left without any


def test_a_worker_gets_slots_by_what_its_tasks_take() -> None:
    found = predicted([300.0] * 50, [100.0] * 50)
    plan = Plan("job", found, slots=40)
    assert [plan.share([task]) for task in found] == [30, 10]
    assert plan.share(found) == 40


def test_a_worker_has_no_more_slots_than_attempts() -> None:
    found = predicted([1000.0] * 10, [1.0] * 1000)
    plan = Plan("job", found, slots=100)
    assert plan.share([found[0]]) == 10


@pytest.mark.parametrize("slots", [0, 12])
def test_without_a_ceiling_everything_runs_at_once(slots: int) -> None:
    found = tasks(5, 7)
    plan = Plan("job", found, slots=slots)
    assert [plan.share([task]) for task in found] == [5, 7]
    assert Plan("job", [], slots=0).share([]) == 1
