"""Why a job does not go on."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from hawk.core.diagnosis.verdict import Diagnosis
from hawk.server.context import Ctx
from hawk.server.parameters import BAD_ID, JobId
from hawk.server.services.diagnoses import diagnosis_of
from hawk.server.wire import describe, reply

router = APIRouter(prefix="/monitoring/jobs/{job_id}", tags=["monitoring"])


@router.get("/diagnosis", **describe(Diagnosis, errors=BAD_ID))
def diagnosis(ctx: Ctx, job_id: JobId) -> Response:
    """The causes of what a job waits for, the worst first, with evidence and the next command; what is well; and `why`:
    every rule, and what became of it."""
    return reply(diagnosis_of(ctx, job_id))
