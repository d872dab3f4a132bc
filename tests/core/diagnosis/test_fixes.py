"""What a remedy would do, in words: nothing left open, nothing done that can't be."""

from __future__ import annotations

import msgspec
import pytest

from hawk.core.diagnosis.causes import Layer, Scope, Severity, Who
from hawk.core.diagnosis.evidence import Attempt, Evidence, Job, Model, TaskCount, Worker
from hawk.core.diagnosis.fixes import RAISABLE, RETUNABLE, FixPlan, plan, plan_verdict
from hawk.core.diagnosis.verdict import Fix, FixKind, Verdict
from hawk.core.snapshot import Progress
from hawk.core.states import ActivityType, Operation

AT = "2026-01-01T12:00:00+00:00"
BEFORE = "2026-01-01T11:50:00+00:00"


def evidence(**job: object) -> Evidence:
    """Two workers: 0 with a hung tool and a silent attempt, 1 with an attempt in a loop that is blocked."""
    return Evidence(
        "j",
        AT,
        job=Job(max_retries=12, **job),  # type: ignore[arg-type]
        progress=Progress(total=10, completed=4, limit=1, running=3, waiting=2),
        tasks=[TaskCount("t#1", "easy", "openai/gpt-4o"), TaskCount("t#2", "hard", "local/m")],
        workers=[
            Worker(0, pid=10, control="ok"),
            Worker(1, pid=11, control="busy"),
            Worker(2, state="exited"),
        ],
        attempts=[
            Attempt(
                "t#1",
                "a",
                1,
                "easy/a/1",
                "U1",
                worker=0,
                activity=ActivityType.TOOL,
                detail="bash",
                since=BEFORE,
            ),
            Attempt("t#1", "b", 1, "easy/b/1", "U2", worker=0, idle=30.0, limits={"token": 1000}),
            Attempt("t#2", "c", 1, "hard/c/1", "U3", worker=1, activity=ActivityType.TOOL, detail="bash"),
        ],
        models=[Model("openai", model="gpt-4o-2024", name="openai/gpt-4o")],
    )


def verdict(fix: Fix | None, **more: object) -> Verdict:
    plain = Verdict(
        1,
        "tool_hung",
        Layer.SANDBOX,
        Scope.ATTEMPT,
        Severity.STUCK,
        "it hangs",
        Who.OPERATOR,
        "Look at it",
        "hawk trace",
        uuids=["U1"],
        fix=fix,
    )
    return msgspec.structs.replace(plain, **more)


def refused(found: FixPlan) -> str:
    assert (found.steps, found.fix) == ([], None)
    assert found.remedy
    return found.refused


def test_a_verdict_without_a_remedy_of_hawks_own_says_its_remedy() -> None:
    found = plan_verdict(verdict(None), evidence())
    assert "tool_hung" in refused(found)
    assert found.remedy == "Look at it"


def test_the_attempts_of_the_verdict_are_meant_where_the_remedy_names_none() -> None:
    found = plan_verdict(verdict(Fix(FixKind.CANCEL_TOOL_CALL)), evidence())
    assert found.fix == Fix(FixKind.CANCEL_TOOL_CALL, ["U1"])
    (step,) = found.steps
    assert "easy/a/1" in step.what
    assert "bash, for 10 min" in step.detail
    assert step.undo


def test_what_is_no_more_is_not_acted_on() -> None:
    assert "any more" in refused(plan(Fix(FixKind.REQUEUE, ["gone"]), evidence()))
    assert "any more" in refused(plan(Fix(FixKind.SCORE), evidence()))
    assert "waits for a tool" in refused(plan(Fix(FixKind.CANCEL_TOOL_CALL, ["U2"]), evidence()))
    assert "runs now" in refused(plan(Fix(FixKind.RESTART_WORKER, subject="2"), evidence()))


def test_a_call_in_a_worker_that_does_not_answer_is_left_to_a_restart() -> None:
    assert "Worker 1 does not answer" in refused(plan(Fix(FixKind.CANCEL_TOOL_CALL, ["U3"]), evidence()))


def test_a_restart_names_what_runs_again_and_nothing_of_other_workers() -> None:
    found = plan(Fix(FixKind.RESTART_WORKER, ["U3"]), evidence())
    assert found.fix == Fix(FixKind.RESTART_WORKER, subject="1")
    (step,) = found.steps
    assert "hard/c/1" in step.detail
    assert "easy" not in step.detail
    assert "does not turn" in step.detail
    assert not step.reversible


@pytest.mark.parametrize("spelt", ["openai/gpt-4o", "openai/gpt-4o-2024"])
def test_a_model_is_known_by_either_of_its_names(spelt: str) -> None:
    found = plan(Fix(FixKind.PAUSE_MODEL, subject=spelt), evidence())
    assert found.fix is not None
    assert found.fix.subject == "openai/gpt-4o"
    assert found.steps[0].reversible
    assert "hawk unpause j --model openai/gpt-4o" in found.steps[0].undo


def test_a_model_that_the_job_does_not_use_is_refused_with_those_that_it_uses() -> None:
    found = plan(Fix(FixKind.PAUSE_MODEL, subject="openai/gpt-5"), evidence())
    assert "openai/gpt-5" in refused(found)
    assert "local/m" in found.remedy


def test_only_what_workers_take_live_is_set() -> None:
    for name in RETUNABLE:
        assert plan(Fix(FixKind.RETUNE, subject=name, value=5), evidence()).fix is not None
        refused(plan(Fix(FixKind.RETUNE, subject=name), evidence()))
        refused(plan(Fix(FixKind.RETUNE, subject=name, value=-1), evidence()))
    assert "temperature" in refused(plan(Fix(FixKind.RETUNE, subject="temperature", value=1), evidence()))
    for name in RAISABLE:
        assert plan(Fix(FixKind.RAISE_LIMIT, subject=name, value=5), evidence()).fix is not None
    assert "cost" in refused(plan(Fix(FixKind.RAISE_LIMIT, subject="cost", value=5), evidence()))


def test_a_limit_without_a_number_is_doubled_for_the_tasks_of_the_attempts_that_it_is_about() -> None:
    found = plan(Fix(FixKind.RAISE_LIMIT, ["U2"], "token"), evidence())
    assert found.fix is not None
    assert (found.fix.subject, found.fix.value) == ("token_limit", 2000.0)
    assert "easy" in found.steps[0].detail
    assert "hard" not in found.steps[0].detail
    assert "not known" in refused(plan(Fix(FixKind.RAISE_LIMIT, subject="time"), evidence()))


@pytest.mark.parametrize("kind", [kind for kind in FixKind if kind is not FixKind.RESUME_JOB])
def test_a_job_that_has_ended_or_is_stopping_is_not_acted_on(kind: FixKind) -> None:
    fix = Fix(kind, ["U1"], "0", 5)
    assert "has ended" in refused(plan(fix, evidence(alive=False)))
    assert "stopping" in refused(plan(fix, evidence(operation=Operation.STOPPING)))


def test_only_a_job_that_has_ended_is_resumed() -> None:
    fix = Fix(FixKind.RESUME_JOB)
    assert "runs" in refused(plan(fix, evidence()))
    found = plan(fix, evidence(alive=False))
    assert "5 attempts have no result" in found.steps[0].detail
