"""From evidence to ranked verdicts. Pure: the same evidence and moment give the same answer.

Every rule looks by itself. Then what is a consequence of something else is taken away: a rule names the causes that it
explains, and where it holds the attempts that the other holds, the other goes. What is left is ranked: what blocks
most attempts for good comes first.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from datetime import datetime

from hawk.core.diagnosis.about import ABOUT
from hawk.core.diagnosis.causes import Cause, Layer, Scope, Severity
from hawk.core.diagnosis.evidence import Attempt, Evidence
from hawk.core.diagnosis.rule import Finding, Rule
from hawk.core.diagnosis.rules import RULES
from hawk.core.diagnosis.verdict import Diagnosis, Fact, Judged, Verdict
from hawk.core.diagnosis.view import View
from hawk.core.text import one_line

_SHOWN = 20
"""Names of attempts in a verdict."""

_FACTS = 12
"""Facts in a verdict: more convince nobody."""

_DEATHS = frozenset({Cause.KILLED, Cause.CRASHED})
"""How a runner ended says little of why its attempts did not end: what held them is met again by a resume."""

_MET_AGAIN = frozenset(Cause) - {
    Cause.SLOW_GENERATION, Cause.QUEUE_WAIT, Cause.LIMIT_HIT, Cause.NO_SLOT, Cause.QUEUED, Cause.STOPPING, Cause.PROGRESSING,
    Cause.FINISHING, Cause.LONG_TAIL, *_DEATHS,
}  # fmt: skip
"""What comes before a death even where it was no alarm yet; the others are how any job looks."""


class _Found:
    """A finding with its rule, and what is left of it once others have explained theirs."""

    def __init__(self, rule: Rule, finding: Finding) -> None:
        self.rule, self.finding = rule, finding
        self.held = set(finding.held)
        self.out_by: _Found | None = None

    @property
    def cause(self) -> Cause:
        return self.rule.cause

    @property
    def layer(self) -> Layer:
        return ABOUT[self.cause].layer


def diagnose(evidence: Evidence, now: datetime) -> list[Verdict]:
    """The causes of what a job waits for, the worst first; what is well, last."""
    return explain(evidence, now).verdicts


def explain(evidence: Evidence, now: datetime, rules: Sequence[Rule] = RULES) -> Diagnosis:
    """The same, with what became of every rule.

    Args:
        now: The moment that times refer to: of the evidence, when the runner is dead.
    """
    view = View(evidence, now)
    found: list[_Found] = []
    why: list[Judged] = []
    for rule in rules:
        missing = sorted(source for source in rule.needs if source in evidence.missing)
        if missing:
            by = "; ".join(f"{source}: {evidence.missing[source]}" for source in missing)
            why.append(Judged(rule.cause.word, ABOUT[rule.cause].layer, "not judged", by))
            continue
        mine = [_Found(rule, finding) for finding in rule.look(view)]
        found += mine
        if not mine:
            why.append(Judged(rule.cause.word, ABOUT[rule.cause].layer, "not seen"))
    _explain_away(found)
    left = sorted((f for f in found if f.out_by is None), key=lambda f: _rank(f, view))
    verdicts = [_verdict(n, f, view) for n, f in enumerate(left, 1)]
    for f in found:
        outcome = "ruled out" if f.out_by else "fired"
        by = f"{f.out_by.cause.word}: {f.out_by.finding.what}" if f.out_by else ""
        why.append(Judged(f.cause.word, f.layer, outcome, by, f.finding.what))
    healthy = [v.what for v in verdicts if v.layer is Layer.HEALTHY]
    return Diagnosis(
        evidence.job_id, evidence.at, evidence.job.status, verdicts, healthy, dict(evidence.missing), why
    )


def is_stuck(verdicts: Sequence[Verdict], in_flight: int) -> bool:
    """Whether a running job won't go on by itself: every attempt in flight is held by a verdict that does not clear.

    Args:
        in_flight: How many attempts are in flight. With none, it is what blocks the whole job that counts.
    """
    blocking = [v for v in verdicts if v.severity.blocks and not v.before_death]
    if any(v.scope is Scope.JOB and v.attempts >= in_flight for v in blocking):
        return True
    held: set[str] = set()
    for v in blocking:
        held.update(v.uuids)
    return 0 < in_flight <= len(held)


def _explain_away(found: list[_Found]) -> None:
    """Take away what follows from something else; a cause that is itself taken away explains nothing."""
    for f in sorted(found, key=lambda f: -len(f.rule.rules_out)):
        if f.out_by is not None or not f.rule.rules_out:
            continue
        for other in found:
            if other is f or other.out_by is not None or other.cause not in f.rule.rules_out:
                continue
            if f.finding.whole:
                other.out_by = f
            elif other.held:
                other.held -= f.held
                if not other.held and other.finding.ended <= f.finding.ended:
                    other.out_by = f
            elif 0 < other.finding.ended <= f.finding.ended or (
                other.finding.subject and other.finding.subject == f.finding.subject
            ):
                other.out_by = f


def _rank(f: _Found, view: View) -> tuple[object, ...]:
    finding = f.finding
    reach = len(view.attempts) + finding.waiting if finding.whole else len(f.held) + finding.waiting
    death = f.cause in _DEATHS and not view.job.alive
    rank: float = finding.severity.rank
    if death:
        rank = Severity.STUCK.rank - 0.5
    elif not view.job.alive and f.cause in _MET_AGAIN and (f.held or finding.whole):
        rank = max(rank, Severity.STUCK.rank - 0.25)
    return (
        f.layer is Layer.HEALTHY,
        -rank,
        -(reach + finding.ended),
        finding.since or "~",
        f.cause,
        finding.subject,
    )


def _verdict(n: int, f: _Found, view: View) -> Verdict:
    finding, about = f.finding, ABOUT[f.cause]
    held = sorted(f.held) if not finding.whole else view.everybody
    attempts = [view.attempts[i] for i in held]
    uuids = view.uuids(held)
    count = len(held) + finding.ended + finding.waiting
    words = {
        "n": str(n),
        "job": view.evidence.job_id,
        "uuid": finding.uuid or (uuids[0] if uuids else "UUID"),
        "model": finding.subject or (attempts[0].model if attempts else "MODEL"),
    }
    return Verdict(
        n=n,
        cause=f.cause.word,
        layer=about.layer,
        scope=_scope(f, view, count),
        severity=finding.severity,
        what=one_line(finding.what, 400),
        who=finding.who or about.who,
        remedy=one_line(finding.remedy or about.remedy, 400),
        next=_fill(finding.next or about.next, words),
        since=finding.since or view.held_since(held),
        clears=finding.clears,
        evidence=_told(finding.facts)[:_FACTS],
        subject=one_line(finding.subject, 200),
        attempts=count,
        pairs=len({(attempt.task, attempt.sample) for attempt in attempts}) or min(count, finding.ended),
        held=[_name(attempt) for attempt in attempts[:_SHOWN]],
        uuids=uuids,
        cost_hours=round(_cost(finding, held, view) / 3600, 3),
        before_death=not view.job.alive and bool(held or finding.whole) and f.layer is not Layer.RUNNER,
        weakened=sorted(s for s in f.rule.helps if s in view.evidence.missing),
        fix=finding.fix,
        doc=about.anchor,
    )


def _told(facts: Iterable[Fact]) -> list[Fact]:
    """Each fact once: of two attempts alike the same may have been seen."""
    told: dict[tuple[str, str], Fact] = {}
    for fact in facts:
        text = one_line(fact.fact, 500)
        told.setdefault((fact.source, text), Fact(fact.source, text, fact.at))
    return list(told.values())


def _name(attempt: Attempt) -> str:
    return one_line(attempt.name or f"{attempt.sample}/{attempt.epoch}", 200)


def _scope(f: _Found, view: View, count: int) -> Scope:
    if f.finding.whole or (view.attempts and len(f.held) == len(view.attempts)):
        return Scope.JOB
    tasks = {view.attempts[i].task for i in f.held}
    return (
        Scope.ATTEMPT
        if count == 1 and f.held
        else Scope.TASK
        if len(tasks) == 1 and count > 1
        else Scope.ATTEMPT
    )


def _cost(finding: Finding, held: Sequence[int], view: View) -> float:
    if finding.cost is not None:
        return finding.cost
    if finding.severity is Severity.INFO:
        return 0.0
    since = finding.since
    total = 0.0
    for i in held:
        total += max(0.0, view.ago(since or view.attempts[i].since) or 0.0)
    return total


def _fill(text: str, words: dict[str, str]) -> str:
    """Put names into a command. They come from people and providers: none ends the word that it stands in."""
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", shlex.quote(one_line(value, 200)))
    return text
