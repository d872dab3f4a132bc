"""A job's report, from what its attempts came to: byte for byte the same in whatever order they are read."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from hawk.core.attempts.intervals import clustered
from hawk.core.attempts.report import Estimate, GroupRow, PairRow, PolicyUse, Report
from hawk.core.attempts.results import Outcome, Pair, Result, Usage
from hawk.core.attempts.rows import (
    Key,
    began,
    first_line,
    newest,
    pair_order,
    pair_row,
    tokens,
    without_result,
)
from hawk.core.attempts.spans import Span, moment, most_at_once, seconds, span
from hawk.core.attempts.statistics import pass_at_k, pass_pow_k

_EVERY_K = 10  # up to here pass@k is given for each k, beyond it for 16, 32, … and the last


def _fingerprints(results: Iterable[Result]) -> list[str]:
    """Those of the pair that has the most: several mean that something changed between its attempts."""
    found: dict[Pair, set[str]] = {}
    for result in results:
        if result.fingerprint:
            found.setdefault(result.pair, set()).add(result.fingerprint)
    return max(
        (sorted(prints) for prints in found.values()), key=lambda prints: (len(prints), prints), default=[]
    )


def report(
    job_id: str,
    planned: Sequence[tuple[Pair, int]],
    results: Iterable[Result],
    *,
    policy: str,
    runs: int,
    cancels: bool,
    policies: Iterable[PolicyUse] = (),
    problems: Iterable[str] = (),
) -> Report:
    """What a job's attempts amount to.

    Args:
        planned: Each pair, in the plan's order, with the number of attempts planned for it.
        results: Of attempts that have ended, in any order. One that is not planned (from an earlier, larger
            plan) is counted in what was used and nowhere else, and named. Of two for one attempt the one that
            ended later counts.
        policy: Its name, for people.
        runs: Attempts planned for a pair, as configured.
        cancels: The policy ends or skips attempts once one has passed, so that those with a result are no
            fair sample: `biased` says so, pass@k and pass^k stay empty, and pass@1 is the share of pairs
            whose first result passed.
        policies: What other policies would have used.
        problems: What could not be read.
    """
    plan = dict(planned)
    cancels = cancels and runs > 1
    kept, twice = newest(results)
    ours, strays = _by_plan(kept, plan)
    rows = [pair_row(pair, number, ours[pair], cancels=cancels) for pair, number in plan.items()]
    tried = {pair: [found[k] for k in sorted(found)] for pair, found in ours.items()}
    counted = [result for found in tried.values() for result in found]
    scores = {pair: _scores(found, cancels=cancels) for pair, found in tried.items()}
    names = _names(plan)
    complete = [row for row in rows if row.produced == row.planned >= max(1, runs)]
    spans = _spans(counted)
    wall = _wall(spans)
    return Report(
        job_id=job_id,
        policy=policy,
        runs=runs,
        complete=all(row.final for row in rows),
        pairs=rows,
        passed=sum(row.passed is True for row in rows),
        failed=sum(row.passed is False for row in rows),
        undecided=sum(row.passed is None for row in rows),
        tally=_tally(rows, complete, cancels=cancels),
        any_pass=_any_pass(rows),
        pass_at_1=_pass_at_1(rows, scores),
        pass_at_k={} if cancels else _by_k(complete, runs, pass_at_k),
        pass_pow_k={} if cancels else _by_k(complete, runs, pass_pow_k),
        biased=_biased(policy) if cancels else None,
        incomplete=_incomplete(rows, complete, names, runs, cancels=cancels),
        unfinished={names[row.pair]: row.error for row in rows if row.error is not None},
        saved=[names[row.pair] for row in rows if _saved(row)],
        groups=_groups(rows, scores),
        outcomes=_sorted(Counter(attempt.outcome.value for row in rows for attempt in row.attempts)),
        infra_errors=_infra_errors(counted),
        wall=wall,
        slowest=max((s for result in counted if (s := seconds(result.duration)) is not None), default=None),
        usage=_usage(counted + strays),
        actual=_use(policy, counted + strays, wall, most_at_once(spans + _spans(strays))),
        policies=list(policies),
        problems=[*problems, *_problems(twice, strays)],
        fingerprints=_fingerprints(counted),
    )


def _by_plan(
    kept: Mapping[Key, Result], plan: Mapping[Pair, int]
) -> tuple[dict[Pair, dict[int, Result]], list[Result]]:
    """Results of planned attempts by pair and attempt, and the others in order."""
    ours: dict[Pair, dict[int, Result]] = {pair: {} for pair in plan}
    strays = []
    for (pair, attempt), result in kept.items():
        if 1 <= attempt <= plan.get(pair, 0):
            ours[pair][attempt] = result
        else:
            strays.append(result)
    return ours, sorted(strays, key=lambda result: (pair_order(result.pair), result.attempt))


def _names(pairs: Iterable[Pair]) -> dict[Pair, str]:
    """Each pair's name; with its directory where two pairs would be called the same."""
    names = {pair: str(pair) for pair in pairs}
    often = Counter(names.values())
    return {p: name if often[name] == 1 else f"{name} ({p.directory})" for p, name in names.items()}


def _cluster(pair: Pair) -> Hashable:
    return pair.task, pair.sample


def _any_pass(rows: Iterable[PairRow]) -> Estimate | None:
    return clustered((_cluster(row.pair), float(row.passed)) for row in rows if row.passed is not None)


def _scores(results: Iterable[Result], *, cancels: bool) -> list[float]:
    """What a pair adds to pass@1: 1 or 0 for each attempt with a result.

    Where a pass ends the others, only the first result counts: later ones exist because it did not pass, and
    all of them together would be too low.
    """
    produced = [result for result in results if result.outcome.produced]
    if cancels and len(produced) > 1:
        produced = [min(produced, key=_ended)]
    return [float(result.passed) for result in produced]


def _pass_at_1(rows: Iterable[PairRow], scores: dict[Pair, list[float]]) -> Estimate | None:
    return clustered((_cluster(row.pair), score) for row in rows for score in scores[row.pair])


def _ended(result: Result) -> float:
    ended = moment(result.ended_at)
    return math.inf if ended is None else ended


def _by_k(rows: list[PairRow], runs: int, estimator: Callable[[int, int, int], float]) -> dict[int, Estimate]:
    ks = {k for k in range(1, runs + 1) if k <= _EVERY_K or k & (k - 1) == 0} | {runs}
    estimates = {}
    for k in sorted(k for k in ks if k > 0):
        counts = {(row.planned, row.passes) for row in rows}
        values = {(n, c): estimator(n, c, k) for n, c in counts}
        estimate = clustered((_cluster(row.pair), values[row.planned, row.passes]) for row in rows)
        if estimate is not None:
            estimates[k] = estimate
    return estimates


def _biased(policy: str) -> str:
    return (
        f"{policy} ends or skips attempts once one has passed, so pass@k and pass^k would be biased "
        "and are not given; pass@1 is the share of pairs whose first result passed."
    )


def _decided_early(row: PairRow, *, cancels: bool) -> bool:
    return cancels and row.passed is True


def _tally(rows: list[PairRow], complete: list[PairRow], *, cancels: bool) -> dict[str, int]:
    """Pairs by "passes/attempts". Where a pass ends a pair, its attempts are those that came to a result."""
    counted = [row for row in rows if _decided_early(row, cancels=cancels)]
    early = {row.pair for row in counted}
    counted += [row for row in complete if row.pair not in early]
    found = Counter((row.passes, row.produced) for row in counted)
    order = sorted(found, key=lambda key: (key[1], -key[0]))
    return {f"{passes}/{produced}": found[passes, produced] for passes, produced in order}


def _incomplete(
    rows: list[PairRow], complete: list[PairRow], names: dict[Pair, str], runs: int, *, cancels: bool
) -> dict[str, str]:
    whole = {row.pair for row in complete}
    left_out = {}
    for row in rows:
        if row.pair in whole or _decided_early(row, cancels=cancels):
            continue
        text = f"{row.produced} of {row.planned} attempts have a result"
        if missing := without_result(row.planned, (attempt.outcome for attempt in row.attempts)):
            text += f": {missing}"
        if row.planned < runs:
            text += f"; planned are only {row.planned} of {runs}"
        left_out[names[row.pair]] = text
    return left_out


def _saved(row: PairRow) -> bool:
    """Whether the first attempt ended without passing, and a later one passed.

    One that its sibling's pass canceled was not saved: nobody knows what it would have come to.
    """
    if not row.passed or not row.attempts or row.attempts[0].attempt != 1:
        return False
    return row.attempts[0].outcome not in (Outcome.PASS, Outcome.CANCELED, Outcome.MISSING)


def _groups(rows: list[PairRow], scores: dict[Pair, list[float]]) -> list[GroupRow]:
    parts: dict[tuple[str, str], list[PairRow]] = defaultdict(list)
    for kind in ("model", "task", "agent"):
        for row in rows:
            name = getattr(row.pair, kind)
            if name is not None:
                parts[kind, name].append(row)
    return [
        GroupRow(
            kind=kind,
            name=name,
            pairs=len(members),
            passed=sum(row.passed is True for row in members),
            failed=sum(row.passed is False for row in members),
            undecided=sum(row.passed is None for row in members),
            any_pass=_any_pass(members),
            pass_at_1=_pass_at_1(members, scores),
        )
        for (kind, name), members in parts.items()
    ]


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))


def _infra_errors(results: Iterable[Result]) -> dict[str, int]:
    """Most frequent first."""
    found: Counter[str] = Counter()
    for result in results:
        if result.outcome is Outcome.INFRA_ERROR:
            error = result.error
            text = (first_line(error.message) or error.kind) if error else first_line(result.reason or "")
            found[text or "no reason was recorded"] += 1
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _spans(results: Iterable[Result]) -> list[Span]:
    return [found for result in results if (found := span(result))]


def _wall(spans: Sequence[Span]) -> float | None:
    if not spans:
        return None
    return round(max(end for _, end in spans) - min(start for start, _ in spans), 6)


def _usage(results: Iterable[Result]) -> dict[str, Usage]:
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        for model, usage in result.usage.items():
            for name in Usage.__struct_fields__:
                sums[model][name] += tokens(usage) if name == "total" else getattr(usage, name)
    return {model: Usage(**counts) for model, counts in sorted(sums.items())}


def _use(policy: str, results: list[Result], wall: float | None, slots: int) -> PolicyUse:
    attempts = sum(map(began, results))
    costs = [result.cost for result in results if result.cost is not None]
    return PolicyUse(
        policy=policy,
        wall=wall or 0.0,
        attempts=attempts,
        seconds=math.fsum(seconds(result.duration) or 0.0 for result in results),
        tokens=sum(tokens(usage) for result in results for usage in result.usage.values()),
        cost=math.fsum(costs) if costs else None,
        waves=max(1, round(attempts / slots)) if slots else 1,
        slots=slots,
    )


def _problems(twice: Iterable[tuple[Pair, int]], strays: Iterable[Result]) -> list[str]:
    return [
        *(
            f"{pair} attempt {attempt}: more than one result; the one that ended later counts"
            for pair, attempt in sorted(twice, key=lambda key: (pair_order(key[0]), key[1]))
        ),
        *(
            f"{stray.pair} attempt {stray.attempt}: not in the plan; only what it used is counted"
            for stray in strays
        ),
    ]
