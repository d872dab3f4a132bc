"""What new results keep of the old ones, and which attempts have something to score."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hawk.core.attempts.aggregate import report
from hawk.core.attempts.policy import NOT_NEEDED, Policy, Rules
from hawk.core.attempts.rescored import (
    carried,
    differences,
    left_as_it_was,
    nothing_to_score,
    outcomes_left_out,
    scorable,
)
from hawk.core.attempts.results import (
    Failure,
    Outcome,
    Pair,
    PassRule,
    Result,
    SandboxRecord,
    Scored,
    Usage,
    Workspace,
)
from hawk.core.pairs import count_pairs, leave_out, unneeded
from hawk.core.plan import Plan, PlanTask
from hawk.core.snapshot import Sample
from hawk.core.states import SamplePhase

PAIR = Pair("t", "s", "m")
OLD = Result(
    pair=PAIR,
    attempt=1,
    outcome=Outcome.SCORER_ERROR,
    scores={"old": Scored("C")},
    started_at="2026-01-01T00:00:00+00:00",
    ended_at="2026-01-01T01:00:00+00:00",
    duration=3600.0,
    working=1800.0,
    usage={"m": Usage(input=5, output=6, total=11)},
    cost=1.5,
    error=Failure("ValueError", "broken", "scoring"),
    limit="message",
    retries=2,
    model_calls=7,
    tool_calls=8,
    provider_retries={"429": 3},
    sandbox=SandboxRecord("bubblewrap", "old.default"),
    workspace=Workspace(1, 2, 3),
    worker=4,
    fingerprint="old",
    generation=5,
    uuid="old",
    eval_id="old",
)
NEW = Result(
    pair=PAIR,
    attempt=1,
    outcome=Outcome.PASS,
    scores={"new": Scored("C")},
    score=1.0,
    started_at="2027-01-01T00:00:00+00:00",
    ended_at="2027-01-01T00:00:01+00:00",
    duration=1.0,
    reason="new",
    worker=0,
    fingerprint="new",
    uuid="new",
    eval_id="new",
)
OF_THE_SCORING = {"pair", "attempt", "outcome", "scores", "score", "error", "reason", "worker", "fingerprint"}
OF_THE_SCORING |= {"generation", "uuid", "eval_id", "log", "version", "workspace", "workspace_error"}


def test_scores_are_new_and_what_the_attempt_took_is_old() -> None:
    found = carried(NEW, OLD, "job")
    assert found.rescored_from == "job"
    for name in Result.__struct_fields__:
        if name != "rescored_from":
            assert getattr(found, name) == getattr(NEW if name in OF_THE_SCORING else OLD, name), name


@given(st.sampled_from(Outcome))
def test_what_has_a_result_or_a_broken_scorer_can_be_scored(outcome: Outcome) -> None:
    result = msgspec.structs.replace(OLD, outcome=outcome)
    wanted = outcome in (Outcome.PASS, Outcome.FAIL, Outcome.LIMIT, Outcome.TIMEOUT, Outcome.SCORER_ERROR)
    assert scorable(result) is wanted
    assert (outcomes_left_out([result, result]) == "") is wanted


def test_outcomes_that_are_left_out_are_counted() -> None:
    some = [Outcome.CANCELED, Outcome.PASS, Outcome.INFRA_ERROR, Outcome.CANCELED]
    assert (
        outcomes_left_out(msgspec.structs.replace(OLD, outcome=o) for o in some)
        == "2 canceled, 1 infra_error"
    )


def test_an_attempt_that_is_not_scored_again_is_what_it_was_or_canceled() -> None:
    lost = msgspec.structs.replace(OLD, outcome=Outcome.INFRA_ERROR)
    found = left_as_it_was(PAIR, 1, lost, "job", generation=2)
    assert (found.outcome, found.error, found.duration, found.fingerprint) == (
        Outcome.INFRA_ERROR,
        OLD.error,
        3600.0,
        "old",
    )
    assert (found.uuid, found.eval_id, found.workspace, found.rescored_from) == (None, None, None, "job")
    assert "job" in (found.workspace_error or "")
    never = left_as_it_was(PAIR, 2, None, "job", generation=2)
    assert (never.outcome, never.attempt, never.fingerprint) == (Outcome.CANCELED, 2, "")
    assert never.reason == nothing_to_score("job") == "not needed: it has no result in job"


def test_a_pass_that_turned_into_a_fail_is_decided_though_its_siblings_never_ran() -> None:
    failed = carried(msgspec.structs.replace(NEW, outcome=Outcome.FAIL), OLD, "job")
    never = left_as_it_was(PAIR, 2, None, "job", generation=1)
    for cancels in (True, False):
        made = report("x", [(PAIR, 2)], [failed, never], policy="sequential", runs=2, cancels=cancels)
        assert (made.failed, made.undecided) == (1, 0)


def test_differences_are_named_both_ways_and_cut() -> None:
    planned = [(PAIR, k) for k in range(1, 9)]
    kept = [(PAIR, 1), (Pair("t", "other", "m"), 1)]
    lacking, unwanted = differences(planned, kept, "job")
    assert lacking.startswith(
        "not scored again, for job has no result of them: 7 attempts: t · m · s, attempt 2; "
    )
    assert lacking.endswith("; … 2 more")
    assert (
        unwanted
        == "in job and not in this eval set, so not scored again: 1 attempt: t · m · other, attempt 1"
    )
    assert differences(planned, planned, "job") == []


TASK = PlanTask("id", "t", "m", ["a", "b"], 2)
PLAN = Plan(
    "new",
    [TASK],
    rules=Rules(Policy.SEQUENTIAL, pass_rule=PassRule("x", 0.5)),
    rescore="job",
    excluded=[("id", "a", 2), ("elsewhere", "a", 1)],
)


def test_what_is_scored_again_is_so_at_once_whatever_the_policy_was() -> None:
    assert PLAN.order == Rules(Policy.PARALLEL, pass_rule=PassRule("x", 0.5))
    assert not PLAN.order.stops_early
    ordinary = msgspec.structs.replace(PLAN, rescore=None)
    assert ordinary.order == ordinary.rules
    assert msgspec.json.decode(msgspec.json.encode(PLAN), type=Plan) == PLAN


def test_excluded_attempts_have_a_row_and_no_outcome_of_their_own_is_lost() -> None:
    rows: dict[tuple[str, int], Sample] = {}
    leave_out(PLAN, {"id": rows})
    assert list(rows) == [("a", 2)]
    row = rows["a", 2]
    assert (row.phase, row.reason) == (SamplePhase.CANCELED, "not needed: it has no result in job")
    assert (row.reason or "").startswith(NOT_NEEDED)
    assert unneeded(row)
    assert count_pairs(TASK, rows.values()).not_needed == 1
    done = Sample(id="a", epoch=2, attempt=2, phase=SamplePhase.COMPLETED)
    rows = {("a", 2): done}
    leave_out(PLAN, {"id": rows})
    assert rows == {("a", 2): done}
