"""How far pairs are, and which attempts nobody needs: for any policy, whatever has happened to their attempts."""

from __future__ import annotations

import copy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawk.core.attempts.policy import Policy, Rules
from hawk.core.attempts.results import Outcome
from hawk.core.pairs import Rows, count_pairs, settle, unneeded
from hawk.core.plan import PlanTask
from hawk.core.snapshot import PairCount, Sample
from hawk.core.states import SamplePhase

SEQUENTIAL = Rules(Policy.SEQUENTIAL)
PARALLEL = Rules(Policy.PARALLEL)
CANCELING = Rules(Policy.PARALLEL, cancel_siblings=True)
SELECTIVE = Rules(Policy.SELECTIVE, threshold=10.0)
RULES = [SEQUENTIAL, PARALLEL, CANCELING, SELECTIVE, Rules(Policy.SELECTIVE)]

PASSED = (SamplePhase.COMPLETED, Outcome.PASS)
FAILED = (SamplePhase.COMPLETED, Outcome.FAIL)
LIMITED = (SamplePhase.LIMIT, Outcome.LIMIT)
PASSED_AT_LIMIT = (SamplePhase.LIMIT, Outcome.PASS)
ERRORED = (SamplePhase.ERRORED, Outcome.INFRA_ERROR)
CANCELED = (SamplePhase.CANCELED, Outcome.CANCELED)
RUNNING = (SamplePhase.RUNNING, None)
KINDS = [PASSED, FAILED, LIMITED, PASSED_AT_LIMIT, ERRORED, CANCELED, RUNNING]

Kind = tuple[SamplePhase, Outcome | None]


def plan(samples: str = "ab", epochs: int = 3, predicted: list[float | None] | None = None) -> PlanTask:
    return PlanTask("t", "t", "m", list(samples), epochs, predicted=predicted or [])


def rows(**attempts: list[Kind | None]) -> Rows:
    """Rows by sample: the kind of each attempt, None for one that has not begun."""
    return {
        (sample_id, k): Sample(
            id=sample_id, epoch=k, attempt=k, uuid=f"{sample_id}{k}", phase=kind[0], outcome=kind[1]
        )
        for sample_id, kinds in attempts.items()
        for k, kind in enumerate(kinds, start=1)
        if kind is not None
    }


def shown(task: PlanTask, found: Rows) -> list[Sample]:
    """A row for every planned attempt, as a snapshot has them."""
    return [
        found.get((sample_id, k)) or Sample(id=sample_id, epoch=k, attempt=k)
        for k in range(1, task.epochs + 1)
        for sample_id in task.sample_ids
    ]


def settled(task: PlanTask, found: Rows, rules: Rules) -> Rows:
    settle(task, found, rules)
    return found


def test_what_a_pass_spares_is_canceled_with_the_reason() -> None:
    found = settled(plan(), rows(a=[FAILED, PASSED, None], b=[FAILED, None, None]), SEQUENTIAL)
    spared = found["a", 3]
    assert (spared.phase, spared.outcome) == (SamplePhase.CANCELED, Outcome.CANCELED)
    assert spared.reason == "not needed: attempt 2 passed"
    assert unneeded(spared)
    assert set(found) == {("a", 1), ("a", 2), ("a", 3), ("b", 1)}


def test_the_first_pass_is_the_reason() -> None:
    found = settled(plan(), rows(a=[PASSED, CANCELED, PASSED]), CANCELING)
    assert found["a", 2].reason == "not needed: attempt 1 passed"
    assert found["a", 2].uuid == "a2"


def test_a_pass_at_a_limit_spares_the_rest_as_well() -> None:
    assert unneeded(settled(plan(), rows(a=[PASSED_AT_LIMIT, None]), SEQUENTIAL)["a", 2])


def test_whoever_runs_all_attempts_spares_none() -> None:
    found = rows(a=[PASSED, CANCELED, None])
    assert settled(plan(), copy.deepcopy(found), PARALLEL) == found


def test_selective_spares_the_rest_of_short_pairs_only() -> None:
    task = plan("abc", 2, [5.0, 50.0, None])
    found = settled(task, rows(a=[PASSED, None], b=[PASSED, None], c=[PASSED, None]), SELECTIVE)
    assert unneeded(found["a", 2])
    assert ("b", 2) not in found
    assert ("c", 2) not in found


def test_a_person_who_stops_a_job_has_not_made_its_attempts_unnecessary() -> None:
    found = settled(plan(), rows(a=[FAILED, CANCELED, CANCELED]), SEQUENTIAL)
    assert not any(unneeded(row) for row in found.values())


@pytest.mark.parametrize("kind", [FAILED, LIMITED, ERRORED, RUNNING, PASSED])
def test_what_has_begun_by_itself_keeps_its_row(kind: Kind) -> None:
    """One that passes or fails while it is being canceled has passed or failed."""
    found = rows(a=[PASSED, kind])
    before = copy.deepcopy(found["a", 2])
    assert settled(plan(epochs=2), found, CANCELING)["a", 2] == before


def test_pairs_are_counted() -> None:
    task = plan("abcdef", 2)
    found = rows(
        a=[PASSED, PASSED],
        b=[FAILED, PASSED],
        c=[FAILED, LIMITED],
        d=[FAILED, RUNNING],
        e=[ERRORED, ERRORED],
        f=[None, None],
    )
    assert count_pairs(task, shown(task, found)) == PairCount(
        total=6, passed=2, failed=1, tally={"2/2": 1, "1/2": 1, "0/2": 1, "0/1": 1}, not_needed=0
    )


def test_a_pair_is_failed_when_all_attempts_have_ended_and_one_has_a_result() -> None:
    task = plan("a", 2)
    assert count_pairs(task, shown(task, rows(a=[FAILED, ERRORED]))).failed == 1
    assert count_pairs(task, shown(task, rows(a=[FAILED, CANCELED]))).failed == 1
    assert count_pairs(task, shown(task, rows(a=[ERRORED, CANCELED]))).failed == 0
    assert count_pairs(task, shown(task, rows(a=[FAILED, RUNNING]))).failed == 0


@st.composite
def situations(draw: st.DrawFn) -> tuple[PlanTask, Rows, Rules]:
    epochs = draw(st.integers(1, 4))
    samples = "abc"[: draw(st.integers(1, 3))]
    predicted = draw(st.lists(st.sampled_from([None, 1.0, 10.0, 99.0]), min_size=3, max_size=3))
    kinds = st.lists(st.sampled_from([None, *KINDS]), min_size=epochs, max_size=epochs)
    found = rows(**{sample_id: draw(kinds) for sample_id in samples})
    return plan(samples, epochs, predicted[: len(samples)]), found, draw(st.sampled_from(RULES))


@given(situations())
def test_to_settle_adds_reasons_and_takes_nothing(situation: tuple[PlanTask, Rows, Rules]) -> None:
    task, found, rules = situation
    before = copy.deepcopy(found)
    settle(task, found, rules)
    once = copy.deepcopy(found)
    settle(task, found, rules)
    assert found == once
    for key, row in before.items():
        if row.phase is not SamplePhase.CANCELED:
            assert found[key] == row
    for (sample_id, k), row in found.items():
        assert (row.id, row.epoch, row.attempt) == (sample_id, k, k)
        new = before.get((sample_id, k)) != row
        passes = [e for (s, e), r in before.items() if s == sample_id and r.outcome == Outcome.PASS]
        spares = bool(passes) and rules.cancels(task.predictions[sample_id])
        assert not new or spares
        assert unneeded(row) == (spares and row.phase is SamplePhase.CANCELED)
        if unneeded(row):
            assert row.reason == f"not needed: attempt {min(passes)} passed"
    for sample_id in task.sample_ids:
        passed = any(r.outcome == Outcome.PASS for (s, _), r in before.items() if s == sample_id)
        if passed and rules.cancels(task.predictions[sample_id]):
            assert all((sample_id, k) in found for k in range(1, task.epochs + 1))


@given(situations())
def test_the_counts_are_those_of_the_pairs_one_by_one(situation: tuple[PlanTask, Rows, Rules]) -> None:
    task, found, rules = situation
    settle(task, found, rules)
    counted = count_pairs(task, shown(task, found))
    assert counted.total == len(task.sample_ids)
    expected = PairCount(total=len(task.sample_ids))
    for sample_id in task.sample_ids:
        mine = [row for row in shown(task, found) if row.id == sample_id]
        results = [row for row in mine if row.outcome is not None and Outcome(row.outcome).produced]
        passes = sum(row.outcome == Outcome.PASS for row in results)
        expected.passed += passes > 0
        expected.failed += bool(results) and not passes and all(row.phase.final for row in mine)
        expected.not_needed += sum(map(unneeded, mine))
        if results:
            name = f"{passes}/{len(results)}"
            expected.tally[name] = expected.tally.get(name, 0) + 1
    assert counted == expected
    assert counted.passed + counted.failed <= counted.total
    assert msgspec.json.decode(msgspec.json.encode(counted), type=PairCount) == counted
