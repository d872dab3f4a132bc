"""The runner's, the scheduler's and the healthy rules, each on evidence that differs from a harmless one in one thing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hawk.core.diagnosis.causes import Severity
from hawk.core.diagnosis.diagnose import explain
from hawk.core.diagnosis.evidence import (
    Attempt,
    Change,
    Disk,
    Enumerating,
    ErrorGroup,
    Evidence,
    Exit,
    Host,
    Job,
    Stalled,
    TaskCount,
    Worker,
)
from hawk.core.diagnosis.verdict import Verdict
from hawk.core.snapshot import Progress
from hawk.core.states import ActivityType, JobStatus, Operation

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat()


def flight(count: int = 3, **more: Any) -> list[Attempt]:
    row = {
        "worker": 0,
        "activity": ActivityType.SOLVER,
        "idle": 3.0,
        "since": ago(3),
        "started_at": ago(60),
        **more,
    }
    return [Attempt("t", f"s{i}", 1, f"t/s{i}/1", uuid=f"u{i}", **row) for i in range(count)]


def job(**more: Any) -> Evidence:
    found = {
        "attempts": flight(),
        "workers": [Worker(0, beat=0.5)],
        "progress": Progress(total=3, running=3),
        **more,
    }
    return Evidence("j", NOW.isoformat(), **found)


def verdicts(evidence: Evidence) -> list[Verdict]:
    return explain(evidence, NOW).verdicts


def first(evidence: Evidence) -> Verdict:
    return verdicts(evidence)[0]


def alarms(evidence: Evidence) -> list[str]:
    return [v.cause for v in verdicts(evidence) if v.severity is not Severity.INFO]


def test_a_job_that_works_is_progressing() -> None:
    assert [v.cause for v in verdicts(job())] == ["progressing"]


@pytest.mark.parametrize(("seconds", "severity"), [(7, Severity.WARNING), (40, Severity.STUCK)])
def test_a_blocked_loop_names_the_line_and_holds_its_workers_attempts(
    seconds: float, severity: Severity
) -> None:
    stall = Stalled("loop_blocked", ago(seconds), "blocked", "agent.py:7 think", "time.py:1 sleep", "t/s0/1")
    worker = Worker(0, beat=0.4, lag=seconds, stalled=[stall])
    found = first(job(workers=[worker, Worker(1, beat=0.3)], attempts=[*flight(2), *flight(1, worker=1)]))
    assert (found.layer, found.cause, found.severity, found.attempts) == (
        "runner",
        "loop_blocked",
        severity,
        2,
    )
    assert "agent.py:7 think" in found.what
    assert found.fix is not None


def test_a_blocked_loop_is_seen_by_the_heartbeat_alone_and_by_its_silence() -> None:
    assert first(job(workers=[Worker(0, beat=0.4, lag=8.0)])).cause == "loop_blocked"
    assert first(job(workers=[Worker(0, beat=15.0)])).cause == "loop_blocked"
    assert alarms(job(workers=[Worker(0, beat=3.0, lag=2.0)])) == []


def test_late_heartbeats_are_starvation_only_where_the_cpu_is_short() -> None:
    late = Worker(0, beat=0.5, lags=[1.5, 2.0, 0.0, 1.2, 3.0, 1.1, 0.0, 2.0], cpu=0.97)
    assert alarms(job(workers=[late])) == ["cpu_starved"]
    now_and_then = Worker(0, beat=0.5, lags=[0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0], cpu=0.97)
    assert alarms(job(workers=[now_and_then])) == []
    idle = Worker(0, beat=0.5, lags=late.lags, cpu=0.1)
    assert alarms(job(workers=[idle], host=Host(cores=8, load=0.5))) == []
    assert alarms(job(workers=[idle], host=Host(cores=2, load=9.0))) == ["cpu_starved"]


def test_memory_near_its_limit() -> None:
    full = Worker(0, beat=0.5, memory=950 << 20, memory_limit=1000 << 20, memory_by="cgroup x")
    assert alarms(job(workers=[full])) == ["memory_near_limit"]
    assert alarms(job(workers=[Worker(0, beat=0.5, memory=500 << 20, memory_limit=1000 << 20)])) == []


def test_a_lost_control_socket_is_told_from_one_that_is_not_there_yet() -> None:
    lost = Worker(0, beat=0.5, control="gone", control_since=ago(30), answered=True)
    assert alarms(job(workers=[lost])) == ["control_socket_lost"]
    young = Worker(0, beat=0.5, control="gone", control_since=ago(30))
    assert alarms(job(workers=[young], attempts=[])) == []


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("out of memory: the kernel killed it, 512 of 512 MiB were in use (cgroup)", "oom_killed"),
        ("killed by SIGKILL", "killed"),
        ("killed by SIGSEGV", "crashed"),
        ("exited with code 1", "crashed"),
        ("RuntimeError: broken", "crashed"),
    ],
)
def test_how_a_worker_ended(reason: str, cause: str) -> None:
    twice = Worker(0, beat=0.5, exits=[Exit(ago(40), reason), Exit(ago(5), reason)])
    found = first(job(workers=[twice]))
    assert (found.layer, found.cause, found.severity) == ("runner", cause, Severity.STUCK)
    given_up = Worker(0, state="exited", exits=[Exit(ago(5), reason)])
    over = job(workers=[given_up], attempts=[], job=Job(phase="ended", status=JobStatus.FAILED))
    assert (first(over).cause, first(over).severity) == (cause, Severity.FATAL)
    recovered = Worker(0, beat=0.5, exits=[Exit(ago(60), reason)])
    assert alarms(job(workers=[recovered])) == []


def test_a_full_disk_by_its_room_and_by_what_workers_say() -> None:
    full = Host(disks=[Disk("run directory", "/runs", free=1000, total=10 << 20)])
    found = first(job(host=full))
    assert (found.layer, found.cause, found.severity, found.attempts) == (
        "runner",
        "disk_full",
        Severity.STUCK,
        3,
    )
    said = Worker(0, beat=0.5, complaints={"no space left": 4})
    assert first(job(workers=[said])).cause == "disk_full"
    assert alarms(job(host=Host(disks=[Disk("run directory", "/runs", free=9 << 20, total=10 << 20)]))) == []


def test_an_unwritable_store_and_a_locked_database() -> None:
    refused = Host(
        disks=[Disk("run directory", "/runs", 1 << 30, 2 << 30, writable=False, why="permission denied")]
    )
    assert first(job(host=refused)).cause == "log_store_unwritable"
    locked = [ErrorGroup("OperationalError", "database is locked", 2)]
    assert first(job(ended=locked)).cause == "database_locked"


def test_before_the_first_attempt() -> None:
    loading = job(
        attempts=[], workers=[], progress=Progress(),
        job=Job(phase="enumerating", phase_since=ago(30), status=JobStatus.PENDING),
        enumerating=Enumerating(ago(30), "data.py:4 rows", own=True),
    )  # fmt: skip
    found = first(loading)
    assert (found.cause, found.severity) == ("dataset_loading", Severity.INFO)
    assert "data.py:4 rows" in found.what
    installing = Job(phase="preparing", phase_since=ago(30), installing="torch", status=JobStatus.PENDING)
    assert first(job(attempts=[], workers=[], job=installing)).cause == "environment_install"


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("packages do not install (nosuch==9): No matching distribution", "environment_install"),
        ("ModuleNotFoundError: No module named 'pandas'", "import_error"),
        ("PrerequisiteError: Task 'x' not found", "config_error"),
    ],
)
def test_an_eval_set_that_can_not_begin(reason: str, cause: str) -> None:
    wrong = Job(phase="ended", status=JobStatus.FAILED, reason=reason)
    found = first(job(attempts=[], workers=[], progress=Progress(), job=wrong))
    assert (found.layer, found.cause, found.severity) == ("runner", cause, Severity.FATAL)


def test_waiting_for_a_turn_paused_queued_and_stopping_alarm_nobody() -> None:
    full = job(waiting={"their turn: 3 attempts run at once": 40}, job=Job(slots=3, slots_by="max_samples"))
    [slot] = [v for v in verdicts(full) if v.cause == "no_slot"]
    assert "max_samples" in slot.what
    assert alarms(full) == []
    held = job(
        attempts=[], workers=[], job=Job(operation=Operation.PAUSED), progress=Progress(total=4, waiting=4)
    )
    assert first(held).cause == "paused"
    ending = job(job=Job(operation=Operation.STOPPING, stopping_since=ago(12)))
    assert first(ending).cause == "stopping"
    assert alarms(ending) == []
    pending = Job(phase="queued", status=JobStatus.PENDING, submitted_at=ago(90), queue_place=3)
    assert first(job(attempts=[], workers=[], job=pending)).cause == "queued"
    assert alarms(full) + alarms(held) == []


def test_the_long_tail_says_what_was_expected() -> None:
    tail = job(attempts=flight(1, expected=700.0), progress=Progress(total=40, completed=39, running=1))
    assert [v.cause for v in verdicts(tail)] == ["long_tail"]
    assert "11m 40s" in first(tail).what


def test_a_dead_runner_says_how_it_ended() -> None:
    gone = Job(alive=False, ended_how="its supervisor was killed by SIGKILL", status=JobStatus.FAILED)
    found = first(job(attempts=[], workers=[], job=gone))
    assert (found.cause, found.severity) == ("killed", Severity.FATAL)
    assert "SIGKILL" in found.what


def test_ends_of_attempts_count_as_progress() -> None:
    quiet = flight(2, idle=400.0)
    ended = [TaskCount("t", "t", progress=Progress(total=9, completed=7, running=2), last_end=ago(20))]
    assert [v.cause for v in verdicts(job(attempts=quiet, tasks=ended))] == ["progressing"]
    journal = [Change(ago(50), "worker", "0", "started")]
    assert alarms(job(journal=journal)) == []


def test_a_worker_that_turns_and_answers_nobody_is_starved() -> None:
    deaf = Worker(0, beat=0.5, lags=[0.0, 1.0] * 4, cpu=0.4, control="busy", control_since=ago(40))
    assert alarms(job(workers=[deaf], host=Host(cores=2, load=6.0))) == ["cpu_starved"]
    assert alarms(job(workers=[deaf], host=Host(cores=8, load=1.0))) == []


def test_a_loop_that_waits_for_a_locked_database_is_the_databases() -> None:
    stall = Stalled("loop_blocked", ago(40), "blocked", "agent.py:7 ask", "buffer/database.py:380 log_events")
    worker = Worker(0, beat=0.4, lag=40, stalled=[stall], complaints={"database is locked": 2})
    found = first(job(workers=[worker]))
    assert (found.cause, found.severity, found.attempts) == ("database_locked", Severity.STUCK, 3)
    quiet = Worker(0, beat=0.4, lag=40, stalled=[stall])
    assert first(job(workers=[quiet])).cause == "loop_blocked"
