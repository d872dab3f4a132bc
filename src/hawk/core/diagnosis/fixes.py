"""What a remedy would do, in words, before it is done: to which attempts, why that is safe, and how it is undone.

Pure: from a verdict and the evidence to a `FixPlan`, which names everything concretely or says why nothing can be done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from hawk.core.diagnosis.evidence import Attempt, Evidence
from hawk.core.diagnosis.verdict import Fix, FixKind, Verdict
from hawk.core.states import ActivityType, Operation

RETUNABLE = ("max_retries", "max_connections", "attempt_timeout", "stream_idle_timeout")
"""Settings that a worker takes while it runs, for all its model calls."""

RAISABLE = ("token_limit", "message_limit", "time_limit")
"""Limits of attempts that a worker takes while it runs."""

MOST = 1e12
"""What a setting or limit may be set to: more is a slip."""

NAMED = 5
"""Attempts that are named in a step; the rest is counted."""


class Step(msgspec.Struct, omit_defaults=True):
    """One thing that will be done.

    Attributes:
        what: In a few words.
        detail: To what exactly, and why that is safe.
        reversible: It can be taken back, or nothing of worth is lost by it.
        undo: How it is taken back; or what is lost.
    """

    what: str
    detail: str = ""
    reversible: bool = False
    undo: str = ""


class FixPlan(msgspec.Struct, omit_defaults=True):
    """What will be done.

    Attributes:
        fix: With everything filled in that a verdict may leave open; None: nothing can be done.
        refused: Why nothing can.
        remedy: What to do instead, one line.
    """

    steps: list[Step] = []
    fix: Fix | None = None
    refused: str = ""
    remedy: str = ""


def plan_verdict(verdict: Verdict, evidence: Evidence) -> FixPlan:
    """What to do about a verdict; refused where Hawk has no remedy of its own for it."""
    if verdict.fix is None:
        return _refused(f"Hawk has no remedy of its own for {verdict.cause}.", verdict.remedy)
    fix = verdict.fix
    if not fix.uuids:
        fix = msgspec.structs.replace(fix, uuids=list(verdict.uuids))
    if not fix.subject and fix.kind in (FixKind.PAUSE_MODEL, FixKind.RESUME_MODEL):
        fix = msgspec.structs.replace(fix, subject=verdict.subject)
    return plan(fix, evidence)


def plan(fix: Fix, evidence: Evidence) -> FixPlan:
    """What an action would do.

    Args:
        fix: Without uuids: all attempts that it makes sense for. Of a worker the index, of a model either spelling.
    """
    if fix.kind is FixKind.RESUME_JOB:
        return _resume(fix, evidence)
    if not evidence.job.alive or evidence.job.phase == "ended":
        return _refused(
            "The job's runner has ended: there is nothing to act on.",
            f"hawk eval-set resume {evidence.job_id}: finished attempts are kept",
        )
    if evidence.job.operation is Operation.STOPPING:
        return _refused("The job is stopping; what is in flight ends with it.", "hawk watch")
    return _PLANNERS[fix.kind](fix, evidence)


# --- attempts


def _cancel_tool_call(fix: Fix, evidence: Evidence) -> FixPlan:
    held = [attempt for attempt in _named(fix, evidence) if attempt.activity is ActivityType.TOOL]
    if not held:
        return _gone("No attempt that it is about waits for a tool any more.")
    blocked = {worker.index for worker in evidence.workers if worker.control in ("busy", "gone")}
    if stuck := sorted({a.worker for a in held if a.worker is not None and a.worker in blocked}):
        return _refused(
            f"Worker {stuck[0]} does not answer: no single call can be canceled in it.",
            "Restart the worker: see the verdict about it",
        )
    steps = [
        Step(
            f"cancel the tool call of {attempt.name}",
            f"{attempt.detail or 'a tool'}{_for(attempt, evidence)}: its agent is told that the call timed out, and goes on",
            reversible=False,
            undo="The call is not made again by itself; nothing else of the attempt is lost",
        )
        for attempt in held
    ]
    return _planned(fix, steps, held)


def _requeue(fix: Fix, evidence: Evidence) -> FixPlan:
    return _each(
        fix,
        evidence,
        lambda attempt: Step(
            f"run {attempt.name} again",
            f"it is ended where it is ({_waits(attempt, evidence)}) and begins anew in its place; others are not touched",
            reversible=False,
            undo="What it has done so far is kept in its log as an earlier try, and does not count",
        ),
    )


def _score(fix: Fix, evidence: Evidence) -> FixPlan:
    return _each(
        fix,
        evidence,
        lambda attempt: Step(
            f"end {attempt.name} and score it as it is",
            f"it is in {attempt.phase} ({_waits(attempt, evidence)}); its work so far counts",
            reversible=False,
            undo="It can't go on; 'hawk rescore' can score it again",
        ),
    )


def _each(fix: Fix, evidence: Evidence, step: Callable[[Attempt], Step]) -> FixPlan:
    """One step for each attempt that it names and that is still in flight."""
    held = _named(fix, evidence)
    if not held:
        return _gone("No attempt that it is about is in flight any more.")
    return _planned(fix, [step(attempt) for attempt in held], held)


# --- workers


def _restart_worker(fix: Fix, evidence: Evidence) -> FixPlan:
    living = {worker.index: worker for worker in evidence.workers if worker.state == "running"}
    if fix.subject.strip():
        wanted = [int(word) for word in fix.subject.split() if word.isascii() and word.isdigit()]
    else:
        wanted = sorted({a.worker for a in _named(fix, evidence) if a.worker is not None})
    found = [living[index] for index in dict.fromkeys(wanted) if index in living]
    if not found:
        return _gone("No worker that it is about runs now.")
    steps = []
    for worker in found:
        inside = [attempt for attempt in evidence.attempts if attempt.worker == worker.index]
        silent = worker.control in ("busy", "gone")
        how = "killed at once, since its event loop does not turn" if silent else "asked to end, then killed"
        what = f"pid {worker.pid}, " if worker.pid else ""
        again = _these(inside) or "nothing is in flight in it"
        steps.append(
            Step(
                f"restart worker {worker.index}",
                f"{what}{how}; begun again: {again}. Attempts that have ended are kept, and do not run again",
                reversible=False,
                undo="What the attempts in flight have done so far is lost; they run again from their beginning",
            )
        )
    subject = " ".join(str(worker.index) for worker in found)
    return FixPlan(steps, msgspec.structs.replace(fix, subject=subject, uuids=[]))


# --- models and settings


def _pause_model(fix: Fix, evidence: Evidence) -> FixPlan:
    names, refused = _models(fix, evidence)
    if refused is not None:
        return refused
    if not names:
        step = Step(
            "pause the job",
            "no attempt begins, no new model call is made; answers that are under way arrive. Time limits run on",
            reversible=True,
            undo=f"hawk unpause {evidence.job_id}",
        )
        return FixPlan([step], msgspec.structs.replace(fix, subject="", uuids=[]))
    steps = [
        Step(
            f"pause {name}",
            "no new call of it is made and no attempt at it begins; answers that are under way arrive. Time limits run on",
            reversible=True,
            undo=f"hawk unpause {evidence.job_id} --model {name}",
        )
        for name in names
    ]
    return FixPlan(steps, msgspec.structs.replace(fix, subject=" ".join(names), uuids=[]))


def _resume_model(fix: Fix, evidence: Evidence) -> FixPlan:
    names, refused = _models(fix, evidence)
    if refused is not None:
        return refused
    again = "what was held goes on where it was"
    if not names:
        steps = [Step("let the job go on", again, reversible=True, undo=f"hawk pause {evidence.job_id}")]
    else:
        steps = [
            Step(
                f"let {name} go on",
                again,
                reversible=True,
                undo=f"hawk pause {evidence.job_id} --model {name}",
            )
            for name in names
        ]
    return FixPlan(steps, msgspec.structs.replace(fix, subject=" ".join(names), uuids=[]))


def _retune(fix: Fix, evidence: Evidence) -> FixPlan:
    if fix.subject not in RETUNABLE:
        return _refused(
            f"{fix.subject or 'That setting'} can't be changed while a job runs.",
            f"Change it in the eval set and submit it again; live go: {', '.join(RETUNABLE)}",
        )
    least = 0 if fix.subject == "max_retries" else 1
    if fix.value is None or not least <= fix.value <= MOST:
        return _refused(
            f"{fix.subject} needs a number to be set to.", "Name one, or change it in the eval set"
        )
    before = {"max_retries": evidence.job.max_retries, "max_connections": evidence.job.connections}
    was = before.get(fix.subject)
    said = f"{was} until now; " if was is not None else ""
    step = Step(
        f"set {fix.subject} to {int(fix.value)}",
        f"{said}in all {len(evidence.workers)} workers, for calls that are being made again too, and for the rest of this job",
        reversible=True,
        undo="A resume begins with what the eval set says",
    )
    return FixPlan([step], msgspec.structs.replace(fix, value=float(int(fix.value)), uuids=[]))


def _raise_limit(fix: Fix, evidence: Evidence) -> FixPlan:
    name = fix.subject if fix.subject.endswith("_limit") else f"{fix.subject}_limit"
    if name not in RAISABLE:
        return _refused(
            f"{name.removesuffix('_limit') or 'That'} limits can't be raised while a job runs.",
            f"Change it in the eval set and submit that under another id; live go: {', '.join(RAISABLE)}",
        )
    seen = [
        most for a in evidence.attempts if (most := a.limits.get(name.removesuffix("_limit"))) is not None
    ]
    value = fix.value if fix.value is not None else (2 * max(seen) if seen else None)
    if value is None or not 1 <= value <= MOST:
        return _refused(f"What {name} should be is not known.", "Raise it in the eval set")
    held = {a.uuid: a for a in evidence.attempts if a.uuid}
    tasks = sorted({held[uuid].task for uuid in fix.uuids if uuid in held})
    names = [task.name for task in evidence.tasks if not tasks or task.identifier in tasks]
    step = Step(
        f"raise {name} to {int(value):,}",
        f"for attempts of {', '.join(names[:NAMED]) or 'every task'} that have not ended; those that it has ended stay so",
        reversible=True,
        undo="A resume begins with what the eval set says; results of attempts with different limits compare badly",
    )
    return FixPlan([step], msgspec.structs.replace(fix, subject=name, value=float(int(value))))


def _resume(fix: Fix, evidence: Evidence) -> FixPlan:
    if evidence.job.alive and evidence.job.phase != "ended":
        return _refused("The job runs: there is nothing to resume.", "hawk watch")
    left = evidence.progress.total - evidence.progress.completed - evidence.progress.limit
    step = Step(
        "resume the job",
        f"{left:,} attempts have no result yet; those that have are kept, and do not run again",
        reversible=True,
        undo=f"hawk stop {evidence.job_id}",
    )
    return FixPlan([step], fix)


_PLANNERS: dict[FixKind, Callable[[Fix, Evidence], FixPlan]] = {
    FixKind.CANCEL_TOOL_CALL: _cancel_tool_call,
    FixKind.REQUEUE: _requeue,
    FixKind.SCORE: _score,
    FixKind.RETUNE: _retune,
    FixKind.PAUSE_MODEL: _pause_model,
    FixKind.RESUME_MODEL: _resume_model,
    FixKind.RAISE_LIMIT: _raise_limit,
    FixKind.RESTART_WORKER: _restart_worker,
}

# --- words


def _named(fix: Fix, evidence: Evidence) -> list[Attempt]:
    wanted = set(fix.uuids)
    return [attempt for attempt in evidence.attempts if attempt.uuid and attempt.uuid in wanted]


def _planned(fix: Fix, steps: list[Step], held: Sequence[Attempt]) -> FixPlan:
    return FixPlan(steps, msgspec.structs.replace(fix, uuids=[a.uuid for a in held if a.uuid], subject=""))


def _models(fix: Fix, evidence: Evidence) -> tuple[list[str], FixPlan | None]:
    """Names as Inspect has them; none: all. Of one that the job does not use, why nothing is done."""
    if not fix.subject:
        return [], None
    known = {task.model for task in evidence.tasks} | {attempt.model for attempt in evidence.attempts}
    known |= {model.name for model in evidence.models}
    known.discard("")
    other = {f"{model.provider}/{model.model}": model.name for model in evidence.models if model.name}
    names = []
    for word in fix.subject.split():
        name = word if word in known else other.get(word)
        if name is None:
            near = ", ".join(sorted(known)[:NAMED]) or "none"
            return [], _refused(f"The job does not use the model {word}.", f"It uses: {near}")
        names.append(name)
    return names, None


def _waits(attempt: Attempt, evidence: Evidence) -> str:
    what = attempt.detail or (attempt.activity.value if attempt.activity else "in code of its own")
    return f"{what}{_for(attempt, evidence)}"


def _for(attempt: Attempt, evidence: Evidence) -> str:
    """How long it has waited, as the evidence has it."""
    seconds = attempt.idle
    try:
        if attempt.since is not None:
            seconds = (
                datetime.fromisoformat(evidence.at) - datetime.fromisoformat(attempt.since)
            ).total_seconds()
    except (ValueError, TypeError):
        pass
    if seconds is None or seconds < 1:
        return ""
    return f", for {seconds:.0f} s" if seconds < 120 else f", for {seconds / 60:.0f} min"


def _these(attempts: Sequence[Attempt]) -> str:
    names = ", ".join(attempt.name or f"{attempt.sample}/{attempt.epoch}" for attempt in attempts[:NAMED])
    more = len(attempts) - NAMED
    return f"{names} and {more:,} more" if more > 0 else names


def _gone(why: str) -> FixPlan:
    return _refused(why, "Look again: hawk diagnose")


def _refused(why: str, remedy: str) -> FixPlan:
    return FixPlan(refused=why, remedy=remedy)
