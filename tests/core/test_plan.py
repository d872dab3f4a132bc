"""Dealing tasks out to workers, and how many attempts run at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hawk.core.plan import MAX_AT_ONCE, PlanTask, concurrency, deal


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
