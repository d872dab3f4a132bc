"""kill -9 of worker, supervisor or server, at the start, in the middle and near the end of a job.

Whatever dies: the job ends complete, every attempt has one outcome, nothing that had completed runs again, and
nothing is left behind.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system import System, kill, repeated, running, until

pytestmark = pytest.mark.slow

TOTAL = 16  # 2 tasks x 4 samples x 2 runs


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with running(tmp_path_factory.mktemp("chaos")) as up:
        yield up


def at_start(system: System, job: str) -> bool:
    return len(system.lines(job, "begin")) >= 1


def in_the_middle(system: System, job: str) -> bool:
    return len(system.completed(job)) >= TOTAL // 4


def near_the_end(system: System, job: str) -> bool:
    return len(system.completed(job)) >= TOTAL - 4


MOMENTS = [at_start, in_the_middle, near_the_end]


def check_end(system: System, job: str, completed_before: list[str]) -> None:
    end = system.finish(job)
    assert (end.status, end.reason) == ("complete", None)
    assert (end.progress.total, end.progress.completed) == (TOTAL, TOTAL)
    assert len(end.tasks) == 2
    done_twice = repeated(system.lines(job, "begin"))
    assert not set(done_twice) & set(completed_before)
    assert sorted(set(system.lines(job, "done"))) == sorted(
        f"{t}/s{s}/{e}" for t in ("left", "right") for s in range(4) for e in (1, 2)
    )
    assert system.leftovers(job) == []


def kill_a_worker(system: System, job: str) -> None:
    for pid in system.workers(job)[:1]:  # none, when the job was quicker
        kill(pid)


def kill_all_workers(system: System, job: str) -> None:
    for pid in system.workers(job):
        kill(pid)


def kill_the_supervisor(system: System, job: str) -> None:
    kill(system.supervisor(job))


def kill_supervisor_and_workers(system: System, job: str) -> None:
    kill(system.supervisor(job))
    kill_all_workers(system, job)


def torn_writes(system: System, job: str) -> None:
    """What a kill in the middle of writing leaves; a real one hits that moment too seldom to be a test."""
    run = system.run_dir(job).path
    attempt = next(path.parent for path in run.glob("attempts/*/*/result.json"))
    worker = next(run.glob("workers/*"))
    for directory, name in ((attempt, "result.json"), (run, "snapshot.json"), (worker, "heartbeat.json")):
        (directory / f".{name}.14bl1vf3").write_bytes(b"{")


MURDERS = [kill_a_worker, kill_the_supervisor, kill_supervisor_and_workers]
EVERY = bool(os.environ.get("HAWK_EVERY_KILL"))
"""Each kind of kill at each moment, instead of each kind and each moment once: nine jobs take minutes."""


@pytest.mark.parametrize(
    ("murder", "moment"),
    list(itertools.product(MURDERS, MOMENTS) if EVERY else zip(MURDERS, MOMENTS, strict=True)),
    ids=lambda value: value.__name__,
)
def test_a_job_survives(
    system: System, murder: Callable[[System, str], None], moment: Callable[[System, str], bool]
) -> None:
    job = f"{murder.__name__}-{moment.__name__}".replace("_", "-")[:43].rstrip("-")
    system.submit(job)
    until(f"{job}: {moment.__name__}", lambda: moment(system, job))
    completed = system.completed(job)
    murder(system, job)
    check_end(system, job, completed)


def test_a_supervisor_killed_while_it_enumerates_is_started_again(system: System) -> None:
    system.submit("early")
    pid = until("a supervisor", lambda: system.supervisor("early"))
    kill(pid)
    check_end(system, "early", [])


@pytest.mark.parametrize("moment", MOMENTS if EVERY else [in_the_middle])
def test_jobs_run_on_without_a_server_and_the_next_one_adopts_them(
    system: System, moment: Callable[[System, str], bool]
) -> None:
    job = f"orphan-{moment.__name__}".replace("_", "-")
    system.submit(job)
    until(moment.__name__, lambda: moment(system, job))
    supervisor = system.supervisor(job)
    system.kill_server()
    assert supervisor is None or system.supervisor(job) in (supervisor, None)
    completed = system.completed(job)
    system.start()
    check_end(system, job, completed)


def test_everything_killed_at_once_goes_on_with_the_next_server(system: System, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    system.submit("all", gate=str(gate))
    until("the middle", lambda: in_the_middle(system, "all"))
    completed = system.completed("all")
    system.kill_server()
    kill_supervisor_and_workers(system, "all")
    torn_writes(system, "all")
    gate.touch()
    system.start()
    check_end(system, "all", completed)


def test_a_supervisor_that_keeps_dying_is_given_up_with_a_reason(system: System) -> None:
    system.submit("doomed", seconds=30.0)
    until("it runs", lambda: at_start(system, "doomed"))

    def ended() -> bool:
        kill(system.supervisor("doomed"))
        return system.status("doomed").status.terminal

    until("it is given up", ended, period=0.3)
    end = system.finish("doomed")
    assert end.status == "failed"
    assert "SIGKILL" in (end.reason or "")
    assert end.remedy is not None
    until("what was left is swept", lambda: system.leftovers("doomed") == [])
