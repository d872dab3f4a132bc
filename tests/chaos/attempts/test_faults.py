"""Attempts that fail for other reasons than their agent, hostile workspaces, damaged files, odd numbers of runs."""

from __future__ import annotations

import io
import tarfile

import pytest

from hawk.core.zstd import unpack
from hawk.store.attempts import attempt_directory, read_results
from tests.chaos.attempts.conftest import Stage

pytestmark = pytest.mark.slow


def test_errors_are_nobodys_wrong_answer(stage: Stage) -> None:
    script = {
        "good": [(0.1, "pass"), (0.1, "fail")],
        "broken": [(0.1, "boom"), (0.1, "pass")],
        "scorer": [(0.1, "scorer"), (0.1, "scorer")],
        "idle": [(0.1, "idle"), (0.1, "fail")],
    }
    stage.play("errors", script, {"policy": "parallel", "infra_retries": 0})
    end = stage.system.finish("errors")
    assert end.status == "failed"  # some attempts have no result for good
    assert stage.outcomes("errors") == {
        "good/1": "pass",
        "good/2": "fail",
        "broken/1": "infra_error",
        "broken/2": "pass",
        "scorer/1": "scorer_error",
        "scorer/2": "scorer_error",
        "idle/1": "infra_error",
        "idle/2": "fail",
    }
    results = stage.results("errors")
    boom = results["one/broken/1"].error
    assert boom is not None
    assert (boom.kind, boom.message, boom.phase) == ("RuntimeError", "boom", "agent")
    broken = results["one/scorer/1"].error
    assert broken is not None
    assert (broken.kind, broken.message, broken.phase) == ("ValueError", "the scorer is broken", "scoring")
    assert results["one/scorer/1"].workspace is not None  # so that it can be scored again


def test_infrastructure_errors_have_a_budget_of_their_own(stage: Stage) -> None:
    stage.play("retried", {"a": [(0.1, "boom")]}, {"policy": "parallel", "infra_retries": 2})
    stage.system.finish("retried")
    result = stage.results("retried")["one/a/1"]
    assert (result.outcome, result.retries) == ("infra_error", 2)
    assert len(stage.system.lines("retried", "begin")) == 3


def test_finished_attempts_count_under_another_policy_and_other_runs(stage: Stage) -> None:
    script = {
        "a": [(0.1, "pass"), (0.1, "pass"), (0.1, "fail")],
        "b": [(0.1, "fail"), (0.1, "pass"), (0.1, "fail")],
    }
    stage.play("again", {name: rows[:2] for name, rows in script.items()}, "sequential")
    stage.system.finish("again")
    begun = stage.system.lines("again", "begin")
    assert sorted(begun) == ["one/a/1", "one/b/1", "one/b/2"]
    stage.play("again", script, "parallel")
    end = stage.system.finish("again")
    assert (end.status, end.progress.completed, end.progress.canceled) == ("complete", 6, 0)
    more = stage.system.lines("again", "begin")[len(begun) :]
    assert sorted(more) == ["one/a/2", "one/a/3", "one/b/3"]
    assert stage.outcomes("again") == {
        "a/1": "pass",
        "a/2": "pass",
        "a/3": "fail",
        "b/1": "fail",
        "b/2": "pass",
        "b/3": "fail",
    }


def test_an_attempt_that_was_canceled_runs_under_a_policy_that_wants_it_and_keeps_both(stage: Stage) -> None:
    script = {"a": [(0.3, "pass"), (30.0, "pass")]}
    stage.play("revived", script, {"policy": "parallel", "cancel_siblings": True})
    stage.system.finish("revived")
    assert stage.outcomes("revived") == {"a/1": "pass", "a/2": "canceled"}
    stage.play("revived", {"a": [(0.3, "pass"), (0.3, "pass")]}, "parallel")
    stage.system.finish("revived")
    assert stage.outcomes("revived") == {"a/1": "pass", "a/2": "pass"}
    pair = stage.results("revived")["one/a/2"].pair
    directory = attempt_directory(stage.system.run_dir("revived"), pair, 2)
    assert (directory / "earlier" / "1" / "result.json").exists()
    assert (directory / "earlier" / "1" / "workspace.tar.zst").exists()


def test_a_damaged_result_is_named_and_written_again_from_the_log(stage: Stage) -> None:
    script = {"a": [(0.1, "pass")], "b": [(0.1, "pass")]}
    stage.play("damaged", script, "parallel")
    stage.system.finish("damaged")
    run = stage.system.run_dir("damaged")
    pairs = [result.pair for result in stage.results("damaged").values()]
    for pair, damage in zip(pairs, (b'{"pair": ', b""), strict=True):
        (attempt_directory(run, pair, 1) / "result.json").write_bytes(damage)
    results, problems = read_results(run)
    assert results == []
    assert [problem.rpartition("/")[2].partition(":")[0] for problem in problems] == ["result.json"] * 2
    stage.play("damaged", script, "parallel")
    stage.system.finish("damaged")
    assert stage.outcomes("damaged") == {"a/1": "pass", "b/1": "pass"}
    assert len(stage.system.lines("damaged", "begin")) == 2  # nothing ran again


def test_more_attempts_than_a_job_may_have_are_refused_by_number(stage: Stage) -> None:
    script = {f"s{i}": [(0.1, "pass")] for i in range(11)}
    stage.play("many", script, "parallel", runs=10_000)
    end = stage.system.finish("many")
    assert end.status == "failed"
    assert end.reason == "110,000 attempts at 11 pairs would run; a job may have 100,000."
    assert end.remedy == "Lower `runs`, set `limit`, or submit it in parts."


def test_a_hostile_workspace_is_kept_as_far_as_it_can_be(stage: Stage) -> None:
    stage.play("hostile", {"odd": [(0.1, "hostile")]}, "parallel")
    end = stage.system.finish("hostile")
    assert end.status == "complete"
    result = stage.results("hostile")["one/odd/1"]
    assert result.outcome == "pass"
    assert result.workspace is not None
    assert any("socket" in line for line in result.workspace.skipped)
    file = attempt_directory(stage.system.run_dir("hostile"), result.pair, 1) / "workspace.tar.zst"
    with tarfile.open(fileobj=io.BytesIO(unpack(file.read_bytes()))) as tar:
        names = tar.getnames()
    assert all(not name.startswith("/") and ".." not in name.split("/") for name in names)
    assert any("\n" in name for name in names)
