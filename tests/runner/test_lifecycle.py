"""Stop, resume, start over, secrets: what an operator does to a job, against a real server and real workers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hawk.client import Submitted
from hawk.core.states import StopAction
from hawk.errors import ConflictError, SecretsNeededError
from tests.system import TASKS, System, kill, running, until

pytestmark = pytest.mark.slow

TOTAL = 16


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with running(tmp_path_factory.mktemp("lifecycle")) as up:
        yield up


def begun(system: System, job: str, at_least: int = TOTAL) -> None:
    until("attempts run", lambda: len(system.lines(job, "begin")) >= at_least)


def stop(system: System, job: str, action: StopAction = StopAction.SCORE, uuid: str | None = None) -> bool:
    with system.client() as client:
        return client.stop(job, action, uuid).acknowledged


def test_a_stop_scores_what_is_there_and_a_resume_keeps_it(system: System) -> None:
    system.submit("stopped", seconds=2.0)
    until("some have completed", lambda: 2 <= len(system.completed("stopped")) < TOTAL)
    assert stop(system, "stopped")
    assert system.status("stopped").operation in ("stopping", None)
    end = system.finish("stopped")
    assert end.status == "complete"
    assert end.progress.completed + end.progress.limit + end.progress.canceled == TOTAL
    assert end.progress.limit > 0
    assert "stopped" in (end.reason or "")
    assert system.leftovers("stopped") == []


def test_a_stop_with_error_lets_a_resume_run_those_attempts_again(system: System) -> None:
    system.submit("failed", seconds=2.0)
    until("some have completed", lambda: 2 <= len(system.completed("failed")) < TOTAL)
    assert stop(system, "failed", StopAction.ERROR)
    end = system.finish("failed")
    assert end.status == "failed"
    assert end.progress.errored > 0
    kept = system.completed("failed")
    assert kept
    with system.client() as client:
        assert client.submit({"eval_set_id": "failed", "resume": True}).created is False
    again = system.finish("failed")
    assert (again.status, again.progress.completed) == ("complete", TOTAL)
    begins = system.lines("failed", "begin")
    assert [name for name in kept if begins.count(name) > 1] == []


def test_a_resume_never_shows_less_than_had_completed(system: System) -> None:
    system.submit("kept", seconds=2.0)
    until("some have completed", lambda: 2 <= len(system.completed("kept")) < TOTAL)
    stop(system, "kept", StopAction.ERROR)
    before = system.finish("kept").progress.completed
    with system.client() as client:
        client.submit({"eval_set_id": "kept", "resume": True})
        seen = []

        def watched() -> bool:
            status = client.status("kept").data
            seen.append((status.progress.total, status.progress.completed))
            return status.status.terminal and status.progress.completed == TOTAL

        until("the resumed job has ended", watched)
    assert {total for total, _ in seen} == {TOTAL}
    completed = [done for _, done in seen]
    assert completed[0] == before
    assert completed == sorted(completed)


def test_one_sample_can_be_stopped(system: System) -> None:
    system.submit("one", seconds=1.5)
    begun(system, "one")
    uuid = system.uuid_of("one", "s3")
    assert stop(system, "one", uuid=uuid)
    end = system.finish("one")
    assert (end.progress.completed, end.progress.limit) == (TOTAL - 1, 1)
    stopped = next(s for t in end.tasks for s in t.samples if s.uuid == uuid)
    assert stopped.limit == "operator"


def test_starting_over_keeps_the_old_logs_aside(system: System) -> None:
    system.submit("over", seconds=0.1)
    assert system.finish("over").status == "complete"
    system.submit("over", seconds=0.1, restart=True)
    assert system.finish("over").progress.completed == TOTAL
    assert len(system.lines("over", "begin")) == 2 * TOTAL
    assert len(list((system.run_dir("over").path / "logs.1").glob("*.eval"))) == 2


def test_submitting_twice_at_once_starts_one_job(system: System) -> None:
    replies: list[Submitted] = []

    def submit() -> None:
        args = {"ledger": str(system.ledger("twice")), "samples": 4, "seconds": 0.3}
        config = {
            "tasks": [{"file": str(TASKS), "items": [{"name": "left", "args": args}]}],
            "models": [{"file": str(TASKS), "items": [{"name": "counted/m"}]}],
            "epochs": 2,
        }
        with system.client() as client:
            body = {"eval_set_config": config, "eval_set_id": "twice", "base_dir": str(TASKS.parent)}
            replies.append(client.submit(body))

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((r.created, r.adopted) for r in replies) == [(False, True)] * 3 + [(True, False)]
    assert system.finish("twice").progress.completed == 8
    assert len(system.lines("twice", "begin")) == 8


def test_another_config_under_the_id_of_a_running_job_is_refused(system: System) -> None:
    system.submit("taken", seconds=2.0)
    with pytest.raises(ConflictError, match="taken"):
        system.submit("taken", seconds=1.0)
    stop(system, "taken")
    system.finish("taken")


def test_secrets_reach_the_worker_and_nothing_on_disk(tmp_path: Path) -> None:
    value = "s3cret-of-the-test"
    with running(tmp_path) as own:
        secrets = {"secrets": [{"name": "MY_TOKEN", "type": "env"}]}
        with pytest.raises(SecretsNeededError, match="MY_TOKEN"):
            own.submit("quiet", config=secrets)
        own.submit("quiet", seconds=2.0, config=secrets, secrets={"MY_TOKEN": value})
        until("some have completed", lambda: 2 <= len(own.completed("quiet")) < TOTAL)
        worker = psutil.Process(own.workers("quiet")[0])
        assert value not in [*worker.environ().values(), *worker.cmdline()]
        assert " ".join(worker.cmdline()) in [f"hawk.runner.worker {index} of quiet" for index in range(2)]
        completed = own.completed("quiet")
        own.kill_server()
        kill(own.supervisor("quiet"))
        for pid in own.workers("quiet"):
            kill(pid)
        own.start()
        end = own.finish("quiet")
        assert end.status == "failed"
        assert "MY_TOKEN" in (end.reason or "")
        assert end.remedy == "hawk eval-set resume quiet --secret MY_TOKEN"
        with own.client() as client:
            client.submit({"eval_set_id": "quiet", "resume": True, "secrets": {"MY_TOKEN": value}})
        again = own.finish("quiet")
        assert (again.status, again.progress.completed) == ("complete", TOTAL)
        begins = own.lines("quiet", "begin")
        assert [name for name in completed if begins.count(name) > 1] == []
    assert _files_with(tmp_path, value.encode()) == []


def test_a_runner_without_its_secrets_adopts_living_workers(system: System) -> None:
    secrets = {"secrets": [{"name": "MY_TOKEN", "type": "env"}]}
    system.submit("adopted", seconds=2.0, config=secrets, secrets={"MY_TOKEN": "x"})
    begun(system, "adopted")
    system.kill_server()
    kill(system.supervisor("adopted"))
    system.start()
    end = system.finish("adopted")
    assert (end.status, end.progress.completed) == ("complete", TOTAL)
    assert len(system.lines("adopted", "begin")) == TOTAL


def test_a_python_file_that_calls_eval_set_runs(system: System, tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        f"""
import sys
sys.path.insert(0, {str(TASKS.parent)!r})
from inspect_ai import eval_set
from counted import left
eval_set([left(ledger={str(tmp_path / "ledger")!r}, samples=2, seconds=0.1)], log_dir="elsewhere", model="counted/m", epochs=2)
"""
    )
    with system.client() as client:
        job = client.submit(
            {"script": str(script), "base_dir": str(tmp_path), "eval_set_id": "script"}
        ).eval_set_id
    end = system.finish(job)
    assert (end.status, end.progress.total, end.progress.completed) == ("complete", 4, 4)
    assert not (tmp_path / "elsewhere").exists()


def test_no_more_subprocesses_run_at_once_than_the_eval_set_allows(system: System, tmp_path: Path) -> None:
    source = tmp_path / "busy.py"
    source.write_text(
        """
import asyncio
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.solver import solver
from inspect_ai.util import subprocess

@solver
def several(ledger):
    async def solve(state, generate):
        command = ["sh", "-c", "echo begin >> $0; sleep 0.3; echo end >> $0", ledger]
        await asyncio.gather(*(subprocess(command) for _ in range(5)))
        return state
    return solve

@task
def busy(ledger: str):
    return Task(dataset=[Sample(input="?", target="42")], solver=several(ledger))
"""
    )
    ledger = tmp_path / "ledger"
    config = {
        "tasks": [{"file": str(source), "items": [{"name": "busy", "args": {"ledger": str(ledger)}}]}],
        "models": [{"file": str(TASKS), "items": [{"name": "counted/m"}]}],
        "max_subprocesses": 2,
    }
    with system.client() as client:
        client.submit({"eval_set_config": config, "eval_set_id": "busy", "base_dir": str(tmp_path)})
    assert system.finish("busy").progress.completed == 1
    steps = [{"begin": 1, "end": -1}[line] for line in ledger.read_text().split()]
    assert (len(steps), max(itertools.accumulate(steps))) == (10, 2)


def test_packages_go_into_an_environment_of_their_own(system: System, tmp_path: Path) -> None:
    package = tmp_path / "greet"
    (package / "greet").mkdir(parents=True)
    (package / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "greet"\nversion = "1"\n'
        '[project.entry-points.inspect_ai]\ngreet = "greet.tasks"\n'
    )
    (package / "greet" / "__init__.py").write_text("")
    (package / "greet" / "tasks.py").write_text(TASKS.read_text())
    args = {"ledger": str(tmp_path / "ledger"), "samples": 2, "seconds": 0.1}
    config = {
        "tasks": [{"package": str(package), "name": "greet", "items": [{"name": "left", "args": args}]}],
        "models": [{"file": str(TASKS), "items": [{"name": "counted/m"}]}],
    }
    with system.client() as client:
        client.submit({"eval_set_config": config, "eval_set_id": "greet", "base_dir": str(tmp_path)})
    end = system.finish("greet", timeout=170)
    assert (end.status, end.reason, end.progress.completed) == ("complete", None, 2)
    with pytest.raises(ImportError):
        __import__("greet")
    assert len(list((system.home / "environments").glob("*/.complete"))) == 1


def _files_with(root: Path, needle: bytes) -> list[str]:
    return [
        str(p) for p in root.rglob("*") if p.is_file() and not p.is_symlink() and needle in p.read_bytes()
    ]
