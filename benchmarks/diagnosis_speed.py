"""How long a diagnosis takes: documents of 474 and of 10,000 attempts, all in flight, with a mixture of troubles.

Processor time, the least of all rounds: nothing in it waits, and what else the machine does is not its doing.
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime, timedelta
from statistics import median

import msgspec

from benchmarks.bars import Bar
from hawk.core.diagnosis.diagnose import explain
from hawk.core.diagnosis.evidence import (
    Attempt,
    Call,
    CallGroup,
    ErrorGroup,
    Evidence,
    Job,
    Lane,
    Model,
    OpenRequest,
    Process,
    Repeat,
    Retrying,
    TaskCount,
    Wait,
    Worker,
)
from hawk.core.snapshot import Progress, SandboxFacts
from hawk.core.states import ActivityType, SamplePhase

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
MODELS = 6
TASKS = 8
SIZES = ((474, 50.0), (10_000, 300.0))
"""Attempts, and milliseconds."""


def measure(options: argparse.Namespace) -> list[Bar]:
    bars = []
    for count, limit in SIZES:
        whole = document(count)
        data = msgspec.json.encode(whole)
        times, decoding = [], []
        for _ in range(options.rounds):
            began = time.process_time()
            evidence = msgspec.json.decode(data, type=Evidence)
            decoding.append((time.process_time() - began) * 1000)
            began = time.process_time()
            said = explain(evidence, NOW)
            times.append((time.process_time() - began) * 1000)
        causes = ", ".join(sorted({v.cause for v in said.verdicts}))
        note = f"least of {options.rounds}, median {median(times):.0f} ms, most {max(times):.0f} ms; document {len(data) / 1e6:.1f} MB, read in "
        bars.append(
            Bar(f"verdict, {count:,} attempts in flight", min(times), limit, "ms",
                f"{note}{median(decoding):.0f} ms; names {causes}")
        )  # fmt: skip
    return bars


def _ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def document(count: int) -> Evidence:
    """A job of so many attempts in flight, of which each waits for something in its own way."""
    attempts = [_attempt(i) for i in range(count)]
    progress = Progress(total=2 * count, completed=count - count // 20, running=count, errored=count // 20)
    return Evidence(
        "benchmark",
        _ago(0),
        job=Job(slots=count, slots_by="max_samples", max_retries=12),
        progress=progress,
        tasks=[
            TaskCount(
                f"task{i}", f"task{i}", f"openai/m{i % MODELS}", progress=Progress(total=count // TASKS)
            )
            for i in range(TASKS)
        ],
        workers=[Worker(i, pid=100 + i, control="ok", beat=0.4, lags=[0.01] * 10, cpu=0.4) for i in range(8)],
        attempts=attempts,
        models=[_model(i, attempts) for i in range(MODELS)],
        ended=[
            ErrorGroup("RuntimeError", f"no such thing {i}", 3, task=f"task{i % TASKS}", last_at=_ago(30))
            for i in range(40)
        ],
    )


def _attempt(i: int) -> Attempt:
    attempt = Attempt(
        f"task{i % TASKS}", f"s{i}", 1, f"task{i % TASKS}/s{i}/1", f"uuid{i}", f"openai/m{i % MODELS}", i % 8,
        started_at=_ago(900), since=_ago(20 + i % 300), idle=20.0 + i % 300, outcomes="SSFSSSSFSS",
        sandbox=SandboxFacts(f"box{i}"),
    )  # fmt: skip
    match i % 8:
        case 0 | 1:
            attempt.activity, attempt.detail = ActivityType.MODEL, attempt.model
        case 2 | 3:
            attempt.activity, attempt.detail = ActivityType.TOOL, "bash"
            attempt.calls = [Call("Tool Call", f"bash(cmd='make test_{i}')", attempt.since, 600.0)]
            attempt.processes = [Process(f"make test_{i}", "S", "a timer", age=20.0 + i % 300, quiet=i % 200)]
        case 4:
            attempt.activity, attempt.outcomes = ActivityType.RETRY_WAIT, "FFFFF"
            attempt.retrying = Retrying(
                5, 90.0, _ago(120), _ago(-20), 429, "RateLimitError", kind="rate_limited", model=attempt.model
            )
        case 5:
            attempt.activity = ActivityType.SOLVER
            attempt.wait = Wait(
                f"agent.py:{i % 50} solve", "asyncio/locks.py:213 wait", "Event", own=True, at=_ago(1),
                kind="event", since=_ago(250), looks=40,
            )  # fmt: skip
        case 6:
            attempt.activity, attempt.phase, attempt.scorer = (
                ActivityType.SCORING,
                SamplePhase.SCORING,
                "judge",
            )
        case _:
            attempt.activity = ActivityType.TOOL
            attempt.repeat = Repeat("bash", f"ls {i % 20}", 12, same_result=True, since=_ago(200))
    return attempt


def _model(number: int, attempts: list[Attempt]) -> Model:
    mine = [a for a in attempts if a.model == f"openai/m{number}" and a.activity is ActivityType.MODEL]
    waiting = [a for a in attempts if a.model == f"openai/m{number}" and a.retrying is not None]
    requests = [
        OpenRequest(
            f"r{i}", a.uuid or "", a.name, age=30.0 + i % 200, upstream_age=29.0, quiet=i % 60, bytes=i % 3
        )
        for i, a in enumerate(mine)
    ]
    failing = bool(number % 2)
    refused = CallGroup(
        "rate_limited", 4 * len(waiting), 429, 429, first_at=_ago(300), last_at=_ago(1), streak=4 * len(waiting),
        again=3 * len(waiting), seconds=[0.2] * 20, said="Rate limit reached",
        uuids=[a.uuid or "" for a in waiting][:1000],
    )  # fmt: skip
    return Model(
        "openai", "default", f"m{number}", f"openai/m{number}", Lane(limit=200, in_flight=len(mine)), requests,
        [refused] if failing else [], "F" * 50 if failing else "SSSSF" * 10, _ago(320 if failing else 5),
        [3.0 + i % 7 for i in range(50)], failing=refused.streak if failing else 0, failing_since=_ago(300),
    )  # fmt: skip
