"""The command line against a real server when things go wrong, or when a person changes their mind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system import TASKS, System, running, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with running(tmp_path_factory.mktemp("commands")) as up:
        yield up


def eval_set(system: System, job: str, folder: Path, seconds: float) -> Path:
    args = {"ledger": str(system.ledger(job)), "samples": 4, "seconds": seconds}
    config = {
        "eval_set_id": job,
        "tasks": [{"file": str(TASKS), "items": [{"name": "left", "args": args}]}],
        "models": [{"file": str(TASKS), "items": [{"name": "counted/m"}]}],
        "epochs": 2,
    }
    path = folder / f"{job}.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    return path


@pytest.mark.parametrize("moment", [0.0, 0.3, 1.0, 3.0])
def test_ctrl_c_at_any_moment_never_stops_a_job_that_was_submitted(
    system: System, tmp_path: Path, moment: float
) -> None:
    job = f"interrupted-{moment:g}".replace(".", "-")
    command = [
        sys.executable,
        "-m",
        "hawk.cli",
        "eval-set",
        str(eval_set(system, job, tmp_path, 0.2)),
        "--wait",
    ]
    process = subprocess.Popen(
        command,
        env=system.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    submitted = until(
        "it was submitted", lambda: process.poll() is not None or system.run_dir(job).spec_file.exists()
    )
    assert submitted
    time.sleep(moment)  # the moment itself is what is tested
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode in (0, 130)
    assert "Traceback" not in err
    if process.returncode == 130 and "Eval set ID" in out:
        assert f"hawk stop {job}" in err or "hawk list eval-sets" in err
    end = system.finish(job)
    assert (end.status, end.progress.completed) == ("complete", 8)


def test_resume_and_no_resume(system: System, tmp_path: Path) -> None:
    config = str(eval_set(system, "again", tmp_path, 0.05))
    assert "again" in system.hawk("eval-set", config, "--wait").stdout
    assert len(system.lines("again", "begin")) == 8
    system.hawk("eval-set", config, "--wait")
    system.hawk("eval-set", "resume", "again")
    system.finish("again")
    assert len(system.lines("again", "begin")) == 8  # finished attempts were reused
    system.hawk("eval-set", config, "--no-resume", "--wait")
    assert len(system.lines("again", "begin")) == 16
    assert (system.run_dir("again").path / "logs.1").is_dir()


def test_logs_follow_a_job_to_its_end(system: System, tmp_path: Path) -> None:
    system.hawk("eval-set", str(eval_set(system, "followed", tmp_path, 0.3)))
    shown = system.hawk("logs", "followed", "-f", timeout=90).stdout
    assert "followed" in shown
    assert "complete" in shown


def test_a_read_only_home_is_named_with_what_to_do(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(home)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"NOT TESTED on a read-only file system, can't mount one: {mounted.stderr.strip()}")
    try:
        system = System(tmp_path, home=home)
        done = system.hawk("list", "eval-sets", check=False)
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)
    assert done.returncode == 1
    assert str(home) in done.stderr
    assert "HAWK_HOME" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broken_pipe_is_no_error(system: System) -> None:
    command = f"{sys.executable} -m hawk.cli list eval-sets --limit 5 | head -c 1 > /dev/null"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env={**os.environ, **system.environ},
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
