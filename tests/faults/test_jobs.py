"""Eval sets that can't work: each ends, with a reason that names the thing and what to do next."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hawk.core.snapshot import Snapshot
from hawk.core.states import ActivityType
from hawk.errors import HawkError
from tests.system import System, running, until

pytestmark = pytest.mark.slow

BROKEN = str(Path(__file__).with_name("broken.py"))
REFUSING = [{"file": BROKEN, "items": [{"name": "refusing/m"}]}]


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with running(tmp_path_factory.mktemp("faults")) as up:
        yield up


def run(system: System, job: str, task: str, **config: Any) -> Snapshot:
    body = {"tasks": [{"file": BROKEN, "items": [{"name": task}]}], "models": REFUSING, **config}
    with system.client() as client:
        client.submit({"eval_set_config": body, "eval_set_id": job, "base_dir": str(Path(BROKEN).parent)})
    end = system.finish(job)
    assert system.leftovers(job) == []
    return end


def test_a_dataset_that_does_not_load_fails_the_job_with_the_file_it_wanted(system: System) -> None:
    end = run(system, "dataset", "no_dataset")
    assert end.status == "failed"
    assert "/nonexistent/questions.jsonl" in (end.reason or "")
    assert end.remedy is not None


def test_a_model_that_always_errors_fails_every_attempt_and_says_with_what(system: System) -> None:
    end = run(system, "refused", "answers", runs=2)
    assert end.status == "failed"
    assert end.progress.errored == end.progress.total == 6
    errors = {sample.error for sample in end.tasks[0].samples}
    assert all("the account is closed" in (error or "") for error in errors)
    assert "\x1b" not in "".join(map(str, errors))
    assert all(sample.retries == 2 for sample in end.tasks[0].samples)


def test_an_unknown_task_is_refused_with_the_nearest_spelling(system: System) -> None:
    with pytest.raises(HawkError, match="answers"):
        run(system, "unknown", "answer")


def test_an_unknown_task_of_a_package_ends_the_job_with_its_name(system: System) -> None:
    tasks = [{"package": "inspect-ai", "name": "inspect_ai", "items": [{"name": "no_such_task"}]}]
    with system.client() as client:
        client.submit(
            {
                "eval_set_config": {"tasks": tasks, "models": REFUSING},
                "eval_set_id": "untask",
                "base_dir": "/",
            }
        )
    end = system.finish("untask")
    assert end.status == "failed"
    assert "no_such_task" in (end.reason or "")


def test_a_package_that_does_not_install_ends_the_job_with_its_name(system: System, tmp_path: Path) -> None:
    broken = tmp_path / "broken-package"
    broken.mkdir()
    (broken / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    end = run(system, "uninstallable", "answers", packages=[str(broken)])
    assert end.status == "failed"
    assert "broken-package" in (end.reason or "")


def test_a_blocked_worker_is_busy_not_gone(system: System, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    items = [{"name": "blocking", "args": {"until": str(go_on)}}]
    body = {"tasks": [{"file": BROKEN, "items": items}], "models": REFUSING}
    with system.client() as client:
        client.submit({"eval_set_config": body, "eval_set_id": "blocked", "base_dir": "/"})

    def blocked() -> Snapshot | None:
        status = system.status("blocked")
        found = [
            s
            for t in status.tasks
            for s in t.samples
            if s.activity and s.activity.type is ActivityType.BLOCKED
        ]
        return status if found else None

    seen = until("the worker is seen to be blocked", blocked)
    assert seen.status == "running"
    assert "worker 0" in seen.errors["tasks"]
    assert seen.workers[0].busy_since is not None
    go_on.touch()
    assert system.finish("blocked").progress.completed == 1


def test_a_deep_home_does_not_lengthen_socket_paths(tmp_path: Path) -> None:
    deep = tmp_path / "/".join(["a-rather-long-directory-name"] * 6)
    assert len(str(deep)) > 150
    with running(tmp_path, home=deep) as system:
        system.submit("deep", samples=2, runs=1, seconds=1.5)
        until("a control socket answers", lambda: system.status("deep").progress.running)
        assert system.finish("deep").status == "complete"
        assert system.leftovers("deep") == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"can't mount a small disk here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_is_named_and_nothing_finished_is_lost(tmp_path: Path, small_disk: Path) -> None:
    with running(tmp_path, root=small_disk) as system:
        system.submit("full", samples=6, seconds=0.5, runs=1)
        until("some attempts have completed", lambda: system.status("full").progress.completed >= 2)
        completed = system.completed("full")
        ballast = small_disk / "ballast"
        with pytest.raises(OSError, match="No space"):
            _fill(ballast)
        until(
            "the status names the disk",
            lambda: "no space left" in system.status("full").errors.get("storage", ""),
        )
        assert set(completed) <= set(system.completed("full"))
        assert "worker 0" in system.hawk("stacktrace", "full").stdout  # nothing of it needs room
        assert "worker" in system.hawk("trace", "full", "-n", "1").stdout
        ballast.unlink()
        end = system.finish("full")
        if end.status != "complete":
            assert "space" in (end.reason or "") or end.progress.errored
            with system.client() as client:
                client.submit({"eval_set_id": "full", "resume": True})
            end = system.finish("full")
        assert (end.status, end.progress.completed) == ("complete", 12)
        begun = system.lines("full", "begin")
        assert all(begun.count(name) == 1 for name in completed)


def _fill(file: Path) -> None:
    with file.open("wb", buffering=0) as f:
        while True:
            f.write(b"x" * 4096)
