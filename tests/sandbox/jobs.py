"""Jobs whose attempts run in bubblewrap sandboxes, and what those leave on the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hawk.core.snapshot import Sample
from tests.sandbox.traces import Traces
from tests.system import TASKS, System

BOXED = Path(__file__).with_name("boxed.py")
SAMPLES, RUNS = 3, 2
TOTAL = SAMPLES * RUNS


def submit(
    system: System,
    job: str,
    sandbox: dict[str, Any] | None = None,
    *,
    command: str = "echo left behind > /workspace/x",
    seconds: float = 1.0,
    **config: Any,
) -> None:
    """Submit a job of `TOTAL` attempts.

    Args:
        sandbox: Fields of a sandbox.yaml.
        command: What each attempt runs in its sandbox, as shell text.
        seconds: How long the first sample takes after that; the n-th n times as long.
        **config: More fields of the eval set.
    """
    args = {"ledger": str(system.ledger(job)), "samples": SAMPLES, "seconds": seconds, "command": command}
    body = {
        "tasks": [{"file": str(BOXED), "items": [{"name": "boxed", "args": args}]}],
        "models": [{"file": str(TASKS), "items": [{"name": "counted/m"}]}],
        "epochs": RUNS,
        "sandbox": {"type": "bubblewrap", "config": {"inspect_tools": False, **(sandbox or {})}},
        **config,
    }
    with system.client() as client:
        client.submit({"eval_set_config": body, "eval_set_id": job, "base_dir": str(BOXED.parent)})


def rows(system: System, job: str) -> list[Sample]:
    """The attempts as the status shows them."""
    return [sample for task in system.status(job).tasks for sample in task.samples]


def store(system: System) -> Path:
    return system.home / "sandbox"


def keepers(system: System, job: str) -> dict[str, int]:
    """Names of the keepers of a job, and the pid of the first process of each."""
    found = {}
    for path in (store(system) / "keepers").glob("*.json"):
        about = json.loads(path.read_text() or "{}")
        if about.get("HAWK_JOB_ID") == job:
            found[path.stem] = about["pid"]
    return found


class Remains:
    """What a job's sandboxes may leave: all that is there of them now, watched from here on."""

    def __init__(self, system: System, job: str) -> None:
        self._system, self._job = system, job
        self._traces = {}
        for name, pid in keepers(system, job).items():
            self._traces[name] = Traces(store(system), name)
            # The sandboxes' own processes carry no label: they are known by who started them.
            self.processes = self._traces[name].watch(pid)

    def all(self) -> list[str]:
        return [*self.of_sandboxes(), *self._system.leftovers(self._job)]

    def of_sandboxes(self) -> list[str]:
        kept = [
            path
            for part in ("keepers", "scratch", "building")
            for path in (store(self._system) / part).glob("*")
        ]
        return [
            *(line for traces in self._traces.values() for line in traces.all()),
            *map(str, kept),
        ]
