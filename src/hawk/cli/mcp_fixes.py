"""`hawk_fix` and `hawk_stop_sample`: what an agent may change, where the person has allowed it.

A fix takes two steps. The plan comes with a code made from it; only that code carries out that plan. So no agent skips
the plan, and none does something else than it has read: verdicts change their numbers while a job goes on.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from pydantic import BaseModel, Field

from hawk.calls import segment
from hawk.cli.context import App
from hawk.cli.mcp_attempt import checked
from hawk.cli.mcp_base import Args, Result, Tool, Untrusted
from hawk.cli.mcp_text import short
from hawk.client import HawkClient
from hawk.core.states import StopAction
from hawk.errors import ConflictError, NotFoundError

_KEY = secrets.token_bytes(32)


class Step(BaseModel):
    what: str
    detail: Untrusted | None
    reversible: bool

    def __str__(self) -> str:
        back = "can be undone" if self.reversible else "CAN'T BE UNDONE"
        return f"{self.what} ({back})" + (f" {self.detail}" if self.detail else "")


class Fix(Result):
    job_id: str
    verdict: int
    steps: list[Step]
    done: bool
    said: Untrusted | None
    confirm: str | None = Field(description="Give this back as 'confirm' to carry out exactly these steps.")

    def head(self) -> str:
        first = f"Fix of verdict {self.verdict} of {self.job_id}: {'done' if self.done else 'NOT done'}."
        lines = [first, *(f"  {n}. {step}" for n, step in enumerate(self.steps, 1))]
        lines += [f"  said: {self.said}"] if self.said else []
        if self.confirm:
            lines.append(
                f"Show the person these steps and ask. Then call again with confirm={self.confirm!r}."
            )
        return "\n".join(lines)


class FixArgs(Args):
    id: str = Field(description="Id of the job, spelt out.")
    n: int = Field(ge=1, description="Number of the verdict, as hawk_diagnose has it.")
    confirm: str | None = Field(
        default=None,
        description="Left out: only the plan. The code that came with the plan: carry out that plan.",
    )


def _fix(app: App, args: FixArgs) -> Fix:
    with app.connect() as client:
        plan = _asked(client, args, dry_run=True)
        code = _code(args, plan)
        if args.confirm is None:
            return _result(args, plan, confirm=code if plan.get("steps") else None)
        if not secrets.compare_digest(args.confirm.encode(), code.encode()):
            raise ConflictError(
                f"The plan for verdict {args.n} of {short(args.id)} is not the one that this code was given for; nothing was "
                "done.",
                remedy="Call hawk_diagnose, then hawk_fix without confirm, and read the new plan.",
            )
        return _result(args, _asked(client, args, dry_run=False), confirm=None)


def _asked(client: HawkClient, args: FixArgs, *, dry_run: bool) -> dict[str, Any]:
    path = f"/monitoring/jobs/{segment(args.id)}/fix"
    return client.json("POST", path, dict[str, Any], body={"verdict": args.n, "dry_run": dry_run})


def _code(args: FixArgs, plan: dict[str, Any]) -> str:
    steps = [
        (step.get("what"), step.get("detail"), step.get("reversible")) for step in plan.get("steps") or []
    ]
    return hashlib.blake2s(
        repr((args.id, args.n, steps)).encode("utf-8", "replace"), key=_KEY, digest_size=6
    ).hexdigest()


def _result(args: FixArgs, found: dict[str, Any], *, confirm: str | None) -> Fix:
    return Fix(
        job_id=short(args.id),
        verdict=args.n,
        steps=[
            Step(
                what=short(step.get("what"), 200),
                detail=Untrusted.of(step.get("detail"), 300),
                reversible=bool(step.get("reversible")),
            )
            for step in (found.get("steps") or [])[:50]
        ],
        done=bool(found.get("done")),
        said=Untrusted.of(found.get("said"), 300),
        confirm=confirm,
    )


class StoppedSample(Result):
    job_id: str
    uuid: str
    acknowledged: bool = Field(
        description="The runner has taken it up. If not: it stands, and will be obeyed."
    )
    error: bool

    def head(self) -> str:
        fate = "marked as an error, which a resume runs again" if self.error else "scored as it is"
        heard = (
            "acknowledged" if self.acknowledged else "asked for, not yet acknowledged; hawk_watch shows it"
        )
        return f"Stop of sample {self.uuid} of {self.job_id}: {heard}. It is {fate}."


class StopSampleArgs(Args):
    uuid: str = Field(description="Of the sample that is in flight.")
    error: bool = Field(
        default=False,
        description="Mark it as an error (a resume runs it again) instead of scoring what is there.",
    )


def _stop_sample(app: App, args: StopSampleArgs) -> StoppedSample:
    uuid = checked(args.uuid)
    with app.connect() as client:
        job_id = client.timeline(uuid).eval_set_id
        if job_id is None:
            raise NotFoundError(f"Sample {uuid} belongs to no eval set that is known.", remedy="hawk_list")
        action = StopAction.ERROR if args.error else StopAction.SCORE
        answer = client.stop(job_id, action, uuid)
        heard = [
            line
            for line in client.journal(job_id)
            if (line.kind, line.subject) == ("stop", answer.request_id)
        ]
    if any(line.state == "refused" for line in heard):
        raise ConflictError(f"The runner of {job_id} refused to stop {uuid}: {short(heard[-1].reason, 200)}.")
    return StoppedSample(job_id=short(job_id), uuid=uuid, acknowledged=answer.acknowledged, error=args.error)


FIX = Tool(
    "hawk_fix",
    "Carry out a verdict's remedy",
    "Carries out the remedy of a verdict of hawk_diagnose. Two steps: without confirm it changes nothing and answers the plan "
    "and a code; show the plan to the person, and only when they agree call it again with that code.",
    FixArgs,
    Fix,
    _fix,
    reads=False,
)
STOP_SAMPLE = Tool(
    "hawk_stop_sample",
    "End one sample",
    "Ends one sample that is in flight; the rest of the job goes on. What it has is scored, or with error=true marked as an "
    "error. It can't be undone: use it only when the person has agreed to end that sample.",
    StopSampleArgs,
    StoppedSample,
    _stop_sample,
    reads=False,
    destroys=True,
)
