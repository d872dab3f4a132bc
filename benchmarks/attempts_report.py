"""The report of 10,000 attempts that lie on disk."""

from __future__ import annotations

import random
import time
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.bars import Bar
from benchmarks.processes import hawk, timed
from hawk.core.attempts.policy import Policy, Rules
from hawk.core.attempts.results import Outcome, Pair, Result, Scored, Usage
from hawk.core.plan import Plan, PlanTask
from hawk.core.snapshot import Snapshot
from hawk.core.states import JobStatus
from hawk.store.rundir import JobSpec, RunDir, write_json

JOB = "ten-thousand-attempts"
PAIRS, ATTEMPTS = 2_500, 4
ROUNDS = 5


def measure_report(base: Path) -> list[Bar]:
    home = base / "report-home"
    with hawk(home, HAWK_WARM="0") as instance:
        run = _make(instance.settings.root)
        instance.start()
        first = []
        with instance.client() as client:
            for _ in range(ROUNDS):
                began = time.perf_counter()
                report = client.report(JOB)
                first.append(time.perf_counter() - began)
                assert len(report.pairs) == PAIRS
                _touch(run)
        took = []
        for _ in range(ROUNDS):
            _touch(run)
            took.append(timed([instance.command, "report", JOB, "--json"], instance.env))
    note = (
        f"hawk report --json, nothing known beforehand, median of {ROUNDS}; over HTTP {median(first):.2f} s"
    )
    return [Bar("report of 10,000 attempts on disk", median(took), 2.0, "s", note)]


def _touch(run: RunDir) -> None:
    """Change one result, so that no report of earlier can be given again."""
    path = next(run.attempts.glob("*/1/result.json"))
    result = msgspec.json.decode(path.read_bytes(), type=Result)
    write_json(path, msgspec.structs.replace(result, duration=random.uniform(1, 900)))


def _make(root: Path) -> RunDir:
    chance = random.Random(0)
    run = RunDir(root / JOB)
    run.path.mkdir(parents=True)
    run.create()
    task = PlanTask(
        "t", "coding", "openai/model", [f"sample-{i}" for i in range(PAIRS)], ATTEMPTS, agent="react"
    )
    plan = Plan(JOB, [task], runs=ATTEMPTS, rules=Rules(Policy.PARALLEL), slots=PAIRS * ATTEMPTS)
    write_json(run.plan_file, plan)
    write_json(run.spec_file, JobSpec(JOB, str(root)))
    write_json(run.snapshot_file, Snapshot(JOB, JobStatus.COMPLETE))
    for sample in task.sample_ids:
        pair, rate = task.pair(sample), chance.betavariate(0.4, 0.1)
        for k in range(1, ATTEMPTS + 1):
            directory = run.attempts / pair.directory / str(k)
            directory.mkdir(parents=True)
            (directory / "result.json").write_bytes(
                msgspec.json.encode(_result(pair, k, chance.random() < rate, chance))
            )
    return run


def _result(pair: Pair, k: int, passed: bool, chance: random.Random) -> Result:
    start = chance.uniform(0, 3000)
    duration = chance.uniform(10, 800)
    return Result(
        pair=pair,
        attempt=k,
        outcome=Outcome.PASS if passed else Outcome.FAIL,
        scores={"quality": Scored("C" if passed else "I", explanation="as expected " * 10)},
        score=float(passed),
        started_at=_time(start),
        ended_at=_time(start + duration),
        duration=duration,
        working=duration * 0.8,
        usage={pair.model: Usage(input=100_000, output=5_000, total=105_000)},
        cost=0.4,
        uuid=f"{pair.sample}-{k}",
    )


def _time(seconds: float) -> str:
    return f"2026-01-01T{int(seconds // 3600):02d}:{int(seconds // 60 % 60):02d}:{seconds % 60:09.6f}+00:00"
