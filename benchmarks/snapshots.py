"""What the state of a big job costs to serve: one reader, the command line, two hundred watchers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

import psutil

from benchmarks.bars import Bar
from benchmarks.processes import Hawk, hawk, timed
from benchmarks.synthetic import SyntheticJob

JOB = "ten-thousand"
REQUESTS = 300
CHANGES = 20
PERIOD = 0.5
WATCHERS = 200


def measure(rounds: int) -> list[Bar]:
    base = Path(tempfile.mkdtemp(prefix="hawk-benchmark-"))
    try:
        with hawk(base / "home", HAWK_WARM="0") as instance:
            job = SyntheticJob(instance.settings.root, JOB)
            instance.start()
            try:
                return [
                    _http(instance, job),
                    _command_line(instance, job, rounds),
                    _watchers(instance, job, rounds),
                ]
            finally:
                job.close()
    finally:
        shutil.rmtree(base, ignore_errors=True)


@contextmanager
def _changing(job: SyntheticJob) -> Iterator[None]:
    """The job goes on while the block runs: its snapshot changes every `PERIOD` seconds."""
    done = threading.Event()

    def change() -> None:
        while not done.wait(PERIOD):
            job.change()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _http(instance: Hawk, job: SyntheticJob) -> Bar:
    times, size = [], 0
    with instance.client() as client, _changing(job):
        client.status_json(JOB)
        for _ in range(REQUESTS):
            began = time.perf_counter()
            size = len(client.status_json(JOB))
            times.append(time.perf_counter() - began)
            time.sleep(0.02)
    p99 = quantiles(times, n=100)[98] * 1000
    note = f"{REQUESTS} requests, {size / 1e6:.1f} MB each, median {median(times) * 1000:.0f} ms, while it changes"
    return Bar("10,000 attempts: snapshot over HTTP, p99", p99, 50, "ms", note)


def _command_line(instance: Hawk, job: SyntheticJob, rounds: int) -> Bar:
    command: list[str | Path] = [instance.command, "watch", JOB, "--no-follow"]
    timed(command, instance.env)
    with _changing(job):
        times = [timed(command, instance.env) for _ in range(3 * rounds)]
    note = f"hawk watch --no-follow, median of {len(times)}"
    return Bar("10,000 attempts: snapshot by the command line", median(times) * 1000, 300, "ms", note)


def _watchers(instance: Hawk, job: SyntheticJob, rounds: int) -> Bar:
    with instance.client() as client:
        url = f"{client.url}/monitoring/jobs/{JOB}/eval-set-status/stream"
    pid = int(json.loads(instance.settings.server_file.read_bytes())["pid"])
    one, many, seen = [], [], ""
    for i in range(rounds):
        one.append(_cost(instance, job, url, pid, 1)[0])
        cost, seen = _cost(instance, job, url, pid, WATCHERS)
        many.append(cost)
        print(
            f"  round {i + 1}: one {one[-1]:.2f} s, {WATCHERS} {many[-1]:.2f} s", file=sys.stderr, flush=True
        )
    ratio = median(b / a for a, b in zip(one, many, strict=True))
    note = (
        f"server CPU {median(one):.2f} s against {median(many):.2f} s over {CHANGES} changes in "
        f"{CHANGES * PERIOD:.0f} s; each of the {WATCHERS} saw {seen}"
    )
    return Bar(f"10,000 attempts: {WATCHERS} watchers / one", ratio, 2, "x", note)


def _cost(instance: Hawk, job: SyntheticJob, url: str, pid: int, watchers: int) -> tuple[float, str]:
    """CPU seconds of the server over a fixed number of changes, and how many of them the watchers saw."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.watchers",
        url,
        str(instance.settings.token_file),
        str(watchers),
    ]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        server = psutil.Process(pid)
        before = server.cpu_times()
        for _ in range(CHANGES):
            job.change()
            time.sleep(PERIOD)
        after = server.cpu_times()
        process.stdin.close()
        least, most = process.stdout.readline().split()
    return after.user + after.system - before.user - before.system, f"{least} to {most}"
