"""Rules of the layer `sandbox`: sandboxes that can't be made, don't get ready, are lost, or lack something.

What runs in them is the matter of `rules/tools.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from hawk.core.cluster_why import GRACE
from hawk.core.diagnosis.causes import Cause, Severity, Source
from hawk.core.diagnosis.errortext import sign_of
from hawk.core.diagnosis.evidence import ErrorGroup, TaskCount, WaitingSandbox
from hawk.core.diagnosis.rule import Finding, Rule, fact, rule
from hawk.core.diagnosis.rules import cluster, starting, tools
from hawk.core.diagnosis.saying import counted, earliest, lasted, named
from hawk.core.diagnosis.verdict import Fact
from hawk.core.diagnosis.view import View
from hawk.core.states import SamplePhase

RECENT = 600.0
"""Seconds for which an error of an attempt that has ended counts as trouble of now."""


def of_sandbox(group: ErrorGroup) -> bool:
    """Whether an error came while a sandbox was made, or is about one."""
    return group.limit is None and group.phase in ("sandbox", "")


def _errors(view: View, *, signs: tuple[str, ...], phases: tuple[str, ...]) -> list[ErrorGroup]:
    return [
        g
        for g in view.evidence.ended
        if g.limit is None and g.phase in phases and sign_of(g.message) in signs
    ]


# --- can't be made


def _failing(
    cause: Cause, verb: str, fits: Callable[[ErrorGroup], bool]
) -> Callable[[View], Iterator[Finding]]:
    """A rule's look: error groups that fit, what whole tasks failed with, and sandboxes that the cluster does not start."""

    def look(view: View) -> Iterator[Finding]:
        tasks = {task.identifier: task for task in view.evidence.tasks}
        by_task: dict[str, list[ErrorGroup]] = {}
        for group in view.evidence.ended:
            if fits(group):
                by_task.setdefault(group.task, []).append(group)
        waiting = _not_started(view, cause)
        for identifier, groups in by_task.items():
            pods = waiting.pop(identifier, [])
            failed = _failed(view, verb, tasks.get(identifier), groups, len(pods))
            yield _with_waiting(failed, _waiting(view, cause, pods)) if pods else failed
        for task in view.evidence.tasks:
            if task.error and task.identifier not in by_task and fits(_as_group(task)):
                yield _task_failed(view, verb, task)
        yield from (_waiting(view, cause, pods) for pods in waiting.values())
        yield from cluster.runner_waits(view, cause)

    return look


def _failed(view: View, verb: str, task: TaskCount | None, groups: list[ErrorGroup], pods: int) -> Finding:
    """Sandboxes of one task that have failed; so many pods of it still wait for the same."""
    newest = max(groups, key=lambda g: g.last_at or "")
    uuids = [uuid for group in groups for uuid in group.uuids]
    held = [i for i in view.with_uuids(uuids) if view.attempts[i].phase is SamplePhase.INIT]
    ended = sum(group.count - group.retried for group in groups)
    tried = sum(group.count for group in groups)
    name = task.name if task is not None else newest.task
    of = f" of {name}" if name else ""
    sandboxes = "1 sandbox" if tried == 1 else f"{tried:,} sandboxes"
    more = f" ({counted(pods, 'pod')} more wait)" if pods else ""
    what = f"{sandboxes}{of} {verb}{more}: {newest.message}"
    age = view.ago(newest.last_at)
    waiting = task.progress.waiting if task is not None and _hopeless(view, task) else 0
    return Finding(
        _how_bad(view, task, age),
        what,
        [
            fact(
                Source.LOGS, f"{counted(g.count, 'try' if g.count == 1 else 'trie')}: {g.message}", g.last_at
            )
            for g in groups[:4]
        ],
        held,
        ended=max(0, ended),
        waiting=waiting,
        subject=name,
        since=min((g.first_at for g in groups if g.first_at), default=None),
    )


def _how_bad(view: View, task: TaskCount | None, age: float | None) -> Severity:
    """Over, where nothing of the task has ever begun; slowed, where others of it do; past, where it is long ago."""
    if task is not None and _hopeless(view, task):
        return Severity.FATAL
    return Severity.WARNING if age is None or age < RECENT else Severity.INFO


def _hopeless(view: View, task: TaskCount) -> bool:
    begun = any(a.task == task.identifier and a.phase is not SamplePhase.INIT for a in view.attempts)
    return not (task.progress.completed or task.progress.limit or begun)


def _as_group(task: TaskCount) -> ErrorGroup:
    text = task.error or ""
    return ErrorGroup(
        "", text, 1, task.identifier, phase="sandbox" if sign_of(text) not in ("", "setup") else ""
    )


def _task_failed(view: View, verb: str, task: TaskCount) -> Finding:
    progress = task.progress
    return Finding(
        Severity.FATAL,
        f"sandboxes of {task.name} {verb}: {task.error}",
        [fact(Source.LOGS, f"the task failed: {task.error}")],
        [i for i, a in enumerate(view.attempts) if a.task == task.identifier and a.phase is SamplePhase.INIT],
        ended=progress.errored,
        waiting=progress.waiting,
        subject=task.name,
    )


def _not_started(view: View, cause: Cause) -> dict[str, list[WaitingSandbox]]:
    """Pods that the cluster has not started, for a reason that is this cause's, by the task that they are for."""
    found: dict[str, list[WaitingSandbox]] = {}
    for sandbox in view.evidence.sandboxes:
        if sandbox.reason in cluster.REASONS.get(cause, ()):
            found.setdefault(sandbox.task, []).append(sandbox)
    return found


def _waiting(view: View, cause: Cause, pods: list[WaitingSandbox]) -> Finding:
    """Pods of one task that the cluster has not started."""
    first = earliest([s.since for s in pods])
    waited = view.ago(first)
    severity = Severity.STUCK
    if cause is Cause.UNSCHEDULABLE and (waited is None or waited < GRACE):
        severity = Severity.INFO
    samples = {(s.task, s.sample, s.epoch) for s in pods}
    held = [
        i
        for i, a in enumerate(view.attempts)
        if a.phase is SamplePhase.INIT and {(a.task, a.sample, a.epoch), (a.task, a.sample, None)} & samples
    ]
    since = f", the first for {lasted(waited)}" if waited is not None else ""
    names = {task.identifier: task.name for task in view.evidence.tasks}
    by_reason: dict[str, list[WaitingSandbox]] = {}
    for pod in pods:
        by_reason.setdefault(pod.reason, []).append(pod)
    return Finding(
        severity,
        f"{counted(len(pods), 'pod')} can't start ({pods[0].reason}{since}): {pods[0].detail or named(s.name for s in pods)}",
        [
            fact(
                Source.ENGINE,
                f"{named((s.name for s in alike), 1)}: {reason} {alike[0].detail}".strip(),
                alike[0].since,
            )
            for reason, alike in by_reason.items()
        ],
        held,
        waiting=max(0, len(pods) - len(held)),
        subject=names.get(pods[0].task, pods[0].task),
        since=first,
    )


def _with_waiting(failed: Finding, waiting: Finding) -> Finding:
    """What has failed for a cause, and what still waits for the same: one finding, which says both."""
    return replace(
        failed,
        severity=max(failed.severity, waiting.severity, key=lambda severity: severity.rank),
        facts=[*failed.facts, *waiting.facts],
        held=sorted({*failed.held, *waiting.held}),
        waiting=max(failed.waiting, waiting.waiting),
        since=earliest([failed.since, waiting.since]),
    )


def _is_pull(group: ErrorGroup) -> bool:
    return of_sandbox(group) and sign_of(group.message) == "image_pull"


def _is_create(group: ErrorGroup) -> bool:
    sign = sign_of(group.message)
    if group.limit is not None or "ended before it was ready" in group.message:
        return False
    return (sign == "create" and of_sandbox(group)) or (group.phase == "sandbox" and sign in ("", "memory"))


def _is_crash(group: ErrorGroup) -> bool:
    again = "ended before it was ready" in group.message and group.count >= 2
    return of_sandbox(group) and (again or sign_of(group.message) == "crash_loop")


def _is_unschedulable(group: ErrorGroup) -> bool:
    return of_sandbox(group) and sign_of(group.message) == "unschedulable"


# --- lost, or short of something


def lost(view: View) -> Iterator[Finding]:
    """Sandboxes that ended under their attempt."""
    ended = {i: box.lost for i, box in view.boxes if box.lost is not None and not _full(box.lost)}
    ended |= {i: f"{b.detail} ({b.name})" for i, b in cluster.broken(view, *cluster.LOST) if i not in ended}
    gone = list(ended)
    groups = _errors(view, signs=("lost",), phases=("sandbox", "setup", "agent", "scoring", ""))
    groups = [g for g in groups if not _full(g.message)]
    if not gone and not groups:
        return
    newest = max((g.last_at for g in groups if g.last_at), default=None)
    age = view.ago(newest)
    now = bool(gone) or (age is not None and age < RECENT)
    why = ended[gone[0]] if gone else groups[-1].message
    count = len(gone) + sum(g.count for g in groups)
    facts = [fact(Source.LOGS, f"{g.count} times: {g.message}", g.last_at) for g in groups[:3]]
    facts += [fact(Source.RECORDER, f"{view.attempts[i].name}: {ended[i]}") for i in gone[:3]]
    life = "lived as long as it may" in why
    limit = "`lifetime`" if "`lifetime`" in why else "wall_time in the sandbox's limits"
    yield Finding(
        Severity.WARNING if now else Severity.INFO,
        f"{counted(count, 'sandbox') if count == 1 else f'{count:,} sandboxes'} ended while the attempt still ran: {why}",
        facts,
        gone,
        ended=sum(g.count - g.retried for g in groups),
        since=min((g.first_at for g in groups if g.first_at), default=None),
        remedy=f"Raise {limit}" if life else None,
    )


def _full(text: str) -> bool:
    return sign_of(text) in ("disk", "memory") or "workspace limit" in text


def _short(name: str, sign: str, words: str) -> Callable[[View], Iterator[Finding]]:
    """A look for a limit of the sandbox that commands have hit."""

    def look(view: View) -> Iterator[Finding]:
        hit = {
            i: box.troubles.get(name, 0)
            for i, box in view.boxes
            if box.troubles.get(name) or (box.lost is not None and sign_of(box.lost) == sign)
        }
        of_pods = dict(cluster.broken(view, name))
        hit |= {i: 1 for i in of_pods if i not in hit}
        held = list(hit)
        groups = _errors(view, signs=(sign,), phases=("agent", "setup", "sandbox", "scoring", ""))
        if not held and not groups:
            pods = _not_started(view, Cause.SANDBOX_OOM_KILLED) if name == "oom_killed" else {}
            yield from (_waiting(view, Cause.SANDBOX_OOM_KILLED, of_task) for of_task in pods.values())
            return
        times = sum(hit.values())
        facts: list[Fact] = [
            fact(Source.RECORDER, f"{view.attempts[i].name}: {counted(max(1, hit[i]), 'time')}")
            for i in held[:4]
        ]
        facts += [fact(Source.ENGINE, f"{b.name}: {b.detail}", b.at) for b in list(of_pods.values())[:3]]
        facts += [fact(Source.LOGS, f"{g.count} times: {g.message}", g.last_at) for g in groups[:3]]
        whose = f" in {named(view.attempts[i].name for i in held)}" if held else ""
        count = max(times, len(held)) + sum(g.count for g in groups)
        yield Finding(
            Severity.WARNING,
            f"{words} {counted(count, 'time')}{whose}",
            facts,
            held,
            ended=sum(g.count - g.retried for g in groups),
            since=min((g.first_at for g in groups if g.first_at), default=None),
        )

    return look


def no_network(view: View) -> Iterator[Finding]:
    """Commands that look for a network which the sandbox does not have."""
    held = [i for i, a in enumerate(view.attempts) if a.unreached is not None and a.unreached.count >= 2]
    insisting = [
        i
        for i in held
        if (u := view.attempts[i].unreached) is not None
        and u.count >= 3
        and 2 * u.count >= u.of
        and (view.ago(u.last_at) or 0.0) < RECENT
    ]
    groups = [
        g
        for g in view.evidence.ended
        if g.phase in ("setup", "sandbox") and starting.speaks_of_network(g.message)
    ]
    if not held and not groups:
        return
    said = [u.said for i in held if (u := view.attempts[i].unreached) is not None]
    facts = [
        fact(
            Source.LOGS, f"{view.attempts[i].name}: {u.count} of the last {u.of} results: {u.said}", u.last_at
        )
        for i in held[:4]
        if (u := view.attempts[i].unreached) is not None
    ]
    facts += [fact(Source.LOGS, f"{g.count} times: {g.message}", g.last_at) for g in groups[:3]]
    tasks = {task.identifier: task for task in view.evidence.tasks}
    over = any(g.task in tasks and _hopeless(view, tasks[g.task]) for g in groups)
    text = said[-1] if said else groups[-1].message
    where = f"commands of {counted(len(held))}" if held else "the setup of attempts"
    yield Finding(
        Severity.FATAL if over else Severity.WARNING if insisting or groups else Severity.INFO,
        f"{where} can't reach the network: {text}",
        facts,
        insisting or held,
        ended=sum(g.count - g.retried for g in groups),
        since=min((g.first_at for g in groups if g.first_at), default=None),
    )


_MADE = (Cause.CRASHED, Cause.RETRY_LOOP, Cause.START_TIMEOUT, Cause.SETUP_FAILED)

RULES: tuple[Rule, ...] = (
    rule(
        Cause.IMAGE_PULL,
        lambda view: (*_failing(Cause.IMAGE_PULL, "can't be made: the image can't be had", _is_pull)(view), *starting.pulling(view)),
        rules_out=[*_MADE, Cause.CREATE_FAILED, Cause.QUEUED],
    ),
    rule(Cause.CREATE_FAILED, _failing(Cause.CREATE_FAILED, "could not be made", _is_create), rules_out=[*_MADE, Cause.QUEUED]),
    rule(Cause.CRASH_LOOP, _failing(Cause.CRASH_LOOP, "ended again and again", _is_crash), rules_out=[*_MADE, Cause.CREATE_FAILED, Cause.QUEUED]),
    rule(Cause.UNSCHEDULABLE, _failing(Cause.UNSCHEDULABLE, "found no room", _is_unschedulable), rules_out=[*_MADE, Cause.QUEUED]),
    rule(Cause.START_TIMEOUT, starting.slow_start, helps=[Source.SANDBOX, Source.RECORDER, Source.HISTORY]),
    rule(Cause.EXEC_LOST, lost, rules_out=[Cause.RETRY_LOOP, Cause.TOOL_HUNG]),
    rule(
        Cause.SANDBOX_OOM_KILLED,
        _short("oom_killed", "memory", "commands were killed for want of memory in their sandbox,"),
        rules_out=[Cause.RETRY_LOOP],
    ),
    rule(
        Cause.SANDBOX_DISK_FULL,
        _short("disk_full", "disk", "sandboxes could not write more,"),
        rules_out=[Cause.RETRY_LOOP, Cause.SETUP_FAILED],
    ),
    rule(Cause.NETWORK_DENIED, no_network, rules_out=[Cause.RETRY_LOOP, Cause.SETUP_FAILED, Cause.AGENT_LOOPING]),
    *tools.RULES,
)  # fmt: skip
