"""What a job's workers leave behind is killed, and nothing of another's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from hawk.runner.processes import sweep
from hawk.store.marks import marks
from hawk.store.rundir import RunDir


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def left_behind(stack: ExitStack, run_dir: RunDir, worker: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(["sleep", "600"], env={**os.environ, **marks(run_dir, worker)})
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def test_jobs_of_one_id_in_two_places_leave_each_other_alone(stack: ExitStack, tmp_path: Path) -> None:
    mine, theirs = (RunDir(tmp_path / place / "same-id") for place in ("mine", "theirs"))
    own, other = left_behind(stack, mine, "0"), left_behind(stack, theirs, "0")
    assert sweep(mine) == 1
    assert not psutil.pid_exists(own.pid)
    assert other.poll() is None


def test_a_job_is_known_by_whichever_way_leads_to_its_directory(stack: ExitStack, tmp_path: Path) -> None:
    there = tmp_path / "there"
    (there / "job").mkdir(parents=True)
    (tmp_path / "link").symlink_to(there)
    process = left_behind(stack, RunDir(tmp_path / "link" / "job"), "0")
    assert sweep(RunDir(there / "job")) == 1
    assert not psutil.pid_exists(process.pid)


def test_only_what_one_worker_left_is_swept_where_one_is_named(stack: ExitStack, tmp_path: Path) -> None:
    run = RunDir(tmp_path / "job")
    first, second, third = (left_behind(stack, run, str(n)) for n in range(3))
    assert sweep(run, 0) == 1
    assert not psutil.pid_exists(first.pid)
    assert sweep(run, spare=[1]) == 1
    assert not psutil.pid_exists(third.pid)
    assert second.poll() is None
