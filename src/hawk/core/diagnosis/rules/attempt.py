"""Rules of the layer `attempt`: what an attempt does again and again, what ended it, and whom it waits for."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator

from hawk.core.diagnosis.causes import Cause, Severity, Source, Who
from hawk.core.diagnosis.errortext import normalised, sign_of
from hawk.core.diagnosis.evidence import Attempt, ErrorGroup, TaskCount, Times
from hawk.core.diagnosis.rule import Finding, Rule, fact, rule
from hawk.core.diagnosis.rules.commands import Judgement, chain_fact, foreground, judge
from hawk.core.diagnosis.rules.starting import speaks_of_network
from hawk.core.diagnosis.rules.tools import at_limiter
from hawk.core.diagnosis.saying import counted, earliest, lasted, named, quoted
from hawk.core.diagnosis.verdict import Fix, FixKind
from hawk.core.diagnosis.view import View
from hawk.core.recorder.waitkinds import WaitKind
from hawk.core.states import ActivityType, SamplePhase

TRIES = 2
"""Tries with the same error from which on the next one will hardly end differently."""

MANY_TRIES = 5
"""Tries from which on the next one won't."""

LOOPS, LOOPING, ENDLESS = 4, 6, 30
"""Equal calls with equal answers in a row: worth a word; no accident any more; nothing else to come."""

POLL = 4.0
"""Seconds between equal calls from which on they look at something that takes its time, rather than repeat themselves."""

POLLING = 20
"""Equal answers from which on that something won't change any more."""

SCORER = 45.0
"""Seconds without a sign of a scorer; a comparison takes milliseconds, tests of a workspace use CPU."""

RECENT = 600.0
"""Seconds for which an error counts as trouble of now."""

_TOLD = frozenset({"lost", "disk", "memory", "image_pull", "create", "crash_loop", "unschedulable"})


# --- again and again


def retry_loop(view: View) -> Iterator[Finding]:
    """Attempts that are run again and meet the same error."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, attempt in enumerate(view.attempts):
        alike = _alike(attempt)
        if alike >= TRIES:
            groups[attempt.task, normalised(attempt.tries[-1].error, 120)].append(i)
    for (_, _), held in groups.items():
        tries = [view.attempts[i].tries for i in held]
        most = max(_alike(view.attempts[i]) for i in held)
        error = tries[0][-1].error
        lost = sum(one.seconds for its in tries for one in its)
        uuids = view.uuids(held)
        yield Finding(
            Severity.STUCK if most >= MANY_TRIES else Severity.WARNING,
            f"{counted(len(held))} ({named(view.attempts[i].name for i in held)}) "
            f"ended {most} times with the same error, and {'run' if len(held) > 1 else 'runs'} again: {error}",
            [
                fact(Source.SPANS, f"try of {lasted(one.seconds)}: {one.error}", one.at)
                for one in tries[0][-4:]
            ],
            held,
            subject=normalised(error, 60),
            since=earliest([its[0].at for its in tries]),
            cost=lost,
            fix=Fix(FixKind.SCORE, uuids) if most >= MANY_TRIES and uuids else None,
        )
    for group in view.evidence.ended:
        if group.limit is not None or group.phase not in ("agent", "") or sign_of(group.message) in _TOLD:
            continue  # a rule of its own tells of it
        if group.retried >= TRIES * max(1, group.attempts) and not view.with_uuids(group.uuids):
            yield _retried(view, group)


def _alike(attempt: Attempt) -> int:
    """How many of the last tries ended with the same error."""
    if not attempt.tries:
        return 0
    last = normalised(attempt.tries[-1].error, 120)
    count = 0
    for one in reversed(attempt.tries):
        if normalised(one.error, 120) != last:
            break
        count += 1
    return count


def _retried(view: View, group: ErrorGroup) -> Finding:
    age = view.ago(group.last_at)
    return Finding(
        Severity.WARNING if age is None or age < RECENT else Severity.INFO,
        f"{counted(group.attempts)} ({named(group.examples)}) ended with the same error at every try, "
        f"{counted(group.retried, 'retry' if group.retried == 1 else 'retrie')}: {group.message}",
        [fact(Source.LOGS, f"{counted(group.count, 'time')}: {group.message}", group.last_at)],
        ended=max(0, group.count - group.retried),
        subject=normalised(group.message, 60),
        since=group.first_at,
        uuid=group.uuids[-1] if group.uuids else None,
    )


def looping(view: View) -> Iterator[Finding]:
    """Agents that make the same call again and get the same answer; alike ones in one finding."""
    groups: dict[tuple[Severity, str, str], list[int]] = defaultdict(list)
    for i, attempt in enumerate(view.attempts):
        severity = _loops(view, attempt)
        if severity is not None and attempt.repeat is not None:
            groups[severity, attempt.repeat.tool, attempt.repeat.arguments].append(i)
    for (severity, tool, arguments), held in groups.items():
        repeats = [r for i in held if (r := view.attempts[i].repeat) is not None]
        most = max(repeat.count for repeat in repeats)
        uuids = view.uuids(held)
        yield Finding(
            severity,
            f"{counted(len(held))} ({named(view.attempts[i].name for i in held)}) "
            f"{'have' if len(held) > 1 else 'has'} called {tool} {most} times in a row "
            f"with the same arguments and the same answer: {arguments}",
            [
                fact(Source.LOGS, f"{tool}({arguments}): {r.count} equal answers", r.since)
                for r in repeats[:4]
            ],
            held,
            subject=tool,
            since=earliest([repeat.since for repeat in repeats]),
            fix=Fix(FixKind.SCORE, uuids) if uuids and severity is not Severity.INFO else None,
        )


_SLEEPS = re.compile(r"[\"']\s*sleep [0-9.]+[smh]?\s*[\"']")
"""Arguments that are nothing but a pause: an agent that waits for something asks so again and again."""


def _loops(view: View, attempt: Attempt) -> Severity | None:
    repeat = attempt.repeat
    if repeat is None or not repeat.same_result or repeat.count < LOOPS:
        return None
    polls = (view.ago(repeat.since) or 0.0) / repeat.count >= POLL or bool(_SLEEPS.search(repeat.arguments))
    if repeat.count >= ENDLESS and not polls:
        return Severity.STUCK
    return Severity.WARNING if repeat.count >= (POLLING if polls else LOOPING) else Severity.INFO


def limits(view: View) -> Iterator[Finding]:
    """Limits that ended attempts."""
    by_limit: dict[str, list[ErrorGroup]] = defaultdict(list)
    for group in view.evidence.ended:
        if group.limit is not None:
            by_limit[group.limit].append(group)
    for limit, groups in by_limit.items():
        count = sum(group.count for group in groups)
        newest = max(groups, key=lambda g: g.last_at or "")
        examples = [name for group in groups for name in group.examples]
        yield Finding(
            Severity.INFO,
            f"the {limit} limit ended {counted(count)} ({named(examples)}): {newest.message}",
            [fact(Source.LOGS, f"{counted(g.count)}: {g.message}", g.last_at) for g in groups[:4]],
            ended=count,
            subject=limit,
            since=earliest([g.first_at for g in groups]),
            fix=Fix(FixKind.RAISE_LIMIT, subject=limit),
        )


# --- scorers, setups


def scorer_hung(view: View) -> Iterator[Finding]:
    """Scorers that have done nothing for long."""
    scoring = set(view.in_phase(SamplePhase.SCORING)) | set(view.doing(ActivityType.SCORING))
    groups: dict[tuple[Severity, str, str], list[tuple[int, Judgement, float]]] = defaultdict(list)
    for i in sorted(scoring):
        attempt = view.attempts[i]
        if attempt.activity in (ActivityType.BLOCKED, ActivityType.RETRY_WAIT) or at_limiter(attempt):
            continue
        usual = view.learnt.scorers.get(attempt.scorer or "")
        waited = view.ago(attempt.since)
        if waited is None:
            continue
        quiet = min(waited, attempt.idle if attempt.idle is not None else waited)
        if quiet < max(SCORER, 3 * usual.p95 if usual is not None and usual.count >= 3 else 0.0):
            continue
        found = _scorer(view, attempt, waited, usual)
        if found.severity is not None:
            groups[found.severity, attempt.scorer or "", found.key].append((i, found, quiet))
    for (severity, scorer, _), its in groups.items():
        yield _hung_scorer(view, severity, scorer, its)


def _scorer(view: View, attempt: Attempt, waited: float, usual: Times | None) -> Judgement:
    model = any(call.action == "Model" for call in attempt.calls) or attempt.activity is ActivityType.MODEL
    if model or (attempt.wait is not None and attempt.wait.label == "a model's answer"):
        said = Judgement(Severity.INFO, "asks a model", age=waited, quiet=waited, key="model", hedged=True)
        said.facts = [fact(Source.TRACE, "a model call is in flight", attempt.since)]
        return said
    found = judge(view, attempt, waited, usual)
    if found.severity is not None or foreground(attempt):
        return found
    wait = attempt.wait
    if wait is None or wait.looks < 2:
        return Judgement(Severity.INFO, "has not ended", age=waited, quiet=waited, key="unseen", hedged=True)
    if wait.kind == WaitKind.RUNNING:
        return found
    return Judgement(
        Severity.INFO, f"waits in {wait.place}", age=waited, quiet=waited, key=wait.place, hedged=True
    )


def _hung_scorer(
    view: View, severity: Severity, scorer: str, its: list[tuple[int, Judgement, float]]
) -> Finding:
    held = [i for i, _, _ in its]
    quiet = max(seconds for _, _, seconds in its)
    worst = max((judgement for _, judgement, _ in its), key=lambda j: j.age)
    command = f" ({quoted(worst.command)})" if worst.command and worst.command != scorer else ""
    uuids = view.uuids(held)
    what = (
        f"the scorer{f' {scorer}' if scorer else ''} of {counted(len(held))} ({named(view.attempts[i].name for i in held)}) "
        f"has done nothing for {lasted(quiet)}: it {worst.why}{command}"
    )
    facts = [one for _, judgement, _ in its[:3] for one in judgement.told()]
    facts.append(fact(Source.CONTROL, f"scoring; no event for {lasted(quiet)}", view.held_since(held)))
    usual = view.learnt.scorers.get(scorer)
    if usual is not None and usual.count:
        facts.append(fact(Source.HISTORY, f"it takes {lasted(usual.p50)}, at most {lasted(usual.most)}"))
    return Finding(
        severity,
        what,
        facts,
        held,
        subject=scorer,
        since=view.held_since(held),
        clears=worst.clears,
        fix=Fix(FixKind.REQUEUE, uuids) if uuids and severity.blocks else None,
        who=None if severity.blocks else Who.WAIT,
        remedy=None if severity.blocks else "Nothing yet: see what it waits for",
    )


def _failing(phase: str, words: str) -> Callable[[View], Iterator[Finding]]:
    """A look for errors in one phase of attempts."""

    def look(view: View) -> Iterator[Finding]:
        tasks = {task.identifier: task for task in view.evidence.tasks}
        for group in view.evidence.ended:
            if group.phase != phase or group.limit is not None:
                continue
            if phase == "setup" and speaks_of_network(group.message):
                continue
            if sign_of(group.message) in ("lost", "disk", "memory"):
                continue
            yield _failed(view, group, tasks.get(group.task), words)

    return look


def _failed(view: View, group: ErrorGroup, task: TaskCount | None, words: str) -> Finding:
    age = view.ago(group.last_at)
    over = task is not None and not task.progress.completed and _all_fail(view, group, task)
    held = view.with_uuids(group.uuids)
    return Finding(
        Severity.FATAL if over else Severity.WARNING if age is None or age < RECENT else Severity.INFO,
        f"{words} of {counted(group.attempts or group.count)} ({named(group.examples)}) failed: {group.kind}: {group.message}",
        [fact(Source.LOGS, f"{counted(group.count, 'time')}: {group.kind}: {group.message}", group.last_at)],
        held,
        ended=max(0, group.count - group.retried),
        subject=task.name if task is not None else group.task,
        since=group.first_at,
        uuid=group.uuids[-1] if group.uuids else None,
    )


def _all_fail(view: View, group: ErrorGroup, task: TaskCount) -> bool:
    """Whether no attempt of a task has got past this."""
    if group.phase == "scoring":
        return task.progress.errored >= 2 and task.progress.errored <= group.count
    return not any(a.task == task.identifier and a.phase is not SamplePhase.INIT for a in view.attempts)


# --- people


def _asked(activity: ActivityType, words: str, label: str = "") -> Callable[[View], Iterator[Finding]]:
    """A look for attempts that wait for a person; `label`: of the chain, where an approver is code of its own."""

    def look(view: View) -> Iterator[Finding]:
        held = sorted(
            {*view.doing(activity), *(i for i, a in enumerate(view.attempts) if label and _in(a, label))}
        )
        if not held:
            return
        since = view.held_since(held)
        waited = view.ago(since)
        first = view.attempts[held[0]]
        about = f": {first.detail}" if first.detail and first.activity is activity else ""
        yield Finding(
            Severity.INFO,
            f"{counted(len(held))} ({named(view.attempts[i].name for i in held)}) {'wait' if len(held) > 1 else 'waits'} "
            f"for {words}{f', for {lasted(waited)}' if waited is not None else ''}{about}",
            [
                chain_fact(a)
                if a.activity is not activity
                else fact(Source.CONTROL, f"{a.name}: {a.detail or words}", a.since)
                for a in (view.attempts[i] for i in held[:4])
            ],
            held,
            since=since,
            who=Who.OPERATOR,
        )

    return look


def _in(attempt: Attempt, label: str) -> bool:
    wait = attempt.wait
    return (
        attempt.activity in (ActivityType.SOLVER, None)
        and wait is not None
        and wait.label == label
        and wait.looks >= 2
        and not any(call.action in ("Model", "Tool Call") for call in attempt.calls)
    )


RULES: tuple[Rule, ...] = (
    rule(Cause.RETRY_LOOP, retry_loop),
    rule(Cause.LIMIT_HIT, limits),
    rule(Cause.AGENT_LOOPING, looping),
    rule(
        Cause.SCORER_HUNG,
        scorer_hung,
        needs=[Source.CONTROL],
        helps=[Source.RECORDER, Source.SANDBOX, Source.TRACE, Source.HISTORY],
    ),
    rule(Cause.SCORER_ERROR, _failing("scoring", "the scoring"), rules_out=[Cause.RETRY_LOOP]),
    rule(Cause.SETUP_FAILED, _failing("setup", "the setup"), rules_out=[Cause.RETRY_LOOP]),
    rule(
        Cause.AWAITING_APPROVAL,
        _asked(ActivityType.APPROVAL, "an approval", "an approval"),
        needs=[Source.CONTROL],
    ),
    rule(Cause.AWAITING_INPUT, _asked(ActivityType.QUESTION, "an answer"), needs=[Source.CONTROL]),
)
