"""What putting attempts back relies on in Inspect: real evaluations, whose scorers say what they see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import EvalSample
from inspect_ai.model import ModelOutput

from hawk.bridge.evallog import LogUnreadable
from hawk.bridge.keptsample import KeptSample, Place, _names_of_scorers, find_samples, read_kept_sample
from hawk.bridge.restored import check_plan
from tests.bridge.conftest import Evaluation
from tests.bridge.restoring import LONG

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Both evaluations, once, in a process of their own: plans are replaced for good."""
    where = tmp_path_factory.mktemp("restoring")
    environment = {**os.environ, "XDG_DATA_HOME": str(where / "data")}
    command = [sys.executable, "-m", "tests.bridge.restoring", str(where)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((where / "said.json").read_text())
    return found


def test_inspect_calls_plans_as_expected() -> None:
    check_plan()


@pytest.mark.slow
def test_scorers_see_what_they_saw(said: dict[str, Any]) -> None:
    for name in ("plain", "limited", "scored", "boxed"):
        then, now = said["seen"][name], said["seen_again"][name]
        for what in ("messages", "output", "store"):
            assert now[what] == then[what], (name, what)
        assert now["same_store"]
        assert LONG in now["output"]
    assert len(said["seen_again"]["plain"]["messages"]) == 2


@pytest.mark.slow
def test_metadata_and_target_are_the_tasks_with_what_the_attempt_changed(said: dict[str, Any]) -> None:
    now = said["seen_again"]["plain"]
    assert now["target"] == "new"
    assert now["metadata"] == {
        "answer": "new",
        "nested": {"a": [1, LONG]},
        "prepared": True,
        "mine": [1, LONG],
        "counter": 2,
    }


@pytest.mark.slow
def test_no_model_is_called_and_only_the_task_itself_prepares(said: dict[str, Any]) -> None:
    assert said["calls"] > 0
    assert said["calls_again"] == []
    assert said["prepared"] == sorted(
        ["plain", "limited", "scored", "lost", "stopped", "stopped late", "boxed"]
    )
    assert said["restored"] == sorted(["plain", "limited", "scored", "stopped late", "boxed", "c"])
    assert "the task's setup calls the model" in said["fourth"]["c"]["error"]


@pytest.mark.slow
def test_limits_scores_and_solvers_names_stay(said: dict[str, Any]) -> None:
    then, now = said["first"], said["second"]
    assert now["limited"]["limit"] == then["limited"]["limit"]
    assert now["limited"]["limit"][0] == "message"
    assert now["scored"]["scores"] == then["scored"]["scores"]
    assert set(now["scored"]["scores"]) == {"looking", "own"}
    assert now["plain"]["solvers"] == then["plain"]["solvers"]


@pytest.mark.slow
def test_what_is_not_back_is_not_scored(said: dict[str, Any]) -> None:
    lost, stopped = said["second"]["lost"], said["second"]["stopped"]
    assert (lost["scores"], "it is lost" in lost["error"]) == ({}, True)
    assert (stopped["scores"], stopped["error"].startswith("CancelledError")) == ({}, True)
    assert {"lost", "stopped"}.isdisjoint(said["seen_again"])
    late = said["second"]["stopped late"]  # all of it was back by then
    assert (late["scores"], late["error"]) == ({"looking": ["C", None]}, None)


@pytest.mark.slow
def test_a_sandbox_of_no_use_says_so(said: dict[str, Any]) -> None:
    assert said["first"]["boxed"]["error"] is None
    assert "there is nothing in it" in said["second"]["boxed"]["error"]


@pytest.mark.slow
def test_choices_that_the_model_made_are_marked_again(said: dict[str, Any]) -> None:
    assert said["second"]["c"]["scores"] == {"choice": ["I", "B"]}  # the target is A by now
    assert said["third"]["c"]["scores"] == {"choice": ["C", "B"]}  # no scorer had said which


def test_attempts_are_found_by_uuid_in_the_newest_log(finished: Evaluation) -> None:
    found = find_samples(finished.logs)
    assert len(found) >= 10
    for uuid, place in found.items():
        kept = read_kept_sample(place)
        assert (kept.sample.uuid, str(kept.sample.id), kept.sample.epoch) == (
            uuid,
            place.sample_id,
            place.epoch,
        )
        assert kept.sample.events == []
        assert kept.metadata is not None


def test_what_can_not_be_read_is_named(finished: Evaluation, tmp_path: Path) -> None:
    log = finished.log
    torn = tmp_path / "torn.eval"
    torn.write_bytes(log.read_bytes()[:1000])
    for place in (Place(log, "nobody", 1), Place(torn, "a", 1), Place(tmp_path / "missing.eval", "a", 1)):
        with pytest.raises(LogUnreadable, match=place.log.name):
            read_kept_sample(place)
    assert find_samples(tmp_path) == {}


def kept(began: dict[str, Any] | None, left: dict[str, Any]) -> KeptSample:
    sample = EvalSample(
        id="s", epoch=1, input="", target="", metadata=left, output=ModelOutput(), messages=[], scores={}
    )
    return KeptSample(sample, began, {})


def test_metadata_of_now_has_what_was_changed_then() -> None:
    found = kept({"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 2, "d": [1]})
    assert found.metadata_now({"a": 9, "b": 9, "c": 9, "e": 9}) == {"a": 9, "b": 2, "d": [1], "e": 9}
    assert kept(None, {"a": 1}).metadata_now({"a": 9, "e": 9}) == {"a": 1, "e": 9}


def test_scorers_of_one_name_are_known() -> None:
    spec = {"scorers": [{"name": "pkg/match"}, {"name": "match"}, {"name": "other"}]}
    assert _names_of_scorers(spec) == {"match", "match1", "other"}
    assert _names_of_scorers({}) == set()
