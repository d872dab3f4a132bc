"""Remedies on one real job: attempts that hang go on, run again or are scored; a worker whose loop is blocked starts again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hawk.bridge.control import ControlError, ControlSocket
from hawk.core.diagnosis.verdict import Fix, FixKind
from hawk.core.snapshot import Sample
from hawk.core.states import JobStatus, Operation, SamplePhase
from hawk.replies import Fixed
from hawk.runner import datahome
from hawk.store import actions
from tests.system import System, kill, running, until

TASKS = Path(__file__).with_name("hanging.py")
JOB = "acts"


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A job of two workers in which everything hangs that can."""
    base = tmp_path_factory.mktemp("acts")
    with running(base, HAWK_WORKERS="2") as system:
        items = [{"name": n, "args": {"folder": str(base)}} for n in ("hangs", "last", "blocks")]
        config = {
            "tasks": [{"file": str(TASKS), "items": items}],
            "models": [{"file": str(TASKS), "items": [{"name": "hanging/m"}]}],
        }
        with system.client() as client:
            client.submit({"eval_set_config": config, "eval_set_id": JOB, "base_dir": str(TASKS.parent)})
        until("everything hangs", lambda: _hangs(system), 90)
        yield system


def _samples(system: System) -> dict[str, Sample]:
    return {sample.id: sample for task in system.status(JOB).tasks for sample in task.samples}


def _hangs(system: System) -> bool:
    found = _samples(system)
    tool = found["tool"].activity if "tool" in found else None
    return (
        tool is not None
        and tool.type == "tool"
        and any(worker.busy_since for worker in system.status(JOB).workers)
        and all(found[name].phase is SamplePhase.RUNNING for name in ("never", "score", "steps"))
        and all(found[name].uuid for name in ("never", "score", "steps", "tool"))
    )


def _act(system: System, kind: str, *names: str, **more: Any) -> Fixed:
    found = _samples(system)
    uuids = [found[name].uuid for name in names]
    soft = more.pop("soft", False)
    with system.client() as client:
        return client.fix(JOB, {"action": {"kind": kind, "uuids": uuids, **more}, "soft": soft})


def _begun(system: System, name: str) -> int:
    """How often an attempt has begun."""
    return (system.home.parent / "ledger").read_text().split().count(name)


def _phase(system: System, name: str) -> SamplePhase:
    return _samples(system)[name].phase


def _paused_again(system: System) -> dict[str, Any] | None:
    """What worker 0's process says when it is paused, once it answers."""
    home = datahome.link_path(system.links, system.run_dir(JOB).worker(0))
    with contextlib.suppress(ControlError):
        return ControlSocket(home, 5.0).pause(now=True)
    return None


def _config(system: System, worker: int) -> dict[str, Any]:
    """What a worker's process is set to, as it says itself."""
    home = system.run_dir(JOB).worker(worker)
    return ControlSocket(datahome.link_path(system.links, home), 5.0).config()


def _answered(system: System, request_id: str) -> Fixed:
    def look() -> Fixed | None:
        with system.client() as client:
            found = client.fix_outcome(JOB, request_id)
        return found if found.acknowledged else None

    return until("the request is answered", look, 60)


def test_a_hung_tool_call_is_canceled_and_its_attempt_goes_on(system: System) -> None:
    done = _act(system, "cancel_tool_call", "tool")
    assert (done.done, done.acknowledged) == (True, True), done
    assert [result.target for result in done.results] == ["hangs/tool/1"]
    until("it has ended", lambda: _phase(system, "tool") is SamplePhase.COMPLETED)
    assert _begun(system, "tool") == 1
    again = _act(system, "cancel_tool_call", "tool")
    assert (again.done, again.steps) == (False, [])


def test_an_attempt_runs_again_in_the_live_run(system: System) -> None:
    before = _samples(system)["never"].uuid
    done = _act(system, "requeue", "never")
    assert done.done, done.results
    until("it has ended", lambda: _phase(system, "never") is SamplePhase.COMPLETED)
    assert _begun(system, "never") == 2
    assert _samples(system)["never"].uuid != before


def test_an_attempt_is_scored_as_it_is(system: System) -> None:
    assert _act(system, "score", "score").done
    until("it has ended", lambda: _phase(system, "score") is SamplePhase.LIMIT)


def test_a_worker_that_does_not_answer_says_so_and_what_is_set_holds_all_the_same(system: System) -> None:
    done = _act(system, "retune", subject="max_retries", value=3)
    said = {result.target: result for result in done.results}
    assert done.done
    assert said["worker 0"].done
    assert not said["worker 1"].done
    assert "event loop" in said["worker 1"].said
    assert _config(system, 0)["retry"]["max_retries"] == 3


def test_a_pause_outlives_supervisor_and_worker_and_so_does_a_request(system: System) -> None:
    """A worker that is asked to end does so well; what it had in flight runs again, what had ended does not."""
    step = system.home.parent / "step"
    assert "paused: everything" in system.hawk("pause", JOB).stdout
    until("it says so", lambda: system.status(JOB).operation is Operation.PAUSED)
    stands = until("its steps stand still", lambda: _still(step))
    kill(system.supervisor(JOB))
    run = system.run_dir(JOB)
    asked = actions.request(run, Fix(FixKind.RESTART_WORKER, subject="0"), by="me")
    done = _answered(system, asked.id)
    assert done.done, done.results
    assert "started again" in done.said
    assert actions.pending(run) == []
    said = until("the new worker answers", lambda: _paused_again(system))
    assert (said["paused"], said["now"], said["changed"]) == (True, True, False), "it began so"
    assert system.status(JOB).operation is Operation.PAUSED
    assert step.read_text() == stands
    system.hawk("unpause", JOB)
    until("its steps go on", lambda: step.read_text() != stands)
    until("it says so", lambda: system.status(JOB).operation is None)
    assert _begun(system, "steps") == 2
    until("it knows what was set", lambda: _config(system, 0)["retry"]["max_retries"] == 3)


def _still(step: Path) -> str | None:
    """What it says, when that has not changed for a while."""
    before = step.read_text()
    time.sleep(0.6)
    return before if step.read_text() == before else None


def test_a_blocked_worker_is_started_again_by_the_number_of_its_verdict(system: System) -> None:
    def number() -> int | None:
        with system.client() as client:
            found = client.diagnosis(JOB).verdicts
        return next((v.n for v in found if v.cause == "loop_blocked" and v.fix is not None), None)

    n = until("the blocked loop is named", number, 60)
    before = _samples(system)["last"].uuid
    refused = system.hawk("fix", JOB, str(n), check=False)
    assert refused.returncode == 2
    assert "restart worker 1" in refused.stdout
    assert "--yes" in refused.stderr
    assert _begun(system, "blocks") == 1
    done = system.hawk("fix", JOB, str(n), "--yes")
    assert "worker 1: started again" in done.stdout
    until("it has ended", lambda: _phase(system, "blocks") is SamplePhase.COMPLETED)
    assert _begun(system, "blocks") == 2
    journal = [line for line in system.run_dir(JOB).journal() if line.kind == "fix"]
    states = [line.state for line in journal if line.subject == "loop_blocked"]
    assert states == ["asked", "done"]
    until("it knows what was set", lambda: _config(system, 1)["retry"]["max_retries"] == 3)
    until("what hung beside it runs there", lambda: _samples(system)["last"].uuid not in (None, before))


def test_the_last_attempt_of_its_worker_runs_again_in_the_next(system: System) -> None:
    until("all else in its worker has ended", lambda: _phase(system, "well") is SamplePhase.COMPLETED)
    until("it hangs", lambda: _begun(system, "last") == 2 and _phase(system, "last") is SamplePhase.RUNNING)
    until("it has a uuid", lambda: _samples(system)["last"].uuid)
    done = _act(system, "requeue", "last")
    assert done.done, done.results
    until("it has ended", lambda: _phase(system, "last") is SamplePhase.COMPLETED)
    assert _begun(system, "last") == 3


def test_the_job_completes_and_nothing_that_had_ended_ran_again(system: System) -> None:
    (system.home.parent / "enough").touch()
    final = system.finish(JOB)
    assert final.status is JobStatus.COMPLETE, final.reason
    begun = {name: _begun(system, name) for name in ("tool", "never", "score", "blocks", "last")}
    assert begun == {"tool": 1, "never": 2, "score": 1, "blocks": 2, "last": 3}
    assert (final.progress.completed, final.progress.limit) == (6, 1)
    refused = _act(system, "score", "score")
    assert (refused.done, refused.steps) == (False, [])
    assert "resume" in refused.remedy
    assert system.leftovers(JOB) == []
