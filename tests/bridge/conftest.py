"""Real evaluations for the readers to read: launched as processes, awaited by polling."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from hawk.bridge.buffer import BufferReader, find
from hawk.bridge.evallog import LogCache, list_logs

T = TypeVar("T")

SCRIPT = Path(__file__).with_name("evaluation.py")


def until(probe: Callable[[], T], timeout: float = 150.0) -> T:
    """Poll until the probe gives something true, and return that."""
    end = time.monotonic() + timeout
    while not (value := probe()):
        assert time.monotonic() < end, f"timed out waiting for {probe}"
        time.sleep(0.02)
    return value


@dataclass
class Evaluation:
    """One running or ended evaluation and its directories."""

    root: Path
    outcomes: str
    epochs: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def data_home(self) -> Path:
        return self.root / "d"

    @property
    def log(self) -> Path:
        return list_logs(self.logs)[-1]

    def start(self, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(self.logs), self.outcomes, str(self.epochs)],
            cwd=SCRIPT.parent,
            env={
                **os.environ,
                "XDG_DATA_HOME": str(self.data_home),
                "EVAL_SIGNALS": str(self.root),
                **environment,
            },
            stdout=subprocess.DEVNULL,
            stderr=(self.root / "stderr").open("wb"),
        )

    def wait(self) -> None:
        assert self.process is not None
        try:
            code = self.process.wait(timeout=150)
        finally:
            self.kill()
        assert code == 0, (self.root / "stderr").read_text()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def write(self, name: str, document: Any) -> str:
        path = self.root / name
        path.write_text(json.dumps(document))
        return str(path)

    def signal(self, name: str) -> Path:
        path = self.root / name
        path.touch()
        return path

    def run_to_gate(self) -> None:
        """Until four attempts are in the log, two more ended and are in the buffer only, and two wait in a tool."""
        cache = LogCache()
        until(lambda: self._state(cache) == (4, 0, 4))
        self.signal("late")
        until(lambda: self._state(cache) == (4, 2, 2))

    def _state(self, cache: LogCache) -> tuple[int, int, int] | None:
        """Attempts in the log, ended in the buffer, and waiting in a tool."""
        assert self.process is not None
        assert self.process.poll() is None, (self.root / "stderr").read_text()
        logs = list_logs(self.logs)
        db = find(self.data_home, logs[-1]) if logs else None
        if db is None:
            return None
        reader = BufferReader(db)
        reader.new_events()
        held = reader.running()
        waiting = [s for s in held if [e.type for e in reader.last_events(*s.key) if e.pending] == ["tool"]]
        return len(cache.read(logs[-1])[1]), sum(s.completed for s in held), len(waiting)


@pytest.fixture(scope="session")
def short_root() -> Iterator[Path]:
    """A directory with a short path: socket paths are limited to about 100 bytes."""
    root = Path(tempfile.mkdtemp(prefix="hb", dir="/tmp"))
    yield root
    shutil.rmtree(root, ignore_errors=True)


def _evaluation(root: Path, name: str, outcomes: str, epochs: int) -> Evaluation:
    path = root / name
    path.mkdir()
    return Evaluation(path, outcomes, epochs)


@pytest.fixture(scope="session")
def finished(short_root: Path) -> Evaluation:
    """An evaluation that ended, with every kind of outcome."""
    evaluation = _evaluation(short_root, "f", "pass,fail,error,limit,nan", 2)
    evaluation.start()
    evaluation.wait()
    return evaluation


@pytest.fixture(scope="session")
def live(short_root: Path) -> Iterator[Evaluation]:
    """A running evaluation: four attempts in the log, two ended, two waiting in a tool until the gate opens."""
    evaluation = _evaluation(short_root, "l", "pass,pass,late,gate", 2)
    evaluation.start()
    try:
        evaluation.run_to_gate()
        yield evaluation
    finally:
        evaluation.kill()


@pytest.fixture(scope="session")
def crashed(short_root: Path) -> Evaluation:
    """What is left of an evaluation killed when four attempts were in its log, two ended, two were in flight.

    A copy: the original is resumed.
    """
    evaluation = _evaluation(short_root, "c", "pass,pass,late,gate", 2)
    manifest = evaluation.root / "manifest.json"
    evaluation.start(INSPECT_EVAL_SET_CAPTURE=str(manifest))
    evaluation.wait()
    identifier = json.loads(manifest.read_bytes())["tasks"][0]["identifier"]
    evaluation.start(INSPECT_EVAL_SET_SELECTION=evaluation.write("first.json", _selection(identifier, None)))
    try:
        evaluation.run_to_gate()
    finally:
        evaluation.kill()
    copy = short_root / "k"
    shutil.copytree(evaluation.root, copy, ignore=shutil.ignore_patterns("*.sock"))
    return Evaluation(copy, evaluation.outcomes, evaluation.epochs)


@pytest.fixture(scope="session")
def resumed(crashed: Evaluation) -> Evaluation:
    """The evaluation that was killed, resumed and finished."""
    evaluation = Evaluation(crashed.root.with_name("c"), crashed.outcomes, crashed.epochs)
    first = json.loads((evaluation.root / "first.json").read_bytes())
    selection = _selection(first["tasks"][0]["identifier"], str(evaluation.log))
    evaluation.signal("gate")
    evaluation.start(INSPECT_EVAL_SET_SELECTION=evaluation.write("second.json", selection))
    evaluation.wait()
    return evaluation


def _selection(identifier: str, resume: str | None) -> dict[str, Any]:
    tasks = [{"identifier": identifier, "resume": resume}]
    return {"version": 7, "eval_set_id": "set-1", "tasks": tasks}
