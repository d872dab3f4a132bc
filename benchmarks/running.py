"""What Hawk adds to a run: the whole of it against `inspect eval-set`, the way to the first attempt, memory."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

import psutil
import yaml

from benchmarks.bars import Bar
from benchmarks.processes import BIN, Hawk, calm, environment, hawk, timed, until
from hawk.client import HawkClient
from hawk.core.states import SamplePhase
from hawk.store.rundir import RunDir

TASKS = Path(__file__).with_name("trivial.py")
NAMES = ("first", "second", "third", "fourth")
MEGA = 1e6


def measure(rounds: int) -> list[Bar]:
    base = Path(tempfile.mkdtemp(prefix="hawk-benchmark-"))
    try:
        with hawk(base / "home") as instance:
            instance.start()
            return [*_whole_runs(instance, base, rounds), _first_attempt(instance, base, rounds)]
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _whole_runs(instance: Hawk, base: Path, rounds: int) -> list[Bar]:
    config = base / "trivial.yaml"
    config.write_text(
        yaml.safe_dump({"tasks": [{"file": str(TASKS), "items": [{"name": n} for n in NAMES]}]})
    )
    ours, theirs, memory = [], [], []
    for i in range(rounds):
        _settled(instance)
        with _supervisor_memory(instance.settings.root) as peak:
            ours.append(timed([instance.command, "eval-set", config, "--wait"], instance.env))
        memory.append(max(peak, default=float("nan")))
        theirs.append(_inspect(base / f"logs{i}"))
        print(
            f"  round {i + 1}: hawk {ours[-1]:.1f} s, inspect {theirs[-1]:.1f} s", file=sys.stderr, flush=True
        )
    ratio = median(a / b for a, b in zip(ours, theirs, strict=True))
    note = f"{median(ours):.1f} s against {median(theirs):.1f} s, 4 tasks x 250 samples, {rounds} rounds"
    return [
        Bar("submit to complete / inspect eval-set", ratio, 0.65, "x", note),
        Bar("supervisor, resident memory", max(memory) / MEGA, 60, "MB", "most in those runs, sampled"),
    ]


def _inspect(logs: Path) -> float:
    tasks = [f"{TASKS.name}@{name}" for name in NAMES]
    env = environment(XDG_DATA_HOME=str(logs.parent / "data"))
    command: list[str | Path] = [BIN / "inspect", "eval-set", *tasks, "--log-dir", logs, "--display", "none"]
    return timed(command, env, cwd=TASKS.parent)


def _settled(instance: Hawk) -> None:
    """Wait for the server's template to be there, its imports done: they must not count for either."""
    server = psutil.Process(json.loads(instance.settings.server_file.read_bytes())["pid"])

    def template() -> bool | None:
        found = any("hawk.runner.template" in child.cmdline() for child in server.children())
        return True if found else None

    until("the server keeps a template", template, period=0.5)
    calm()


@contextmanager
def _supervisor_memory(root: Path) -> Iterator[list[float]]:
    """Resident bytes of every supervisor under a root, sampled while the block runs."""
    sizes: list[float] = []
    done = threading.Event()

    def sample() -> None:
        while not done.wait(0.1):
            for run in list(root.glob("[!.]*")):
                pid = RunDir(run).supervisor_pid()
                with suppress(psutil.Error):
                    if pid is not None:
                        sizes.append(psutil.Process(pid).memory_info().rss)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield sizes
    finally:
        done.set()
        thread.join()


def _first_attempt(instance: Hawk, base: Path, rounds: int) -> Bar:
    times = []
    for i in range(rounds):
        _settled(instance)
        with instance.client() as client:
            times.append(_until_running(client, f"holding-{i}", base))
        print(f"  first attempt after {times[-1]:.2f} s", file=sys.stderr, flush=True)
    with instance.client() as client:  # at once after another job
        cold = _until_running(client, "holding-cold", base)
    note = f"server up, median of {rounds}; {cold:.1f} s right after another job"
    return Bar("submit to first attempt running", median(times), 1.5, "s", note)


def _until_running(client: HawkClient, job: str, base: Path) -> float:
    """Seconds from the request until the status shows an attempt at work; waits for the job's end after that."""
    config = {"tasks": [{"file": str(TASKS), "items": [{"name": "holding"}]}]}
    at_work = (SamplePhase.RUNNING, SamplePhase.SCORING, SamplePhase.COMPLETED)

    def running() -> bool | None:
        tasks = client.status(job).data.tasks
        return True if any(s.phase in at_work for task in tasks for s in task.samples) else None

    def ended() -> bool | None:
        return True if client.status(job).data.status.terminal else None

    began = time.perf_counter()
    client.submit({"eval_set_config": config, "eval_set_id": job, "base_dir": str(base)})
    until(f"{job} has an attempt running", running)
    took = time.perf_counter() - began
    until(f"{job} has ended", ended)
    return took
