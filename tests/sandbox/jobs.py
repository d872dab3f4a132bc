"""Jobs whose attempts run in bubblewrap sandboxes, and what those leave on the machine."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from hawk.core.snapshot import Sample
from hawk.sandbox.door import Door, look_around
from tests.sandbox.traces import Traces
from tests.system import TASKS, System, until

BOXED = Path(__file__).with_name("boxed.py")
SAMPLES, RUNS = 3, 2
TOTAL = SAMPLES * RUNS


def submit(
    system: System,
    job: str,
    sandbox: dict[str, Any] | None = None,
    *,
    command: str = "echo left behind > /workspace/x",
    seconds: float = 0.0,
    gated: bool = False,
    **config: Any,
) -> None:
    """Submit a job of `TOTAL` attempts.

    Args:
        sandbox: Fields of a sandbox.yaml.
        command: What each attempt runs in its sandbox, as shell text.
        seconds: How long the first sample takes after that; the n-th n times as long.
        gated: Attempts wait after their command until `open_gate`.
        **config: More fields of the eval set.
    """
    args = {"ledger": str(system.ledger(job)), "samples": SAMPLES, "seconds": seconds, "command": command}
    if gated:
        args["gate"] = str(gate_of(system, job))
    body = {
        "tasks": [{"file": str(BOXED), "items": [{"name": "boxed", "args": args}]}],
        "models": [{"file": str(TASKS), "items": [{"name": "counted/m"}]}],
        "epochs": RUNS,
        "sandbox": {"type": "bubblewrap", "config": {"inspect_tools": False, **(sandbox or {})}},
        **config,
    }
    with system.client() as client:
        client.submit({"eval_set_config": body, "eval_set_id": job, "base_dir": str(BOXED.parent)})


def gate_of(system: System, job: str) -> Path:
    return system.home / f"{job}.gate"


def open_gate(system: System, job: str) -> None:
    """Attempts of a gated job that wait go on; those that begin from here on do not wait."""
    gate_of(system, job).touch()


WAITS = "until [ -e /tmp/go ]; do sleep 0.05; done"
"""What a script of a sandbox says to wait for `let_go`."""


def let_go(system: System, name: str, sandboxes: int) -> None:
    """Have scripts go on that wait in so many sandboxes whose labels hold this."""
    told: set[str] = set()

    def all_told() -> bool:
        for look in look_around(store(system)):
            for row in look.sandboxes:
                if name in row["label"] and row["label"] not in told:
                    _touch(system, look.keeper.name, row["label"])
                    told.add(row["label"])
        return len(told) >= sandboxes

    until(f"{sandboxes} sandboxes {name} are told to go on", all_told)


def _touch(system: System, keeper: str, label: str) -> None:
    job = {"op": "exec", "kind": "exec", "label": label, "argv": ["touch", "/tmp/go"], "env": {}}
    null = os.open(os.devnull, os.O_RDWR)
    try:
        with Door(store(system), keeper) as door:
            door.send({**job, "cwd": "/", "user": None}, [null, null, null])
            assert door.receive(timeout=60)["code"] == 0
    finally:
        os.close(null)


def rows(system: System, job: str) -> list[Sample]:
    """The attempts as the status shows them."""
    return [sample for task in system.status(job).tasks for sample in task.samples]


def store(system: System) -> Path:
    return system.home / "sandbox"


def keepers(system: System, job: str) -> dict[str, int]:
    """Names of the keepers of a job, and the pid of the first process of each."""
    found = {}
    for path in (store(system) / "keepers").glob("*.json"):
        about: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):  # it is just being made, or removed
            about = json.loads(path.read_text() or "{}")
        if about.get("HAWK_JOB_ID") == job:
            found[path.stem] = about["pid"]
    return found


class Remains:
    """What a job's sandboxes may leave: all that is there of them now, watched from here on."""

    def __init__(self, system: System, job: str) -> None:
        self._system, self._job = system, job
        self._traces = {}
        self._building = set((store(system) / "building").glob("*"))
        for name, pid in keepers(system, job).items():
            self._traces[name] = Traces(store(system), name)
            # The sandboxes' own processes carry no label: they are known by who started them.
            self.processes = self._traces[name].watch(pid)

    def all(self) -> list[str]:
        return [*self.of_sandboxes(), *self._system.leftovers(self._job)]

    def of_sandboxes(self) -> list[str]:
        # Its own: what other jobs left is not for its test to tell.
        names = {*self._traces, *keepers(self._system, self._job)}
        kept = [
            path
            for part in ("keepers", "scratch")
            for path in (store(self._system) / part).glob("*")
            if path.name.removesuffix(".json").removesuffix(".sock") in names
        ]
        return [
            *(line for traces in self._traces.values() for line in traces.all()),
            *map(str, kept),
            *(str(path) for path in self._building if path.exists()),
        ]
