"""An await of what never comes, and the awaits that look like one."""

from __future__ import annotations

from typing import Any

import pytest

from hawk.core.diagnosis.causes import Cause, Severity
from hawk.core.diagnosis.evidence import Attempt
from hawk.core.states import ActivityType
from tests.core.diagnosis.build_attempts import call, evidence, found, in_flight, only, wait

NEVER = Cause.AWAIT_NEVER_RESOLVED


def solver(name: str, kind: str, quiet: float = 60.0, **fields: Any) -> Attempt:
    fields.setdefault("wait", wait(kind, since=quiet))
    return in_flight(name, quiet, activity=ActivityType.SOLVER, detail="", **fields)


@pytest.mark.parametrize("kind", ["event", "condition", "queue", "future", "lock"])
def test_an_await_that_only_other_code_can_end_is_named_with_its_place(kind: str) -> None:
    finding = only(evidence(solver("a", kind), solver("b", kind)), NEVER)
    assert finding.severity is Severity.STUCK
    assert finding.held == [0, 1]
    assert "mine/agent.py:12 think" in finding.what
    assert "t/a/1" in finding.what


@pytest.mark.parametrize("kind", ["timer", "network", "process", "thread", "running", "tasks", "limiter"])
def test_what_time_or_the_world_outside_ends_is_no_such_await(kind: str) -> None:
    assert found(evidence(solver("a", kind, 500.0)), NEVER) == []


def test_it_takes_silence_a_steady_chain_and_no_other_work() -> None:
    assert found(evidence(solver("a", "event", 30.0)), NEVER) == []
    assert found(evidence(solver("a", "event", wait=wait("event", looks=1))), NEVER) == []
    assert found(evidence(solver("a", "event", wait=wait("event", others=["timer"]))), NEVER) == []
    assert found(evidence(solver("a", "event", idle=3.0)), NEVER) == []
    assert found(evidence(solver("a", "event", calls=[call("m", 60.0, "Model")])), NEVER) == []
    assert found(evidence(in_flight("a", activity=ActivityType.BLOCKED, wait=wait("event"))), NEVER) == []


def test_while_others_of_the_task_go_on_one_of_them_may_set_it() -> None:
    others = [in_flight(f"x{n}", 2.0) for n in range(3)]
    assert only(evidence(solver("a", "event", 60.0), *others), NEVER).severity is Severity.INFO
    assert only(evidence(solver("a", "event", 120.0), *others), NEVER).severity is Severity.STUCK


def test_a_lock_whose_holder_goes_on_is_waited_for_and_a_deadlock_is_not() -> None:
    place = "mine/agent.py:40 use"
    waiters = [solver(f"w{n}", "lock", 300.0, wait=wait("lock", place, since=300.0)) for n in range(3)]
    holder = in_flight(
        "h", 2.0, wait=wait("process", "mine/agent.py:41 use", frames=["solve", "use", "exec"])
    )
    finding = only(evidence(*waiters, holder), NEVER)
    assert (finding.severity, finding.fix) == (Severity.INFO, None)
    dead = only(evidence(*waiters), NEVER)
    assert dead.severity is Severity.STUCK
    assert "each waits for the others" in dead.what
