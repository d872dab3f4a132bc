"""What a rule is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hawk.core.diagnosis.causes import Cause, Severity, Source, Who
from hawk.core.diagnosis.verdict import Fact, Fix
from hawk.core.diagnosis.view import View


@dataclass
class Finding:
    """What a rule concludes, before it is weighed against what others do.

    Attributes:
        what: One line: what is wrong, with numbers.
        held: Indices (of `Evidence.attempts`) of the attempts in flight that it holds.
        whole: It holds the whole job: whatever else runs or waits.
        ended: Attempts that it has ended already (errors, limits).
        waiting: Attempts that have not begun and wait because of it.
        subject: Which model, worker, tool, task or setting: two findings of one cause differ in it.
        since: When it began, ISO 8601.
        clears: When it ends by itself.
        cost: Attempt-seconds that it has cost; None: the time for which it has held what it holds.
        remedy, next, who: Where they differ from what `about` says of the cause. `next` may hold {job}, {uuid}, {model}.
        uuid: Of the attempt that `next` should speak of; else the first that is held.
        hedged: It can't be told from something harmless yet: the severity says so, and what would tell them apart
            is in `next`.
    """

    severity: Severity
    what: str
    facts: list[Fact]
    held: list[int] = field(default_factory=list)
    whole: bool = False
    ended: int = 0
    waiting: int = 0
    subject: str = ""
    since: str | None = None
    clears: str | None = None
    cost: float | None = None
    remedy: str | None = None
    next: str | None = None
    who: Who | None = None
    uuid: str | None = None
    fix: Fix | None = None


@dataclass(frozen=True)
class Rule:
    """A cause, how it is seen, and what it explains away.

    Attributes:
        needs: Without these sources it is not judged.
        helps: Sources that it is checked against where they are there; missing, they weaken its verdict.
        rules_out: Causes that are a consequence of this one, where they hold the same attempts (or the same subject,
            when they hold none).
    """

    cause: Cause
    look: Callable[[View], Iterable[Finding]]
    needs: frozenset[Source] = frozenset()
    helps: frozenset[Source] = frozenset()
    rules_out: frozenset[Cause] = frozenset()


def rule(
    cause: Cause,
    look: Callable[[View], Iterable[Finding]],
    *,
    needs: Iterable[Source] = (),
    helps: Iterable[Source] = (),
    rules_out: Iterable[Cause] = (),
) -> Rule:
    """A rule; sets are made of what is given."""
    return Rule(cause, look, frozenset(needs), frozenset(helps), frozenset(rules_out))


def fact(source: Source, text: str, at: str | None = None) -> Fact:
    """One observation."""
    return Fact(source, text, at)
