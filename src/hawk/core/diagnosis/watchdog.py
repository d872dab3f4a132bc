"""The watchdog's policy: which remedies are carried out without a person, and what people are told. Pure.

It acts only on what won't go on by itself, has held for long enough, and for which there is a safe remedy or one that
the config names; within a budget for the job and one for each attempt; and never twice on the same thing before the
first remedy has had time to work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from hawk.core.diagnosis.causes import Severity
from hawk.core.diagnosis.verdict import Fix, FixKind, Verdict

SAFE = frozenset({FixKind.CANCEL_TOOL_CALL, FixKind.REQUEUE, FixKind.RESTART_WORKER, FixKind.RETUNE})
"""Remedies after which the job goes on with nothing lost that had ended, and no result is another than it would be.
Scoring an attempt as it is decides its result, a higher limit changes what results mean, and what a person has paused
is that person's to let go on: those are done where the config names them."""

SETTLING = 60.0
"""Seconds that a remedy has at least before it is judged: a worker that is started again imports for some."""

CALM = 60.0
"""Seconds for which a trouble must have been over before it is told of again: it may come and go."""

TOP = 3
"""Verdicts in a notification."""


class Event(StrEnum):
    """What people are told of."""

    STUCK = "stuck"
    FATAL = "fatal"
    DONE = "done"
    FAILED = "failed"


class Webhook(msgspec.Struct):
    """Where JSON is posted. What is secret is named by the environment variable that holds it."""

    url: str | None = None
    url_from: str | None = None
    headers: dict[str, str] = {}
    headers_from: dict[str, str] = {}


class Email(msgspec.Struct, rename={"sender": "from"}):
    """A mail server, and who is written to."""

    host: str
    sender: str
    to: list[str]
    port: int = 25
    starttls: bool = False
    user_from: str | None = None
    password_from: str | None = None


class Notify(msgspec.Struct):
    """Who is told, and of what."""

    on: tuple[Event, ...] = tuple(Event)
    webhook: Webhook | None = None
    command: list[str] = []
    email: Email | None = None


class WatchdogConfig(msgspec.Struct):
    """`watchdog:` of an eval set, as it was checked when it was submitted; see `hawk.config.watchdog`."""

    after: float = 600.0
    causes: list[str] | str = "all safe"
    actions: dict[str, FixKind] = {}
    most: int = 10
    per_attempt: int = 2
    dry_run: bool = False
    notify: Notify | None = None


class Act(msgspec.Struct, omit_defaults=True):
    """A remedy to carry out now.

    Attributes:
        held: Names of the attempts that it is for: a run-again attempt has another uuid, and the same name.
    """

    fix: Fix
    cause: str
    subject: str
    what: str
    held: list[str] = []


class Notice(msgspec.Struct, omit_defaults=True):
    """Something to tell people."""

    event: Event
    verdicts: list[Verdict] = []


class Memory(msgspec.Struct):
    """What the policy remembers between looks. Times are seconds of one clock.

    Attributes:
        since: When each trouble began to hold, by (cause, subject).
        acted: When it was acted on last.
        spent: Actions so far.
        by_attempt: The same by the attempt's name.
        told: Troubles that people know of, and when each was last there.
    """

    since: dict[tuple[str, str], float] = {}
    acted: dict[tuple[str, str], float] = {}
    spent: int = 0
    by_attempt: Counter[str] = msgspec.field(default_factory=Counter)
    told: dict[Event, float] = {}


def look(
    memory: Memory,
    verdicts: Sequence[Verdict],
    config: WatchdogConfig,
    now: float,
    names: Mapping[str, str] | None = None,
) -> tuple[list[Act], list[Notice]]:
    """What to do and to tell now; `memory` is brought up to date.

    Args:
        names: Of attempts in flight, by uuid.
    """
    blocking = [v for v in verdicts if v.severity.blocks and not v.before_death]
    keys = {(v.cause, v.subject) for v in blocking}
    memory.since = {key: at for key, at in memory.since.items() if key in keys}
    acts = []
    for verdict in blocking:
        key = (verdict.cause, verdict.subject)
        since = memory.since.setdefault(key, now)
        if now - since < config.after or memory.spent >= config.most:
            continue
        if key in memory.acted and now - memory.acted[key] < max(SETTLING, config.after):
            continue
        act = _act(memory, verdict, config, names or {})
        if act is None:
            continue
        acts.append(act)
        memory.acted[key] = memory.since[key] = now
        memory.spent += 1
        memory.by_attempt.update(act.held)
    return acts, _notices(memory, blocking, config, now)


def ended(verdicts: Sequence[Verdict], config: WatchdogConfig, *, failed: bool) -> list[Notice]:
    """What to tell of a job that has ended."""
    event = Event.FAILED if failed else Event.DONE
    if config.notify is None or event not in config.notify.on:
        return []
    return [Notice(event, list(verdicts[:TOP]))]


def _act(memory: Memory, verdict: Verdict, config: WatchdogConfig, names: Mapping[str, str]) -> Act | None:
    fix = _fix(verdict, config)
    if fix is None:
        return None
    uuids = fix.uuids or verdict.uuids
    known = {uuid: names.get(uuid, uuid) for uuid in uuids}
    left = [uuid for uuid in uuids if memory.by_attempt[known[uuid]] < config.per_attempt]
    if uuids and not left:
        return None
    if len(left) < len(uuids) and fix.kind in (FixKind.RESTART_WORKER, FixKind.RETUNE):
        return None  # it can't be done to some of them only
    held = [known[uuid] for uuid in left]
    if fix.kind not in (FixKind.RESTART_WORKER, FixKind.RETUNE, FixKind.PAUSE_MODEL, FixKind.RESUME_MODEL):
        fix = msgspec.structs.replace(fix, uuids=left)
    return Act(fix, verdict.cause, verdict.subject, verdict.what, held)


def _fix(verdict: Verdict, config: WatchdogConfig) -> Fix | None:
    """The remedy that the config allows for a verdict."""
    kind = config.actions.get(verdict.cause)
    if kind is not None:
        if verdict.fix is not None and verdict.fix.kind is kind:
            return verdict.fix
        subject = verdict.subject if kind in (FixKind.PAUSE_MODEL, FixKind.RESUME_MODEL) else ""
        return Fix(kind, list(verdict.uuids), subject)
    if verdict.fix is None or verdict.fix.kind is FixKind.RESUME_JOB:
        return None
    if isinstance(config.causes, str):
        return verdict.fix if verdict.fix.kind in SAFE else None
    return verdict.fix if verdict.cause in config.causes else None


def _notices(memory: Memory, blocking: Sequence[Verdict], config: WatchdogConfig, now: float) -> list[Notice]:
    """One for each kind of trouble that has just begun. Worse trouble is told of though people know of the lesser."""
    if config.notify is None:
        return []
    notices = []
    for event, severity in ((Event.FATAL, Severity.FATAL), (Event.STUCK, Severity.STUCK)):
        there = [verdict for verdict in blocking if verdict.severity is severity]
        last = memory.told.get(event)
        if there:
            memory.told[event] = now
            if last is None and event in config.notify.on:
                notices.append(Notice(event, list(blocking[:TOP])))
        elif last is not None and now - last >= CALM:
            del memory.told[event]
    return notices
