"""How findings are weighed: what explains what, what comes first, when a job is stuck, what reaches a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hawk.core.diagnosis.about import ABOUT
from hawk.core.diagnosis.causes import Cause, Layer, Scope, Severity, Source
from hawk.core.diagnosis.diagnose import diagnose, explain, is_stuck
from hawk.core.diagnosis.evidence import Attempt, Evidence, Job
from hawk.core.diagnosis.rule import Finding, Rule, fact, rule
from hawk.core.diagnosis.rules import RULES
from hawk.core.diagnosis.verdict import Diagnosis
from hawk.core.diagnosis.view import View
from hawk.core.text import one_line

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def attempts(count: int, *, since: float = 60.0) -> list[Attempt]:
    at = (NOW - timedelta(seconds=since)).isoformat()
    return [Attempt("t", f"s{i}", 1, f"t/s{i}/1", uuid=f"u{i}", model="m/x", since=at) for i in range(count)]


def evidence(count: int = 4, **more: object) -> Evidence:
    return Evidence("j", NOW.isoformat(), attempts=attempts(count), **more)  # type: ignore[arg-type]


def says(
    cause: Cause, *findings: Finding, rules_out: Iterable[Cause] = (), needs: Iterable[Source] = ()
) -> Rule:
    def look(view: View) -> list[Finding]:
        return list(findings)

    return rule(cause, look, rules_out=rules_out, needs=needs)


def found(severity: Severity = Severity.STUCK, held: Iterable[int] = (), **more: object) -> Finding:
    return Finding(severity, "what", [fact(Source.SPANS, "seen")], held=list(held), **more)  # type: ignore[arg-type]


def judged(diagnosis: Diagnosis, cause: Cause) -> str:
    return next(j.outcome for j in diagnosis.why if j.cause == cause.word)


def test_a_consequence_goes_where_its_cause_holds_the_same_attempts() -> None:
    blocked = says(Cause.LOOP_BLOCKED, found(held=[0, 1]), rules_out=[Cause.BLACK_HOLE])
    inside = says(Cause.BLACK_HOLE, found(held=[0, 1]))
    answer = explain(evidence(), NOW, [inside, blocked])
    assert [v.cause for v in answer.verdicts] == ["loop_blocked"]
    assert judged(answer, Cause.BLACK_HOLE) == "ruled out"
    beside = says(Cause.BLACK_HOLE, found(held=[1, 2, 3]))
    both = explain(evidence(), NOW, [beside, blocked]).verdicts
    assert {v.cause: v.held for v in both} == {
        "black_hole": ["t/s2/1", "t/s3/1"],
        "loop_blocked": ["t/s0/1", "t/s1/1"],
    }


def test_what_is_itself_explained_explains_nothing() -> None:
    first = says(Cause.DISK_FULL, found(whole=True), rules_out=[Cause.CRASHED, Cause.KILLED])
    second = says(Cause.CRASHED, found(whole=True), rules_out=[Cause.RETRY_LOOP])
    third = says(Cause.RETRY_LOOP, found(held=[0]))
    assert [v.cause for v in explain(evidence(), NOW, [third, second, first]).verdicts] == [
        "disk_full",
        "retry_loop",
    ]


def test_the_worst_comes_first_then_what_holds_most_and_what_is_well_last() -> None:
    rules = [
        says(Cause.PROGRESSING, found(Severity.INFO, [0, 1, 2, 3])),
        says(Cause.TOOL_HUNG, found(Severity.STUCK, [0])),
        says(Cause.RATE_LIMITED, found(Severity.WARNING, [0, 1, 2])),
        says(Cause.BLACK_HOLE, found(Severity.STUCK, [1, 2])),
        says(Cause.AUTH_REJECTED, found(Severity.FATAL, ended=1)),
    ]
    answer = explain(evidence(), NOW, rules).verdicts
    assert [v.cause for v in answer] == [
        "auth_rejected",
        "black_hole",
        "tool_hung",
        "rate_limited",
        "progressing",
    ]
    assert [v.n for v in answer] == [1, 2, 3, 4, 5]


def test_a_missing_source_is_said_and_its_rules_are_not_judged() -> None:
    seen = says(Cause.BLACK_HOLE, found(held=[0]), needs=[Source.MIDDLEMAN])
    answer = explain(evidence(missing={Source.MIDDLEMAN: "it is off"}), NOW, [seen])
    assert answer.verdicts == []
    assert answer.missing == {"middleman": "it is off"}
    assert [(j.outcome, j.by) for j in answer.why] == [("not judged", "middleman: it is off")]


def test_a_job_is_stuck_only_when_every_attempt_in_flight_is_held_for_good() -> None:
    def verdicts(*rules: Rule) -> bool:
        return is_stuck(explain(evidence(), NOW, rules).verdicts, 4)

    assert not verdicts(says(Cause.BLACK_HOLE, found(held=[0, 1, 2])))
    assert verdicts(says(Cause.BLACK_HOLE, found(held=[0, 1, 2])), says(Cause.TOOL_HUNG, found(held=[3])))
    assert not verdicts(says(Cause.RATE_LIMITED, found(Severity.WARNING, [0, 1, 2, 3])))
    assert verdicts(says(Cause.DISK_FULL, found(whole=True)))


def test_scope_pairs_and_cost_follow_from_what_is_held() -> None:
    [whole] = explain(evidence(), NOW, [says(Cause.BLACK_HOLE, found(held=[0, 1, 2, 3]))]).verdicts
    assert (whole.scope, whole.attempts, whole.pairs, whole.cost_hours) == (
        Scope.JOB,
        4,
        4,
        round(240 / 3600, 3),
    )
    [one] = explain(evidence(), NOW, [says(Cause.BLACK_HOLE, found(held=[2], cost=7200))]).verdicts
    assert (one.scope, one.cost_hours, one.uuids) == (Scope.ATTEMPT, 2.0, ["u2"])
    [free] = explain(evidence(), NOW, [says(Cause.QUEUE_WAIT, found(Severity.INFO, [0]))]).verdicts
    assert free.cost_hours == 0


def test_after_a_death_what_held_the_attempts_stays_first() -> None:
    dead = evidence(job=Job(alive=False, ended_how="its supervisor was killed by SIGKILL"))
    killed = says(Cause.KILLED, found(Severity.FATAL, whole=True))
    answer = explain(dead, NOW, [killed, says(Cause.TOOL_HUNG, found(held=[0]))]).verdicts
    assert [(v.cause, v.before_death) for v in answer] == [("tool_hung", True), ("killed", False)]
    answer = explain(dead, NOW, [killed, says(Cause.QUEUE_WAIT, found(Severity.INFO, [0]))]).verdicts
    assert [v.cause for v in answer] == ["killed", "queue_wait"]


@given(st.text(min_size=1, max_size=60))
def test_hostile_names_neither_reach_a_terminal_nor_end_a_word_of_the_next_command(name: str) -> None:
    found_ = Finding(
        Severity.STUCK,
        f"model {name}",
        [fact(Source.SPANS, name)],
        subject=name,
        next="hawk probe {model} --job {job}",
    )
    document = Evidence(name, NOW.isoformat())
    [verdict] = explain(document, NOW, [says(Cause.BLACK_HOLE, found_)]).verdicts
    for text in (verdict.what, verdict.subject, verdict.next, verdict.evidence[0].fact):
        assert text == one_line(text, 500)
    words = shlex.split(verdict.next)
    assert words[:2] == ["hawk", "probe"]
    assert words[3:4] == ["--job"]
    assert len(words) == 5


def test_every_cause_has_its_texts_and_every_rule_a_cause() -> None:
    assert set(ABOUT) == set(Cause)
    assert {r.cause for r in RULES} <= set(Cause)
    for cause, about in ABOUT.items():
        texts = (about.title, about.meaning, about.seen, about.remedy, about.next)
        assert all(texts), cause
        assert about.next.startswith("hawk "), cause


def test_an_empty_job_has_no_verdict_and_evidence_survives_its_file() -> None:
    bare = Evidence("j", NOW.isoformat())
    assert diagnose(bare, NOW) == []
    full = evidence(missing={"spans": "gone"})
    assert msgspec.json.decode(msgspec.json.encode(full), type=Evidence) == full
    assert all(v.layer is not Layer.HEALTHY for v in diagnose(full, NOW))
