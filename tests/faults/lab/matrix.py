"""What came of scenarios, as text: a line each, who was taken for whom, and the shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hawk.core.diagnosis.causes import Severity
from tests.faults.lab.scenario import CLUSTER
from tests.faults.lab.trial import Outcome, Result


def line(result: Result) -> str:
    """One scenario."""
    took = f"{result.seconds:5.1f} s" if result.seconds is not None else "      -"
    dead = ""
    if result.dead is not None:
        dead = " dead: right" if result.dead_right else f" dead: {result.dead}, served: {result.dead_served}"
    why = f" ({result.why})" if result.why else ""
    return f"{result.outcome:13} {took}  {result.name:45} {result.first or 'nothing'}{why}{dead}"


def matrix(results: Sequence[Result]) -> str:
    """Expected cause → what was first, and how often; right ones are not spelt out."""
    rows: dict[str, Counter[str]] = {}
    for result in results:
        if result.outcome is Outcome.SKIPPED:
            continue
        expected = "healthy" if result.healthy else result.cause
        if result.several:
            expected = f"{expected} and others"
        if result.healthy:
            said = "healthy" if result.outcome is Outcome.RIGHT else result.why.partition(":")[0]
        else:
            right = result.outcome in (Outcome.RIGHT, Outcome.LATE, Outcome.THIN)
            said = "right" if right else result.first or "nothing"
        rows.setdefault(expected, Counter())[said] += 1
    width = max((len(name) for name in rows), default=0)
    lines = ["", "what it was → what was named first"]
    for name, counted in sorted(rows.items()):
        lines.append(
            f"  {name:{width}}  " + ", ".join(f"{what} {count}" for what, count in counted.most_common())
        )
    return "\n".join(lines)


def faults(results: Sequence[Result]) -> list[Result]:
    return [r for r in results if not r.healthy and r.outcome is not Outcome.SKIPPED]


def first_right(results: Sequence[Result]) -> float:
    """Share of the faults with one cause of which the right one was named first."""
    one = [r for r in faults(results) if not r.several]
    return _share(r.outcome in (Outcome.RIGHT, Outcome.LATE, Outcome.THIN) for r in one)


def layer_right(results: Sequence[Result]) -> float:
    """The same of the layer."""
    one = [r for r in faults(results) if not r.several]
    return _share(
        r.first.partition(".")[0] == r.cause.partition(".")[0]
        or r.outcome in (Outcome.RIGHT, Outcome.LATE, Outcome.THIN)
        for r in one
    )


def several_named(results: Sequence[Result]) -> float:
    """Share of the faults with several causes of which all were named."""
    return _share(
        r.outcome in (Outcome.RIGHT, Outcome.LATE, Outcome.THIN, Outcome.SECOND)
        for r in faults(results)
        if r.several
    )


def in_time(results: Sequence[Result]) -> float:
    return _share(r.outcome is Outcome.RIGHT for r in faults(results))


def after_death(results: Sequence[Result]) -> float:
    return _share(bool(r.dead_right) for r in faults(results) if r.dead is not None)


def alarms(results: Sequence[Result]) -> int:
    """Healthy runs of which something was said to be stuck or fatal."""
    return sum(any(Severity(severity).blocks for severity in r.named.values()) for r in results if r.healthy)


def summary(results: Sequence[Result]) -> str:
    """The shares, and what was left out."""
    counts = Counter(result.outcome for result in results)
    healthy = sum(r.healthy and r.outcome is not Outcome.SKIPPED for r in results)
    lines = [
        "",
        ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()),
        f"right cause first {first_right(results):.0%}, right layer {layer_right(results):.0%}, all of several named "
        f"{several_named(results):.0%}, in time {in_time(results):.0%}, after death {after_death(results):.0%}",
        f"{alarms(results)} false stuck or fatal, {counts[Outcome.ALARM]} false alarms of any kind in {healthy} healthy runs",
        f"NOT PROVOKED, because they need a cluster: {', '.join(CLUSTER)} (documents in tests/core)",
    ]
    return "\n".join(lines)


def _share(right: object) -> float:
    found = list(right)  # type: ignore[call-overload]
    return sum(found) / len(found) if found else float("nan")
