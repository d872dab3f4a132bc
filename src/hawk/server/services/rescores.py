"""Scoring again what a job's attempts left: whether that job allows it, and what the new job is made of."""

from __future__ import annotations

from typing import NamedTuple

from hawk.config.ids import MAX_LENGTH
from hawk.core.attempts.rescored import outcomes_left_out, scorable
from hawk.core.attempts.results import Result
from hawk.engine.protocol import Engine
from hawk.errors import ConflictError, NotFoundError
from hawk.server.services.registry import Registry
from hawk.store.attempts import read_results
from hawk.store.rundir import JobSpec, RunDir

_MOST = 10_000
"""Times that a job is scored again under names of Hawk's own."""


class Source(NamedTuple):
    """A job whose attempts can be scored again.

    Attributes:
        spec: As it is saved.
        text: Its eval set as it was written, or None.
        warnings: What the new scores will lack.
    """

    spec: JobSpec
    text: str | None
    warnings: list[str]


def source(registry: Registry, engine: Engine, job_id: str) -> Source:
    """The job whose attempts are to be scored again.

    Raises:
        NotFoundError: There is none of that id.
        ConflictError: It runs, has no result, or has kept no transcripts.
    """
    run = registry.run(job_id)
    if not run.spec_file.exists():
        raise NotFoundError(f"No eval set {job_id!r} to score again.", remedy="hawk list eval-sets")
    spec = run.read_spec()
    liveness, snapshot = engine.liveness(job_id), run.read_snapshot()
    over = snapshot is not None and snapshot.status.terminal
    if liveness.alive and not (
        over and liveness.problem
    ):  # a cluster that can't be asked does not make it run
        raise ConflictError(
            f"Eval set {job_id!r} is running; it can be scored again when it has ended.",
            remedy=f"hawk watch {job_id}, or hawk stop {job_id}",
        )
    if spec.config.get("log_samples") is False:
        raise ConflictError(
            f"Eval set {job_id!r} has kept no transcripts (log_samples: false), which scorers look at.",
            remedy="Run it again without log_samples: false.",
        )
    results, problems = read_results(run)
    if not any(map(scorable, results)):
        raise ConflictError(
            f"Eval set {job_id!r} has no attempt that could be scored again: none has a result.",
            remedy=f"hawk report {job_id}",
        )
    return Source(spec, _text(run, spec), [*_warnings(job_id, results), *problems])


def free_id(registry: Registry, job_id: str) -> str:
    """The next id of a job that scores another's attempts again: `<id>-rescore-<n>`, `<id>` cut where it is too long."""
    for n in range(1, _MOST):
        tail = f"-rescore-{n}"
        found = job_id[: MAX_LENGTH - len(tail)].rstrip("-") + tail
        if not registry.run(found).path.exists():
            return found
    raise ConflictError(f"There are {_MOST} jobs that score {job_id!r} again.", remedy="Choose a --name.")


def _text(run: RunDir, spec: JobSpec) -> str | None:
    file = run.path / "eval-set.py" if spec.script else run.config_file
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _warnings(job_id: str, results: list[Result]) -> list[str]:
    found = []
    if left_out := outcomes_left_out(results):
        found.append(f"Attempts of {job_id} without a result are not scored again: {left_out}.")
    chosen = [result for result in results if scorable(result)]
    cut = sum(result.workspace is not None and result.workspace.truncated for result in chosen)
    if cut:
        found.append(
            f"Workspaces of {job_id} that are not whole, being too large: {cut}. What scorers miss there may have been left."
        )
    lacking = [result for result in chosen if result.workspace is None and result.workspace_error]
    if lacking:
        found.append(
            f"Attempts of {job_id} without a kept workspace: {len(lacking)} ({lacking[0].workspace_error}). "
            "A scorer that looks there fails."
        )
    return found
