"""The evidence for a comparison's judgement, in plain lines with numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hawk.core.attempts.concentration import Fate, together
from hawk.core.attempts.noise import BIG, Noise, Rows
from hawk.core.attempts.report import Comparison, Judgement
from hawk.core.attempts.throttling import Strain, provider_of, short


def of_throttling(
    comparison: Comparison, strains: Sequence[Strain], harmful: Sequence[Strain], fates: Sequence[Fate]
) -> list[str]:
    """What providers refused, and what came of it."""
    lines = []
    for strain in strains:
        lines.append(str(strain))
        lost = [f for f in fates if f.lost and provider_of(f.pair.model) == strain.provider]
        met = sum(fate.pair in strain.after.met for fate in lost)
        if lost:
            lines.append(
                f"{strain.provider}: {met} of its {_count(len(lost), 'lost pair')} met such calls in B"
            )
        if strain not in harmful:
            lines.append(f"{strain.provider}: no harm can be seen from that")
    if harmful and comparison.blame is None:
        lines.append("several providers refused alike: look at what they share, the network or a proxy")
    if harmful and comparison.judgement is Judgement.REGRESSION:
        lines.append("that does not explain the loss: pairs that met no such call were lost too")
    return lines


def of_recovery(comparison: Comparison, reverse: Sequence[Strain]) -> list[str]:
    """Where B is better only because A was throttled.

    Args:
        reverse: Providers that refused more in A than in B.
    """
    if comparison.judgement is not Judgement.IMPROVEMENT:
        return []
    return [
        f"A may have been worse for another reason: refused or late calls an attempt at {strain.provider} "
        f"{short(strain.after.rate)} in A, {short(strain.before.rate)} in B"
        for strain in reverse
    ]


def of_flips(comparison: Comparison, noise: Noise) -> list[str]:
    """The flips, how many are noise, and what could not have been seen."""
    lost, gained, common = len(comparison.lost), len(comparison.gained), comparison.common
    if not common:
        return ["no pair is decided in both runs"]
    lines = [
        f"{_count(lost, 'pair')} went from pass to fail and {gained} from fail to pass, "
        f"of {common} decided in both: exact McNemar p {_p(comparison.p)}"
    ]
    if noise.expected is None:
        lines.append("no pair has two attempts with results, so nothing says how many flips are noise")
    else:
        lines.append(
            f"two identical runs would show {noise.expected:.1f} ± {noise.sd:.1f} flips; "
            f"these show {lost + gained}"
        )
    if noise.exceeded(lost + gained):
        lines.append("that is more than noise: something changed")
    return lines + _unseen(comparison, noise.smallest)


def _unseen(comparison: Comparison, smallest: int) -> list[str]:
    common = comparison.common
    if comparison.judgement in (Judgement.REGRESSION, Judgement.IMPROVEMENT):
        return []
    if smallest > common:
        return [f"{_count(common, 'pair')} can't show any loss: at least {smallest} would have to be lost"]
    if smallest > BIG * common:
        share = f"{smallest / common:.0%}"
        return [f"{common} pairs are few: only a net loss of {smallest} ({share}) or more would have shown"]
    return [
        f"a net loss under about {smallest} pairs ({smallest / common:.1%}) could not have been seen: among "
        f"as many flips as noise makes it takes {smallest} for p < 0.05"
    ]


def of_losses(comparison: Comparison, rows: Rows) -> list[str]:
    """How the lost pairs' attempts ended, and whether the pairs lie together."""
    lost = [(before, after) for before, after in rows if before.passed and not after.passed]
    if not lost:
        return []
    ended = Counter(attempt.outcome.value for _, after in lost for attempt in after.attempts)
    parts = ", ".join(
        f"{n} {name}" for name, n in sorted(ended.items(), key=lambda item: (-item[1], item[0]))
    )
    lines = [f"the lost pairs' attempts in B: {parts}"]
    tasks = len({before.pair.task for before, _ in rows if before.passed})
    places = together(comparison.concentration, tasks)
    lines += [
        f"losses lie together: {place.kind} {place.name} lost {place.lost} of its {place.pairs} pairs "
        f"that had passed, all others {len(lost) - place.lost} (Fisher's exact test, p {_p(place.p)})"
        for place in places
        if place.p is not None
    ]
    if not places and any(row.p is not None for row in comparison.concentration):
        lines.append(
            "losses are scattered: no provider, model, agent, task or time has more than chance gives it"
        )
    return lines


def of_the_rest(comparison: Comparison, cut: int) -> list[str]:
    """Errors that are no fails, pairs that are left out, and what differs between the runs.

    Args:
        cut: Pairs that were compared by fewer attempts than one of the runs has.
    """
    lines = []
    errors_a, errors_b = sum(comparison.errors_a.values()), sum(comparison.errors_b.values())
    if errors_a or errors_b:
        lines.append(f"infrastructure errors, which are no fails: {errors_a} attempts in A, {errors_b} in B")
    if comparison.undecided:
        lines.append(f"left out, undecided in A or B: {_count(len(comparison.undecided), 'pair')}")
    if comparison.only_a or comparison.only_b:
        lines.append(
            f"left out, in one run alone: {len(comparison.only_a)} in A, {len(comparison.only_b)} in B"
        )
    if cut:
        lines.append(f"compared by the first attempts that both runs planned, no more: {_count(cut, 'pair')}")
    if comparison.different:
        lines.append("the runs' configurations differ in what may change an outcome")
    return lines


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _p(p: float) -> str:
    return f"= {p:.2g}" if p >= 0.001 else "< 0.001"
