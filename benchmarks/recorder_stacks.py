"""`hawk stacktrace` of a worker with 500 attempts in flight, and what the recorder takes while nothing stalls."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import msgspec
import psutil

from benchmarks.bars import Bar
from benchmarks.processes import Hawk, hawk, timed, until
from hawk import pyspy
from hawk.core.recorder.stacks import StackRecord
from hawk.store.rundir import RunDir

TASKS = Path(__file__).with_name("recorder_task.py")
JOB = "waiting"
ATTEMPTS = 500
QUIET = 30.0
"""Seconds over which the recorder's own time is counted."""


class _Answer(msgspec.Struct):
    records: list[StackRecord]


class _Thread(msgspec.Struct):
    os_thread_id: int
    thread_name: str | None = None


def measure(rounds: int) -> list[Bar]:
    base = Path(tempfile.mkdtemp(prefix="hawk-benchmark-"))
    try:
        with hawk(base / "home", HAWK_MIDDLEMAN="0", HAWK_WARM="0") as instance:
            instance.start()
            _begin(instance, base)
            pid = _worker(instance)
            return [_quiet(pid, instance), *_asked(instance, rounds)]
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _begin(instance: Hawk, base: Path) -> None:
    """Submit the job and wait for all its attempts to be in flight."""
    config = {
        "tasks": [{"file": str(TASKS), "items": [{"name": "waiting", "args": {"samples": ATTEMPTS}}]}],
        "max_samples": ATTEMPTS,
    }
    began = time.perf_counter()
    with instance.client() as client:
        client.submit({"eval_set_config": config, "eval_set_id": JOB, "base_dir": str(base)})

        def running() -> bool | None:
            status = client.status(JOB).data
            if status.status.terminal:
                raise RuntimeError(f"{JOB} ended {status.status}: {status.reason}")
            return True if status.progress.running == ATTEMPTS else None

        until(f"{ATTEMPTS} attempts are in flight", running, timeout=300, period=0.5)
    print(f"  {ATTEMPTS} in flight after {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)


def _worker(instance: Hawk) -> int:
    """The one worker's process."""
    with instance.client() as client:
        records = _records(client.stacktrace(JOB, format="json"))
    if len(records) != 1:
        raise RuntimeError(f"{len(records)} workers instead of one")
    return records[0].pid


def _quiet(pid: int, instance: Hawk) -> Bar:
    """The recorder's CPU time while nobody asks."""
    thread = _recorder(pid)
    process = psutil.Process(pid)
    before, began = _seconds(process), time.perf_counter()
    time.sleep(QUIET)
    after, took = _seconds(process), time.perf_counter() - began
    used = after[thread] - before[thread]
    whole = sum(after.values()) - sum(before.values())
    stalls = sum(entry.state == "stalled" for entry in RunDir(instance.settings.root / JOB).journal())
    note = (
        f"{1000 * used:.0f} ms in {took:.0f} s, {stalls} stalls; the whole worker {100 * whole / took:.1f} %"
    )
    return Bar(f"recorder's thread, {ATTEMPTS} in flight: share of a core", 100 * used / took, 0.5, "%", note)


def _recorder(pid: int) -> int:
    """The kernel's id of the recorder's thread, whose name only Python knows before 3.14."""
    program = pyspy.find()
    if program is None:
        raise RuntimeError("py-spy is not installed")
    command = [program, "dump", "--json", "--nonblocking", "--pid", str(pid)]
    threads = msgspec.json.decode(subprocess.check_output(command), type=list[_Thread])
    return next(thread.os_thread_id for thread in threads if thread.thread_name == "hawk-recorder")


def _seconds(process: psutil.Process) -> dict[int, float]:
    """CPU seconds by thread."""
    return {thread.id: thread.user_time + thread.system_time for thread in process.threads()}


def _asked(instance: Hawk, rounds: int) -> list[Bar]:
    command: list[str | Path] = [instance.command, "stacktrace", JOB]
    took = [timed(command, instance.env) for _ in range(rounds)]
    http: list[float] = []
    own: list[float] = []
    tasks = chains = 0
    with instance.client() as client:
        for _ in range(rounds):
            began = time.perf_counter()
            body = client.stacktrace(JOB, format="json")
            http.append(time.perf_counter() - began)
            (record,) = _records(body)
            own.append(record.cost_ms)
            tasks, chains = record.tasks, len(record.chains)
            found = {who for chain in record.chains for who in chain.attempts}
            if not record.live or len(found) < ATTEMPTS:
                raise RuntimeError(f"live: {record.live}, {len(found)} attempts: {record.missing}")
    name = f"stacks of {ATTEMPTS} attempts in flight"
    over = f"median of {rounds}, slowest {max(took):.2f} s; over HTTP {1000 * median(http):.0f} ms"
    what = f"median of {rounds}; {median(own):.1f} ms, at most {max(own):.1f} ms, for all {tasks:,} in {chains} chains"
    return [
        Bar(f"{name}: hawk stacktrace, the whole command", median(took), 1.0, "s", over),
        Bar(f"{name}: the worker's own time for 500 tasks", 500 * median(own) / tasks, 20, "ms", what),
    ]


def _records(body: bytes) -> list[StackRecord]:
    return msgspec.json.decode(body, type=_Answer).records
