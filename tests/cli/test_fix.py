"""`hawk fix`, `hawk pause`: what is shown, asked and said, against canned answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hawk.errors import ConflictError
from tests.cli.conftest import Run
from tests.cli.serving import Canned
from tests.cli.terminal import Terminal

Env = dict[str, str]
FIX = "POST /monitoring/jobs/demo-1/fix"
STEP = {
    "what": "restart worker 1",
    "detail": "begun again: \x1b[31mhard/c/1",
    "reversible": False,
    "undo": "What it has done so far is lost",
}
ACTION = {"kind": "restart_worker", "subject": "1"}
VERDICT = {
    "n": 2,
    "cause": "loop_blocked",
    "layer": "runner",
    "severity": "stuck",
    "what": "worker 1's event loop is blocked",
    "attempts": 3,
    "next": "hawk stacktrace demo-1",
}
PLANNED = {"steps": [STEP], "fix": ACTION, "verdict": VERDICT}
DONE = {
    **PLANNED,
    "done": True,
    "acknowledged": True,
    "request_id": "r1",
    "said": "worker 1: started again as pid 7",
    "results": [{"target": "worker 1", "done": True, "said": "started again as pid 7"}],
}


def asked(canned: Canned) -> list[Any]:
    return [body for method, path, body in canned.requests if path.endswith("/fix")]


@pytest.fixture
def fixable(canned: Canned) -> Canned:
    """A server with a verdict that has a remedy."""
    canned.routes[FIX] = lambda query: PLANNED if asked(canned)[-1].get("dry_run") else DONE
    return canned


def test_the_plan_is_shown_and_nothing_done_without_a_yes(fixable: Canned, remote: Env, run: Run) -> None:
    refused = run("fix", "demo-1", "2", env=remote)
    assert refused.returncode == 2
    assert "2. stuck: runner/loop_blocked, holds 3 attempts" in refused.stdout
    assert "restart worker 1: begun again: hard/c/1" in refused.stdout
    assert "What it has done so far is lost" in refused.stdout
    assert "hawk fix demo-1 2 --yes" in refused.stderr
    assert run("fix", "2", "--dry-run", env=remote).returncode == 0  # a lone number: the last job
    assert asked(fixable) == [{"verdict": 2, "dry_run": True}] * 2


def test_what_was_shown_is_what_is_asked_for(fixable: Canned, remote: Env, run: Run) -> None:
    done = run("fix", "demo-1", "2", "--yes", env=remote)
    assert done.returncode == 0, done.stderr
    assert "done: worker 1: started again as pid 7" in done.stdout
    assert "hawk diagnose demo-1" in done.stdout
    body = asked(fixable)[-1]
    assert (body["verdict"], body["cause"], body["action"]) == (2, "loop_blocked", ACTION)
    document = json.loads(run("fix", "demo-1", "2", "--yes", "--json", env=remote).stdout)
    assert (document["done"], document["results"][0]["target"]) == (True, "worker 1")


def test_the_answer_is_waited_for(fixable: Canned, remote: Env, run: Run) -> None:
    later = {**PLANNED, "request_id": "r1", "said": "not yet"}
    fixable.routes[FIX] = lambda query: PLANNED if asked(fixable)[-1].get("dry_run") else later
    answers = iter([{"request_id": "r1"}, {**DONE, "steps": []}])
    fixable.routes["GET /monitoring/jobs/demo-1/fix/r1"] = lambda query: next(answers)
    done = run("fix", "demo-1", "2", "-y", env=remote)
    assert done.returncode == 0, done.stderr
    assert "started again" in done.stdout


def test_at_a_terminal_it_asks_and_takes_no_for_an_answer(fixable: Canned, remote: Env) -> None:
    with Terminal("fix", "demo-1", "2", env=remote) as terminal:
        terminal.until(r"Do it\? \[y/N\]")
        terminal.process.sendline("n")
        assert terminal.end() == 1
    assert [body["dry_run"] for body in asked(fixable)] == [True]


def test_a_verdict_without_a_remedy_says_what_a_person_can_do(canned: Canned, remote: Env, run: Run) -> None:
    canned.routes[FIX] = {"said": "Hawk has no remedy.", "remedy": "Set a key", "verdict": VERDICT}
    done = run("fix", "demo-1", "2", "--yes", env=remote)
    assert done.returncode == 1
    for text in ("Hawk has no remedy.", "Set a key", "hawk stacktrace demo-1"):
        assert text in done.stdout


def test_a_number_that_means_another_verdict_by_now_is_not_acted_on(
    fixable: Canned, remote: Env, run: Run
) -> None:
    now = [{"n": 2, "cause": "tool_hung", "severity": "stuck", "what": "a tool hangs"}]

    def answer(query: dict[str, Any]) -> Any:
        if asked(fixable)[-1].get("dry_run"):
            return PLANNED
        raise ConflictError("Verdict 2 of demo-1 is tool_hung now.", remedy="hawk diagnose", verdicts=now)

    fixable.routes[FIX] = answer
    done = run("fix", "demo-1", "2", "--yes", env=remote)
    assert done.returncode == 1
    assert "2. stuck: tool_hung: a tool hangs" in done.stderr
    assert "is tool_hung now" in done.stderr


@pytest.mark.parametrize("words", [(), ("demo-1",), ("demo-1", "0"), ("a", "b", "1")])
def test_a_number_must_be_named(words: tuple[str, ...], remote: Env, run: Run) -> None:
    done = run("fix", *words, env=remote)
    assert done.returncode == 2
    assert "hawk diagnose" in done.stderr


def test_pause_and_unpause_say_what_they_did(canned: Canned, remote: Env, run: Run) -> None:
    canned.routes[FIX] = DONE
    assert run("pause", "demo-1", "--model", "openai/gpt-4o", "--soft", env=remote).returncode == 0
    assert run("unpause", env=remote).returncode == 0
    first, second = asked(canned)
    assert first["action"] == {"kind": "pause_model", "subject": "openai/gpt-4o"}
    assert first["soft"] is True
    assert second["action"] == {"kind": "resume_model", "subject": ""}
    canned.routes[FIX] = {"said": "The job's runner has ended.", "remedy": "hawk eval-set resume demo-1"}
    done = run("pause", "demo-1", env=remote)
    assert done.returncode == 1
    assert "hawk eval-set resume demo-1" in done.stderr
