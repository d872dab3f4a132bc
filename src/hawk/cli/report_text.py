"""A report for a terminal. Everything in it is made harmless: names and reasons come from models and sandboxes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import click

from hawk.cli import report_words as words
from hawk.cli.report_words import State
from hawk.cli.text import clean, plural, shorten, table
from hawk.core.attempts.report import PairRow, Report

FEW = 20
"""Rows of a list that are shown without `--all`."""


def render(report: Report, *, everything: bool = False, columns: int | None = None) -> str:
    """The report as text.

    Args:
        everything: Every pair, and every line of the lists.
        columns: Width of the terminal; None: as wide as it takes.
    """
    most = None if everything else FEW
    parts = [
        _head(report),
        _figures(report),
        _table(words.POLICY_COLUMNS, words.policy_rows(report), None, columns),
        _table(words.GROUP_COLUMNS, words.group_rows(report), most, columns),
        _list("Infrastructure errors (not counted as failures):", _counted(report.infra_errors), most),
        _list("No result at all:", _named(words.unfinished(report)), most),
        _list("Left out of pass@k:", _named(report.incomplete.items()), most),
        _list("Not understood on disk:", report.problems, most),
        _mixed(report),
        _pairs(report, everything, columns),
    ]
    return "\n\n".join(part for part in parts if part)


def _head(report: Report) -> str:
    title = click.style(clean(report.job_id), bold=True)
    return f"{title}: {clean(words.subtitle(report))}\n{click.style(words.headline(report), bold=True)}"


def _figures(report: Report) -> str:
    rows = []
    for rate in words.rates(report):
        value = rate.estimate
        if value is None:
            rows.append([rate.name, "–", clean(rate.why_not)])
        else:
            rows.append(
                [
                    rate.name,
                    words.percent(value.value),
                    f"{words.interval(value)}  {rate.meaning} ({value.n:,})",
                ]
            )
    wide = max(len(rate.name) for rate in words.rates(report))
    lines = [f"{name:<{max(wide, 10)}}  {value:>7}  {rest}".rstrip() for name, value, rest in rows]
    lines += [f"{fact.label:<{max(wide, 10)}}  {clean(fact.text)}" for fact in words.facts(report)]
    return "\n".join(lines)


def _table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], most: int | None, columns: int | None
) -> str:
    if not rows:
        return ""
    shown = rows[:most]
    more = f"\n… {len(rows) - len(shown):,} more; --all shows them" if len(shown) < len(rows) else ""
    return table(headers, shown, columns=columns) + more


def _counted(counts: Mapping[str, int]) -> list[str]:
    return [f"{count:,} x {text}" for text, count in sorted(counts.items(), key=lambda item: -item[1])]


def _named(reasons: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{name}: {why}" for name, why in reasons]


def _list(title: str, lines: Iterable[str], most: int | None) -> str:
    found = list(lines)
    if not found:
        return ""
    shown = [f"  {shorten(clean(line), 300)}" for line in found[:most]]
    more = len(found) - len(shown)
    return "\n".join([title, *shown, *([f"  … {more:,} more; --all shows them"] if more else [])])


def _mixed(report: Report) -> str:
    if len(report.fingerprints) < 2:
        return ""
    return (
        f"These attempts ran under {len(report.fingerprints)} different configurations: "
        "what may change an outcome was changed between resumes."
    )


def _pairs(report: Report, everything: bool, columns: int | None) -> str:
    rows = words.ordered(report.pairs)
    if not everything:
        notable = [row for row in rows if words.state(row) is not State.PASSED]
        rows = (notable or rows)[:FEW]
    if not rows:
        return ""
    parts = _varying(report)
    headers = ("result", "passes", "attempts", "slowest", "cost", "sample", *parts, "why")
    text = table(headers, [_pair(row, parts) for row in rows], columns=columns)
    more = len(report.pairs) - len(rows)
    return text + (f"\n… {plural(more, 'more pair')}; --all shows them" if more else "")


def _varying(report: Report) -> list[str]:
    """Which of task, agent and model tell pairs apart."""
    return [
        name
        for name in ("task", "agent", "model")
        if len({getattr(row.pair, name) for row in report.pairs}) > 1
    ]


def _pair(row: PairRow, parts: Iterable[str]) -> list[str]:
    return [
        words.state(row),
        f"{row.passes}/{row.planned}",
        words.attempts_text(row),
        words.seconds(words.slowest(row)),
        words.money(words.cost(row)),
        shorten(clean(row.pair.sample), 100),
        *(getattr(row.pair, name) or "" for name in parts),
        shorten(clean(words.why(row)), 200),
    ]
