"""One run of the published pairs under one policy, and what it took."""

from __future__ import annotations

import csv
import time
from collections import Counter, defaultdict
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks.processes import Hawk, until
from benchmarks.replayed import ROWS
from hawk.core.attempts.report import PolicyUse
from hawk.core.attempts.results import Result
from hawk.core.states import JobStatus
from hawk.store.attempts import read_results
from hawk.store.rundir import RunDir

HISTORY = ROWS.with_name("history.csv")
TASKS = Path(__file__).with_name("replayed.py")
PERIOD = 0.5
"""Seconds between looks at memory: each costs some milliseconds of one core."""

RUNS: dict[str, tuple[dict[str, Any], int]] = {
    "parallel": ({"policy": "parallel"}, 474),
    "parallel-250": ({"policy": "parallel"}, 250),
    "selective-250": ({"policy": "selective", "cancel_siblings": True}, 250),
    "sequential": ({"policy": "sequential"}, 250),
}
"""By name: what the eval set says of attempts, and how many may run at once."""


class Course(NamedTuple):
    """The data, scaled: `(task, sample)` to `(seconds, passed)` of each attempt; seconds of the longest."""

    scale: float
    pairs: dict[tuple[str, str], list[tuple[float, bool]]]
    slowest: float
    slowest_pair: float


class Ran(NamedTuple):
    """What one run took. Seconds are real ones; `hours` of sandboxes are scaled back."""

    name: str
    wall: float
    first_start: float
    after_last_end: float
    report_after: float
    attempts: int
    hours: float
    wrong_pairs: int
    infra_errors: int
    sandboxes: int
    left: int
    memory: float
    in_flight: int
    predicted: PolicyUse | None


def course(scale: float) -> Course:
    pairs: dict[tuple[str, str], list[tuple[float, bool]]] = defaultdict(list)
    with ROWS.open(newline="") as f:
        for row in csv.DictReader(f):
            pairs[row["experiment"], row["eval"]].append(
                (float(row["duration_s"]) / scale, row["passed"] == "1")
            )
    chains = []
    for rows in pairs.values():
        passed = next((i for i, (_, ok) in enumerate(rows) if ok), len(rows) - 1)
        chains.append(sum(seconds for seconds, _ in rows[: passed + 1]))
    slowest = max(seconds for rows in pairs.values() for seconds, _ in rows)
    return Course(scale, dict(pairs), slowest, max(chains))


def run(name: str, instance: Hawk, base: Path, data: Course) -> Ran:
    """Submit, wait, look at everything that is left."""
    attempts, slots = RUNS[name]
    config = {
        "tasks": [
            {
                "file": str(TASKS),
                "items": [{"name": "replay", "args": {"experiment": task}} for task in _tasks(data)],
            }
        ],
        "models": ["none/none"],
        "runs": 2,
        "attempts": {**attempts, "history": str(_history(base, data))},
        "max_sandboxes": slots,
        "runner": {"environment": {"REPLAY_SCALE": str(data.scale)}},
    }
    job = f"replay-{name}"
    run_dir = RunDir(instance.settings.root / job)
    memory: list[float] = []
    in_flight = 0
    with instance.client() as client:
        began = time.time()
        client.submit({"eval_set_config": config, "eval_set_id": job, "base_dir": str(base)})
        while not (status := client.status(job).data).status.terminal:
            in_flight = max(in_flight, status.progress.running)
            if name == "parallel":  # of no other run: it costs time of a core that starts sandboxes
                memory.append(_memory(run_dir))
            time.sleep(PERIOD)
        ended = time.time()
        if status.status is not JobStatus.COMPLETE:
            raise RuntimeError(f"{job} ended {status.status}: {status.reason}")
        until("the report is complete", lambda: client.report(job).complete or None)
        reported = time.time()
    results, problems = read_results(run_dir)
    if problems:
        raise RuntimeError(f"{job}: {problems[0]}")
    plan = run_dir.read_plan()
    begun = [result for result in results if result.started_at is not None]
    last = max(_moment(result.ended_at) for result in begun)
    return Ran(
        name=name,
        wall=ended - began,
        first_start=min(_moment(result.started_at) for result in begun) - began,
        after_last_end=ended - last,
        report_after=reported - last,
        attempts=len(begun),
        hours=sum(result.duration or 0.0 for result in begun) * data.scale / 3600,
        wrong_pairs=_wrong(name, results, data),
        infra_errors=sum(str(result.outcome).endswith("_error") for result in results),
        sandboxes=len({result.sandbox.label for result in begun if result.sandbox and result.sandbox.label}),
        left=_left(job, run_dir),
        memory=max(memory, default=float("nan")),
        in_flight=in_flight,
        predicted=plan.forecast[0] if plan and plan.forecast else None,
    )


def _tasks(data: Course) -> list[str]:
    return list(dict.fromkeys(task for task, _ in data.pairs))


def _history(base: Path, data: Course) -> Path:
    """What the plan may know beforehand, in the form that `hawk export` writes."""
    path = base / "history.csv"
    with HISTORY.open(newline="") as f, path.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["task", "sample", "model", "agent", "duration_s", "passed"])
        for row in csv.DictReader(f):
            seconds = float(row["duration_s"]) / data.scale
            writer.writerow([row["experiment"], row["eval"], "none/none", "sleeper", seconds, row["passed"]])
    return path


def _wrong(name: str, results: list[Result], data: Course) -> int:
    """Pairs that did not come out as the data says they must under this policy."""
    found: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        found[result.pair.task, result.pair.sample].append(result)
    wrong = 0
    for key, rows in data.pairs.items():
        produced = {r.attempt: r.passed for r in found[key] if r.outcome.produced}
        right = all(rows[k - 1][1] == passed for k, passed in produced.items())
        whole = name not in ("parallel", "parallel-250") or len(produced) == len(rows)
        decided = any(produced.values()) == any(ok for _, ok in rows)
        wrong += not (right and whole and decided)
    if name.startswith("parallel"):
        tally = Counter(sum(r.passed for r in rows) for rows in found.values())
        if (tally[2], tally[1], tally[0]) != (185, 22, 30):
            raise RuntimeError(f"{name}: the tally is {dict(tally)}")
    return wrong


def _memory(run_dir: RunDir) -> float:
    """Proportional set size of a job's supervisor, zygote, workers and keepers, in bytes; not of its sandboxes."""
    total = 0.0
    pid = run_dir.supervisor_pid()
    with suppress(psutil.Error, OSError):
        supervisor = psutil.Process(pid)
        for process in [supervisor, *supervisor.children(recursive=True)]:
            with suppress(psutil.Error, OSError):
                if any("hawk." in word for word in process.cmdline()):
                    total += _proportional(process.pid)
    return total


def _proportional(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _left(job: str, run_dir: RunDir) -> int:
    """Processes of a job that has ended, and mounts of its sandboxes."""

    def marked() -> int:
        count = 0
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                count += process.environ().get("HAWK_JOB_ID") == job
        mounts = Path("/proc/mounts").read_text()
        return count + mounts.count(str(run_dir.path))

    deadline = time.monotonic() + 10
    while (count := marked()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return count


def _moment(text: str | None) -> float:
    assert text is not None
    return datetime.fromisoformat(text).timestamp()
