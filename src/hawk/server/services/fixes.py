"""Carrying out the remedy of a verdict: what would be done, the request to the runner, and its answer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from hawk.config.token import current_user
from hawk.core.diagnosis.evidence import Attempt, Evidence
from hawk.core.diagnosis.fixes import FixPlan, Step, plan, plan_verdict
from hawk.core.diagnosis.verdict import Fix, FixKind, Verdict
from hawk.core.snapshot import Task
from hawk.errors import ConflictError, NotFoundError
from hawk.server.context import Context
from hawk.server.services.diagnoses import diagnosis_of
from hawk.server.services.requests import SubmitRequest
from hawk.store import actions
from hawk.store.actions import Answer, Outcome
from hawk.store.evidence import evidence_of
from hawk.store.rundir import JournalEntry, RunDir

MOST_WAIT = 60.0
_POLL = 0.1


class FixRequest(msgspec.Struct):
    """The body of `POST /monitoring/jobs/{id}/fix`: the remedy of a verdict, or an action of its own.

    Attributes:
        verdict: Its number in the diagnosis.
        cause: What the verdict's cause was when somebody decided on it: numbers change as a job goes on.
        dry_run: Only say what would be done.
        action: What to do, to which attempts or to what. With a verdict too: what was shown of its remedy, so that
            exactly that is done, as far as it can be still.
        soft: Of a pause: attempts in flight go on, only new ones wait.
        wait: Seconds to wait for the answer of the runner.
    """

    verdict: int | None = None
    cause: str | None = None
    dry_run: bool = False
    action: Fix | None = None
    soft: bool = False
    wait: float = 25.0


class FixReply(msgspec.Struct):
    """What will be done or was.

    Attributes:
        steps: In words; none where nothing can be done.
        done: Something was done.
        said: In one line: what came of it, or why nothing can be done.
        results: What came of each target.
        remedy: What to do instead, where nothing can be done.
        fix: The action that the steps describe, to be given back as `action`.
        verdict: Which one it is about.
        acknowledged: The runner has answered. If not, the request stays and will be carried out.
        request_id: For `GET /monitoring/jobs/{id}/fix/{request_id}`.
    """

    steps: list[Step] = []
    done: bool = False
    said: str = ""
    results: list[Outcome] = []
    remedy: str = ""
    fix: Fix | None = None
    verdict: Verdict | None = None
    acknowledged: bool = False
    request_id: str | None = None


def fix(ctx: Context, job_id: str, request: FixRequest) -> FixReply:
    """Plan, and unless it is a dry run, ask the runner and wait for its answer.

    Raises:
        ConflictError: The verdict of that number is another one now. Field: `verdicts`.
        NotFoundError: No such job, or no verdict of that number.
    """
    run = ctx.registry.run(job_id)
    spec = run.read_spec()
    if request.verdict is None and request.action is None:
        nothing = "Nothing is asked: name a verdict or an action."
        return FixReply(said=nothing, remedy=f"hawk diagnose {job_id}")
    verdict, planned = _plan(ctx, job_id, request)
    reply = FixReply(
        planned.steps, said=planned.refused, remedy=planned.remedy, fix=planned.fix, verdict=verdict
    )
    if planned.fix is None or request.dry_run:
        return reply
    by = current_user()
    if planned.fix.kind is FixKind.RESUME_JOB:
        return _resume(ctx, run, reply, planned.fix, by)
    start = _end_of(run)
    asked = actions.request(
        run,
        planned.fix,
        by=by,
        cause=verdict.cause if verdict else "",
        soft=request.soft,
        generation=spec.generation,
    )
    reply.request_id = asked.id
    answer = _answer(run, start, asked.id, min(request.wait, MOST_WAIT))
    ctx.feeds.touch(job_id)
    return _said(reply, answer)


def outcome(ctx: Context, job_id: str, request_id: str) -> FixReply:
    """What came of a request so far.

    Raises:
        NotFoundError: No such job, or nobody asked that.
    """
    run = ctx.registry.run(job_id)
    run.read_spec()
    answer = actions.answer(run.journal(), request_id)
    if answer is None and all(asked.id != request_id for asked in actions.pending(run)):
        raise NotFoundError(f"No request {request_id!r} in eval set {job_id!r}.")
    return _said(FixReply(request_id=request_id), answer)


def _said(reply: FixReply, answer: Answer | None) -> FixReply:
    if answer is None:
        reply.said = "The runner has not answered yet; the request stays and will be carried out."
        return reply
    reply.acknowledged, reply.done, reply.said, reply.results = (
        True,
        answer.done,
        answer.said,
        answer.results,
    )
    return reply


def _plan(ctx: Context, job_id: str, request: FixRequest) -> tuple[Verdict | None, FixPlan]:
    evidence = _evidence(ctx, job_id)
    if request.verdict is None:
        assert request.action is not None
        return None, plan(request.action, evidence)
    diagnosis = diagnosis_of(ctx, job_id)
    verdict = next((v for v in diagnosis.verdicts if v.n == request.verdict), None)
    if verdict is None:
        raise NotFoundError(
            f"The diagnosis of {job_id} has no verdict {request.verdict}: it has {len(diagnosis.verdicts)}.",
            remedy=f"hawk diagnose {job_id}",
        )
    if request.cause is not None and request.cause != verdict.cause:
        raise ConflictError(
            f"Verdict {request.verdict} of {job_id} is {verdict.cause} now, and was {request.cause}: nothing was done.",
            remedy=f"hawk diagnose {job_id}",
            verdicts=[
                {"n": v.n, "cause": v.cause, "severity": v.severity, "what": v.what}
                for v in diagnosis.verdicts
            ],
        )
    if request.action is not None:
        return verdict, plan(request.action, evidence)
    return verdict, plan_verdict(verdict, evidence)


def _evidence(ctx: Context, job_id: str) -> Evidence:
    """The last evidence of a job, with what only the server knows."""
    served = ctx.feeds.status(job_id)
    evidence = evidence_of(ctx.registry.run(job_id), served.snapshot)
    evidence.job.alive = not served.terminal
    if evidence.job.alive and evidence.job.phase == "ended":
        evidence.job.phase = "running"  # it has been resumed; its runner has kept nothing newer yet
    evidence.job.operation = served.snapshot.operation
    _bring_up_to_date(evidence, served.tasks())
    return evidence


def _bring_up_to_date(evidence: Evidence, tasks: Iterable[Task]) -> None:
    """Attempts as the newest snapshot has them: evidence is some seconds older, and an attempt may be younger."""
    known = {attempt.uuid: attempt for attempt in evidence.attempts if attempt.uuid}
    homes = {(attempt.name.partition("/")[0], attempt.model): attempt for attempt in evidence.attempts}
    now: list[Attempt] = []
    for task in tasks:
        like = homes.get((task.task_name, task.model or ""))
        for sample in task.samples:
            if sample.uuid is None or not sample.phase.in_flight:
                continue
            found = known.get(sample.uuid) or Attempt(
                like.task if like else "",
                sample.id,
                sample.epoch,
                f"{task.task_name}/{sample.id}/{sample.epoch}",
                sample.uuid,
                task.model or "",
                like.worker if like else None,
            )
            found.phase, found.idle = sample.phase, sample.idle_seconds
            if sample.activity is not None:
                found.activity, found.since = sample.activity.type, sample.activity.since
                found.detail = sample.activity.detail or ""
            now.append(found)
    unnamed = [attempt for attempt in evidence.attempts if not attempt.uuid]
    evidence.attempts = now + unnamed


def _resume(ctx: Context, run: RunDir, reply: FixReply, fix: Fix, by: str) -> FixReply:
    """Resume a job whose runner has ended. Raises: SecretsNeededError."""
    ctx.submissions.submit(SubmitRequest(eval_set_id=run.job_id, resume=True))
    said = f"resumed {run.job_id}"
    cause = reply.verdict.cause if reply.verdict else ""
    data = {"id": "", "by": by, "fix": msgspec.to_builtins(fix)}
    run.append_journal(
        JournalEntry(datetime.now().astimezone().isoformat(), actions.KIND, cause, "done", said, data)
    )
    reply.done, reply.acknowledged, reply.said = True, True, said
    reply.results = [Outcome("job", True, said)]
    return reply


def _end_of(run: RunDir) -> int:
    try:
        return run.journal_file.stat().st_size
    except OSError:
        return 0


def _answer(run: RunDir, start: int, request_id: str, seconds: float) -> Answer | None:
    deadline = time.monotonic() + seconds
    while True:
        answer = actions.answer(_entries(run, start), request_id)
        if answer is not None or time.monotonic() >= deadline:
            return answer
        time.sleep(_POLL)


def _entries(run: RunDir, start: int) -> Iterator[JournalEntry]:
    decoder = msgspec.json.Decoder(JournalEntry)
    try:
        with run.journal_file.open("rb") as f:
            f.seek(start)
            lines = f.readlines()
    except OSError:
        return
    for line in lines:
        try:
            yield decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
