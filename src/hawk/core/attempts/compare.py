"""Two runs side by side: did the environment make agents fail, did they get worse, or is it noise?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hawk.core.attempts.betabinomial import fit, flips
from hawk.core.attempts.concentration import Fate, concentration, together
from hawk.core.attempts.report import Comparison, Concentration, Judgement, PairRow, Report
from hawk.core.attempts.results import Outcome, Pair, Result
from hawk.core.attempts.rows import Key, newest, pair_row
from hawk.core.attempts.spans import moment
from hawk.core.attempts.statistics import SIGNIFICANT, mcnemar, smallest_loss
from hawk.core.attempts.throttling import Strain, provider_of, share_of_excess, strained

BIG = 0.2
"""A net loss of this share of the pairs is big: pairs that could not have shown even it are too few."""

_MOST = 2 / 3  # of the growth in refusals, from which on it is one provider's
_BROKEN = (Outcome.INFRA_ERROR, Outcome.SCORER_ERROR)


class _Runs(NamedTuple):
    """What is compared: the pairs decided in both, with their rows, and all results of either run."""

    rows: list[tuple[PairRow, PairRow]]
    fates: list[Fate]
    a: dict[Key, Result]
    b: dict[Key, Result]


class _Noise(NamedTuple):
    """How many flips identical runs show; `limit` is what they hardly exceed. None where the attempts don't say."""

    expected: float | None
    sd: float | None
    limit: float | None
    smallest: int


def compare(a: Report, b: Report, results_a: Iterable[Result], results_b: Iterable[Result]) -> Comparison:
    """Compare run B with run A, pair by pair.

    A pair counts when it is decided in both. Where the runs planned different numbers of attempts for it, only the
    first ones that both have count, else the run with more would win by that alone.

    The judgement is the first of these that holds:

    1. `throttling`: at some provider refusals for load (429, 503, 529, rate limits, overload, calls that came too late)
       grew strongly from A to B (`throttling.strained`) and did harm there: its pairs were lost beyond chance, or
       attempts ended as infrastructure errors because of them, or attempts took longer. No flip is needed: retries may
       save every attempt and cost only time, and attempts that are infrastructure errors are no fails. It gives way to
       `regression` when pairs are lost beyond chance and those of other providers explain it, and to `improvement` when
       pairs are gained beyond chance and the throttled provider lost none beyond chance. `blame` names the provider
       whose refusals are two thirds of the growth or more; it stays empty when several grew alike, for then what they
       share (network, proxy) is to blame.
    2. `regression`, `improvement`: McNemar's exact p is below 0.05; the direction says which.
    3. `underpowered`: no pair is decided in both; or some flipped, and even a net loss of a fifth of the pairs would
       not have been significant on top of the noise; or more flipped than identical runs would show but both ways
       alike, which is neither noise nor a direction.
    4. `noise`: all else, so also any run against itself.

    Args:
        results_a: All results of A, those that its report leaves out too.
        results_b: Of B.
    """
    runs, shared, undecided, shortened = _matched(a, b, results_a, results_b)
    lost = [fate for fate in runs.fates if fate.lost]
    gained = [fate for fate in runs.fates if fate.gained]
    p = mcnemar(len(lost), len(gained))
    noise = _noise(runs, len(lost), len(gained))
    rows = concentration(runs.fates, _starts(runs.b))
    strains = strained(runs.a, runs.b)
    harmful = [strain for strain in strains if _harm(strain, runs.fates, rows)]
    judgement = _judge(runs.fates, noise, harmful)
    blame = harmful[0] if harmful and share_of_excess(harmful[0], runs.a, runs.b) >= _MOST else None
    prints = set(a.fingerprints), set(b.fingerprints)
    errors_a, errors_b = _errors(runs.a), _errors(runs.b)
    comparison = Comparison(
        a=a.job_id,
        b=b.job_id,
        common=len(runs.fates),
        both_passed=sum(fate.before and fate.after for fate in runs.fates),
        both_failed=sum(not fate.before and not fate.after for fate in runs.fates),
        lost=[str(fate.pair) for fate in lost],
        gained=[str(fate.pair) for fate in gained],
        p=p,
        judgement=judgement,
        blame=blame.provider if blame else None,
        expected_flips=noise.expected,
        expected_sd=noise.sd,
        smallest=noise.smallest if runs.fates else None,
        concentration=rows,
        only_a=[str(row.pair) for row in a.pairs if row.pair not in shared],
        only_b=[str(row.pair) for row in b.pairs if row.pair not in shared],
        undecided=[str(pair) for pair in undecided],
        errors_a=errors_a,
        errors_b=errors_b,
        retries_a=_retries(runs.a),
        retries_b=_retries(runs.b),
        different=all(prints) and prints[0] != prints[1],
    )
    comparison.because = [
        *_throttling_lines(comparison, strains, harmful, strained(runs.b, runs.a)),
        *_flip_lines(comparison, noise, runs),
        *_concentration_lines(rows, runs),
        *_rest_lines(comparison, shortened),
    ]
    return comparison


def _matched(
    a: Report, b: Report, results_a: Iterable[Result], results_b: Iterable[Result]
) -> tuple[_Runs, set[Pair], list[Pair], int]:
    """The runs; pairs in both; those of them that either has not decided; how many were cut to fewer attempts."""
    kept_a, kept_b = newest(results_a)[0], newest(results_b)[0]
    others = {row.pair: row for row in b.pairs}
    rows, undecided, shortened = [], [], 0
    for row in a.pairs:
        if (other := others.get(row.pair)) is None:
            continue
        if row.planned != other.planned:
            k = min(row.planned, other.planned)
            row, other = _cut(row, k, kept_a), _cut(other, k, kept_b)
            shortened += 1
        if row.passed is None or other.passed is None:
            undecided.append(row.pair)
        else:
            rows.append((row, other))
    fates = [Fate(row.pair, bool(row.passed), bool(other.passed)) for row, other in rows]
    shared = {row.pair for row in a.pairs} & others.keys()
    return _Runs(rows, fates, kept_a, kept_b), shared, undecided, shortened


def _cut(row: PairRow, k: int, results: Mapping[Key, Result]) -> PairRow:
    first = {n: found for n in range(1, k + 1) if (found := results.get((row.pair, n)))}
    return pair_row(row.pair, k, first, cancels=False)


def _noise(runs: _Runs, lost: int, gained: int) -> _Noise:
    both = [row for pair in runs.rows for row in pair]
    model = fit((row.produced, row.passes) for row in both)
    if model is None:
        # Nothing was tried twice: what went each way alike is the only estimate.
        return _Noise(None, None, None, smallest_loss(2 * min(lost, gained)))
    expected, sd = flips(model, ((_tries(row), _tries(other)) for row, other in runs.rows))
    # How well the expectation is known hangs on how many pairs did both, pass and fail; none is taken for one.
    repeated = sum(row.produced > 1 for row in both)
    mixed = sum(0 < row.passes < row.produced for row in both)
    doubt = (expected + len(runs.rows) / repeated) ** 2 / (mixed + 1)
    limit = expected + 2 * (sd * sd + doubt) ** 0.5
    return _Noise(expected, sd, limit, smallest_loss(expected))


def _tries(row: PairRow) -> int:
    """Attempts that a pair had to pass. One that passed would have had the others too."""
    if not row.passed:
        return row.produced
    return max(1, row.planned - sum(attempt.outcome in _BROKEN for attempt in row.attempts))


def _starts(results: Mapping[Key, Result]) -> dict[Pair, float]:
    starts: dict[Pair, float] = {}
    for (pair, _), result in results.items():
        if (start := moment(result.started_at)) is not None:
            starts[pair] = min(start, starts.get(pair, start))
    return starts


def _net(fates: Iterable[Fate]) -> tuple[int, bool]:
    """Pairs lost less pairs gained, and whether that is beyond chance."""
    counts = Counter((fate.lost, fate.gained) for fate in fates)
    lost, gained = counts[True, False], counts[False, True]
    return lost - gained, mcnemar(lost, gained) < SIGNIFICANT


def _at(provider: str, fates: Iterable[Fate]) -> list[Fate]:
    return [fate for fate in fates if provider_of(fate.pair.model) == provider]


def _loses(provider: str, fates: Iterable[Fate]) -> bool:
    net, certain = _net(_at(provider, fates))
    return certain and net > 0


def _harm(strain: Strain, fates: Sequence[Fate], rows: Iterable[Concentration]) -> bool:
    if strain.lost_attempts or strain.cost_time or _loses(strain.provider, fates):
        return True
    net, certain = _net(fates)
    row = next((r for r in rows if r.kind == "provider" and r.name == strain.provider), None)
    return certain and net > 0 and row is not None and row.p is not None and row.p < SIGNIFICANT


def _judge(fates: Sequence[Fate], noise: _Noise, harmful: Sequence[Strain]) -> Judgement:
    net, certain = _net(fates)
    if harmful:
        names = {strain.provider for strain in harmful}
        theirs = [fate for fate in fates if provider_of(fate.pair.model) in names]
        others = [fate for fate in fates if provider_of(fate.pair.model) not in names]
        if certain and net > 0 and (_net(theirs)[0] < net / 2 or (_net(others)[1] and _net(others)[0] > 0)):
            return Judgement.REGRESSION
        if certain and net < 0 and not any(_loses(name, fates) for name in names):
            return Judgement.IMPROVEMENT
        return Judgement.THROTTLING
    if certain:
        return Judgement.REGRESSION if net > 0 else Judgement.IMPROVEMENT
    flipped = sum(fate.before != fate.after for fate in fates)
    if not fates or (flipped and noise.smallest > BIG * len(fates)):
        return Judgement.UNDERPOWERED
    if noise.limit is not None and flipped > noise.limit:
        return Judgement.UNDERPOWERED
    return Judgement.NOISE


def _errors(results: Mapping[Key, Result]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for result in results.values():
        if result.outcome is Outcome.INFRA_ERROR:
            found[provider_of(result.pair.model)] += 1
    return dict(sorted(found.items()))


def _retries(results: Mapping[Key, Result]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results.values():
        for kind, times in result.provider_retries.items():
            found[provider_of(result.pair.model)][kind] += times
    return {provider: dict(sorted(kinds.items())) for provider, kinds in sorted(found.items())}


def _throttling_lines(
    comparison: Comparison, strains: Sequence[Strain], harmful: Sequence[Strain], reverse: Sequence[Strain]
) -> list[str]:
    lines = [str(strain) for strain in strains]
    if len(harmful) > 1 and comparison.blame is None:
        lines.append("several providers refused alike: look at what they share, the network or a proxy")
    if harmful and comparison.judgement is Judgement.REGRESSION:
        lines.append("that does not explain the loss: the pairs of other providers were lost too")
    if strains and not harmful:
        lines.append("that did no harm that can be seen: no attempt was lost to it, none took longer")
    if comparison.judgement is Judgement.IMPROVEMENT:
        lines += [f"A is to be doubted: there {strain.provider} refused more than in B" for strain in reverse]
    return lines


def _flip_lines(comparison: Comparison, noise: _Noise, runs: _Runs) -> list[str]:
    lost, gained, common = len(comparison.lost), len(comparison.gained), comparison.common
    if not common:
        return ["no pair is decided in both runs"]
    lines = [
        f"{lost} pairs went from pass to fail and {gained} from fail to pass, of {common} decided in both: "
        f"exact McNemar p {_p(comparison.p)}"
    ]
    if noise.expected is None:
        lines.append("no pair has two attempts with a result, so nothing says how many flips are noise")
    else:
        lines.append(
            f"two identical runs would show {noise.expected:.1f} ± {noise.sd:.1f} flips; these show {lost + gained}"
        )
    if noise.limit is not None and lost + gained > noise.limit:
        lines.append(
            "that is more than identical runs would show: something changed, if not for better or worse"
        )
    if noise.smallest > common:
        lines.append(f"{common} pairs are too few: not even the loss of all of them would have shown")
    elif noise.smallest > BIG * common:
        lines.append(
            f"{common} pairs are too few: only a net loss of {noise.smallest} ({noise.smallest / common:.0%}) or more would have shown"
        )
    elif comparison.judgement in (Judgement.NOISE, Judgement.THROTTLING, Judgement.UNDERPOWERED):
        unseen = noise.smallest - 1
        lines.append(
            f"a net loss of about {unseen} pairs ({unseen / common:.1%}) or fewer could not have been seen: "
            f"{noise.smallest} is the least that would be significant on top of that noise"
        )
    return lines


def _concentration_lines(rows: Sequence[Concentration], runs: _Runs) -> list[str]:
    lost = {fate.pair for fate in runs.fates if fate.lost}
    if not lost:
        return []
    ended = Counter(a.outcome.value for _, row in runs.rows if row.pair in lost for a in row.attempts)
    lines = [
        "attempts of the lost pairs in B: " + ", ".join(f"{n} {name}" for name, n in ended.most_common())
    ]
    tasks = len({fate.pair.task for fate in runs.fates if fate.before})
    places = together(rows, tasks)
    lines += [
        f"losses lie together: {row.kind} {row.name} lost {row.lost} of {row.pairs} pairs that had passed, all others "
        f"{len(lost) - row.lost} (Fisher p {_p(row.p or 0.0)})"
        for row in places
    ]
    if not places and any(row.p is not None for row in rows):
        lines.append(
            "losses are scattered: no provider, model, agent, task or time has more than chance gives it"
        )
    return lines


def _rest_lines(comparison: Comparison, shortened: int) -> list[str]:
    lines = []
    errors = sum(comparison.errors_a.values()), sum(comparison.errors_b.values())
    if any(errors):
        lines.append(f"infrastructure errors, not counted as fails: {errors[0]} in A, {errors[1]} in B")
    if comparison.undecided:
        lines.append(f"{len(comparison.undecided)} pairs are left out: A or B has not decided them")
    if comparison.only_a or comparison.only_b:
        lines.append(
            f"{len(comparison.only_a)} pairs are only in A and {len(comparison.only_b)} only in B: left out"
        )
    if shortened:
        lines.append(
            f"{shortened} pairs have more attempts in one run: only as many as both have are compared"
        )
    if comparison.different:
        lines.append("the runs' configurations differ in what may change an outcome")
    return lines


def _p(p: float) -> str:
    return f"= {p:.2g}" if p >= 0.001 else "< 0.001"
