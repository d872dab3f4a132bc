"""Real jobs under each policy: what runs, what is stopped, what is written down."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise

import pytest

from tests.chaos.attempts.conftest import Stage
from tests.system import until

pytestmark = pytest.mark.slow

SCRIPT = {
    "both": [(0.3, "pass"), (2.0, "pass")],
    "second": [(0.3, "fail"), (0.6, "pass")],
    "never": [(0.3, "fail"), (0.3, "fail")],
}


def test_one_by_one_until_one_passes(stage: Stage) -> None:
    stage.play("sequential", SCRIPT, "sequential")
    end = stage.system.finish("sequential")
    assert (end.status, end.progress.completed, end.progress.canceled) == ("complete", 5, 1)
    assert stage.outcomes("sequential") == {
        "both/1": "pass",
        "second/1": "fail",
        "second/2": "pass",
        "never/1": "fail",
        "never/2": "fail",
    }
    [spared] = [s for task in end.tasks for s in task.samples if s.phase == "canceled"]
    assert (spared.id, spared.epoch, spared.reason) == ("both", 2, "not needed: attempt 1 passed")
    pairs = end.tasks[0].pairs
    assert (pairs.total, pairs.passed, pairs.failed, pairs.not_needed) == (3, 2, 1, 1)
    assert pairs.tally == {"1/2": 1, "1/1": 1, "0/2": 1}
    results = stage.results("sequential")
    first, second = results["one/second/1"], results["one/second/2"]
    assert (first.ended_at or "") <= (second.started_at or "")


def test_all_at_once_to_the_end(stage: Stage) -> None:
    stage.play("parallel", SCRIPT, "parallel", tasks=2)
    end = stage.system.finish("parallel")
    assert (end.status, end.progress.completed) == ("complete", 12)
    results = stage.results("parallel")
    assert len(results) == 12
    for result in results.values():
        assert result.sandbox is not None
        assert result.sandbox.type == "bubblewrap"
        assert result.workspace is not None
        assert result.workspace.files == 1
        assert result.duration is not None
        assert result.fingerprint
    assert len({result.sandbox.label for result in results.values() if result.sandbox}) == 12


def test_a_pass_stops_its_siblings(stage: Stage) -> None:
    script = {
        "quick": [(0.5, "pass"), (60.0, "pass"), (60.0, "pass")],
        "slow": [(0.5, "fail"), (2.5, "pass"), (60.0, "fail")],
    }
    stage.play("cancel", script, {"policy": "parallel", "cancel_siblings": True})
    end = stage.system.finish("cancel", timeout=45)
    assert (end.status, end.progress.canceled) == ("complete", 3)
    assert stage.outcomes("cancel") == {
        "quick/1": "pass",
        "quick/2": "canceled",
        "quick/3": "canceled",
        "slow/1": "fail",
        "slow/2": "pass",
        "slow/3": "canceled",
    }
    canceled = stage.results("cancel")["one/quick/2"]
    passed = stage.results("cancel")["one/quick/1"]
    assert canceled.reason == "not needed: attempt 1 passed"
    assert canceled.workspace is not None
    gap = moment(canceled.ended_at) - moment(passed.ended_at)
    assert gap < 5
    until("no sandbox is left", lambda: stage.system.leftovers("cancel") == [])


def test_slots_are_held_by_nobody_who_waits_for_a_sibling(stage: Stage) -> None:
    """Two slots: if attempt 2 of a pair took one while attempt 1 runs, the others would come late."""
    script = {f"s{i}": [(0.4, "fail"), (0.1, "pass")] for i in range(4)}
    stage.play("slots", script, "sequential", max_sandboxes=2)
    end = stage.system.finish("slots")
    assert (end.status, end.progress.completed) == ("complete", 8)
    spans = sorted((moment(r.started_at), moment(r.ended_at)) for r in stage.results("slots").values())
    moments = sorted(start for start, _ in spans)
    for at in moments:
        assert sum(start <= at < stop for start, stop in spans) <= 2


def test_the_longest_by_history_start_first(stage: Stage) -> None:
    script = {f"l{i}": [(0.2, "pass")] for i in range(5)}
    known = ["task,sample,model,agent,duration_s,outcome"]
    known += [f"one,l{i},none/none,player,{10 * i + 1},pass" for i in range(5)]
    (stage.base / "known.csv").write_text("\n".join(known))
    attempts = {"policy": "parallel", "history": str(stage.base / "known.csv")}
    stage.play("longest", script, attempts, max_sandboxes=1)
    end = stage.system.finish("longest")
    assert end.status == "complete"
    results = stage.results("longest")
    order = [r.pair.sample for r in sorted(results.values(), key=lambda r: r.started_at or "")]
    assert order == ["l4", "l3", "l2", "l1", "l0"]
    plan = stage.system.run_dir("longest").read_plan()
    assert plan is not None
    assert plan.known == 5
    assert plan.forecast[0].policy == "parallel"


def test_what_was_learnt_is_used_by_the_next_job(stage: Stage) -> None:
    script = {f"n{i}": [(0.1 + 0.4 * i, "pass")] for i in range(3)}
    stage.play("first-time", script, "parallel", max_sandboxes=1)
    stage.system.finish("first-time")
    until("its attempts are in the index", lambda: stage.system.status("first-time").status == "complete")
    stage.play("second-time", script, "parallel", max_sandboxes=1)
    stage.system.finish("second-time")
    plan = stage.system.run_dir("second-time").read_plan()
    assert plan is not None
    assert plan.known == 3
    begun = stage.system.lines("second-time", "begin")
    assert begun == ["one/n2/1", "one/n1/1", "one/n0/1"]


def moment(text: str | None) -> float:
    assert text is not None
    return dt.datetime.fromisoformat(text).timestamp()


def test_moments_of_results_are_in_order(stage: Stage) -> None:
    for result in stage.results("parallel").values():
        for before, after in pairwise([moment(result.started_at), moment(result.ended_at)]):
            assert before <= after
