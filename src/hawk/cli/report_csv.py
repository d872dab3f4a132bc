"""A report as CSV, one line an attempt, for spreadsheets and scripts."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from hawk.cli import report_words as words
from hawk.cli.text import clean
from hawk.core.attempts.report import AttemptRow, PairRow, Report

COLUMNS = (
    "task",
    "agent",
    "model",
    "sample",
    "attempt",
    "outcome",
    "pair_result",
    "representative",
    "started_at",
    "duration_s",
    "tokens",
    "cost_usd",
    "reason",
    "workspace",
    "uuid",
    "directory",
)

_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n")


def render(report: Report) -> str:
    """Lines that end with CR LF (RFC 4180), the first one with the names of the columns."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for row in report.pairs:
        writer.writerows(_lines(row))
    return out.getvalue()


def _lines(row: PairRow) -> Iterator[list[str]]:
    pair = [text(row.pair.task), text(row.pair.agent), text(row.pair.model), text(row.pair.sample)]
    result, directory = words.state(row).replace(" ", "_"), text(row.directory or row.pair.directory)
    for attempt in row.attempts:
        yield [*pair, *_attempt(attempt, result, attempt.attempt == row.representative), directory]


def _attempt(attempt: AttemptRow, result: str, represents: bool) -> list[str]:
    return [
        str(attempt.attempt),
        attempt.outcome,
        result,
        _flag(represents),
        text(attempt.started_at),
        "" if attempt.duration is None else f"{attempt.duration:.3f}",
        str(attempt.tokens),
        "" if attempt.cost is None else f"{attempt.cost:.6f}",
        text(attempt.reason),
        _flag(attempt.workspace),
        text(attempt.uuid),
    ]


def text(value: str | None) -> str:
    """A cell of one line that no spreadsheet takes for a formula: one that looks like it gets a quote before it."""
    if value is None:
        return ""
    plain = clean(value)
    return f"'{plain}" if plain.startswith(_FORMULA) else plain


def _flag(value: bool) -> str:
    return "true" if value else "false"
