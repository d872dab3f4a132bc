"""A comparison for a terminal: the verdict, then what it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from hawk.cli.text import clean, shorten, table
from hawk.core.attempts.report import Comparison, Judgement

FEW = 20
"""Pairs of a list that are named without `--all`."""

_COLOURS = {
    Judgement.NOISE: "green",
    Judgement.IMPROVEMENT: "green",
    Judgement.UNDERPOWERED: "yellow",
    Judgement.THROTTLING: "red",
    Judgement.REGRESSION: "red",
}


def render(found: Comparison, *, everything: bool = False, columns: int | None = None) -> str:
    """The comparison as text.

    Args:
        everything: Name every pair.
        columns: Width of the terminal; None: as wide as it takes.
    """
    most = None if everything else FEW
    parts = [
        _verdict(found),
        _figures(found),
        _flips("PASS→FAIL", found.lost, most),
        _flips("FAIL→PASS", found.gained, most),
        _concentration(found, columns),
        _errors(found, columns),
        _retries(found, columns),
        _flips(f"Only in {clean(found.a)}", found.only_a, most),
        _flips(f"Only in {clean(found.b)}", found.only_b, most),
        _flips("Not decided in both", found.undecided, most),
    ]
    return "\n\n".join(part for part in parts if part)


def verdict(found: Comparison) -> str:
    """The verdict in one sentence."""
    a, b = found.a, found.b
    if found.judgement is Judgement.NOISE:
        return f"{b} differs from {a} by no more than two identical runs do."
    if found.judgement is Judgement.THROTTLING:
        return f"{found.blame or 'a provider'} throttled {b}: its failures say nothing about the agents."
    if found.judgement is Judgement.REGRESSION:
        return f"{b} is worse than {a}."
    if found.judgement is Judgement.IMPROVEMENT:
        return f"{b} is better than {a}."
    smallest = f"fewer than {found.smallest:,} net losses" if found.smallest else "such a difference"
    return f"these pairs are too few to tell: {smallest} can't be seen with them."


def _verdict(found: Comparison) -> str:
    word = click.style(found.judgement, fg=_COLOURS[found.judgement], bold=True)
    lines = [f"{word}: {clean(verdict(found))}", *(f"  - {clean(line)}" for line in found.because)]
    if found.different:
        lines.append("  - The two were configured differently in something that may change an outcome.")
    return "\n".join(lines)


def _figures(found: Comparison) -> str:
    rows = [
        (
            "pairs",
            f"{found.common:,} decided in both: {found.both_passed:,} passed, {found.both_failed:,} failed twice",
        ),
        (
            "flips",
            f"{len(found.lost):,} PASS→FAIL, {len(found.gained):,} FAIL→PASS; p = {found.p:.3g} (McNemar, exact)",
        ),
    ]
    if found.expected_flips is not None:
        spread = "" if found.expected_sd is None else f" ± {found.expected_sd:.1f}"
        rows.append(("by chance", f"two identical runs would show {found.expected_flips:.1f}{spread} flips"))
    if found.smallest is not None:
        rows.append(("visible", f"from {found.smallest:,} net losses on, at p < 0.05"))
    return "\n".join(f"{label:<10}  {text}" for label, text in rows)


def _flips(title: str, pairs: Sequence[str], most: int | None) -> str:
    if not pairs:
        return ""
    shown = [f"  {shorten(clean(pair), 300)}" for pair in pairs[:most]]
    more = len(pairs) - len(shown)
    return "\n".join(
        [f"{title}: {len(pairs):,}", *shown, *([f"  … {more:,} more; --all names them"] if more else [])]
    )


def _concentration(found: Comparison, columns: int | None) -> str:
    rows = [
        [row.kind, row.name, f"{row.lost:,}", f"{row.pairs:,}", "–" if row.p is None else f"{row.p:.3g}"]
        for row in found.concentration
        if row.lost
    ]
    if not rows:
        return ""
    return "Where pairs were lost (p: Fisher, exact, against the rest)\n" + table(
        ("by", "name", "lost", "pairs", "p"), rows, columns=columns
    )


def _errors(found: Comparison, columns: int | None) -> str:
    names = sorted({*found.errors_a, *found.errors_b})
    rows = [[name, f"{found.errors_a.get(name, 0):,}", f"{found.errors_b.get(name, 0):,}"] for name in names]
    if not rows:
        return ""
    return "Infrastructure errors\n" + table(
        ("provider", clean(found.a), clean(found.b)), rows, columns=columns
    )


def _retries(found: Comparison, columns: int | None) -> str:
    counts: dict[tuple[str, str], list[int]] = {}
    sides: tuple[Mapping[str, Mapping[str, int]], ...] = (found.retries_a, found.retries_b)
    for i, side in enumerate(sides):
        for provider, kinds in side.items():
            for kind, count in kinds.items():
                counts.setdefault((provider, kind), [0, 0])[i] += count
    rows = [[*key, f"{a:,}", f"{b:,}"] for key, (a, b) in sorted(counts.items())]
    if not rows:
        return ""
    return "Model calls made again\n" + table(
        ("provider", "met", clean(found.a), clean(found.b)), rows, columns=columns
    )
