"""A report as JUnit XML, as build servers read it: a suite a (task, agent, model), a case a pair.

A pair that failed is a `failure`, one without any result an `error`, one that is still to be decided `skipped`. The
shape is that of Maven Surefire's and Jenkins' schemas.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree as ET

from hawk.cli import report_words as words
from hawk.cli.report_words import State
from hawk.cli.text import clean
from hawk.core.attempts.report import PairRow, Report

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
LONGEST = 4000


def render(report: Report) -> str:
    """The document. Names of cases are unique, also where two pairs look alike."""
    suites: dict[tuple[str, str, str], list[PairRow]] = {}
    for row in report.pairs:
        suites.setdefault((row.pair.task, row.pair.agent or "", row.pair.model), []).append(row)
    root = ET.Element("testsuites", {"name": text(report.job_id), **_counts(report.pairs)})
    del root.attrib["skipped"]  # its schema knows that of suites only
    for key, rows in suites.items():
        _suite(root, key, rows)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(root: ET.Element, key: tuple[str, str, str], rows: list[PairRow]) -> None:
    parts = [text(part) for part in key if part]
    suite = ET.SubElement(root, "testsuite", {"name": " · ".join(parts), **_counts(rows)})
    started = min((a.started_at for row in rows for a in row.attempts if a.started_at), default=None)
    if started is not None:
        suite.set("timestamp", text(started)[:19])
    # A dot in a class name separates packages; a version's dot in a model's name does not mean one.
    classname = ".".join(part.replace(".", "_") for part in parts)
    taken: set[str] = set()
    for row in rows:
        name = text(row.pair.sample) or "(no name)"
        if name in taken:
            name = f"{name} ({row.pair.directory[-10:]})"
        taken.add(name)
        _case(suite, classname, name, row)


def _case(suite: ET.Element, classname: str, name: str, row: PairRow) -> None:
    case = ET.SubElement(suite, "testcase", classname=classname, name=name, time=_time([row]))
    found = words.state(row)
    reason = text(words.why(row))
    if found is State.FAILED:
        said = f"{row.passes} of {row.produced} attempts passed"
        failure = ET.SubElement(
            case, "failure", message=f"{said}: {reason}" if reason else said, type="failed"
        )
        failure.text = _details(row)
    elif found is State.NO_RESULT:
        error = ET.SubElement(
            case, "error", message=reason or "no attempt produced a result", type="no-result"
        )
        error.text = _details(row)
    elif found is State.UNDECIDED:
        ET.SubElement(case, "skipped", message="not decided yet")
    out = ET.SubElement(case, "system-out")
    out.text = _attempts(row)


def _details(row: PairRow) -> str:
    checks = [
        f"{'ok  ' if c.passed else 'NOT '}{c.name}{': ' + c.notes if c.notes else ''}" for c in row.checks
    ]
    return text("\n".join(filter(None, [row.error, row.explanation, *checks])), lines=True)


def _attempts(row: PairRow) -> str:
    lines = [
        f"attempt {a.attempt}: {a.outcome}, {words.seconds(a.duration)}{', ' + a.reason if a.reason else ''}"
        for a in row.attempts
    ]
    return text("\n".join(lines), lines=True)


def _counts(rows: Iterable[PairRow]) -> dict[str, str]:
    found = list(rows)
    states = [words.state(row) for row in found]
    return {
        "tests": str(len(found)),
        "failures": str(states.count(State.FAILED)),
        "errors": str(states.count(State.NO_RESULT)),
        "skipped": str(states.count(State.UNDECIDED)),
        "time": _time(found),
    }


def _time(rows: Iterable[PairRow]) -> str:
    """Seconds of all attempts together."""
    return f"{sum(a.duration or 0.0 for row in rows for a in row.attempts):.3f}"


def text(value: object, *, lines: bool = False) -> str:
    """Text that XML can hold: no control characters, not even escaped ones."""
    plain = _NOT_XML.sub("", clean(value, lines=lines))
    return plain if len(plain) <= LONGEST else plain[: LONGEST - 1] + "…"
