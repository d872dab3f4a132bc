"""The figures of a report in words: the same in a terminal, on a page and in a summary. Plain text, not yet escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from hawk.cli.text import duration, plural
from hawk.core.attempts.report import Estimate, GroupRow, PairRow, PolicyUse, Report
from hawk.core.attempts.results import Outcome


class State(StrEnum):
    """What there is to say of a pair, worst first."""

    FAILED = "failed"
    NO_RESULT = "no result"
    UNDECIDED = "undecided"  # attempts that are still to come decide
    FLAKY = "flaky"  # passed, though another attempt did not
    PASSED = "passed"


_ORDER = {state: i for i, state in enumerate(State)}

POLICY_COLUMNS = ("policy", "wall clock", "attempts", "sandbox-hours", "tokens", "cost", "slots", "waves")
GROUP_COLUMNS = ("kind", "name", "passed", "failed", "undecided", "any pass", "pass@1")


MODELS = 4
"""Models whose tokens are told apart in a line: those that used most."""


class Rate(NamedTuple):
    """A rate of the report: its name, what it is, its estimate, and why there is none."""

    name: str
    meaning: str
    estimate: Estimate | None
    why_not: str = ""


class Fact(NamedTuple):
    label: str
    text: str


def state(row: PairRow) -> State:
    """The word for a pair."""
    if row.passed is None:
        return State.NO_RESULT if row.final or row.error else State.UNDECIDED
    if not row.passed:
        return State.FAILED
    return State.FLAKY if row.passes < row.produced else State.PASSED


def ordered(pairs: Iterable[PairRow]) -> list[PairRow]:
    """Worst first, otherwise in the plan's order."""
    return sorted(pairs, key=lambda row: _ORDER[state(row)])


def headline(report: Report) -> str:
    """How many pairs passed, in one sentence."""
    decided = report.passed + report.failed
    if not decided:
        return f"None of {plural(len(report.pairs), 'pair')} is decided yet."
    text = f"{report.passed:,} of {plural(decided, 'pair')} passed"
    if report.any_pass is not None:
        text += f": {percent(report.any_pass.value)} (95 % interval {interval(report.any_pass)})"
    return text + (f"; {report.undecided:,} undecided." if report.undecided else ".")


def subtitle(report: Report) -> str:
    """Policy, runs, and whether it is all there."""
    whole = "complete" if report.complete else "not complete: attempts are missing or still to come"
    return f"{report.policy}, {plural(report.runs, 'run')} of each pair, {whole}"


def rates(report: Report) -> list[Rate]:
    """The rates that the report has; of those that it can't have, why."""
    first = "attempts that passed, of those with a result"
    if report.biased is not None:
        first = "pairs whose first result passed"
    rows = [
        Rate("any pass", "pairs with at least one pass, of those decided", report.any_pass),
        Rate("pass@1", first, report.pass_at_1),
    ]
    if report.biased is not None:
        return [*rows, Rate("pass@k", "not given", None, report.biased)]
    rows += [
        Rate(f"pass@{k}", f"chance that one of {k} attempts passes", value)
        for k, value in sorted(report.pass_at_k.items())
        if k > 1
    ]
    rows += [
        Rate(f"pass^{k}", f"chance that {k} attempts all pass", value)
        for k, value in sorted(report.pass_pow_k.items())
        if k > 1
    ]
    return rows


def facts(report: Report) -> list[Fact]:
    """The rest of the figures, one line each."""
    rows = []
    if report.tally:
        rows.append(Fact("tally", ", ".join(f"{count:,} x {key}" for key, count in tally(report))))
    rows.append(Fact("saved", f"{plural(len(report.saved), 'pair')} passed only by a later attempt"))
    if report.wall is not None:
        text = seconds(report.wall)
        if report.slowest:
            text += f"; slowest attempt {seconds(report.slowest)} ({report.wall / report.slowest:.2f} x)"
        rows.append(Fact("wall clock", text))
    used = report.actual
    if used is not None:
        rows.append(Fact("used", f"{plural(used.attempts, 'attempt')}, {hours(used.seconds)} sandbox-hours"))
    rows += [Fact("tokens", usage_text(report))] if report.usage else []
    if used is not None and used.cost is not None:
        rows.append(Fact("money", money(used.cost)))
    if report.outcomes:
        rows.append(Fact("outcomes", ", ".join(f"{count:,} {name}" for name, count in outcomes(report))))
    return rows


def tally(report: Report) -> list[tuple[str, int]]:
    """Pairs by how many of their attempts passed, as "1/2"."""
    return list(report.tally.items())


def outcomes(report: Report) -> list[tuple[str, int]]:
    """Attempts by outcome, in the order in which outcomes are defined."""
    known = [str(outcome) for outcome in Outcome]
    order = {name: i for i, name in enumerate(known)}
    rows = sorted(report.outcomes.items(), key=lambda item: (order.get(item[0], len(known)), item[0]))
    return [(name.replace("_", " "), count) for name, count in rows if count]


def policy_rows(report: Report) -> list[tuple[str, ...]]:
    """What this policy used, then what the others would have; columns as `POLICY_COLUMNS`."""
    uses = [(use, False) for use in report.policies]
    if report.actual is not None:
        uses.insert(0, (report.actual, True))
    return [_policy_row(use, this) for use, this in uses]


def _policy_row(use: PolicyUse, this: bool) -> tuple[str, ...]:
    name = use.policy if use.threshold is None else f"{use.policy} above {seconds(use.threshold)}"
    return (
        f"{name} (this run)" if this else name,
        seconds(use.wall),
        f"{use.attempts:,}",
        hours(use.seconds),
        "–" if use.tokens is None else short(use.tokens),
        money(use.cost),
        f"{use.slots:,}" if use.slots else "–",
        f"{use.waves:,}",
    )


def group_rows(report: Report) -> list[tuple[str, ...]]:
    """Parts of the job; columns as `GROUP_COLUMNS`. What all pairs have in common is no part."""
    often = Counter(group.kind for group in report.groups)
    return [_group_row(group) for group in report.groups if often[group.kind] > 1]


def _group_row(group: GroupRow) -> tuple[str, ...]:
    return (
        group.kind,
        group.name,
        f"{group.passed:,}",
        f"{group.failed:,}",
        f"{group.undecided:,}",
        estimate(group.any_pass),
        estimate(group.pass_at_1),
    )


def attempts_text(row: PairRow) -> str:
    """The outcomes of a pair's attempts, in order."""
    return ", ".join(attempt.outcome.replace("_", " ") for attempt in row.attempts)


def slowest(row: PairRow) -> float | None:
    """Seconds of a pair's longest attempt."""
    return max((a.duration for a in row.attempts if a.duration is not None), default=None)


def tokens(row: PairRow) -> int:
    return sum(attempt.tokens for attempt in row.attempts)


def cost(row: PairRow) -> float | None:
    """Dollars for a pair's attempts; None where no price is known."""
    known = [attempt.cost for attempt in row.attempts if attempt.cost is not None]
    return sum(known) if known else None


def why(row: PairRow) -> str:
    """Why a pair did not pass, or why it nearly did not; empty for one that simply passed."""
    if row.error:
        return row.error.removeprefix(f"{row.pair}: ")
    failing = [f"{c.name}: {c.notes}" if c.notes else c.name for c in row.checks if not c.passed]
    reasons = dict.fromkeys(a.reason for a in row.attempts if a.reason and a.outcome is not Outcome.PASS)
    if row.passed:
        return "; ".join(reasons)
    return "; ".join(failing) or row.explanation or "; ".join(reasons)


def unfinished(report: Report) -> list[tuple[str, str]]:
    """Pairs without any result, and why; the reason need not say the pair again."""
    return [(pair, why.removeprefix(f"{pair}: ")) for pair, why in report.unfinished.items()]


def usage_text(report: Report) -> str:
    """All tokens, then each model's where there are several."""
    whole = short(sum(usage.total for usage in report.usage.values()))
    if len(report.usage) < 2:
        return whole
    models = sorted(report.usage.items(), key=lambda item: (-item[1].total, item[0]))
    each = [f"{model} {short(usage.total)}" for model, usage in models[:MODELS]]
    if len(models) > MODELS:
        each.append(f"{len(models) - MODELS} other models")
    return f"{whole} ({', '.join(each)})"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def interval(value: Estimate) -> str:
    return f"{100 * value.low:.1f}–{100 * value.high:.1f}"


def estimate(value: Estimate | None) -> str:
    """`87.3 % (82.0–91.5)`; `–` where there is none."""
    return "–" if value is None else f"{percent(value.value)} ({interval(value)})"


def seconds(value: float | None) -> str:
    """As `duration`, with a decimal where whole seconds would say too little."""
    return f"{value:.1f}s" if value is not None and 0 <= value < 10 else duration(value)


def hours(value: float) -> str:
    """Seconds as hours, two or three figures."""
    found = value / 3600
    return f"{found:,.1f}" if found >= 10 else f"{found:.2f}" if found >= 0.1 else f"{found:.2g}"


def money(value: float | None) -> str:
    """Dollars; small amounts keep two figures."""
    if value is None:
        return "–"
    return f"${value:,.2f}" if value >= 0.1 or value == 0 else f"${value:.2g}"


def short(count: int) -> str:
    """`950`, `12.3k`, `4.56M`, `1.23G`."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.3g}{unit}" if count < 999.5 * size else f"{count / size:.0f}{unit}"
    return str(count)
