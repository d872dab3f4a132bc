"""A whole Hawk for scenarios: server, middleman, and jobs side by side."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import msgspec

from hawk.core.diagnosis.diagnose import explain
from hawk.core.diagnosis.evidence import Evidence
from hawk.core.diagnosis.verdict import Diagnosis
from hawk.errors import HawkError
from tests.faults.lab.bench import Bench, Case
from tests.faults.lab.run import Run
from tests.system import System, kill, until

MIDDLEMAN = """
job_upstreams: any
models:
  - {match: "*-narrow-*", limits: {most: 1, start: 1, adaptive: false}}
  - {match: "*-calm-*", breaker: {failures: 100000}}
  - {match: "*-brittle-*", breaker: {failures: 3, over: 0, seconds: 120}}
"""
"""Settings of the middleman: for kinds of models that scenarios ask for."""


def read_evidence(path: Path) -> Evidence | None:
    """What a supervisor wrote last; None before that."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(path.read_bytes(), type=Evidence)
    return None


def judged(evidence: Evidence, *, dead: bool = False) -> Diagnosis:
    """What the rules say of a document alone.

    Args:
        dead: As if its runner had died just then.
    """
    from datetime import datetime

    if dead:
        job = msgspec.structs.replace(evidence.job, alive=False)
        evidence = msgspec.structs.replace(evidence, job=job)
    return explain(evidence, datetime.fromisoformat(evidence.at))


class Room:
    """See the module.

    Args:
        base: Directory for everything.
        case: The only one that will run in it; None: many do.
    """

    def __init__(self, base: Path, case: Case | None = None) -> None:
        base.mkdir(parents=True, exist_ok=True)
        more: dict[str, Any] = case.environ if case is not None else {}
        root = case.root if case is not None else None
        self.base = base
        self.system = System(base, root=root, **{"HAWK_MIDDLEMAN": "1", "HAWK_WORKERS": "2", **more})
        for name in list(self.system.environ):
            if name.endswith(("_API_KEY", "_BASE_URL")):
                del self.system.environ[name]
        self.system.home.mkdir(parents=True, exist_ok=True)
        settings = case.middleman if case is not None else None
        (self.system.home / "middleman.yaml").write_text(settings or MIDDLEMAN)

    def start(self) -> None:
        self.system.start()

    def close(self) -> None:
        self.system.stop()
        with contextlib.suppress(OSError, msgspec.DecodeError, KeyError):
            found = msgspec.json.decode((self.system.home / "middleman.json").read_bytes())
            kill(found["pid"])
        shutil.rmtree(self.base, ignore_errors=True)

    def submit(self, bench: Bench, case: Case) -> Run:
        if case.before is not None:
            case.before(self.system)
        with self.system.client() as client:
            client.submit(
                {
                    "eval_set_config": case.config,
                    "eval_set_id": bench.job,
                    "base_dir": str(bench.folder),
                    "secrets": case.secrets,
                }
            )
        return Run(self.system, bench)

    def evidence_file(self, job: str) -> Path:
        return self.system.run_dir(job).path / "evidence.json"

    def diagnosis(self, job: str) -> Diagnosis | None:
        """What the server says; where it can't, what the rules say of the evidence that is kept."""
        with contextlib.suppress(HawkError), self.system.client() as client:
            body = client.call("GET", f"/monitoring/jobs/{job}/diagnosis").body
            return msgspec.json.decode(body, type=Diagnosis)
        evidence = read_evidence(self.evidence_file(job))
        return judged(evidence) if evidence is not None else None

    def kill_everything(self, jobs: list[str]) -> None:
        """kill -9 of the server, the supervisors and the workers."""
        self.system.kill_server()
        for job in jobs:
            pids = [self.system.supervisor(job), *self.system.workers(job)]
            for pid in pids:
                kill(pid)
            until(f"{job} is dead", lambda job=job: not self.system.workers(job), 20)  # type: ignore[misc]

    def remove(self, job: str) -> None:
        """Take a job away, with all that runs of it."""
        with contextlib.suppress(HawkError), self.system.client() as client:
            client.delete(job)
        for process in self.system.processes(job):
            with contextlib.suppress(Exception):
                process.kill()
