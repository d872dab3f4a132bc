"""The example of an agent with tools: every way in which an attempt may end, in one run."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.commandline import EXAMPLES, CommandLine, command_line

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

COUNTS = ("completed", "running", "errored", "canceled", "limit", "waiting")


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CommandLine, str]]:
    """The example, run to its end, and what it printed."""
    with command_line(tmp_path_factory.mktemp("agent")) as hawk:
        yield hawk, hawk.ok("eval-set", EXAMPLES / "agent.yaml", "--wait")


@pytest.fixture(scope="module")
def snapshot(agent: tuple[CommandLine, str]) -> dict[str, Any]:
    return agent[0].snapshot()


def samples(snapshot: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    return {(s["id"], s["epoch"]): s for task in snapshot["tasks"] for s in task["samples"]}


def test_ends_complete_with_a_scored_table(agent: tuple[CommandLine, str]) -> None:
    _, output = agent
    assert "Complete" in output
    assert "accuracy 0.833" in output


def test_every_attempt_has_an_outcome(snapshot: dict[str, Any]) -> None:
    progress = snapshot["progress"]
    assert snapshot["status"] == "complete"
    assert progress["total"] == sum(progress[name] for name in COUNTS) == 24
    assert (progress["completed"], progress["limit"]) == (22, 2)


def test_one_problem_goes_round_in_circles_until_its_limit(snapshot: dict[str, Any]) -> None:
    limits = {key: s["limit"] for key, s in samples(snapshot).items() if s["phase"] == "limit"}
    assert limits == {("csv_line", 1): "message", ("csv_line", 2): "message"}


def test_attempt_whose_connection_broke_was_tried_again_and_passed(snapshot: dict[str, Any]) -> None:
    retried = {key: s["latest_score"] for key, s in samples(snapshot).items() if s["retries"]}
    assert retried == {("intervals", 1): "C"}


def test_one_problem_fails_in_both_attempts(snapshot: dict[str, Any]) -> None:
    wrong = {
        key for key, s in samples(snapshot).items() if s["phase"] == "completed" and s["latest_score"] != "C"
    }
    assert wrong == {("semver", 1), ("semver", 2)}


def test_transcript_shows_the_agent_at_work(agent: tuple[CommandLine, str], snapshot: dict[str, Any]) -> None:
    hawk, _ = agent
    transcript = hawk.ok("transcript", samples(snapshot)["roman", 2]["uuid"])
    assert "Calls **write" in transcript
    assert "all tests pass" in transcript


def test_script_runs_as_it_is(agent: tuple[CommandLine, str]) -> None:
    hawk, _ = agent
    hawk.ok("eval-set", EXAMPLES / "script.py", "--wait")
    assert hawk.snapshot()["progress"]["total"] == 16
