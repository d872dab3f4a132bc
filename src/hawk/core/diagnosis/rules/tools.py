"""Rules of the layer `sandbox` that concern what runs: commands that hang, and limiters that they keep occupied."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from hawk.core.diagnosis.causes import Cause, Severity, Source, Who
from hawk.core.diagnosis.evidence import Attempt, Times
from hawk.core.diagnosis.rule import Finding, Rule, fact, rule
from hawk.core.diagnosis.rules.commands import Judgement, is_command, judge
from hawk.core.diagnosis.saying import counted, earliest, lasted, named, quoted
from hawk.core.diagnosis.verdict import Fix, FixKind
from hawk.core.diagnosis.view import View
from hawk.core.recorder.waitkinds import WaitKind
from hawk.core.states import ActivityType, SamplePhase

STARVED = 30.0
"""Seconds for which attempts wait at a limiter, with no place becoming free: a queue that moves is faster."""

OLD = 60.0
"""Seconds for which those who hold the places have done nothing."""


def tool_of(attempt: Attempt) -> str:
    """The tool that an attempt waits for, by name."""
    for call in attempt.calls:
        if call.action == "Tool Call":
            return call.detail.partition("(")[0]
    return (
        attempt.detail.partition("(")[0].partition(",")[0].strip()
        if attempt.activity is ActivityType.TOOL
        else ""
    )


def at_limiter(attempt: Attempt) -> str:
    """Which limiter an attempt waits at, by the setting that bounds it; empty when it waits for something else."""
    wait = attempt.wait
    if wait is None or wait.kind != WaitKind.LIMITER:
        return ""
    functions = [name.rpartition(".")[2] for name in wait.frames]
    if "sandboxenv_context" in functions:
        return "max_sandboxes"
    if "subprocess" in functions or "compose_command" in functions:
        return "max_subprocesses"
    if any(name.startswith("Model.") for name in wait.frames[-12:]):
        return ""  # max_connections: a matter of models
    return f"concurrency() in {wait.place}"


# --- a command that hangs


def hung(view: View) -> Iterator[Finding]:
    """Attempts whose tool, or own command, does nothing; alike ones in one finding."""
    groups: dict[tuple[Severity, str, str, bool], list[tuple[int, Judgement]]] = defaultdict(list)
    for i in _candidates(view):
        attempt = view.attempts[i]
        waited = view.ago(attempt.since)
        if waited is None or waited < 5.0:
            continue
        found = judge(view, attempt, waited, _usual(view, attempt))
        if found.severity is not None:
            key = found.severity, tool_of(attempt), found.key, attempt.activity is ActivityType.TOOL
            groups[key].append((i, found))
    for (severity, tool, _, by_tool), its in groups.items():
        yield _hung(view, severity, tool, its, by_tool=by_tool)


def _candidates(view: View) -> Iterator[int]:
    for i in view.doing(ActivityType.TOOL, ActivityType.SANDBOX, ActivityType.SOLVER, None):
        attempt = view.attempts[i]
        if at_limiter(attempt) or attempt.phase is not SamplePhase.RUNNING:
            continue
        if any(call.action == "Model" for call in attempt.calls):
            continue  # a tool that asks a model: the model's own affair
        if attempt.activity is ActivityType.TOOL or is_command(attempt):
            yield i


def _usual(view: View, attempt: Attempt) -> Times | None:
    return view.learnt.tools.get(tool_of(attempt))


def _hung(
    view: View, severity: Severity, tool: str, its: list[tuple[int, Judgement]], *, by_tool: bool
) -> Finding:
    held = [i for i, _ in its]
    worst = max((judgement for _, judgement in its), key=lambda j: j.age)
    who = f" of the tool {tool}" if tool else ""
    what = f"{quoted(worst.command)}{who} {worst.why}"
    if worst.quiet >= 5 and worst.key not in ("unseen", "overdue"):
        what += f"; it runs for {lasted(worst.age)}, and has done nothing for {lasted(worst.quiet)}"
    if len(its) > 1:
        what = f"{counted(len(its))} wait for commands that do nothing: {what}"
    uuids = view.uuids(held)
    kind = FixKind.CANCEL_TOOL_CALL if by_tool else FixKind.REQUEUE
    usual = view.learnt.tools.get(tool)
    facts = [one for _, judgement in its[:3] for one in judgement.told()]
    if usual is not None and usual.count:
        facts.append(
            fact(
                Source.HISTORY,
                f"{counted(usual.count, 'call')} of {tool} took {lasted(usual.p50)}, at most {lasted(usual.most)}",
            )
        )
    return Finding(
        severity,
        what,
        facts,
        held,
        subject=tool,
        since=earliest([view.attempts[i].since for i in held]),
        clears=max((j.clears for _, j in its if j.clears), default=None)
        if all(j.clears for _, j in its)
        else None,
        fix=Fix(kind, uuids) if uuids and severity.blocks else None,
        remedy=None if severity.blocks else "Nothing yet: it may be meant so",
        next=None if severity.blocks and uuids else "hawk stacktrace {job} --sample {uuid}",
        who=None if severity.blocks else Who.WAIT,
    )


# --- a limiter whose places are held


def starved(view: View) -> Iterator[Finding]:
    """Attempts that wait at a limiter while those who hold its places stand still."""
    queues: dict[tuple[str, int | None], list[int]] = defaultdict(list)
    for i, attempt in enumerate(view.attempts):
        if limiter := at_limiter(attempt):
            queues[limiter, attempt.worker].append(i)
    for (limiter, worker), waiting in queues.items():
        waited = [w for i in waiting if (w := view.ago(_waits_since(view.attempts[i]))) is not None]
        holders = [i for i in _holders(view, limiter, worker) if i not in waiting]
        if not waited or not holders or (min(waited) < STARVED and max(waited) < 2 * STARVED):
            continue
        ages = sorted((_still(view, i) for i in holders), reverse=True)
        few = len(holders) <= max(2, 2 * len(waiting))
        if not few or ages[-1] < STARVED:
            continue  # one of them has just done something: the queue moves
        yield _starved(view, limiter, waiting, holders, max(waited), ages)


def _waits_since(attempt: Attempt) -> str | None:
    return attempt.wait.since if attempt.wait is not None and attempt.wait.since else attempt.since


def _still(view: View, i: int) -> float:
    """Seconds for which a holder has done nothing."""
    attempt = view.attempts[i]
    quiet = [p.quiet for p in attempt.processes if not p.background]
    waited = view.ago(attempt.since) or 0.0
    idle = attempt.idle if attempt.idle is not None else waited
    return min([idle, *quiet])


def _holders(view: View, limiter: str, worker: int | None) -> list[int]:
    found = []
    for i, attempt in enumerate(view.attempts):
        if attempt.worker != worker or at_limiter(attempt):
            continue
        if limiter == "max_subprocesses":
            holds = any(call.action == "Subprocess" for call in attempt.calls)
        elif limiter == "max_sandboxes":
            holds = attempt.sandbox is not None or attempt.phase is not SamplePhase.INIT
        else:
            place = limiter.rpartition(" ")[2]
            holds = attempt.wait is not None and any(name.endswith(place) for name in attempt.wait.frames)
        if holds:
            found.append(i)
    return found


def _starved(
    view: View, limiter: str, waiting: list[int], holders: list[int], waited: float, ages: list[float]
) -> Finding:
    hung_up = ages[-1] >= OLD
    names = named(view.attempts[i].name for i in holders)
    what = (
        f"{counted(len(waiting))} wait for a place ({limiter}), the first for {lasted(waited)}: "
        f"{counted(len(holders))} hold the places and have done nothing for {lasted(ages[-1])} or longer: {names}"
    )
    return Finding(
        Severity.STUCK if hung_up else Severity.INFO,
        what,
        [
            fact(
                Source.RECORDER,
                f"{counted(len(waiting), 'await chain')} end at the limiter",
                view.before(waited),
            ),
            fact(
                Source.TRACE,
                f"who holds a place has done nothing for {', '.join(lasted(a) for a in ages[:5])}",
            ),
        ],
        waiting,
        subject=limiter,
        since=view.before(waited),
        next="hawk trace {job}",
        uuid=view.attempts[holders[0]].uuid,
    )


RULES: tuple[Rule, ...] = (
    rule(
        Cause.TOOL_HUNG,
        hung,
        needs=[Source.CONTROL],
        helps=[Source.SANDBOX, Source.TRACE, Source.RECORDER, Source.HISTORY],
    ),
    rule(
        Cause.LIMITER_STARVED,
        starved,
        needs=[Source.RECORDER],
        helps=[Source.TRACE],
        rules_out=[Cause.NO_SLOT, Cause.START_TIMEOUT, Cause.AWAIT_NEVER_RESOLVED],
    ),
)
