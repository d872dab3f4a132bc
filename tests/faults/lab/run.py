"""A scenario's job while it runs: what scenarios look at, and what they do to it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

from hawk.core.snapshot import Sample, Snapshot
from hawk.errors import HawkError
from hawk.store.rundir import RunDir
from tests.faults.lab.bench import Action, Bench, Probe
from tests.system import System

T = TypeVar("T")


class OverError(Exception):
    """The scenario has ended: nothing is to be done any more."""


class Run:
    """One job.

    Attributes:
        over: Set when the scenario has ended.
    """

    def __init__(self, system: System, bench: Bench) -> None:
        self.system, self.bench, self.job = system, bench, bench.job
        self.over = threading.Event()

    @property
    def run_dir(self) -> RunDir:
        return self.system.run_dir(self.job)

    def snapshot(self) -> Snapshot | None:
        """The last one that the supervisor wrote."""
        with contextlib.suppress(HawkError):
            return self.run_dir.read_snapshot()
        return None

    def samples(self) -> list[Sample]:
        found = self.snapshot()
        return [sample for task in found.tasks for sample in task.samples] if found else []

    def ended(self) -> bool:
        found = self.snapshot()
        return found is not None and found.status.terminal and self.run_dir.supervisor_pid() is None

    def marks(self, name: str) -> list[Path]:
        return sorted(self.bench.gate.glob(f"{name}*"))

    def workers(self) -> list[int]:
        return self.system.workers(self.job)

    def until(self, probe: Callable[[], T | None], period: float = 0.2) -> T:
        """Wait for something, as long as the scenario goes on. Raises: OverError."""
        while not self.over.is_set():
            found = probe()
            if found:
                return found
            time.sleep(period)
        raise OverError

    def sleep(self, seconds: float) -> None:
        if self.over.wait(seconds):
            raise OverError


# --- probes: when a fault is there


def marked(name: str, times: int = 1) -> Probe:
    """So many attempts have come to a step that leaves such a mark."""
    return lambda run: len(run.marks(name)) >= times


def ended(run: Run) -> bool:
    return run.ended()


def running(run: Run) -> bool:
    """An attempt is in flight."""
    return any(sample.phase.in_flight for sample in run.samples())


def submitted(run: Run) -> bool:
    return run.run_dir.spec_file.exists()


def both(*probes: Probe) -> Probe:
    return lambda run: all(probe(run) for probe in probes)


def tool_runs(text: str) -> Probe:
    """A process with this in its command line runs."""

    def probe(run: Run) -> bool:
        return any(
            text in " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])
        )

    return probe


# --- actions: what is done to a job


def after(probe: Probe, do: Action, seconds: float = 0.0) -> Action:
    """Do something once something is so, and a while after."""

    def action(run: Run) -> None:
        run.until(lambda: probe(run))
        run.sleep(seconds)
        do(run)

    return action


def kill_workers(run: Run) -> None:
    for pid in run.workers():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def again_and_again(do: Action, period: float) -> Action:
    def action(run: Run) -> None:
        while True:
            do(run)
            run.sleep(period)

    return action
