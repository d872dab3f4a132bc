"""kill -9 of workers, supervisor, server or all of them, under each policy, at any moment.

Whatever dies: the job ends complete, what had a result does not run again, every planned attempt has a result or is
not needed, its result says what its log says, the tally is right, and nothing is left behind.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from hawk.bridge.evallog import LogCache
from hawk.bridge.logformat import SampleSummary
from hawk.calls import decode
from hawk.core.attempts.report import Report
from hawk.core.attempts.results import Outcome, Result
from hawk.core.snapshot import Sample, Snapshot
from hawk.store.attempts import RESULT, WORKSPACE, attempt_directory
from tests.chaos.attempts.conftest import Stage
from tests.system import kill, until

pytestmark = pytest.mark.slow

SCRIPT = {
    "both": [(0.3, "pass"), (0.5, "pass")],
    "second": [(0.2, "fail"), (0.5, "pass")],
    "never": [(0.4, "fail"), (0.3, "fail")],
    "first": [(0.4, "pass"), (2.5, "fail")],
}
TASKS = ("one", "two")
PASSED, FAILED = {"both", "second", "first"}, {"never"}

POLICIES: dict[str, Any] = {
    "sequential": "sequential",
    "cancel": {"policy": "parallel", "cancel_siblings": True},
    "selective": {"policy": "selective", "selective_above": 5.0},
}
LONG = {"both", "never"}  # by the history that is given to `selective`
FEWEST_RESULTS = 12  # of 16: "both" and "first" may be spared their second attempts


def history(stage: Stage) -> str:
    lines = ["task,sample,model,agent,duration_s,outcome"]
    lines += [f"{t},{s},none/none,player,{10 if s in LONG else 1},fail" for t in TASKS for s in SCRIPT]
    file = stage.base / "history.csv"
    file.write_text("\n".join(lines))
    return str(file)


def submit(stage: Stage, job: str, policy: str, **config: Any) -> None:
    attempts = POLICIES[policy]
    if policy == "selective":
        attempts = {**attempts, "history": history(stage)}
    stage.play(job, SCRIPT, attempts, tasks=2, max_sandboxes=4, **config)


# --- when


def at_the_start(stage: Stage, job: str) -> bool:
    return len(stage.system.lines(job, "begin")) >= 1


def in_the_middle(stage: Stage, job: str) -> bool:
    return len(stage.results(job)) >= 5


def near_the_end(stage: Stage, job: str) -> bool:
    return len(stage.results(job)) >= FEWEST_RESULTS - 1


# --- who


def a_worker(stage: Stage, job: str) -> None:
    for pid in stage.system.workers(job)[:1]:  # none, when the job was quicker
        kill(pid)


def all_workers(stage: Stage, job: str) -> None:
    for pid in stage.system.workers(job):
        kill(pid)


def the_supervisor(stage: Stage, job: str) -> None:
    kill(stage.system.supervisor(job))


def the_server(stage: Stage, job: str) -> None:
    stage.system.kill_server()
    stage.system.start()


def everything(stage: Stage, job: str) -> None:
    stage.system.kill_server()
    kill(stage.system.supervisor(job))
    all_workers(stage, job)
    stage.system.start()


# --- what must hold


def check_end(stage: Stage, job: str, before: dict[str, Result]) -> Snapshot:
    end = stage.system.finish(job)
    assert (end.status, end.reason) == ("complete", None)
    results = stage.results(job)
    check_nothing_ran_again(stage, job, before, results)
    rows = {f"{task.task_name}/{s.id}/{s.epoch}": s for task in end.tasks for s in task.samples}
    assert set(rows) == {f"{t}/{s}/{k}" for t in TASKS for s in SCRIPT for k in (1, 2)}
    check_against_results(rows, results)
    check_against_logs(stage, job, results)
    check_counts(stage, job, end, results)
    until("nothing is left", lambda: stage.system.leftovers(job) == [])
    return end


def check_nothing_ran_again(
    stage: Stage, job: str, before: dict[str, Result], results: dict[str, Result]
) -> None:
    begun, done = Counter(stage.system.lines(job, "begin")), Counter(stage.system.lines(job, "done"))
    for name, result in before.items():
        assert begun[name] == 1, (name, begun, result, results[name])
        assert done[name] <= 1, name
        assert results[name].uuid == result.uuid
        assert results[name].outcome == result.outcome


def check_against_results(rows: dict[str, Sample], results: dict[str, Result]) -> None:
    for name, row in rows.items():
        result = results.get(name)
        spared = (row.reason or "").startswith("not needed: attempt ")
        assert result is not None or spared, name
        if result is not None:
            assert row.uuid == result.uuid
            assert row.outcome == result.outcome
            assert spared == (result.outcome is Outcome.CANCELED)
            assert (result.reason or "").startswith("not needed") == spared
            assert result.duration is None or result.duration >= 0


def check_against_logs(stage: Stage, job: str, results: dict[str, Result]) -> None:
    logs = LogCache().read_dir(stage.system.run_dir(job).logs)
    assert logs.unreadable == {}
    logged: dict[str, SampleSummary] = {
        f"{task.header.task}/{row.id}/{row.epoch}": row
        for task in logs.tasks.values()
        for row in task.summaries
        if row.completed
    }
    canceled = {name for name, result in results.items() if result.outcome is Outcome.CANCELED}
    assert set(logged) - canceled == set(results) - canceled
    for name in results.keys() - canceled:
        assert logged[name].uuid == results[name].uuid
        assert logged[name].scores == {"judge": "C" if results[name].passed else "I"}
    for name in logged.keys() & canceled:
        assert (logged[name].error or "").startswith("CancelledError")


def check_counts(stage: Stage, job: str, end: Snapshot, results: dict[str, Result]) -> None:
    for task in end.tasks:
        found: dict[str, list[bool]] = {sample: [] for sample in SCRIPT}
        for name, result in results.items():
            task_name, sample, _ = name.split("/")
            if task_name == task.task_name and result.outcome.produced:
                found[sample].append(result.passed)
        assert {sample for sample, passes in found.items() if any(passes)} == PASSED
        assert all(found[sample] == [False, False] for sample in FAILED)
        pairs = task.pairs
        assert (pairs.total, pairs.passed, pairs.failed) == (4, 3, 1)
        assert pairs.tally == Counter(f"{sum(passes)}/{len(passes)}" for passes in found.values())
        assert pairs.not_needed == 8 - sum(map(len, found.values()))
    with stage.system.client() as client:
        report = decode(client.report_json(job), Report)
    assert (report.passed, report.failed, report.undecided) == (6, 2, 0)
    assert report.complete
    assert report.problems == []


CASES = [
    ("sequential", a_worker, in_the_middle),
    ("sequential", everything, at_the_start),
    ("cancel", a_worker, at_the_start),
    ("cancel", the_server, in_the_middle),
    ("selective", all_workers, at_the_start),
    ("selective", the_supervisor, in_the_middle),
    ("selective", everything, near_the_end),
]


@pytest.mark.parametrize(
    ("policy", "who", "when"), CASES, ids=lambda v: v if isinstance(v, str) else v.__name__
)
def test_a_job_survives(
    stage: Stage, policy: str, who: Callable[[Stage, str], None], when: Callable[[Stage, str], bool]
) -> None:
    job = f"{policy}-{who.__name__}-{when.__name__}".replace("_", "-")[:40]
    # Of every other job nothing is in the log when its worker dies: only its buffer has it.
    submit(stage, job, policy, **({"log_buffer": 100} if CASES.index((policy, who, when)) % 2 else {}))
    until(when.__name__, lambda: when(stage, job), period=0.02)
    before = stage.results(job)
    who(stage, job)
    check_end(stage, job, before)


def kill_workers(stage: Stage, job: str) -> None:
    """Those that live; the job is not quicker here."""
    pids = until("it has workers", lambda: stage.system.workers(job), period=0.005)
    for pid in pids:
        kill(pid)


def test_what_was_in_flight_at_one_kill_runs_after_the_next(stage: Stage) -> None:
    """The second comes when Inspect has recovered the first one's attempts as cancelled, and has not begun them again."""
    script = {"a": [(0.1, "pass")], "b": [(3.0, "pass")], "c": [(3.0, "fail")]}
    stage.play("twice", script, "parallel")
    until("two run", lambda: len(stage.system.lines("twice", "begin")) == 3 and stage.results("twice"))
    kill_workers(stage, "twice")
    logs = stage.system.run_dir("twice").logs
    until("what ran is recovered", lambda: list(logs.glob("*-recovered.eval")), period=0.005)
    kill_workers(stage, "twice")
    end = stage.system.finish("twice")
    assert (end.status, end.progress.completed, end.progress.canceled) == ("complete", 3, 0)
    assert stage.outcomes("twice") == {"a/1": "pass", "b/1": "pass", "c/1": "fail"}
    assert stage.system.lines("twice", "begin").count("one/a/1") == 1


def test_what_only_the_buffer_holds_is_kept_though_its_process_has_a_namesake(stage: Stage) -> None:
    """As while a killed one waits to be collected, and in every new pod, whose few processes have the same numbers."""
    script = {"a": [(0.1, "pass")], "b": [(3.0, "fail")]}
    stage.play("namesake", script, "parallel", log_buffer=100)
    until("one has its result", lambda: "one/a/1" in stage.results("namesake"), period=0.02)
    before = stage.results("namesake")
    stage.system.kill_server()
    kill(stage.system.supervisor("namesake"))
    kill_workers(stage, "namesake")
    for file in stage.system.run_dir("namesake").buffers.glob("*/*.eval.*"):
        log, _, rest = file.name.rpartition(".eval.")
        file.rename(file.with_name(f"{log}.eval.{os.getpid()}.{rest.partition('.')[2]}"))
    stage.system.start()
    end = stage.system.finish("namesake")
    assert (end.status, stage.outcomes("namesake")) == ("complete", {"a/1": "pass", "b/1": "fail"})
    check_nothing_ran_again(stage, "namesake", before, stage.results("namesake"))
    assert not stage.system.run_dir("namesake").buffers.exists()


def test_a_pass_stops_siblings_though_its_worker_died_meanwhile(stage: Stage) -> None:
    script = {"a": [(0.3, "pass"), (60.0, "stubborn")], "b": [(5.0, "fail"), (5.0, "fail")]}
    stage.play("stopped", script, {"policy": "parallel", "cancel_siblings": True})
    until("its sibling is being stopped", lambda: stage.system.lines("stopped", "canceled"), period=0.02)
    until("its pass is written", lambda: "one/a/1" in stage.results("stopped"), period=0.02)
    until("the others run", lambda: len(stage.system.lines("stopped", "begin")) == 4, period=0.02)
    kill_workers(stage, "stopped")
    end = stage.system.finish("stopped")
    assert (end.status, end.progress.completed, end.progress.canceled) == ("complete", 3, 1)
    begun = stage.system.lines("stopped", "begin")
    assert (begun.count("one/a/1"), begun.count("one/a/2")) == (1, 1)
    assert begun.count("one/b/1") == begun.count("one/b/2") == 2
    rows = {f"{s.id}/{s.epoch}": s for s in end.tasks[0].samples}
    assert rows["a/2"].reason == "not needed: attempt 1 passed"
    assert end.tasks[0].pairs.tally == {"1/1": 1, "0/2": 1}
    until("nothing is left", lambda: stage.system.leftovers("stopped") == [])


def test_a_log_is_finished_though_all_its_attempts_have_ended(stage: Stage) -> None:
    """Nothing is in it yet when its worker dies, and no attempt is left to run."""
    script = {"a": [(0.3, "pass"), (60.0, "stubborn")]}
    stage.play("unlogged", script, {"policy": "parallel", "cancel_siblings": True}, log_buffer=100)
    until("its pass is written", lambda: "one/a/1" in stage.results("unlogged"), period=0.02)
    before = stage.results("unlogged")
    kill_workers(stage, "unlogged")
    end = stage.system.finish("unlogged")
    assert (end.status, end.progress.completed, end.progress.canceled) == ("complete", 1, 1)
    assert end.tasks[0].eval_status == "success"
    results = stage.results("unlogged")
    assert results["one/a/1"] == before["one/a/1"]
    check_against_logs(stage, "unlogged", results)
    assert stage.system.lines("unlogged", "begin").count("one/a/1") == 1


def test_results_that_are_gone_are_written_again_and_nothing_runs_again(stage: Stage) -> None:
    """As when a worker dies between its log and its result."""
    script = {"a": [(0.1, "pass"), (0.1, "fail")], "b": [(0.1, "idle"), (0.1, "fail")]}
    stage.play("gone", script, "parallel")
    stage.system.finish("gone")
    before = stage.results("gone")
    assert before["one/b/1"].outcome is Outcome.INFRA_ERROR
    run = stage.system.run_dir("gone")
    for result in before.values():
        directory = attempt_directory(run, result.pair, result.attempt)
        (directory / RESULT).unlink()
        (directory / WORKSPACE).unlink()
    stage.play("gone", script, "parallel")
    end = stage.system.finish("gone")
    assert (end.status, end.progress.completed) == ("complete", 4)
    assert len(stage.system.lines("gone", "begin")) == 4
    after = stage.results("gone")
    assert after.keys() == before.keys()
    for name, result in after.items():
        old = before[name]
        assert (result.outcome, result.scores, result.error) == (old.outcome, old.scores, old.error)
        assert (result.uuid, result.started_at, result.ended_at) == (old.uuid, old.started_at, old.ended_at)
        assert (result.duration, result.tool_calls) == (old.duration, old.tool_calls)
        assert result.fingerprint == old.fingerprint
        assert "killed before" in (result.workspace_error or "")
