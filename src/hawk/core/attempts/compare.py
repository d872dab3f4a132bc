"""Two runs side by side: did the environment make agents fail, did they get worse, or is it noise?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hawk.core.attempts import because
from hawk.core.attempts.concentration import Fate, concentration
from hawk.core.attempts.noise import BIG, Noise, noise
from hawk.core.attempts.report import Comparison, Judgement, PairRow, Report
from hawk.core.attempts.results import Outcome, Pair, Result
from hawk.core.attempts.rows import Key, newest, pair_order, pair_row
from hawk.core.attempts.spans import moment
from hawk.core.attempts.statistics import SIGNIFICANT, mcnemar
from hawk.core.attempts.throttling import Strain, provider_of, strained

_MOST = 2 / 3  # of the growth in refusals, from which on it is one provider's


class _Matched(NamedTuple):
    """Pairs that both runs have.

    Attributes:
        rows: Those decided in both, as they are in either.
        undecided: The others.
        cut: How many were cut to the number of attempts that both have.
    """

    rows: list[tuple[PairRow, PairRow]]
    undecided: list[Pair]
    cut: int


def compare(a: Report, b: Report, results_a: Iterable[Result], results_b: Iterable[Result]) -> Comparison:
    """Compare run B with run A, pair by pair.

    A pair counts when it is decided in both. Where the runs planned different numbers of attempts for it,
    only the first ones that both have count, else the run with more would win by that alone.

    Args:
        results_a: All results of A, those that its report leaves out too.
        results_b: Of B.
    """
    kept_a, kept_b = newest(results_a)[0], newest(results_b)[0]
    # Sorted: the order in which files are read must not show in a sum of durations.
    all_a, all_b = _ordered(a, kept_a), _ordered(b, kept_b)
    matched = _match(a, b, kept_a, kept_b)
    fates = [Fate(row.pair, bool(row.passed), bool(other.passed)) for row, other in matched.rows]
    lost = [fate for fate in fates if fate.lost]
    gained = [fate for fate in fates if fate.gained]
    found = noise(matched.rows, len(lost), len(gained))
    strains = strained(all_a, all_b)
    harmful = [strain for strain in strains if _harm(strain, fates)]
    pairs_a, pairs_b = {row.pair for row in a.pairs}, {row.pair for row in b.pairs}
    comparison = Comparison(
        a=a.job_id,
        b=b.job_id,
        common=len(fates),
        both_passed=sum(fate.before and fate.after for fate in fates),
        both_failed=sum(not fate.before and not fate.after for fate in fates),
        lost=[str(fate.pair) for fate in lost],
        gained=[str(fate.pair) for fate in gained],
        p=mcnemar(len(lost), len(gained)),
        judgement=_judge(fates, found, harmful),
        blame=_blame(harmful),
        expected_flips=found.expected,
        expected_sd=found.sd,
        smallest=found.smallest if fates else None,
        concentration=concentration(fates, _starts(all_b)),
        only_a=[str(row.pair) for row in a.pairs if row.pair not in pairs_b],
        only_b=[str(row.pair) for row in b.pairs if row.pair not in pairs_a],
        undecided=[str(pair) for pair in matched.undecided],
        errors_a=_errors(all_a),
        errors_b=_errors(all_b),
        retries_a=_retries(all_a),
        retries_b=_retries(all_b),
        different=_differ(all_a, all_b),
    )
    comparison.because = [
        *because.of_throttling(comparison, strains, harmful, fates),
        *because.of_recovery(comparison, strained(all_b, all_a)),
        *because.of_flips(comparison, found),
        *because.of_losses(comparison, matched.rows),
        *because.of_the_rest(comparison, matched.cut),
    ]
    return comparison


def _differ(all_a: Iterable[Result], all_b: Iterable[Result]) -> bool:
    """Whether any pair was attempted under other conditions: its eval or the eval set had changed."""
    made_a, made_b = _conditions(all_a), _conditions(all_b)
    return any(made_a[pair] != made_b[pair] for pair in made_a.keys() & made_b.keys())


def _conditions(results: Iterable[Result]) -> dict[Pair, set[str]]:
    found: dict[Pair, set[str]] = {}
    for result in results:
        if result.fingerprint:
            found.setdefault(result.pair, set()).add(result.fingerprint)
    return found


def _ordered(report: Report, kept: Mapping[Key, Result]) -> list[Result]:
    place = {row.pair: number for number, row in enumerate(report.pairs)}
    return sorted(kept.values(), key=lambda r: (place.get(r.pair, len(place)), pair_order(r.pair), r.attempt))


def _match(a: Report, b: Report, kept_a: Mapping[Key, Result], kept_b: Mapping[Key, Result]) -> _Matched:
    others = {row.pair: row for row in b.pairs}
    matched = _Matched([], [], 0)
    for row in a.pairs:
        if (other := others.get(row.pair)) is None:
            continue
        if row.planned != other.planned:
            k = min(row.planned, other.planned)
            row, other = _cut(row.pair, k, kept_a), _cut(row.pair, k, kept_b)
            matched = matched._replace(cut=matched.cut + 1)
        if row.passed is None or other.passed is None:
            matched.undecided.append(row.pair)
        else:
            matched.rows.append((row, other))
    return matched


def _cut(pair: Pair, k: int, results: Mapping[Key, Result]) -> PairRow:
    first = {n: found for n in range(1, k + 1) if (found := results.get((pair, n)))}
    return pair_row(pair, k, first, cancels=False)


def _starts(results: Iterable[Result]) -> dict[Pair, float]:
    starts: dict[Pair, float] = {}
    for result in results:
        if (start := moment(result.started_at)) is not None:
            starts[result.pair] = min(start, starts.get(result.pair, start))
    return starts


class _Net(NamedTuple):
    """Pairs lost less pairs gained, and whether that is beyond chance."""

    loss: int
    certain: bool


def _net(fates: Iterable[Fate]) -> _Net:
    rows = list(fates)
    lost, gained = sum(fate.lost for fate in rows), sum(fate.gained for fate in rows)
    return _Net(lost - gained, mcnemar(lost, gained) < SIGNIFICANT)


def _loses(net: _Net) -> bool:
    return net.certain and net.loss > 0


def _harm(strain: Strain, fates: Sequence[Fate]) -> bool:
    """Whether a provider's refusals did harm: to attempts, to their time, or to pairs that met them."""
    theirs = [fate for fate in fates if provider_of(fate.pair.model) == strain.provider]
    lost = [fate for fate in theirs if fate.lost]
    met = sum(fate.pair in strain.after.met for fate in lost)
    # All pairs together may show a loss that one provider's are too few for.
    beyond_chance = _loses(_net(theirs)) or (
        _loses(_net(fates)) and 2 * len(lost) > sum(f.lost for f in fates)
    )
    return strain.lost_attempts or strain.cost_time or (beyond_chance and 2 * met >= len(lost))


def _blame(harmful: Sequence[Strain]) -> str | None:
    if len(harmful) == 1 or (harmful and harmful[0].share >= _MOST):
        return harmful[0].provider
    return None


def _judge(fates: Sequence[Fate], found: Noise, harmful: Sequence[Strain]) -> Judgement:
    """The first of these that holds:

    1. `throttling`: at some provider refusals for load (429, 503, 529, rate limits, overload, calls that came
       too late) grew strongly from A to B (`throttling.strained`) and did harm there: attempts ended as
       infrastructure errors because of them, or attempts took longer, or pairs were lost beyond chance and
       met them. No flip is needed: retries may save every attempt and cost only time, and infrastructure
       errors are no fails. It gives way to `regression` when pairs are lost beyond chance and most of that,
       or a loss beyond chance, is of pairs that met no refusal; and to `improvement` when pairs are gained
       beyond chance and the throttled provider's were not lost. `blame` names the only provider that did
       harm, or the one whose refusals are two thirds of the growth or more; it stays empty when several did
       alike, for then what they share (network, proxy) is to blame.
    2. `regression`, `improvement`: McNemar's exact p is below 0.05; the direction says which.
    3. `underpowered`: no pair is decided in both; or some flipped, and even a net loss of a fifth of the
       pairs would not have been significant amid the noise; or more flipped than identical runs would
       show, but both ways alike, which is neither noise nor a direction.
    4. `noise`: all else, so also any run against itself.
    """
    every = _net(fates)
    if harmful:
        met = {pair for strain in harmful for pair in strain.after.met}
        touched, spared = (_net(f for f in fates if (f.pair in met) is there) for there in (True, False))
        if _loses(every) and (2 * touched.loss < every.loss or _loses(spared)):
            return Judgement.REGRESSION
        if every.certain and every.loss < 0 and not _loses(touched):
            return Judgement.IMPROVEMENT
        return Judgement.THROTTLING
    if every.certain:
        return Judgement.REGRESSION if every.loss > 0 else Judgement.IMPROVEMENT
    flipped = sum(fate.before != fate.after for fate in fates)
    if not fates or (flipped and found.smallest > BIG * len(fates)):
        return Judgement.UNDERPOWERED
    return Judgement.UNDERPOWERED if found.exceeded(flipped) else Judgement.NOISE


def _errors(results: Iterable[Result]) -> dict[str, int]:
    found = Counter(provider_of(r.pair.model) for r in results if r.outcome is Outcome.INFRA_ERROR)
    return dict(sorted(found.items()))


def _retries(results: Iterable[Result]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        for kind, times in result.provider_retries.items():
            found[provider_of(result.pair.model)][kind] += times
    return {provider: dict(sorted(kinds.items())) for provider, kinds in sorted(found.items())}
