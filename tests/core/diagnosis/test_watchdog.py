"""The watchdog's policy, on a clock of its own."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hawk.config import watchdog as written
from hawk.core.diagnosis.about import ABOUT
from hawk.core.diagnosis.causes import Cause, Layer, Scope, Severity, Who
from hawk.core.diagnosis.verdict import Fix, FixKind, Verdict
from hawk.core.diagnosis.watchdog import (
    CALM,
    SAFE,
    SETTLING,
    Act,
    Event,
    Memory,
    Notify,
    WatchdogConfig,
    ended,
    look,
)

NAMES = {f"U{i}": f"t/s{i}/1" for i in range(6)}


def verdict(
    cause: str = "tool_hung",
    severity: Severity = Severity.STUCK,
    uuids: tuple[str, ...] = ("U1",),
    kind: FixKind | None = FixKind.CANCEL_TOOL_CALL,
    subject: str = "",
) -> Verdict:
    fix = None if kind is None else Fix(kind, list(uuids))
    return Verdict(
        1,
        cause,
        Layer.SANDBOX,
        Scope.ATTEMPT,
        severity,
        "it hangs",
        Who.OPERATOR,
        "r",
        "n",
        uuids=list(uuids),
        fix=fix,
        subject=subject,
    )


def acts(memory: Memory, verdicts: list[Verdict], config: WatchdogConfig, now: float) -> list[Act]:
    return look(memory, verdicts, config, now, NAMES)[0]


def test_it_acts_once_a_trouble_has_held_for_long_enough_and_not_when_it_came_back() -> None:
    memory, config = Memory(), WatchdogConfig(after=100)
    assert acts(memory, [verdict()], config, 0) == []
    assert acts(memory, [verdict()], config, 99) == []
    assert acts(memory, [], config, 99.5) == []
    assert acts(memory, [verdict()], config, 150) == []
    (act,) = acts(memory, [verdict()], config, 250)
    assert (act.fix.kind, act.fix.uuids, act.held) == (FixKind.CANCEL_TOOL_CALL, ["U1"], ["t/s1/1"])
    assert acts(memory, [verdict()], config, 251) == []


def test_all_safe_is_what_loses_nothing_and_changes_no_result() -> None:
    for kind in FixKind:
        memory, config = Memory(), WatchdogConfig(after=1)
        found = [act for now in (0, 1) for act in acts(memory, [verdict(kind=kind)], config, now)]
        assert bool(found) == (kind in SAFE), kind
    memory, config = Memory(), WatchdogConfig(after=1, causes=["await_never_resolved"])
    both = [verdict(), verdict("await_never_resolved", kind=FixKind.SCORE, uuids=("U2",))]
    found = [act for now in (0, 1) for act in acts(memory, both, config, now)]
    assert [(act.cause, act.fix.kind) for act in found] == [("await_never_resolved", FixKind.SCORE)]


def test_the_config_may_name_another_remedy() -> None:
    memory = Memory()
    config = WatchdogConfig(after=1, causes=[], actions={"server_error": FixKind.PAUSE_MODEL})
    its = verdict("server_error", kind=None, subject="openai/gpt-4o")
    found = [act for now in (0, 1) for act in acts(memory, [its], config, now)]
    assert [(act.fix.kind, act.fix.subject) for act in found] == [(FixKind.PAUSE_MODEL, "openai/gpt-4o")]


def test_people_are_told_once_while_it_holds_again_when_it_was_over_and_of_what_is_worse() -> None:
    memory, config = Memory(), WatchdogConfig(after=1e6, notify=Notify(command=["tell"]))

    def told(severities: list[Severity], now: float) -> list[Event]:
        return [n.event for n in look(memory, [verdict(severity=s) for s in severities], config, now)[1]]

    assert told([Severity.WARNING], 0) == []
    assert told([Severity.STUCK], 1) == [Event.STUCK]
    assert told([Severity.STUCK], 2) == []
    assert told([Severity.STUCK, Severity.FATAL], 3) == [Event.FATAL]
    assert told([], 4) == []
    assert told([Severity.STUCK], 5) == []
    assert told([], 6 + CALM) == []
    assert told([Severity.STUCK], 7 + CALM) == [Event.STUCK]
    quiet = msgspec.structs.replace(config, notify=Notify(on=(Event.FAILED,), command=["tell"]))
    assert [n.event for n in ended([], quiet, failed=True)] == [Event.FAILED]
    assert ended([], quiet, failed=False) == []
    assert ended([], WatchdogConfig(), failed=True) == []


SHAPES = st.builds(
    verdict,
    cause=st.sampled_from(["tool_hung", "loop_blocked", "black_hole"]),
    severity=st.sampled_from(list(Severity)),
    uuids=st.lists(st.sampled_from(sorted(NAMES)), max_size=3, unique=True).map(tuple),
    kind=st.sampled_from([None, *FixKind]),
    subject=st.sampled_from(["", "x"]),
)


@given(
    steps=st.lists(st.tuples(st.floats(0.1, 400), st.lists(SHAPES, max_size=4)), min_size=1, max_size=40),
    after=st.sampled_from([1.0, 50.0, 600.0]),
    most=st.integers(1, 4),
    per_attempt=st.integers(1, 2),
    causes=st.sampled_from(["all safe", ["tool_hung", "black_hole"]]),
)
def test_budgets_hold_whatever_is_diagnosed(
    steps: list[tuple[float, list[Verdict]]],
    after: float,
    most: int,
    per_attempt: int,
    causes: str | list[str],
) -> None:
    config = WatchdogConfig(after=after, causes=causes, most=most, per_attempt=per_attempt)
    memory, now, total = Memory(), 0.0, 0
    by_attempt: Counter[str] = Counter()
    last: dict[tuple[str, str], float] = {}
    for pause, verdicts in steps:
        now += pause
        for act in acts(memory, verdicts, config, now):
            total += 1
            by_attempt.update(act.held)
            key = (act.cause, act.subject)
            source = [v for v in verdicts if (v.cause, v.subject) == key and v.severity.blocks]
            assert source, "it acts on nothing that is only information or a warning"
            assert key not in last or now - last[key] >= max(SETTLING, after)
            last[key] = now
            assert act.fix.kind is not FixKind.RESUME_JOB
    assert total <= most
    assert all(count <= per_attempt for count in by_attempt.values())


def test_the_config_knows_the_words_of_the_diagnosis() -> None:
    known = {cause.word for cause in Cause if ABOUT[cause].layer is not Layer.HEALTHY}
    assert set(get_args(written.Cause)) == known
    assert set(get_args(written.Action)) <= {kind.value for kind in FixKind}


def test_what_is_written_means_the_same_to_the_policy() -> None:
    notify = {
        "on": ["stuck"],
        "webhook": "https://example.org/hook",
        "command": ["tell", "me"],
        "email": {"host": "mail", "from": "a@example.org", "to": "b@example.org"},
    }
    given = written.Watchdog.model_validate(
        {"after": "2h", "causes": ["tool_hung"], "actions": {"black_hole": "requeue"}, "notify": notify}
    )
    for config in (given, written.Watchdog()):
        for unset in (True, False):
            data = config.model_dump(mode="json", exclude_unset=unset, by_alias=True)
            found = msgspec.convert(data, WatchdogConfig)
            back = written.Watchdog.model_validate(msgspec.to_builtins(found))
            assert back.model_dump(exclude_none=True) == config.model_dump(exclude_none=True)
