"""The trace of a real job: while it runs, after its worker was killed, and when another one goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hawk.core.recorder.trace import DIED, TraceActions
from tests.system import System, kill, running, until

pytestmark = pytest.mark.slow

TASKS = Path(__file__).parents[1] / "compat" / "package" / "hawk_compat.py"
JOB = "gated"
MODEL = "generate (hawk_compat/small)"


class Follower:
    """`hawk trace -f --raw`, and what it has printed."""

    def __init__(self, system: System) -> None:
        command = [sys.executable, "-m", "hawk.cli", "trace", JOB, "-f", "--raw", "-n", "50000"]
        self.process = subprocess.Popen(
            command,
            env=system.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.output = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line

    def finish(self) -> bytes:
        assert self.process.wait(60) == 0
        self._reader.join(10)
        return self.output


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with running(tmp_path_factory.mktemp("trace")) as started:
        gate = str(started.home / "gate")
        tasks = [{"file": str(TASKS), "items": [{"name": "gated", "args": {"gate": gate}}]}]
        started.submit(JOB, config={"tasks": tasks, "models": None, "epochs": 2})
        until("attempts are in flight", lambda: len(_models(_actions(started))) == 6)
        yield started


def _actions(system: System, **query: Any) -> TraceActions:
    with system.client() as client:
        return client.trace_actions(JOB, **query)


def _models(found: TraceActions) -> list[tuple[str | None, int | None]]:
    return sorted(
        (row.sample_id, row.epoch) for row in found.in_flight if row.action == "Model" and row.alive
    )


ATTEMPTS = sorted((name, epoch) for name in ("one", "two", "three") for epoch in (1, 2))


def test_what_is_in_flight_is_shown_first_with_its_age(system: System) -> None:
    lines = system.hawk("trace", JOB, "-n", "3").stdout.splitlines()
    assert lines[0] == "In flight now:"
    assert lines[1].split() == ["age", "action", "what", "attempt"]
    rows = lines[2 : lines.index("")]
    assert sum(MODEL in row for row in rows) == 6
    assert rows[-1].split()[1:3] == ["Run", "Task"]  # it only holds the others
    assert any(row.rstrip().endswith("gated/three/2") for row in rows)
    assert len(lines) - lines.index("") - 1 == 3


def test_actions_as_json_can_be_asked_for_one_sample_and_one_worker(system: System) -> None:
    found = json.loads(system.hawk("trace", JOB, "--json", "-n", "5").stdout)
    [worker] = found["workers"]
    assert worker["alive"]
    assert worker["pid"] == system.workers(JOB)[0]
    assert len(found["lines"]) == 5
    assert all(isinstance(line["timestamp"], str) for line in found["lines"])
    uuid = next(row["sample_uuid"] for row in found["in_flight"] if row["sample_id"] == "two")
    assert len(_models(_actions(system, sample=uuid))) == 1
    assert _models(_actions(system, sample="two")) == [("two", 1), ("two", 2)]
    assert _models(_actions(system, sample="two/2")) == [("two", 2)]
    assert _actions(system, worker=1).workers == []

    def known() -> bool:
        return uuid in {sample.uuid for task in system.status(JOB).tasks for sample in task.samples}

    until("the status knows it by that name", known)


def test_full_and_follow_exclude_each_other_and_an_unknown_job_is_said_to_be(system: System) -> None:
    done = system.hawk("trace", JOB, "--full", "-f", check=False)
    assert (done.returncode, "--full" in done.stderr) == (2, True)
    for options in ((), ("--raw",), ("--json",), ("-f", "--raw")):
        assert system.hawk("trace", "unknown", *options, check=False).returncode == 2
    empty = system.hawk("trace", JOB, "--worker", "7")
    assert "has no trace" in empty.stderr
    assert f"hawk logs {JOB}" in empty.stderr


def test_a_killed_worker_leaves_what_it_had_in_flight_and_the_next_one_goes_on(system: System) -> None:
    follower = Follower(system)
    until("the follower has begun", lambda: MODEL.encode() in follower.output)
    [worker] = system.workers(JOB)
    supervisor = system.supervisor(JOB)
    assert supervisor is not None
    os.kill(supervisor, signal.SIGSTOP)  # or it would start the next worker at once
    try:
        kill(worker)
        until("the worker is gone", lambda: not system.workers(JOB))
        _check_dead(system, worker)
        system.kill_server()
        system.start()
        _check_dead(system, worker)
    finally:
        os.kill(supervisor, signal.SIGCONT)

    until("the next worker has attempts in flight", lambda: _models(_actions(system)) == ATTEMPTS)
    found = _actions(system, lines=1000)
    died = [line for line in found.lines if line.get("error_type") == DIED]
    assert len([line for line in died if line["action"] == "Model"]) == 6
    assert all(line["error"] == f"the worker process {worker} died" for line in died)
    assert [row.alive for row in found.in_flight] == [True] * len(found.in_flight)

    raw = system.home / "trace.log"
    raw.write_text(system.hawk("trace", JOB, "--full", "--raw").stdout)
    said = _anomalies(raw)
    assert [row["detail"] for row in said["running"]].count(MODEL) == 6
    assert sum("died" in row["error"] for row in said["errors"]) == len(died)

    (system.home / "gate").touch()
    system.finish(JOB)
    whole = system.hawk("trace", JOB, "--full", "--raw").stdout.encode()
    assert follower.finish() == whole  # across the ends of worker, supervisor and server, each line once
    shown = system.hawk("trace", JOB, "-n", "1").stdout
    assert shown.startswith("Nothing was in flight when the last worker ended")


def _check_dead(system: System, pid: int) -> None:
    found = _actions(system)
    assert [(worker.pid, worker.alive) for worker in found.workers] == [(pid, False)]
    models = [row for row in found.in_flight if row.action == "Model"]
    assert sorted((row.sample_id, row.epoch) for row in models) == ATTEMPTS
    assert not any(row.alive for row in models)
    ages = [row.age_s for row in models]
    assert ages == [
        row.age_s for row in _actions(system).in_flight if row.action == "Model"
    ]  # they stand still
    shown = system.hawk("trace", JOB).stdout
    assert shown.startswith(f"In flight when worker 0 died (pid {pid}), last seen ")


def _anomalies(path: Path) -> dict[str, Any]:
    """`inspect trace anomalies`, in this process: its start takes longer than all else here."""
    from inspect_ai._cli.trace import anomalies_command

    done = CliRunner().invoke(anomalies_command, [str(path), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found
