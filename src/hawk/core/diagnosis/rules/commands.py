"""What is known of the command or code that an attempt waits for, whoever asks: a tool, a setup, a scorer. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hawk.core.diagnosis.causes import Severity, Source
from hawk.core.diagnosis.evidence import Attempt, Process, Times
from hawk.core.diagnosis.rule import fact
from hawk.core.diagnosis.saying import lasted, quoted
from hawk.core.diagnosis.verdict import Fact
from hawk.core.diagnosis.view import View
from hawk.core.recorder.waitkinds import WaitKind

QUIET = 30.0
"""Seconds without CPU, I/O or a new child after which a command that waits for somebody is not about to go on."""

DOUBTFUL = 50.0
"""The same where it waits for a lock, the network or something unseen: a slow answer takes half a minute now and then."""

UNSEEN = 60.0
"""Seconds after which a call is worth a word of which nothing but its age is known."""

ABSURD = 600.0
"""Seconds that a sleep may last beyond what is usual: nobody lets an agent wait longer without meaning to."""

LONG = 300.0
"""Seconds without any sign after which code in a thread, or on the network, is taken not to come back."""

_ENDLESS = frozenset({"its standard input", "a pipe", "a terminal", "a client: it serves", "a signal"})
_DOUBTFUL = frozenset({"a lock", "the network", "something to happen"})
_SLEEP = re.compile(r"^(?:\S*/)?sleep\s+([0-9.]+)([smhd]?)\s*$|^(?:\S*/)?sleep\s+(inf(?:inity)?)\b")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SERVED = re.compile(r"inspect-sandbox-tools|inspect-tool-support|inspect_tool_support|inspect_sandbox_tools")
_COMMANDS = frozenset({"Sandbox Exec", "Subprocess"})
_LABELS = frozenset({"a command in a sandbox", "a command on the worker's machine"})
USUAL = 5
"""Durations from which on what is usual is known."""


@dataclass
class Judgement:
    """How an attempt's command is doing.

    Attributes:
        severity: None: it works, or nothing can be said yet.
        why: What it does instead, in words that follow the command.
        quiet: Seconds without a sign.
        clears: When it ends by itself.
        key: What is alike in attempts that are said to be hung in the same way.
    """

    severity: Severity | None
    why: str = ""
    command: str = ""
    age: float = 0.0
    quiet: float = 0.0
    clears: str | None = None
    key: str = ""
    hedged: bool = False
    facts: list[Fact] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)

    def told(self) -> list[Fact]:
        """What it was concluded from: of many judgements alike, a few are asked."""
        return [*_facts(self.processes), *self.facts]


WORKS = Judgement(None)


def is_command(attempt: Attempt) -> bool:
    """Whether it is known to wait for a command."""
    return (
        bool(foreground(attempt))
        or any(call.action in _COMMANDS for call in attempt.calls)
        or (attempt.wait is not None and attempt.wait.label in _LABELS)
    )


def foreground(attempt: Attempt) -> list[Process]:
    """Processes of the command that runs; with Inspect's own tools, whose client only hands on, also what they serve."""
    mine = [p for p in attempt.processes if not p.background and not p.service]
    if mine and all(_SERVED.search(p.command) for p in mine):
        served = [p for p in attempt.processes if p.background and not p.service]
        return [p for p in served if not _SERVED.search(p.command)] or mine
    return mine


def judge(view: View, attempt: Attempt, waited: float, usual: Times | None) -> Judgement:
    """Whether what an attempt waits for still does something.

    Args:
        waited: Seconds for which it has waited for this.
        usual: How long such a thing takes.
    """
    known = usual.most if usual is not None and usual.count >= USUAL else 0.0
    processes = foreground(attempt)
    left = time_left(view, attempt, processes)
    if left is not None and left[0] < -(10.0 + 0.1 * left[1]) and not _works(processes):
        return _overdue(attempt, processes, waited, left)
    if processes:
        return _by_processes(view, attempt, processes, waited, known, left)
    if is_command(attempt):
        return _by_age(view, attempt, waited, usual, left)
    return _by_chain(view, attempt, waited, known)


def time_left(view: View, attempt: Attempt, processes: list[Process]) -> tuple[float, float] | None:
    """Seconds left until its own deadline ends it, and how long that is in all; None without one."""
    found: list[tuple[float, float]] = []
    for call in attempt.calls:
        age = view.ago(call.since)
        if call.timeout is not None and age is not None and call.action != "Model":
            found.append((call.timeout - age, call.timeout))
    found += [(p.deadline, p.deadline + p.age) for p in processes if p.deadline is not None]
    return min(found, default=None)


def sleep_of(command: str) -> float | None:
    """Seconds that a `sleep` was asked for; None for another command."""
    found = _SLEEP.match(command)
    if found is None:
        return None
    if found[3]:
        return float("inf")
    try:
        return float(found[1]) * _UNITS[found[2]]
    except ValueError:
        return None


def _works(processes: list[Process]) -> bool:
    return any(p.quiet < QUIET / 2 or p.state == "R" for p in processes)


def _background_works(attempt: Attempt) -> bool:
    return any(p.background and not p.service and (p.busy > 0.05 or p.io > 0) for p in attempt.processes)


def _overdue(
    attempt: Attempt, processes: list[Process], waited: float, left: tuple[float, float]
) -> Judgement:
    said = fact(Source.TRACE, f"its own deadline of {lasted(left[1])} passed {lasted(-left[0])} ago")
    command = processes[0].command if processes else _command_of(attempt)
    why = f"has passed its own deadline of {lasted(left[1])} by {lasted(-left[0])}"
    return Judgement(Severity.STUCK, why, command, waited, waited, key="overdue", facts=[said])


def _by_processes(
    view: View,
    attempt: Attempt,
    processes: list[Process],
    waited: float,
    known: float,
    left: tuple[float, float] | None,
) -> Judgement:
    quiet = min(p.quiet for p in processes)
    if quiet < QUIET and not any(sleep_of(p.command) is not None for p in processes):
        return WORKS
    first = min(processes, key=lambda p: (p.quiet, p.command))
    sleeping = [s for p in processes if (s := sleep_of(p.command)) is not None]
    said = Judgement(None, command=first.command, age=first.age, quiet=quiet, processes=processes)
    if left is not None and left[0] > 0:
        said.severity, said.clears = Severity.INFO, view.after(left[0])
        said.why = f"does nothing, and ends at its own deadline in {lasted(left[0])}"
        said.key = "deadline"
        return said if quiet >= QUIET else WORKS
    if sleeping and len(sleeping) == len(processes):
        said = _sleeping(view, said, first, max(sleeping), known)
        if said.severity is Severity.STUCK and _background_works(attempt):
            said.severity, said.why = Severity.INFO, f"{said.why}, while something else works in its sandbox"
        return said
    if quiet < QUIET:
        return WORKS
    waits = sorted({p.waits for p in processes if p.waits} - {"a child"})
    said.why = (
        f"does nothing: it waits for {' and '.join(waits) if waits else 'something that can not be seen'}"
    )
    said.key = ",".join(waits)
    if set(waits) & _ENDLESS or (first.state == "T"):
        said.severity = Severity.STUCK if waited > known else Severity.INFO
    elif set(waits) & _DOUBTFUL:
        said.severity = Severity.STUCK if quiet > DOUBTFUL and waited > 1.5 * known else Severity.INFO
    elif waits == ["a timer"]:
        said.severity = Severity.STUCK if quiet > ABSURD + known else Severity.INFO
    else:
        said.severity = Severity.STUCK if quiet > 2 * UNSEEN and waited > 2 * known else Severity.INFO
    said.hedged = said.severity is Severity.INFO
    return said


def _sleeping(view: View, said: Judgement, first: Process, asked: float, known: float) -> Judgement:
    left = asked - first.age
    said.key = "sleep"
    if asked > ABSURD + known:
        said.severity = Severity.STUCK
        said.why = (
            "sleeps for ever" if left == float("inf") else f"sleeps, and will for another {lasted(left)}"
        )
        return said
    if said.quiet < QUIET:
        return WORKS
    said.severity, said.clears = Severity.INFO, view.after(max(0.0, left))
    said.why = f"sleeps for another {lasted(max(0.0, left))}"
    return said


def _by_age(
    view: View, attempt: Attempt, waited: float, usual: Times | None, left: tuple[float, float] | None
) -> Judgement:
    """A command whose processes can't be seen: in a container, in a pod."""
    p95 = usual.p95 if usual is not None and usual.count >= USUAL else 0.0
    if waited < max(UNSEEN, 5 * p95):
        return WORKS
    said = Judgement(Severity.INFO, command=_command_of(attempt), age=waited, quiet=waited, key="unseen")
    said.hedged = True
    said.why = f"has not ended for {lasted(waited)}; whether it works can't be seen from here"
    said.facts = [fact(Source.TRACE, f"in flight for {lasted(waited)}", attempt.since)]
    if usual is not None:
        said.facts.append(
            fact(Source.HISTORY, f"such calls take {lasted(usual.p50)}, at most {lasted(usual.most)}")
        )
    if left is not None and left[0] > 0:
        said.clears = view.after(left[0])
    elif waited > max(6 * LONG, 10 * (usual.most if usual is not None else 0.0)):
        said.severity, said.hedged = Severity.WARNING, False
    return said


def _by_chain(view: View, attempt: Attempt, waited: float, known: float) -> Judgement:
    """Python code in the worker: by where it waits."""
    wait, idle = attempt.wait, attempt.idle if attempt.idle is not None else waited
    quiet = min(waited, idle)
    if wait is None or not steady(view, attempt) or quiet < QUIET:
        return WORKS
    kind = wait.kind
    said = Judgement(None, command=_command_of(attempt), age=waited, quiet=quiet, key=f"{kind} {wait.place}")
    said.facts = [chain_fact(attempt)]
    said.why = f"waits for {WaitKind(kind).words if kind else wait.label or 'something'} in {wait.place}"
    if kind in _KINDS_OF_OTHERS and not set(wait.others) - _KINDS_OF_OTHERS:
        said.severity = Severity.STUCK if quiet > 40.0 and waited > known else Severity.INFO
    elif kind == WaitKind.TIMER:
        said.severity = Severity.STUCK if quiet > ABSURD + known else Severity.INFO
    elif kind in (WaitKind.THREAD, WaitKind.NETWORK, WaitKind.PROCESS, WaitKind.FUTURE):
        said.severity = Severity.STUCK if quiet > LONG and waited > 5 * known else Severity.INFO
    if said.severity is Severity.INFO and quiet < min(UNSEEN, 40.0 + known):
        return WORKS
    said.hedged = said.severity is Severity.INFO
    return said if said.severity is not None else WORKS


_KINDS_OF_OTHERS = frozenset(
    str(kind) for kind in WaitKind if kind.by_others and kind is not WaitKind.LIMITER
)


def steady(view: View, attempt: Attempt) -> bool:
    """Whether its chain was the same in several records, of which the last is fresh."""
    wait = attempt.wait
    if wait is None or wait.looks < 2:
        return False
    age = view.ago(wait.at)
    return age is not None and age < 60.0


def chain_fact(attempt: Attempt) -> Fact:
    """Where its code waits."""
    wait = attempt.wait
    assert wait is not None
    inner = f", in {wait.innermost}" if wait.innermost != wait.place else ""
    return fact(
        Source.RECORDER, f"waits in {wait.place}{inner}, the same in {wait.looks} records", wait.since
    )


def _facts(processes: list[Process]) -> list[Fact]:
    found = []
    for p in processes[:3]:
        waits = f", sleeps in {p.waits}" if p.waits else ""
        text = f"{quoted(p.command)}: {p.cpu:g} s of CPU in {lasted(p.age)}, nothing for {lasted(p.quiet)}{waits}"
        found.append(fact(Source.SANDBOX, text))
    return found


def _command_of(attempt: Attempt) -> str:
    for action in ("Sandbox Exec", "Subprocess", "Tool Call"):
        for call in attempt.calls:
            if call.action == action:
                return call.detail
    return attempt.detail or (attempt.wait.place if attempt.wait is not None else "its code")
