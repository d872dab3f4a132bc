"""A job that has ended, with one attempt in everything that can be asked for, and no process that made it."""

from pathlib import Path

from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalLog,
    EvalResults,
    EvalSample,
    EvalSpec,
    EvalStats,
    write_eval_log,
)
from inspect_ai.model import ChatMessageUser, ModelOutput
from inspect_ai.scorer import Score

from hawk.core.attempts.results import Pair
from hawk.core.plan import Plan, PlanTask
from hawk.core.states import JobStatus, SamplePhase
from hawk.store.attempts import write_result
from hawk.store.rundir import JournalEntry, write_json
from tests.core.attempts.made import result
from tests.store.runs import make_run, snapshot_of

BEGAN, ENDED = "2026-01-02T03:04:05+00:00", "2026-01-02T03:04:06+00:00"
LOG = "t.eval"


def ended_job(root: Path, job_id: str) -> str:
    """Make its run directory; the uuid of its attempt."""
    run = make_run(root, job_id)
    snapshot = snapshot_of(job_id, SamplePhase.COMPLETED, status=JobStatus.COMPLETE)
    uuid = snapshot.tasks[0].samples[0].uuid
    assert uuid is not None
    write_json(run.snapshot_file, snapshot)
    write_json(run.plan_file, Plan(job_id, [PlanTask("i", "t", "mock/one", ["s0"], 1)]))
    run.append_journal(JournalEntry(ENDED, "job", job_id, "complete"))
    run.supervisor_log.write_text("2026-01-02 03:04:05,000 WARNING words\n")
    write_result(run, result(Pair("t", "s0", "mock/one"), 1, True))
    write_eval_log(_log(uuid), str(run.logs / LOG))
    return uuid


def _log(uuid: str) -> EvalLog:
    sample = EvalSample(
        id="s0",
        epoch=1,
        input="?",
        target="!",
        uuid=uuid,
        messages=[ChatMessageUser(content="?")],
        output=ModelOutput.from_content("mock/one", "!"),
        scores={"exact": Score(value="C", answer="!", explanation="It is the same.", metadata={"a": 1})},
        started_at=BEGAN,
        completed_at=ENDED,
    )
    spec = EvalSpec(
        eval_id=f"{uuid}-eval",
        task_id="t1",
        created=BEGAN,
        task="t",
        dataset=EvalDataset(name="d", samples=1, sample_ids=["s0"]),
        model="mock/one",
        config=EvalConfig(epochs=1),
    )
    return EvalLog(
        status="success",
        eval=spec,
        samples=[sample],
        results=EvalResults(total_samples=1, completed_samples=1),
        stats=EvalStats(started_at=BEGAN, completed_at=ENDED),
    )
