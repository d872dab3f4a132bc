"""A report as one web page that needs nothing else: no script, no font, no picture from anywhere.

Every text in it is escaped, and the page's own policy forbids scripts and connections on top.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

from hawk.cli import report_words as words
from hawk.cli.report_style import STYLE
from hawk.cli.report_words import State
from hawk.cli.text import clean
from hawk.core.attempts.report import AttemptRow, Estimate, PairRow, Report
from hawk.core.attempts.results import Check

OPEN_ROWS = 12
"""So many passed pairs stand open; more are folded."""

LONG = 60
"""Characters of a figure from which on it gets twice the room."""

NUMBERS = frozenset(
    {
        *("value", "95 % interval", "pairs", "share"),
        *("wall clock", "attempts", "sandbox-hours", "tokens", "cost", "slots", "waves"),
        *("passed", "failed", "undecided", "any pass", "pass@1", "times"),
    }
)
"""Columns that are set flush right."""


def render(report: Report) -> str:
    """The page. Equal reports give equal pages."""
    body = [
        _head(report),
        _rates(report),
        _facts(report),
        _plain("Policies", "What this policy used, and what the others would have", *_policies(report)),
        _counted("Infrastructure errors", "Never counted as a wrong answer", report.infra_errors),
        _named("No result", "Pairs without any result", dict(words.unfinished(report))),
        _named("Incomplete", "Pairs left out of pass@k, and what is missing of them", report.incomplete),
        _problems(report),
        _pairs(report),
        _plain("Parts", "The same figures by model, task, agent and suite", *_groups(report)),
    ]
    title = esc(f"{report.job_id}: {words.headline(report)}")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n<footer>Made by <code>hawk report</code>. Intervals are 95 %, clustered by sample.</footer>\n"
        "</body>\n</html>\n"
    )


def esc(value: object, *, lines: bool = False) -> str:
    """Text from anywhere as text of the page."""
    return html.escape(clean(value, lines=lines), quote=True)


def _head(report: Report) -> str:
    decided = report.passed + report.failed
    share = words.percent(report.any_pass.value) if report.any_pass else "–"
    counts = [("passed", report.passed), ("failed", report.failed), ("undecided", report.undecided)]
    shown = [(name, count) for name, count in counts if count]
    spoken = ", ".join(f"{count:,} {name}" for name, count in shown) or "no pairs"
    bar = "".join(f'<i class="{name}" style="flex-grow:{count}"></i>' for name, count in shown)
    legend = "".join(f'<li><i class="{name}"></i><b>{count:,}</b> {name}</li>' for name, count in shown)
    interval = f"95 % interval {words.interval(report.any_pass)}; " if report.any_pass else ""
    return (
        f"<header>\n<p class=id>{esc(report.job_id)}</p>\n"
        f"<h1><b>{share}</b> <span>of {decided:,} decided pairs passed</span></h1>\n"
        f"<p class=sub>{interval}{esc(words.subtitle(report))}.</p>\n"
        f'<div class=bar role="img" aria-label="{spoken}">{bar}</div>\n<ul class=legend>{legend}</ul>\n</header>'
    )


def _rates(report: Report) -> str:
    rows = []
    for rate in words.rates(report):
        value = rate.estimate
        if value is None:
            rows.append(
                f"<tr><th scope=row>{esc(rate.name)}</th><td class=n>–</td><td class=n>–</td><td></td>"
                f"<td>{esc(rate.why_not)}</td></tr>"
            )
            continue
        rows.append(
            f"<tr><th scope=row>{esc(rate.name)}</th><td class=n><b>{words.percent(value.value)}</b></td>"
            f"<td class=n>{words.interval(value)}</td><td class=w>{_whisker(value)}</td>"
            f"<td>{esc(rate.meaning)} <small>({value.n:,})</small></td></tr>"
        )
    heads = ("rate", "value", "95 % interval", "", "what it is")
    return _section("Rates", _wrap("Rates with their confidence intervals", heads, rows, "rates"))


def _whisker(value: Estimate) -> str:
    """The interval as a line from 0 to 100 %, with a dot at the value; for the eye only."""
    low, high, at = (max(0.0, min(100.0, 100 * x)) for x in (value.low, value.high, value.value))
    return (
        '<svg viewBox="0 0 104 12" width=104 height=12 aria-hidden="true" focusable="false">'
        '<line x1="2" x2="102" y1="6" y2="6" class=axis />'
        f'<line x1="{2 + low:.1f}" x2="{2 + high:.1f}" y1="6" y2="6" class=range />'
        f'<circle cx="{2 + at:.1f}" cy="6" r="3.5" /></svg>'
    )


def _facts(report: Report) -> str:
    rows = "".join(
        f"<div{' class=long' if len(fact.text) > LONG else ''}><dt>{esc(fact.label)}</dt>"
        f"<dd>{esc(fact.text)}</dd></div>"
        for fact in words.facts(report)
    )
    return _section("Figures", f"<dl>{rows}</dl>" + _tally(report)) if rows else ""


def _tally(report: Report) -> str:
    found = words.tally(report)
    if not found:
        return ""
    whole = sum(count for _, count in found)
    rows = [
        f"<tr><th scope=row>{esc(key)}</th><td class=n>{count:,}</td><td class=n>{words.percent(count / whole)}</td>"
        f'<td class=w><span class=share style="width:{100 * count / whole:.1f}%"></span></td></tr>'
        for key, count in found
    ]
    caption = "Pairs by passes, of those whose attempts all gave a result"
    return _wrap(caption, ("passes", "pairs", "share", ""), rows, "tally")


def _policies(report: Report) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    return words.POLICY_COLUMNS, words.policy_rows(report)


def _groups(report: Report) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    return words.GROUP_COLUMNS, words.group_rows(report)


def _plain(title: str, caption: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A section of one table; its first column names the row."""
    numbers = [header in NUMBERS for header in headers]
    lines = [
        "<tr>"
        + "".join(
            f"<th scope=row>{esc(cell)}</th>"
            if i == 0
            else f"<td{' class=n' if numbers[i] else ''}>{esc(cell)}</td>"
            for i, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    ]
    return _section(title, _wrap(caption, headers, lines)) if rows else ""


def _counted(title: str, caption: str, counts: Mapping[str, int]) -> str:
    rows = [(error, f"{count:,}") for error, count in sorted(counts.items(), key=lambda item: -item[1])]
    return _plain(title, caption, ("error", "times"), rows)


def _named(title: str, caption: str, reasons: Mapping[str, str]) -> str:
    return _plain(title, caption, ("pair", "why"), list(reasons.items()))


def _problems(report: Report) -> str:
    lines = list(report.problems)
    if len(report.fingerprints) > 1:
        lines.append(
            f"These attempts ran under {len(report.fingerprints)} different configurations: what may change an "
            "outcome was changed between resumes."
        )
    items = "".join(f"<li>{esc(line)}</li>" for line in lines)
    return _section("Not understood", f"<ul>{items}</ul>") if items else ""


def _pairs(report: Report) -> str:
    rows = words.ordered(report.pairs)
    notable = [row for row in rows if words.state(row) is not State.PASSED]
    passed = [row for row in rows if words.state(row) is State.PASSED]
    parts = []
    if notable:
        parts.append(_pair_table("Pairs that failed, are not decided, or passed only sometimes", notable))
    if passed:
        table = _pair_table("Pairs whose attempts all passed", passed)
        opened = " open" if len(passed) <= OPEN_ROWS else ""
        parts.append(
            f"<details class=more{opened}><summary>{len(passed):,} passed</summary>{table}</details>"
        )
    return _section("Pairs", "\n".join(parts)) if parts else ""


def _pair_table(caption: str, rows: Iterable[PairRow]) -> str:
    heads = ("pair", "result", "attempts", "slowest", "tokens", "cost")
    return _wrap(caption, heads, [_pair(row) for row in rows], "pairs")


def _pair(row: PairRow) -> str:
    found = words.state(row)
    where = " · ".join(part for part in (row.pair.task, row.pair.agent, row.pair.model) if part)
    reason = words.why(row)
    said = f"<p class=why>{esc(reason)}</p>" if reason else ""
    return (
        f"<tr><th scope=row>{esc(row.pair.sample)}<small>{esc(where)}</small></th>"
        f'<td><span class="s {found.name.lower()}">{found}</span> <small>{row.passes}/{row.planned}</small>{said}</td>'
        f"<td>{_attempts(row)}</td><td class=n>{words.seconds(words.slowest(row))}</td>"
        f"<td class=n>{words.short(words.tokens(row))}</td><td class=n>{words.money(words.cost(row))}</td></tr>"
    )


def _attempts(row: PairRow) -> str:
    """The outcomes in order; unfolded, each attempt's figures and the checks of the one that stands for the pair."""
    chips = " ".join(f'<span class="o {a.outcome.value}">{_word(a)}</span>' for a in row.attempts)
    lines = "".join(
        f"<li value={a.attempt}>{_attempt(a, a.attempt == row.representative)}</li>" for a in row.attempts
    )
    checks = "".join(_check(check) for check in row.checks)
    more = f"<p>Checks</p><ul>{checks}</ul>" if checks else ""
    if row.explanation:
        more += f"<pre>{esc(row.explanation, lines=True)}</pre>"
    return f"<details><summary>{chips or '–'}</summary><ol>{lines}</ol>{more}</details>"


def _word(attempt: AttemptRow) -> str:
    return attempt.outcome.value.replace("_", " ")


def _attempt(attempt: AttemptRow, represents: bool) -> str:
    parts = [_word(attempt), words.seconds(attempt.duration), f"{words.short(attempt.tokens)} tokens"]
    if attempt.cost is not None:
        parts.append(words.money(attempt.cost))
    if attempt.reason:
        parts.append(attempt.reason)
    if represents:
        parts.append("stands for the pair")
    uuid = f" <code>{esc(attempt.uuid)}</code>" if attempt.uuid else ""
    return esc(", ".join(parts)) + uuid


def _check(check: Check) -> str:
    word = "pass" if check.passed else "fail"
    notes = f": {esc(check.notes)}" if check.notes else ""
    return f'<li><span class="o {word}">{word}</span> {esc(check.name)}{notes}</li>'


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{esc(title)}</h2>\n{content}\n</section>"


def _wrap(caption: str, headers: Sequence[str], rows: Sequence[str], kind: str = "") -> str:
    """A table that scrolls by itself where the screen is narrow, by keyboard too."""
    heads = "".join(
        f"<th scope=col{' class=n' if header in NUMBERS and kind != 'pairs' else ''}>{esc(header)}</th>"
        if header
        else "<td></td>"
        for header in headers
    )
    return (
        f'<div class=scroll role="region" tabindex="0" aria-label="{esc(caption)}">'
        f"<table{f' class={kind}' if kind else ''}><caption>{esc(caption)}</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>\n" + "\n".join(rows) + "\n</tbody></table></div>"
    )
