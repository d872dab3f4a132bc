"""What is said of requests that fail: what was seen, and how many."""

from __future__ import annotations

from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.evidence import CallGroup
from hawk.core.diagnosis.failing import Failing
from hawk.core.diagnosis.rule import fact
from hawk.core.diagnosis.saying import counted, lasted
from hawk.core.diagnosis.verdict import Fact
from hawk.core.diagnosis.view import View


def failing_facts(view: View, one: Failing, *more: Fact | None) -> list[Fact]:
    """What was seen of it."""
    found = [
        fact(
            Source.SPANS, f"{counted(g.count, 'request')} ended with {_ending(g)}{_words(g.said)}", g.last_at
        )
        for g in one.groups
        if g.count
    ]
    if one.streak and one.model.lane is None and not one.model.open and one.row:
        found = []  # all that is known are the pauses
    if one.row:
        count = sum(view.attempts[i].retrying is not None for i in one.held)
        pauses = f"; {lasted(one.waited)} in pauses so far" if one.waited else ""
        found.append(
            fact(
                Source.CONTROL, f"{counted(count, 'attempt')} with up to {one.row} failures in a row{pauses}"
            )
        )
    if one.streak:
        last = one.model.last_ok
        ago = view.ago(last)
        text = "no good answer yet" if ago is None else f"the last good answer is {lasted(ago)} old"
        found.append(fact(Source.SPANS, f"{one.subject}: {text}", last))
    for error in one.errors[:3]:
        found.append(
            fact(
                Source.LOGS, f"ended {counted(error.count, 'attempt')}: {error.message[:200]}", error.last_at
            )
        )
    return [*found, *(one for one in more if one is not None)]


def _ending(group: CallGroup) -> str:
    status = group.upstream_status or group.status
    name = group.error or str(group.kind).replace("_", " ")
    return f"{status} ({name})" if status else name


def _words(said: str) -> str:
    return f": {said[:200]}" if said else ""


def many(one: Failing) -> str:
    """`12 requests in a row`, or how many attempts ended."""
    if one.streak > 1:
        return f"{one.streak} requests in a row"
    if one.row > 1:
        return f"{one.row} calls in a row"
    if one.ended:
        return counted(one.ended, "attempt")
    return counted(one.count or one.streak or 1, "request")
