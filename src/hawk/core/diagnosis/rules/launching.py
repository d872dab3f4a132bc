"""Rules of the runner about what comes before the first attempt: packages, loading the tasks, an eval set that is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hawk.core.diagnosis.causes import Cause, Severity, Source
from hawk.core.diagnosis.rule import Finding, Rule, fact, rule
from hawk.core.diagnosis.verdict import Fact
from hawk.core.diagnosis.view import View
from hawk.core.states import JobStatus
from hawk.core.text import duration, one_line

QUICK = 8.0
"""Seconds in which packages that are cached and tasks that are small are ready: not worth a word."""

LONG = 600.0
"""Seconds of loading or installing from which on somebody should look: a big dataset on a slow line takes minutes."""

_INSTALL = re.compile(r"packages do not install", re.IGNORECASE)
_IMPORT = re.compile(r"ModuleNotFoundError|ImportError|No module named|cannot import name", re.IGNORECASE)


def environment_install(view: View) -> Iterator[Finding]:
    job = view.job
    if _INSTALL.search(job.reason or ""):
        yield _fatal(view, one_line(job.reason or "", 300), job.installing)
    elif job.phase == "preparing" and job.installing:
        since = view.ago(job.phase_since) or 0.0
        if since >= QUICK:
            yield _under_way(
                view, f"installing {one_line(job.installing, 120)} for {duration(since)}", [], since
            )


def dataset_loading(view: View) -> Iterator[Finding]:
    job, seen = view.job, view.evidence.enumerating
    if job.phase != "enumerating":
        return
    since = view.ago(job.phase_since) or 0.0
    if since < QUICK:
        return
    facts = [fact(Source.ENGINE, f"the tasks are being loaded for {since:.0f} s", job.phase_since)]
    place = ""
    if seen is not None and seen.place:
        place = f" in {seen.place}"
        facts.append(fact(Source.RECORDER, f"the loading process is in {seen.place}"))
        if seen.label:
            facts.append(fact(Source.RECORDER, f"innermost: {seen.label}"))
    elif seen is not None and seen.label:
        facts.append(fact(Source.RECORDER, f"its stack can't be seen: {seen.label}"))
    if seen is not None and seen.cpu is not None:
        facts.append(fact(Source.ENGINE, f"it has used {seen.cpu:.0f} s of CPU"))
    yield _under_way(view, f"the tasks are being loaded for {duration(since)}{place}", facts, since)


def import_error(view: View) -> Iterator[Finding]:
    reason = view.job.reason or ""
    if _IMPORT.search(reason) and _ended_badly(view):
        yield _fatal(view, one_line(reason, 300))
        return
    for group in view.evidence.ended:
        text = f"{group.kind}: {group.message}"
        if group.phase not in ("scoring", "setup", "sandbox") and _IMPORT.search(text):
            yield Finding(
                Severity.FATAL,
                f"{group.count} attempts can't import what they need: {one_line(group.message, 200)}",
                [fact(Source.LOGS, one_line(text, 300), group.last_at)],
                ended=group.count,
                subject=group.task,
                since=group.first_at,
                cost=0.0,
            )


def config_error(view: View) -> Iterator[Finding]:
    reason = view.job.reason or ""
    if not _ended_badly(view) or _IMPORT.search(reason) or _INSTALL.search(reason):
        return
    if view.evidence.progress.total == 0 and reason and not view.changes("worker", "started"):
        yield _fatal(view, one_line(reason, 300))


def _ended_badly(view: View) -> bool:
    return view.job.status is JobStatus.FAILED


def _fatal(view: View, what: str, subject: str = "") -> Finding:
    facts = [fact(Source.JOURNAL, what)]
    return Finding(
        Severity.FATAL,
        what,
        facts,
        whole=True,
        ended=view.evidence.progress.errored,
        subject=one_line(subject, 100),
        remedy=one_line(view.job.remedy, 300) if view.job.remedy else None,
        cost=0.0,
    )


def _under_way(view: View, what: str, facts: list[Fact], since: float) -> Finding:
    return Finding(
        Severity.WARNING if since >= LONG else Severity.INFO,
        what,
        facts or [fact(Source.JOURNAL, what, view.job.phase_since)],
        whole=True,
        since=view.job.phase_since,
        cost=since if since >= LONG else 0.0,
    )


RULES: tuple[Rule, ...] = (
    rule(Cause.ENVIRONMENT_INSTALL, environment_install, rules_out=[Cause.CONFIG_ERROR, Cause.QUEUED]),
    rule(Cause.DATASET_LOADING, dataset_loading, helps=[Source.RECORDER], rules_out=[Cause.QUEUED]),
    rule(Cause.IMPORT_ERROR, import_error, rules_out=[Cause.CONFIG_ERROR, Cause.CRASHED, Cause.RETRY_LOOP]),
    rule(Cause.CONFIG_ERROR, config_error, rules_out=[Cause.CRASHED]),
)
