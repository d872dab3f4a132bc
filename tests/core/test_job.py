"""The job machine: what it tells the supervisor to do, without any process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawk.core import job
from hawk.core.plan import Limits
from hawk.core.states import StopAction
from hawk.errors import TransitionError

LIMITS = Limits(worker_restarts=2, task_retries=1)
CRASH = "killed by SIGKILL"


def running(shares: dict[int, tuple[str, ...]] | None = None) -> job.JobMachine:
    machine = job.JobMachine("j", LIMITS)
    machine.handle(job.Start())
    machine.handle(job.Prepared())
    machine.handle(job.Enumerated(shares or {0: ("a", "b"), 1: ("c",)}))
    for index in machine.workers:
        machine.started(index)
    return machine


def test_a_job_prepares_enumerates_and_starts_a_worker_for_each_share() -> None:
    machine = job.JobMachine("j", LIMITS)
    assert machine.handle(job.Start()) == [job.Prepare()]
    assert machine.handle(job.Prepared()) == [job.Enumerate()]
    assert machine.handle(job.Enumerated({0: ("a",), 1: ("b",)})) == [
        job.StartWorker(0, ("a",)),
        job.StartWorker(1, ("b",)),
    ]


def test_a_job_ends_when_the_last_worker_has_ended() -> None:
    machine = running()
    assert machine.handle(job.WorkerExited(0)) == []
    assert machine.handle(job.WorkerExited(1)) == [job.Finish()]


def test_nothing_left_to_run_ends_at_once() -> None:
    machine = job.JobMachine("j", LIMITS)
    machine.handle(job.Start())
    machine.handle(job.Prepared())
    assert machine.handle(job.Enumerated({})) == [job.Finish()]


def test_a_dead_worker_is_started_again_with_what_is_unfinished() -> None:
    machine = running()
    again = machine.handle(job.WorkerExited(0, CRASH, unfinished=("b",), progressed=True))
    assert again == [job.StartWorker(0, ("b",))]


def test_a_worker_that_dies_again_and_again_without_progress_is_given_up_after_growing_waits() -> None:
    machine = running({0: ("a",)})
    delays = []
    while True:
        [instruction] = machine.handle(job.WorkerExited(0, CRASH, unfinished=("a",)))
        if isinstance(instruction, job.Finish):
            break
        assert isinstance(instruction, job.StartWorker)
        delays.append(instruction.delay)
        machine.started(0)
    assert delays == [0.0, 1.0]
    assert instruction.reason == f"worker 0 given up: {CRASH}"


def test_progress_earns_a_crashing_worker_its_restarts_back() -> None:
    machine = running({0: ("a",)})
    for _ in range(10):
        [instruction] = machine.handle(job.WorkerExited(0, CRASH, unfinished=("a",), progressed=True))
        assert instruction == job.StartWorker(0, ("a",))
        machine.started(0)


def test_a_task_that_ends_without_outcomes_is_run_again_only_as_often_as_allowed() -> None:
    machine = running({0: ("a",)})
    assert machine.handle(job.WorkerExited(0, unfinished=("a",))) == [job.StartWorker(0, ("a",))]
    machine.started(0)
    [end] = machine.handle(job.WorkerExited(0, unfinished=("a",)))
    assert isinstance(end, job.Finish)
    assert end.reason is not None


def test_a_worker_whose_eval_set_is_wrong_is_not_started_again() -> None:
    machine = running({0: ("a",)})
    exited = job.WorkerExited(0, "no such task", unfinished=("a",), hopeless=True, remedy="name one")
    assert machine.handle(exited) == [job.Finish("no such task", "name one")]


def test_a_worker_that_was_ended_on_request_starts_again_at_once_and_earns_no_blame() -> None:
    machine = running({0: ("a",)})
    for _ in range(10):
        [start] = machine.handle(job.WorkerExited(0, CRASH, unfinished=("a",), asked=True))
        assert start == job.StartWorker(0, ("a",))
        machine.started(0)
    machine.handle(job.StopRequested(StopAction.SCORE))
    assert machine.handle(job.WorkerExited(0, CRASH, unfinished=("a",), asked=True)) == [
        job.Finish(stopped=True)
    ]


def test_a_stop_asks_then_interrupts_then_kills() -> None:
    machine = running({0: ("a",)})
    asked = machine.handle(job.StopRequested(StopAction.SCORE))
    assert asked == [job.StopTasks(0, StopAction.SCORE), job.ArmStopTimer(60.0)]
    assert machine.handle(job.StopTimedOut()) == [job.SignalWorker(0, "SIGINT"), job.ArmStopTimer(20.0)]
    assert machine.handle(job.StopTimedOut()) == [job.SignalWorker(0, "SIGKILL"), job.ArmStopTimer(10.0)]
    assert machine.handle(job.WorkerExited(0, CRASH, unfinished=("a",))) == [job.Finish(stopped=True)]


def test_a_job_that_must_not_go_on_stops_and_fails_for_that_reason() -> None:
    machine = running()
    done = machine.handle(job.Halted("its budget is used up", "raise it"))
    assert job.StopTasks(0, StopAction.ERROR) in done
    for index in list(machine.workers):
        end = machine.handle(job.WorkerExited(index, unfinished=("a",)))
    assert end == [job.Finish("its budget is used up", "raise it", stopped=True)]
    assert machine.handle(job.Halted("again")) == []


def test_a_job_that_must_not_go_on_before_it_runs_ends_for_that_reason() -> None:
    machine = job.JobMachine("j", Limits())
    machine.handle(job.Start())
    assert machine.handle(job.Halted("no budget")) == []
    assert machine.handle(job.Prepared()) == [job.Finish("no budget", None, stopped=True)]


def test_a_stopped_job_starts_no_worker_again() -> None:
    machine = running()
    machine.handle(job.StopRequested(StopAction.ERROR))
    assert machine.handle(job.WorkerExited(0, CRASH, unfinished=("a", "b"))) == []
    assert machine.handle(job.WorkerExited(1)) == [job.Finish(stopped=True)]


def test_a_stop_while_a_restart_waits_ends_the_job() -> None:
    machine = running({0: ("a",)})
    machine.handle(job.WorkerExited(0, CRASH, unfinished=("a",)))
    assert machine.handle(job.StopRequested(StopAction.SCORE)) == [job.Finish(stopped=True)]


@pytest.mark.parametrize("event", [job.Prepared(), job.PreparationFailed("x")])
def test_a_stop_before_anything_runs_ends_the_job(event: job.Event) -> None:
    machine = job.JobMachine("j", LIMITS)
    machine.handle(job.Start())
    assert machine.handle(job.StopRequested(StopAction.SCORE)) == []
    [end] = machine.handle(event)
    assert isinstance(end, job.Finish)
    assert end.stopped


def test_adopted_workers_are_not_started_again() -> None:
    machine = job.JobMachine("j", LIMITS)
    machine.handle(job.Start())
    machine.handle(job.Prepared())
    assert machine.handle(job.Enumerated({1: ("b",)}, adopted={0: ("a",)})) == [job.StartWorker(1, ("b",))]
    machine.started(1)
    assert machine.handle(job.WorkerExited(1)) == []
    assert machine.handle(job.WorkerExited(0)) == [job.Finish()]


def test_a_failed_preparation_carries_its_remedy() -> None:
    machine = job.JobMachine("j", LIMITS)
    machine.handle(job.Start())
    assert machine.handle(job.PreparationFailed("no such package", "correct it")) == [
        job.Finish("no such package", "correct it")
    ]


def test_an_impossible_event_tells_the_story() -> None:
    machine = running()
    with pytest.raises(TransitionError) as caught:
        machine.handle(job.Prepared())
    assert any("Start()" in line for line in caught.value.fields["story"])


@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans(), st.booleans()), max_size=60),
    st.data(),
)
def test_whatever_the_workers_do_the_job_ends_once_and_nothing_starts_after_a_stop(
    exits: list[tuple[int, bool, bool, bool]], data: st.DataObject
) -> None:
    machine = running({0: ("a",), 1: ("b",), 2: ("c",)})
    stop_at = data.draw(st.integers(0, 60))
    finished = 0
    for n, (index, crashed, unfinished, progressed) in enumerate(exits):
        instructions: list[job.Instruction] = []
        if n == stop_at and machine.phase is job.JobPhase.RUNNING:
            instructions += machine.handle(job.StopRequested(StopAction.SCORE))
        if machine.phase is job.JobPhase.RUNNING and machine.workers[index].state == "running":
            instructions += machine.handle(
                job.WorkerExited(
                    index,
                    CRASH if crashed else "",
                    machine.workers[index].identifiers if unfinished else (),
                    progressed,
                )
            )
        for instruction in instructions:
            finished += isinstance(instruction, job.Finish)
            if isinstance(instruction, job.StartWorker):
                assert machine.stopping is None
                machine.started(instruction.index)
    assert finished == (machine.phase is job.JobPhase.ENDED)
