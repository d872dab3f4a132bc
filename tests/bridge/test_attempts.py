"""What Hawk's order of attempts relies on in Inspect, and what is known of attempts that ended: real evaluations."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from inspect_ai.log import EvalError, EvalSample

from hawk.bridge.attempts import check_scheduler
from hawk.bridge.ended import Ended, ended
from hawk.bridge.evallog import LogUnreadable
from hawk.bridge.loggedsample import read_logged_sample
from hawk.core.attempts.results import Check, Failure, Outcome, Pair, Result, Usage
from hawk.core.attempts.spans import span

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


class Said(msgspec.Struct):
    """What `watched.py` writes of one evaluation."""

    log: dict[str, Any] = {}
    calls: list[list[Any]] = []
    seen: list[Any] = []
    ended: list[Ended] = []
    failed: str = ""

    def told(self, *words: str) -> list[list[Any]]:
        """Calls of the watcher of these kinds, in order."""
        return [call for call in self.calls if call[0] in words]

    def of(self, sample_id: str, epoch: int = 1) -> Ended:
        [found] = [e for e in self.ended if (e.sample_id, e.epoch) == (sample_id, epoch)]
        return found

    def logged(self, sample_id: str, epoch: int = 1) -> dict[str, Any]:
        [found] = [s for s in self.log["samples"] if (s["id"], s["epoch"]) == (sample_id, epoch)]
        return found


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Said]:
    """All evaluations, run once in one process: a watcher is put over a whole process."""
    where = tmp_path_factory.mktemp("watched")
    environment = {**os.environ, "XDG_DATA_HOME": str(where / "data")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.bridge.watched", str(where)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr

    def read(name: str) -> Said:
        said = msgspec.json.decode((where / f"{name}.json").read_bytes(), type=Said)
        assert not said.failed, said.failed
        assert said.log["status"] == "success"
        return said

    return read


def test_inspects_scheduler_is_the_one_that_the_gate_was_made_for() -> None:
    check_scheduler()


# --- who is asked for


@pytest.mark.parametrize(
    ("name", "ids", "epochs"),
    [
        ("order_ints", ["10", "9", "8", "7"], 2),
        ("order_limit", ["d", "c", "b"], 1),
        ("order_range", ["c", "b"], 1),
        ("order_shuffle", None, 2),
        ("order_shuffle_limit", None, 1),
        ("order_sample_ids", ["d", "c", "a"], 1),
        ("order_sample_id_pattern", ["y1", "y2"], 1),
        ("order_no_ids", ["1", "2", "3"], 2),
    ],
)
def test_an_attempt_asks_as_the_sample_that_it_is(
    watched: Callable[[str], Said], name: str, ids: list[str] | None, epochs: int
) -> None:
    """The scheduler knows samples by index: the ids in the log must be in its order, however they were chosen."""
    said = watched(name)
    listed = said.log["sample_ids"]
    if ids is not None:
        assert listed == ids
    assert said.told("attempt") == [["attempt", i, e] for e in range(1, epochs + 1) for i in listed]
    assert len(said.seen) == len(listed) * epochs
    for asked, was in said.seen:
        assert asked == was


def test_attempts_start_in_the_watchers_order(watched: Callable[[str], Said]) -> None:
    order = [["c", 2], ["a", 1], ["b", 1], ["c", 1], ["b", 2], ["a", 2]]
    said = watched("one_by_one_backwards")
    assert said.seen == order
    assert [call[1:] for call in said.told("begun")] == order


def test_one_that_is_not_admitted_leaves_nothing_behind(watched: Callable[[str], Said]) -> None:
    said = watched("some_not_admitted")
    assert sorted((s["id"], s["epoch"]) for s in said.log["samples"]) == [("a", 1), ("b", 1)]
    assert len(said.told("attempt")) == len(said.told("left")) == 6
    assert sorted((e.sample_id, e.epoch) for e in said.ended) == [("a", 1), ("b", 1)]


def test_a_task_of_which_nothing_is_admitted_succeeds(watched: Callable[[str], Said]) -> None:
    said = watched("none_admitted")
    assert said.log["samples"] == []
    assert said.ended == []


def test_of_a_task_that_is_run_again_what_is_in_its_log_asks_nobody(watched: Callable[[str], Said]) -> None:
    """It costs nothing; and one that asked might be told that it is not needed, and vanish from the log."""
    said = watched("task_retried")
    assert said.seen[-1][2] is True
    assert said.seen[-1][1] > 1  # the metric was computed again
    assert len(said.seen) - 1 == len(said.told("attempt")) == len(said.ended) == 6
    assert len(said.log["samples"]) == 6


# --- interrupts


@pytest.mark.parametrize("name", ["interrupted_agent", "interrupted_model_call"])
def test_an_interrupt_cancels_without_score_or_error(watched: Callable[[str], Said], name: str) -> None:
    said = watched(name)
    assert ["unknown", False, False] in said.seen
    assert ["interrupted", True] in said.seen
    logged = said.logged("a", 2)
    assert logged["error"].startswith("CancelledError")
    assert logged["scores"] == {}
    end = said.of("a", 2)
    assert (end.canceled, end.error, end.limit, end.values) == (True, None, None, {})
    assert end.retries == 0
    assert end.model_calls == 0
    assert [call[4] for call in said.told("scoring") if call[2] == 2] == [True]
    assert ["scoring", "a", 2] not in said.seen
    assert said.of("a", 1).values == {"checking": "C"}


def test_no_model_is_called_again_after_an_interrupt(watched: Callable[[str], Said]) -> None:
    assert watched("interrupted_model_call").seen.count("model called") == 1


def test_an_interrupt_before_the_start_is_carried_out_at_the_start(watched: Callable[[str], Said]) -> None:
    said = watched("interrupted_before_it_starts")
    assert ["worked", "a", 1] in said.seen
    assert ["worked", "a", 2] not in said.seen
    assert said.of("a", 2).canceled
    assert said.logged("a", 2)["scores"] == {}


def test_an_interrupt_reaches_the_try_that_runs_and_ends_the_tries(watched: Callable[[str], Said]) -> None:
    said = watched("interrupted_between_tries")
    assert said.seen[-1] == ["interrupted", True]
    assert len(said.seen) == 4
    assert said.of("a").canceled
    assert said.of("a").retries == 2


def test_an_attempt_that_is_being_scored_keeps_its_score(watched: Callable[[str], Said]) -> None:
    said = watched("interrupted_while_scored")
    assert ["interrupted", True] in said.seen
    end = said.of("a", 2)
    assert (end.canceled, end.error, end.values) == (False, None, {"checking": "C"})


# --- what the agent left


def test_the_workspace_is_shown_with_its_sandbox_before_scorers_touch_it(
    watched: Callable[[str], Said],
) -> None:
    said = watched("kept_before_scorers")
    assert said.seen == [
        ["solving", "a", 1],
        ["kept", ["by-agent.txt", "given.txt"]],
        ["scoring", "a", 1],
    ]
    assert said.told("scoring") == [["scoring", "a", 1, ["default"], False]]
    assert [call[0] for call in said.calls] == ["attempt", "begun", "scoring", "ended", "left"]


# --- what is known of an attempt that ended


def test_an_error_says_in_which_phase_it_was(watched: Callable[[str], Said]) -> None:
    said = watched("errors")
    setup = said.of("setup").error
    assert setup is not None
    assert (setup.kind, setup.phase) == ("RuntimeError", "init")
    assert "setup script" in setup.message
    assert said.of("solver").error == Failure("ValueError", 'it\'s "broken" (badly)', "agent")
    assert said.of("scorer").error == Failure("RuntimeError", "the scorer is broken", "scoring")
    assert {call[1] for call in said.told("begun")} == {"solver", "scorer"}
    assert {call[1] for call in said.told("ended")} == {"setup", "solver", "scorer"}
    assert not any(end.canceled for end in said.ended)


def test_an_error_that_is_scored_all_the_same_is_the_agents(watched: Callable[[str], Said]) -> None:
    said = watched("errors_scored")
    solver = said.of("solver")
    assert solver.error == Failure("ValueError", "oh no", "agent")
    assert solver.values == {"checking": "C"}
    assert said.of("both").error == Failure("RuntimeError", "the scorer is broken", "scoring")


def test_tries_are_counted_and_only_the_last_is_over(watched: Callable[[str], Said]) -> None:
    said = watched("errors_retried")
    assert len(said.told("begun")) == 3
    assert len(said.told("attempt")) == len(said.told("ended")) == len(said.told("left")) == 1
    assert said.of("a").retries == 2


@pytest.mark.parametrize(
    ("name", "sample_id", "limit"), [("limits", "time", "time"), ("message_limit", "a", "message")]
)
def test_a_limit_is_named_and_the_attempt_is_scored(
    watched: Callable[[str], Said], name: str, sample_id: str, limit: str
) -> None:
    end = watched(name).of(sample_id)
    assert (end.limit, end.error, end.canceled) == (limit, None, False)
    assert "limit" in (end.limit_reason or "").lower()
    assert end.values == {"checking": "C"}


def test_usage_calls_scores_and_checks_are_counted(watched: Callable[[str], Said]) -> None:
    said = watched("usage")
    end = said.of("a")
    assert end.usage == {
        "watched/m": Usage(input=21, output=9, cache_read=6, reasoning=3, total=30),
    }
    assert (end.model_tries, end.model_calls, end.tool_calls, end.sandbox_calls) == (3, 3, 3, 0)
    assert end.values == {"checking": "C", "second": {"x": 1, "y": 0.5}}
    scored = end.scores["checking"]
    assert scored.checks == (Check("compiles", True), Check("tests", False, "1 of 3"))
    assert scored.answer is not None
    assert len(scored.answer) < 4100  # cut
    assert end.scores["second"].checks == ()
    assert end.uuid == said.logged("a")["uuid"]
    assert end.total_time == said.logged("a")["total_time"]
    assert end.started_at is not None
    assert end.ended_at is not None
    assert end.started_at <= end.ended_at


def test_an_attempt_during_which_the_clock_was_set_back_took_the_time_that_it_took(
    watched: Callable[[str], Said],
) -> None:
    end = watched("clock_set_back").of("a")
    assert end.started_at is not None
    assert end.ended_at is not None
    assert end.ended_at < end.started_at  # the wall clock's word
    assert end.total_time is not None
    assert 0.05 <= end.total_time < 60
    assert end.working_time is not None
    assert 0 <= end.working_time <= end.total_time
    result = Result(Pair("t", "a", "m"), 1, Outcome.PASS, duration=end.total_time)
    result = msgspec.structs.replace(result, started_at=end.started_at, ended_at=end.ended_at)
    ran = span(result)
    assert ran is not None
    assert ran[1] - ran[0] == pytest.approx(end.total_time, abs=1e-4)


def test_calls_that_a_provider_refused_are_counted_by_what_they_met(watched: Callable[[str], Said]) -> None:
    end = watched("provider_retries").of("a")
    assert end.provider_retries == {"429 Refused": 2}
    assert (end.model_tries, end.model_calls, end.error) == (3, 1, None)


def test_an_exception_with_a_message_of_its_own_has_its_class(watched: Callable[[str], Said]) -> None:
    end = watched("provider_refuses").of("a")
    assert end.error == Failure("Refused", "Error code: 400 - no such model (sorry)", "agent")
    assert (end.model_tries, end.model_calls, end.provider_retries) == (1, 0, {})


TRACE = """Traceback (most recent call last):
  File "a.py", line 1, in generate
    raise ValueError("first")
ValueError: first

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "b.py", line 2, in generate
    raise RateLimitError(text)
openai.RateLimitError: Error code: 429 - slow down
Details: later
"""


@pytest.mark.parametrize(
    ("message", "kind", "text"),
    [
        ("ValueError('boom')", "ValueError", "boom"),
        ("ValueError('it\\'s \"x\"')", "ValueError", 'it\'s "x"'),
        ("ValueError('two\\nlines')", "ValueError", "two\nlines"),
        ("ValueError()", "ValueError", "ValueError"),
        ("ValueError('')", "ValueError", "ValueError"),
        ("OSError(2, 'No such file')", "OSError", "2, 'No such file'"),
        ("Error code: 429 - slow down", "RateLimitError", "Error code: 429 - slow down"),
        ("Error code: 400 (sorry)", "RateLimitError", "Error code: 400 (sorry)"),
        ("", "RateLimitError", "RateLimitError"),
    ],
)
def test_an_exception_is_taken_apart_into_its_class_and_its_text(message: str, kind: str, text: str) -> None:
    error = EvalError(message=message, traceback=TRACE, traceback_ansi="")
    failure = ended(EvalSample(id=1, epoch=1, input="?", target="!", error=error), {}).error
    assert failure == Failure(kind, text, "init")


def test_an_exception_without_a_traceback_is_an_error() -> None:
    error = EvalError(message="it broke", traceback="", traceback_ansi="")
    failure = ended(EvalSample(id=1, epoch=1, input="?", target="!", error=error), {}).error
    assert failure == Failure("Error", "it broke", "init")


def test_only_what_the_agent_does_in_the_sandbox_is_its_work(watched: Callable[[str], Said]) -> None:
    said = watched("sandbox_only")
    assert said.of("works").sandbox_calls == 2
    assert said.of("idle").sandbox_calls == 0  # Inspect put a file there, the scorer ran a command


def test_a_transcript_too_long_for_memory_is_counted_whole(watched: Callable[[str], Said]) -> None:
    said = watched("bounded")
    for sample_id in ("long", "pass"):
        assert said.logged(sample_id)["events"] > 200
        end = said.of(sample_id)
        assert (end.model_tries, end.model_calls, end.tool_calls) == (61, 61, 61)
        assert end.usage["watched/m"].total == 610
    assert said.of("long").error == Failure("RuntimeError", "the scorer is broken", "scoring")
    assert said.of("pass").values == {"checking": "C"}


@pytest.mark.parametrize(
    "name",
    [
        "interrupted_agent",
        "errors",
        "errors_scored",
        "errors_retried",
        "limits",
        "usage",
        "sandbox_only",
        "provider_retries",
        "provider_refuses",
        "bounded",
        "order_ints",
    ],
)
def test_the_log_says_the_same_of_an_attempt_as_its_worker(watched: Callable[[str], Said], name: str) -> None:
    """So that a result can be written by who has only the log."""
    said = watched(name)
    log = Path(said.log["location"].removeprefix("file://"))
    assert said.ended
    for end in said.ended:
        assert ended(read_logged_sample(log, end.sample_id, end.epoch), end.provider_retries) == end


def test_an_attempt_that_a_log_does_not_have_is_named(watched: Callable[[str], Said], tmp_path: Path) -> None:
    log = Path(watched("usage").log["location"].removeprefix("file://"))
    with pytest.raises(LogUnreadable, match="no sample 'a', attempt 2"):
        read_logged_sample(log, "a", 2)
    torn = tmp_path / "torn.eval"
    torn.write_bytes(log.read_bytes()[:-100])
    for path in (torn, tmp_path / "gone.eval"):
        with pytest.raises(LogUnreadable):
            read_logged_sample(path, "a", 1)
