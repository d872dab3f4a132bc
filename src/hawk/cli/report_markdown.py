"""A report as Markdown, for the summary of a CI run: short, the rest folded.

Names and reasons are hostile text: nothing of them is markup, a link, or a mention that notifies somebody.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hawk.cli import report_words as words
from hawk.cli.report_words import State
from hawk.cli.text import clean, shorten
from hawk.core.attempts.report import PairRow, Report

FEW = 50
"""Rows of a folded list: a summary of GitHub takes a megabyte in all."""

_MARKS = {
    State.FAILED: "❌",
    State.NO_RESULT: "⚠️",
    State.UNDECIDED: "⏳",
    State.FLAKY: "🔁",
    State.PASSED: "✅",
}
_MARKUP = re.compile(r"([\\`*_\[\](){}|~$!])")
_BREAK = "\u200b"  # of no width: what looks like a mention, an issue or an address is none any more


def render(report: Report) -> str:
    """The summary, a few dozen lines."""
    pairs = words.ordered(report.pairs)
    notable = [row for row in pairs if words.state(row) is not State.PASSED]
    parts = [
        f"## {inert(report.job_id)}",
        f"**{inert(words.headline(report))}** {inert(words.subtitle(report).capitalize())}.",
        _rates(report),
        _table(("", ""), [(fact.label, fact.text) for fact in words.facts(report)]),
        _folded("What each policy uses", words.POLICY_COLUMNS, words.policy_rows(report)),
        _folded("By model, task and agent", words.GROUP_COLUMNS, words.group_rows(report)),
        _folded(
            "Infrastructure errors",
            ("times", "error"),
            [(f"{count:,}", error) for error, count in report.infra_errors.items()],
        ),
        _folded("No result at all", ("pair", "why"), words.unfinished(report)),
        _folded("Left out of pass@k", ("pair", "why"), list(report.incomplete.items())),
        _folded("Not understood on disk", ("file",), [(line,) for line in report.problems]),
        _folded(
            "Pairs that failed, or nearly did",
            ("", "pair", "passes", "attempts", "slowest", "why"),
            [_pair(row) for row in notable],
        ),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _rates(report: Report) -> str:
    rows = []
    for rate in words.rates(report):
        value = rate.estimate
        if value is None:
            rows.append((rate.name, "–", "–", rate.why_not or "–"))
        else:
            rows.append((rate.name, words.percent(value.value), words.interval(value), rate.meaning))
    return _table(("rate", "value", "95 % interval", "meaning"), rows)


def _pair(row: PairRow) -> tuple[str, ...]:
    found = words.state(row)
    return (
        f"{_MARKS[found]} {found}",
        str(row.pair),
        f"{row.passes}/{row.planned}",
        words.attempts_text(row),
        words.seconds(words.slowest(row)),
        words.why(row),
    )


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [f"| {' | '.join(map(inert, headers))} |", f"|{' --- |' * len(headers)}"]
    lines += [f"| {' | '.join(inert(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines)


def _folded(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    more = f"\n\n… {len(rows) - FEW:,} more: `hawk report --all`" if len(rows) > FEW else ""
    return (
        f"<details><summary>{inert(title)} ({len(rows):,})</summary>\n\n"
        f"{_table(headers, rows[:FEW])}{more}\n\n</details>"
    )


def inert(value: object, longest: int = 200) -> str:
    """Text in one line of Markdown that shows as it is, and does nothing."""
    plain = shorten(clean(value), longest)
    plain = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    plain = _MARKUP.sub(r"\\\1", plain)
    plain = plain.replace("@", f"@{_BREAK}").replace("://", f":{_BREAK}//")
    plain = re.sub(r"#(?=\d)", f"#{_BREAK}", plain)
    plain = re.sub(r"(?i)\b(www|gh)(?=[.-])", rf"\1{_BREAK}", plain)
    return plain.replace(_BREAK, "&#8203;")
