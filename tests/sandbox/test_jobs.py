"""Jobs with sandboxes: whatever dies, nothing of them is left; what happened in them is in the job's status."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from hawk.core.snapshot import Sample
from hawk.core.states import StopAction
from tests.sandbox.jobs import TOTAL, WAITS, Remains, keepers, let_go, open_gate, rows, store, submit
from tests.system import System, kill, repeated, running, until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("supported")]

ON_DISK = {"storage": "disk"}


@pytest.fixture(scope="module")
def system(supported: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with running(tmp_path_factory.mktemp("jobs")) as up:
        yield up


def all_ran(system: System, job: str) -> Remains:
    """Wait until every attempt runs in its sandbox: what is there then."""
    until(f"the attempts of {job} run", lambda: len(system.lines(job, "ran")) >= TOTAL)
    remains = Remains(system, job)
    assert len(remains.processes) > 2 * TOTAL
    assert remains.all() != []
    return remains


def nothing_is_left(remains: Remains, seconds: float = 60.0) -> None:
    with contextlib.suppress(AssertionError):
        until("nothing is left", lambda: not remains.all(), seconds)
    assert remains.all() == []


# --- whatever dies


def kill_the_workers(system: System, job: str) -> None:
    for pid in system.workers(job):
        kill(pid)


def kill_the_keepers(system: System, job: str) -> None:
    for pid in keepers(system, job).values():
        with contextlib.suppress(psutil.Error):
            for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
                kill(process.pid)


def kill_workers_and_keepers(system: System, job: str) -> None:
    kill_the_keepers(system, job)
    kill_the_workers(system, job)


def kill_the_supervisor_and_workers(system: System, job: str) -> None:
    kill(system.supervisor(job))
    kill_workers_and_keepers(system, job)


@pytest.mark.parametrize(
    "murder", [kill_the_workers, kill_workers_and_keepers, kill_the_supervisor_and_workers]
)
def test_a_job_goes_on_and_nothing_is_left_of_its_dead_sandboxes(
    system: System, murder: Callable[[System, str], None]
) -> None:
    job = murder.__name__.replace("_", "-")
    submit(system, job, ON_DISK, gated=True)
    before = all_ran(system, job)
    murder(system, job)
    open_gate(system, job)
    end = system.finish(job)
    assert (end.status, end.reason, end.progress.completed) == ("complete", None, TOTAL)
    nothing_is_left(before)


def test_a_sandbox_outlives_its_supervisor(system: System) -> None:
    submit(system, "orphaned", ON_DISK, gated=True)
    before = all_ran(system, "orphaned")
    kept = keepers(system, "orphaned")
    kill(system.supervisor("orphaned"))
    journal = system.run_dir("orphaned").journal_file
    until("another one looks after it", lambda: '"adopted"' in journal.read_text())
    assert keepers(system, "orphaned") == kept
    open_gate(system, "orphaned")
    end = system.finish("orphaned")
    assert (end.status, end.progress.completed) == ("complete", TOTAL)
    assert repeated(system.lines("orphaned", "begin")) == []
    nothing_is_left(before)


def test_what_everything_leaves_that_is_killed_at_once_is_gone_with_the_next_server(tmp_path: Path) -> None:
    with running(tmp_path) as own:
        submit(own, "all", ON_DISK, gated=True)
        before = all_ran(own, "all")
        own.kill_server()
        kill_the_supervisor_and_workers(own, "all")
        until("the processes have ended", lambda: not own.processes("all"))
        assert keepers(own, "all") != {}
        assert list((store(own) / "scratch").iterdir()) != []
        open_gate(own, "all")
        own.start()
        assert own.finish("all").progress.completed == TOTAL
        nothing_is_left(before)


def test_a_server_sweeps_also_when_no_job_is_left(tmp_path: Path) -> None:
    with running(tmp_path) as own:
        submit(own, "gone", ON_DISK, gated=True)
        before = all_ran(own, "gone")
        own.kill_server()
        kill_the_supervisor_and_workers(own, "gone")
        until("the processes have ended", lambda: not own.processes("gone"))
        own.run_dir("gone").path.rename(tmp_path / "elsewhere")
        assert before.of_sandboxes() != []
        own.start()
        until("nothing is left", lambda: not before.of_sandboxes())


def test_one_killed_keeper_costs_its_attempts_one_try(system: System) -> None:
    hangs_once = "[ $GATE = open ] || sleep 3600"
    submit(system, "keeper", ON_DISK, command=hangs_once, gated=True, retry_on_error=2)
    until("attempts run", lambda: len(system.lines("keeper", "begin")) >= TOTAL)
    before = Remains(system, "keeper")
    open_gate(system, "keeper")
    kill_the_keepers(system, "keeper")
    end = system.finish("keeper")
    assert (end.status, end.progress.completed) == ("complete", TOTAL)
    assert {sample.retries for task in end.tasks for sample in task.samples} == {1}
    nothing_is_left(before)


# --- stop and delete


def test_a_stop_leaves_nothing(system: System) -> None:
    submit(system, "stopped", ON_DISK, command="sleep 3600")
    until("attempts run", lambda: len(system.lines("stopped", "begin")) >= TOTAL)
    before = Remains(system, "stopped")
    with system.client() as client:
        client.stop("stopped", StopAction.SCORE, None)
    assert system.finish("stopped").status == "complete"
    nothing_is_left(before)


def test_deleting_a_running_job_leaves_nothing(system: System) -> None:
    submit(system, "deleted", ON_DISK, gated=True)
    before = all_ran(system, "deleted")
    with system.client() as client:
        client.delete("deleted")
    assert before.all() == []
    assert not system.run_dir("deleted").path.exists()


def test_deleting_a_job_that_builds_a_layer_leaves_nothing(system: System) -> None:
    submit(system, "building", {"setup": {"script": "sleep 3600"}})
    until("it builds", lambda: list((store(system) / "building").glob("*/root/workspace")))
    before = Remains(system, "building")
    with system.client() as client:
        client.delete("building")
    assert before.all() == []


# --- the status


def test_limits_that_are_hit_show_in_the_status_and_stay_there(system: System) -> None:
    command = (
        "for i in 1 2; do python3 -c 'bytearray(200 << 20)'; done; head -c 9000000 /dev/zero > /workspace/x"
    )
    limits = {"memory": "64m", "workspace": "4m"}
    submit(system, "troubles", {"limits": limits}, command=command, gated=True)

    def hit() -> bool:
        known = [row.sandbox for row in rows(system, "troubles")]
        # That of what the command does last: no more will come.
        return bool(known) and all(
            sandbox is not None and "disk_full" in sandbox.troubles for sandbox in known
        )

    until("it shows of attempts in flight", hit)
    flying = [row for row in rows(system, "troubles") if row.phase.in_flight]
    assert len(flying) == TOTAL
    for row in flying:
        assert row.sandbox is not None
        assert row.sandbox.label.endswith(".default")
        assert set(row.sandbox.limits) == {"memory", "processes", "workspace"}
        assert row.sandbox.lost is None
    seen = {(row.id, row.epoch): row.sandbox for row in flying}
    assert "disk_full" in system.hawk("watch", "troubles", "--no-follow").stdout
    open_gate(system, "troubles")
    end = system.finish("troubles")
    assert end.progress.completed == TOTAL
    ended = {(row.id, row.epoch): row.sandbox for task in end.tasks for row in task.samples}
    assert {key: ended[key] for key in seen} == seen


def test_a_sandbox_that_is_lost_is_the_attempts_error(system: System) -> None:
    submit(system, "lost", {"limits": {"wall_time": 1}}, command="sleep 3600", retry_on_error=0)
    end = system.finish("lost")
    assert end.progress.errored == TOTAL
    for row in (row for task in end.tasks for row in task.samples):
        assert row.error is not None
        assert "it has lived as long as it may" in row.error
        assert row.sandbox is not None
        assert row.sandbox.troubles == {"wall_time": 1}
        assert row.sandbox.lost is not None


def test_attempts_say_that_they_wait_for_their_sandboxs_setup(system: System) -> None:
    submit(system, "slow", {"setup": {"script": f": slowly\n{WAITS}"}})
    why = "building its sandbox's setup layer (script : slowly)"
    until("they do", lambda: {row.reason for row in rows(system, "slow")} == {why})
    assert why in system.hawk("watch", "slow", "--no-follow").stdout
    let_go(system, "setup.", 1)
    assert system.finish("slow").progress.completed == TOTAL


NOT_YET_READY = {"db": {"inspect_tools": False, "ready": WAITS, "ready_timeout": 600}}


def test_attempts_whose_sandbox_is_being_made_are_in_flight_and_say_so(system: System) -> None:
    submit(system, "starting", {"services": NOT_YET_READY})

    def all_start() -> bool:
        said = [
            row.activity.detail for row in rows(system, "starting") if row.phase == "init" and row.activity
        ]
        return said == ["starting its sandbox"] * TOTAL

    until("all start their sandboxes", all_start)
    assert "starting its sandbox" in system.hawk("watch", "starting", "--no-follow").stdout
    let_go(system, ".db", TOTAL)
    end = system.finish("starting")
    assert (end.progress.completed, repeated(system.lines("starting", "begin"))) == (TOTAL, [])


@contextlib.contextmanager
def frozen(pids: list[int]) -> Iterator[None]:
    """These processes do nothing meanwhile, as on a machine that has no time for them."""
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_an_attempt_can_be_stopped_while_its_sandbox_is_being_made(system: System) -> None:
    submit(system, "unready", {"services": NOT_YET_READY})

    def waiting() -> Sample | None:
        return next((row for row in rows(system, "unready") if row.phase == "init" and row.uuid), None)

    one = until("one that waits for its sandbox has a uuid", waiting)
    name = f"{one.id}/{one.epoch}"
    with system.client() as client, frozen(system.workers("unready")):
        asked = client.stop("unready", StopAction.SCORE, name)
    assert not asked.acknowledged  # by a worker that does not answer: it stands, and is asked for again

    def answers() -> list[tuple[str, str]]:
        with system.client() as client:
            lines = client.journal("unready")
        return [(line.state, line.reason or "") for line in lines if line.subject == asked.request_id]

    [(state, reason)] = until("it is answered", answers)
    assert state == "acknowledged"
    assert "as soon as it starts" in reason or "already requested" in reason
    let_go(system, ".db", TOTAL)
    end = system.finish("unready")
    stopped = next(row for task in end.tasks for row in task.samples if row.uuid == one.uuid)
    assert (stopped.limit, end.progress.completed, end.progress.limit) == ("operator", TOTAL - 1, 1)
    assert not [line for line in system.lines("unready", "ran") if line.endswith(name)]


def test_a_setup_that_fails_is_the_reason_of_the_job(system: System) -> None:
    submit(system, "wrong", {"setup": {"script": "echo out of paint >&2; exit 3"}})
    end = system.finish("wrong")
    assert end.status == "failed"
    assert "out of paint" in (end.reason or "")
    assert {row.error for task in end.tasks for row in task.samples} == {end.reason}


def test_a_service_that_is_not_ready_is_the_attempts_error(system: System) -> None:
    services = {"db": {"inspect_tools": False, "command": "exit 4", "ready": "false"}}
    submit(system, "service", {"services": services}, retry_on_error=0)
    end = system.finish("service")
    assert {row.error for task in end.tasks for row in task.samples} == {
        "The service db ended before it was ready: exit code 4."
    }
