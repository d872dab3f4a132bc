"""Sandboxes that are being made for long: what is fetched or built meanwhile, and what does not end."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hawk.core.diagnosis.causes import Severity, Source, Who
from hawk.core.diagnosis.errortext import sign_of
from hawk.core.diagnosis.evidence import Attempt
from hawk.core.diagnosis.rule import Finding, fact
from hawk.core.diagnosis.rules.commands import foreground, sleep_of
from hawk.core.diagnosis.rules.tools import at_limiter
from hawk.core.diagnosis.saying import counted, earliest, lasted, named, quoted
from hawk.core.diagnosis.view import View
from hawk.core.states import SamplePhase

SLOW = 45.0
"""Seconds after which a sandbox that is not there is worth a word: most are made within one, containers within twenty."""

QUIET = 20.0
"""Seconds without any sign of a command of the setup."""

TOO_LONG = 180.0
"""Seconds after which a setup that does nothing is taken not to end: Inspect gives its script two minutes."""

NEVER = 1800.0
"""Seconds that a layer may take to be built, by default."""

_NETWORK = re.compile(
    r"Could not resolve host|Temporary failure (?:in name resolution|resolving)|[Nn]etwork is unreachable"
    r"|Name or service not known|No address associated with hostname|EAI_AGAIN|ENOTFOUND|bad address '"
)
_PULL = re.compile(r"docker (?:compose .*)?(?:pull|build)\b")


def speaks_of_network(text: str) -> bool:
    """Whether an error says that there is no network."""
    return _NETWORK.search(text) is not None and sign_of(text) != "image_pull"


def pulling(view: View) -> Iterator[Finding]:
    """Images that are being fetched."""
    held = [i for i, a in enumerate(view.attempts) if a.phase is SamplePhase.INIT and _pulls(a)]
    if not held:
        return
    since = view.held_since(held)
    waited = view.ago(since) or 0.0
    if waited < SLOW:
        return
    command = next(call.detail for call in view.attempts[held[0]].calls if _PULL.search(call.detail))
    yield Finding(
        Severity.INFO,
        f"an image is fetched or built for {lasted(waited)}: {quoted(command)}",
        [fact(Source.TRACE, f"{quoted(command)} is in flight", since)],
        held,
        since=since,
        who=Who.WAIT,
        remedy="Wait while it moves; a registry that does not answer ends it with an error",
        next="hawk trace {job}",
    )


def _pulls(attempt: Attempt) -> bool:
    return any(call.action == "Subprocess" and _PULL.search(call.detail) for call in attempt.calls)


def slow_start(view: View) -> Iterator[Finding]:
    """Attempts whose sandbox does not get ready, alike ones together."""
    groups: dict[tuple[Severity, str], list[int]] = {}
    names = {task.identifier: task.name for task in view.evidence.tasks}
    for i in view.in_phase(SamplePhase.INIT):
        attempt = view.attempts[i]
        if at_limiter(attempt) or _pulls(attempt):
            continue
        waited = view.ago(attempt.since or attempt.started_at)
        if waited is None:
            continue
        usual = view.learnt.starts.get(names.get(attempt.task, ""))
        known = usual.most if usual is not None and usual.count >= 3 else 0.0
        severity = _severity(attempt, waited, known)
        if severity is not None:
            groups.setdefault((severity, attempt.detail), []).append(i)
    for (severity, detail), held in groups.items():
        yield _slow(view, severity, detail, held)
    yield from _preparing(view)


def _severity(attempt: Attempt, waited: float, known: float) -> Severity | None:
    running = foreground(attempt)
    quiet = min((p.quiet for p in running), default=None)
    if quiet is not None and quiet >= QUIET and waited > 1.5 * known:
        asked = [s for p in running if (s := sleep_of(p.command)) is not None]
        endless = bool(asked) and max(asked) > TOO_LONG + known
        return Severity.STUCK if waited > TOO_LONG + known or (endless and waited > SLOW) else Severity.INFO
    if quiet is not None and quiet < QUIET:
        return Severity.INFO if waited > max(2 * SLOW, 3 * known) else None  # its setup works
    if waited < max(SLOW, 3 * known):
        return None
    made = attempt.sandbox is not None
    return Severity.STUCK if waited > max(NEVER if not made else 2 * TOO_LONG, 5 * known) else Severity.INFO


def _slow(view: View, severity: Severity, detail: str, held: list[int]) -> Finding:
    since = earliest([view.attempts[i].since or view.attempts[i].started_at for i in held])
    waited = view.ago(since) or 0.0
    commands = [p for i in held for p in foreground(view.attempts[i])]
    doing = f": {detail}" if detail else ""
    if commands:
        p = max(commands, key=lambda p: p.quiet)
        waits = f", waits for {p.waits}" if p.waits else ""
        doing += f"; {quoted(p.command)} has done nothing for {lasted(p.quiet)}{waits}"
    facts = [
        fact(Source.CONTROL, f"{view.attempts[i].name}: {view.attempts[i].detail}", view.attempts[i].since)
        for i in held[:3]
    ]
    facts += [
        fact(
            Source.SANDBOX,
            f"{quoted(p.command)}: {p.cpu:g} s of CPU in {lasted(p.age)}, nothing for {lasted(p.quiet)}",
        )
        for p in commands[:3]
    ]
    blocks = severity.blocks
    return Finding(
        severity,
        f"{counted(len(held))} ({named(view.attempts[i].name for i in held)}) wait for their sandbox for {lasted(waited)}{doing}",
        facts,
        held,
        since=since,
        who=None if blocks else Who.WAIT,
        remedy=None if blocks else "Wait; see which step it is",
    )


def _preparing(view: View) -> Iterator[Finding]:
    """What a worker builds for all its sandboxes, before there is any attempt."""
    for worker in view.workers:
        waited = view.ago(worker.preparing_since)
        if worker.preparing is None or waited is None or waited < SLOW:
            continue
        mine = view.of_worker(worker)
        over = waited > NEVER
        yield Finding(
            Severity.STUCK if over else Severity.INFO,
            f"worker {worker.index} makes what its sandboxes need for {lasted(waited)}: {worker.preparing}",
            [fact(Source.RECORDER, worker.preparing, worker.preparing_since)],
            [i for i in mine if view.attempts[i].phase is SamplePhase.INIT],
            waiting=0 if mine else view.evidence.progress.waiting,
            subject=str(worker.index),
            since=worker.preparing_since,
            who=None if over else Who.WAIT,
            remedy=None if over else "Wait: it is made once, and all attempts share it",
        )
