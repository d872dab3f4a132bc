"""Scoring again: what attempts left is back in real sandboxes, only scorers run, and everything else is as it was."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hawk.core.attempts.results import Result
from hawk.errors import ConflictError, HawkError, NotFoundError
from hawk.store.attempts import attempt_directory
from tests.chaos.attempts.conftest import Stage
from tests.system import kill, until

pytestmark = pytest.mark.slow

BASE = Path(__file__).with_name("kept.py").read_text()
SANDBOX = """
inspect_tools: false
setup:
  script: |
    mkdir -p /workspace/folder; echo base > /workspace/base; echo deep > /workspace/folder/deep
"""

Plan = dict[str, list[list[str]]]


class Play:
    """One task file, its plan, and jobs with it."""

    def __init__(self, stage: Stage, name: str, plan: Plan) -> None:
        self.stage, self.name, self.system = stage, name, stage.system
        self.base = stage.base / name
        self.base.mkdir()
        (self.base / "plan.json").write_text(json.dumps(plan))
        (self.base / "sandbox.yaml").write_text(SANDBOX)
        self.runs = max(map(len, plan.values()))
        self.scorer("")

    def scorer(self, decide: str) -> None:
        """Put another scorer into the task file: `decide(state)`."""
        text = BASE.replace('SANDBOX = ""', f"SANDBOX = {str(self.base / 'sandbox.yaml')!r}")
        (self.base / "kept.py").write_text(f"{text}\n\n{decide}\n")

    def config(self, attempts: Any, **more: Any) -> dict[str, Any]:
        args = {"plan": str(self.base / "plan.json"), "ledger": str(self.system.ledger(self.name))}
        return {
            "tasks": [{"file": "kept.py", "items": [{"name": "kept", "args": args}]}],
            "models": ["none/none"],
            "runs": self.runs,
            "attempts": attempts,
            **more,
        }

    def run(self, attempts: Any = "parallel", **more: Any) -> dict[str, Result]:
        self.submit(
            eval_set_config=self.config(attempts, **more), eval_set_id=self.name, base_dir=str(self.base)
        )
        self.system.finish(self.name)
        return self.results(self.name)

    def rescore(self, *, finish: bool = True, **body: Any) -> str:
        job: str = self.submit(rescore=self.name, **body).eval_set_id
        if finish:
            self.system.finish(job)
        return job

    def submit(self, **body: Any) -> Any:
        with self.system.client() as client:
            return client.submit(body)

    def results(self, job: str) -> dict[str, Result]:
        return {name.partition("/")[2]: result for name, result in self.stage.results(job).items()}

    def outcomes(self, job: str) -> dict[str, str]:
        return self.stage.outcomes(job)

    def lines(self, word: str) -> list[str]:
        return sorted(self.system.lines(self.name, word))

    def why(self, job: str) -> dict[str, str]:
        """Errors of attempts, as they are written down."""
        found = self.results(job)
        return {name: result.error.message for name, result in found.items() if result.error}


def test_a_scorer_that_was_broken_is_mended(stage: Stage) -> None:
    play = Play(stage, "mended", {"a": [["changes"], []], "b": [["changes"], ["boom"]]})
    play.scorer("async def decide(state):\n    raise ValueError('the scorer is broken')")
    play.run({"policy": "parallel", "infra_retries": 0})
    assert play.outcomes("mended") == {
        "a/1": "scorer_error",
        "a/2": "scorer_error",
        "b/1": "scorer_error",
        "b/2": "infra_error",
    }
    begun = play.lines("begin")
    play.scorer("async def decide(state):\n    return 'C' if state.epoch == 1 else 'I'")
    job = play.rescore()
    assert job == "mended-rescore-1"
    end = stage.system.status(job)
    assert (end.status, end.reason) == ("complete", None)
    assert (end.progress.completed, end.progress.canceled) == (3, 1)
    assert play.outcomes(job) == {"a/1": "pass", "a/2": "fail", "b/1": "pass", "b/2": "infra_error"}
    assert play.lines("begin") == begun  # no agent
    [row] = [s for task in end.tasks for s in task.samples if s.phase == "canceled"]
    assert (row.id, row.epoch, row.reason) == ("b", 2, "not needed: it has no result in mended")
    assert stage.system.leftovers(job) == []


def test_a_changed_verdict_shows_in_the_comparison_and_nothing_else_differs(stage: Stage) -> None:
    play = Play(stage, "changed", {"one": [["changes"], []], "two": [[], ["changes"]], "three": [["changes"], []]})
    before = play.run("sequential")
    assert play.outcomes("changed") == {"one/1": "pass", "two/1": "fail", "two/2": "pass", "three/1": "pass"}
    play.scorer("async def decide(state):\n    return 'I' if state.sample_id == 'one' else 'C'")
    job = play.rescore(eval_set_id="other-name")
    assert job == "other-name"
    after = play.results(job)
    assert play.outcomes(job) == {
        "one/1": "fail",
        "one/2": "canceled",
        "two/1": "pass",
        "two/2": "pass",
        "three/1": "pass",
        "three/2": "canceled",
    }
    for name, old in before.items():
        new = after[name]
        for field in ("pair", "attempt", "started_at", "ended_at", "duration", "working", "usage", "cost", "workspace"):
            assert getattr(new, field) == getattr(old, field), field
        assert (new.rescored_from, old.rescored_from) == ("changed", None)
        assert new.uuid != old.uuid
        one, other = (
            attempt_directory(stage.system.run_dir(j), new.pair, new.attempt) / "workspace.tar.zst"
            for j in ("changed", job)
        )
        assert one.samefile(other)
    compared = json.loads(stage.system.hawk("compare", "changed", job, "--json").stdout)
    assert [name.rpartition(" ")[2] for name in compared["lost"]] == ["one"]
    assert (compared["gained"], compared["common"], compared["undecided"]) == ([], 3, [])
    assert not compared["different"]
    again = stage.system.hawk("report", job, "--json")
    assert json.loads(again.stdout)["policy"] == "sequential"


def test_state_and_workspace_are_as_the_agent_left_them(stage: Stage) -> None:
    script = """
async def decide(state):
    words = json.loads(Path({plan!r}).read_text())[str(state.sample_id)][state.epoch - 1]
    said = f"attempt {{state.epoch}}: " + "long " * 100
    assert [m.role for m in state.messages] == ["user", "assistant"], state.messages
    assert state.messages[-1].text == state.output.completion == said
    assert state.store.get("notes") == {{"words": words}}
    assert state.metadata == {{"expected": {expected!r}, "seen": state.epoch}}, state.metadata
    done = await sandbox().exec(["sh", "-ec", "cat /tmp/ready; ls -A | cat -A; stat -c '%a %U' left.txt; readlink out"])
    assert done.success, done.stderr
    assert done.stdout == "ready\\nextra$\\nleft.txt$\\nout$\\n751 user\\n/etc/passwd\\n", done.stdout
    return "C"
"""
    play = Play(stage, "restored", {"a": [["changes"], ["changes"]]})
    plan = str(play.base / "plan.json")
    play.scorer(script.format(plan=plan, expected="old"))
    play.run({"policy": "parallel", "infra_retries": 0})
    assert play.why("restored") == {}
    assert play.outcomes("restored") == {"a/1": "pass", "a/2": "pass"}
    job = play.rescore()
    assert (play.why(job), play.outcomes(job)) == ({}, {"a/1": "pass", "a/2": "pass"})
    again = play.submit(rescore=job).eval_set_id  # what was scored again can be so once more
    stage.system.finish(again)
    assert (again, play.why(again)) == ("restored-rescore-1-rescore-1", {})
    assert play.outcomes(again) == {"a/1": "pass", "a/2": "pass"}
    # A task may say by now that something else is expected: scorers see that.
    config = play.config("parallel")
    config["tasks"][0]["items"][0]["args"]["expected"] = "new"
    play.scorer(script.format(plan=plan, expected="new"))
    newer = play.rescore(eval_set_config=config, base_dir=str(play.base))
    assert (play.why(newer), play.outcomes(newer)) == ({}, {"a/1": "pass", "a/2": "pass"})
    assert play.lines("begin") == ["a/1", "a/2"]


def test_hostile_workspaces_do_no_harm(stage: Stage) -> None:
    look = r"""
async def decide(state):
    done = await sandbox().exec(["sh", "-c", "ls -A | cat -A"])
    return "C" if done.stdout == {listing!r} else done.stdout
"""
    play = Play(stage, "odd", {"odd": [["odd"]], "large": [["large", "changes"]]})
    play.run()
    job = play.rescore()
    kept = play.results("odd")["large/1"].workspace
    assert kept is not None and kept.truncated
    assert play.outcomes(job) == {"odd/1": "scorer_error", "large/1": "pass"}  # no left.txt in the first
    names = [" $(touch pwned)", "-rf", "a", "b", "base", "extra", "folder", "given", "start.txt", "up"]
    listing = "".join(f"{name}$\n" for name in names)
    play.scorer(look.format(listing=listing))
    again = play.rescore()
    assert again == "odd-rescore-2"
    assert play.results(again)["odd/1"].scores["judge"].value == "C"
    assert not (Path("/") / "pwned").exists()


def test_limits_solvers_scores_and_the_pass_rule_hold(stage: Stage) -> None:
    play = Play(stage, "limits", {"a": [["changes", "limit"], ["limit", "own"]]})
    play.scorer("async def decide(state):\n    return 0.5 if state.epoch == 1 else 0.1")
    before = play.run()
    assert play.outcomes("limits") == {"a/1": "limit", "a/2": "limit"}
    job = play.rescore()
    after = play.results(job)
    assert play.outcomes(job) == {"a/1": "limit", "a/2": "limit"}
    for name in before:
        assert (after[name].limit, after[name].reason) == ("message", "seven messages")
        assert after[name].scores == before[name].scores
    assert set(after["a/2"].scores) == {"judge", "own"}
    [task] = stage.system.status(job).tasks
    assert [s.limit for s in task.samples] == ["message", "message"]
    # Another rule, the same scores.
    config = play.config({"policy": "parallel", "pass": {"threshold": 0.4}})
    loose = play.rescore(eval_set_config=config, base_dir=str(play.base))
    assert play.outcomes(loose) == {"a/1": "pass", "a/2": "limit"}
    assert play.lines("begin") == ["a/1", "a/2"]


def test_pairs_that_are_not_in_the_source_are_named_and_left_out(stage: Stage) -> None:
    play = Play(stage, "others", {"a": [["changes"]], "b": [["changes"]]})
    play.run()
    (play.base / "plan.json").write_text(json.dumps({"a": [["changes"], []], "c": [["changes"], []]}))
    config = {**play.config("parallel"), "runs": 2}
    job = play.rescore(eval_set_config=config, base_dir=str(play.base))
    assert play.outcomes(job) == {"a/1": "pass", "a/2": "canceled", "c/1": "canceled", "c/2": "canceled"}
    notes = [e.reason for e in stage.system.run_dir(job).journal() if e.state == "warning"]
    assert notes == [
        "not scored again, for others has no result of them: 3 attempts: kept · leaver · none/none · a, attempt 2; "
        "kept · leaver · none/none · c, attempt 1; kept · leaver · none/none · c, attempt 2",
        "in others and not in this eval set, so not scored again: 1 attempts: kept · leaver · none/none · b, attempt 1",
    ]
    report = json.loads(stage.system.hawk("report", job, "--json").stdout)
    assert list(report["unfinished"]) == ["kept · leaver · none/none · c"]
    (play.base / "plan.json").write_text(json.dumps({"d": [[]]}))
    nothing = play.rescore(eval_set_config=config, base_dir=str(play.base))
    end = stage.system.status(nothing)
    assert end.reason == "others has no result of any attempt that this eval set would score again."


def test_without_a_workspace_only_what_looks_there_fails(stage: Stage) -> None:
    play = Play(stage, "bare", {"a": [["changes"]], "b": [["changes"]]})
    play.run()
    run = stage.system.run_dir("bare")
    for name, result in play.results("bare").items():
        file = attempt_directory(run, result.pair, 1) / "workspace.tar.zst"
        file.unlink() if name == "a/1" else file.write_bytes(b"damaged")
    job = play.rescore()
    assert play.outcomes(job) == {"a/1": "scorer_error", "b/1": "infra_error"}
    why = play.why(job)
    assert "there is no workspace of this attempt in bare" in why["a/1"]
    assert "can't be put back" in why["b/1"]
    play.scorer("async def decide(state):\n    return 'C' if 'long' in state.output.completion else 'I'")
    again = play.rescore()
    assert play.outcomes(again) == {"a/1": "pass", "b/1": "infra_error"}
    assert play.results(again)["a/1"].workspace_error == "it is not in bare any more"


def test_a_killed_worker_goes_on_without_scoring_twice_what_is_done(stage: Stage) -> None:
    plan = {f"s{i}": [["changes"]] for i in range(6)}
    play = Play(stage, "killed", plan)
    play.run()
    begun = play.lines("begin")
    scored = stage.base / "scored"
    play.scorer(
        f"""
async def decide(state):
    import asyncio
    with open({str(scored)!r}, "a") as f:
        f.write(f"{{state.sample_id}}\\n")
    await asyncio.sleep(0.1 if str(state.sample_id) < "s3" or Path({str(scored)!r} + ".go").exists() else 3600)
    return "C"
"""
    )
    job = play.rescore(finish=False)
    until("half is scored", lambda: len(stage.system.completed(job)) == 3)
    until("the rest is at it", lambda: len(scored.read_text().split()) == 6)
    Path(f"{scored}.go").touch()
    for pid in stage.system.workers(job):
        kill(pid)
    end = stage.system.finish(job)
    assert (end.status, end.progress.completed) == ("complete", 6)
    assert set(play.outcomes(job).values()) == {"pass"}
    assert sorted(scored.read_text().split()) == ["s0", "s1", "s2", *sorted(["s3", "s4", "s5"] * 2)]
    assert play.lines("begin") == begun
    results = play.results(job).values()
    assert all(r.rescored_from == "killed" and r.workspace is not None for r in results)
    assert stage.system.leftovers(job) == []


def test_one_that_was_stopped_scores_nothing_half_and_is_resumed(stage: Stage) -> None:
    play = Play(stage, "stopped", {"a": [["changes"]], "b": [["changes"]]})
    play.run()
    gate = stage.base / "gate"
    play.scorer(
        f"""
async def decide(state):
    import asyncio
    while not Path({str(gate)!r}).exists():
        await asyncio.sleep(0.05)
    return "C"
"""
    )
    job = play.rescore(finish=False, eval_set_id="stopped-again")
    until("it runs", lambda: stage.system.status(job).progress.running)
    stage.system.hawk("stop", job)
    stage.system.finish(job)
    assert set(play.outcomes(job).values()) <= {"canceled", "pass", "infra_error"}
    gate.touch()
    stage.system.hawk("eval-set", "resume", job)
    end = stage.system.finish(job)
    assert (end.status, end.progress.completed) == ("complete", 2)
    assert play.outcomes(job) == {"a/1": "pass", "b/1": "pass"}
    assert all(r.rescored_from == "stopped" for r in play.results(job).values())
    assert play.lines("begin") == ["a/1", "b/1"]


def test_what_can_not_be_scored_again_says_why(stage: Stage) -> None:
    with pytest.raises(NotFoundError, match="No eval set 'nobody' to score again"):
        with stage.system.client() as client:
            client.submit({"rescore": "nobody"})
    play = Play(stage, "hopeless", {"a": [["boom"]]})
    play.run({"policy": "parallel", "infra_retries": 0})
    with pytest.raises(ConflictError, match="none has a result"):
        play.rescore()
    with pytest.raises(HawkError, match="in its own place"):
        play.submit(rescore="hopeless", eval_set_id="hopeless")


def test_the_command_says_what_it_will_do(stage: Stage) -> None:
    play = Play(stage, "spoken", {"a": [["changes"], ["boom"]]})
    play.run({"policy": "parallel", "infra_retries": 0})
    done: subprocess.CompletedProcess[str] = stage.system.hawk("rescore", "spoken", "--wait", timeout=90)
    assert "Eval set ID: spoken-rescore-1 (submitted)" in done.stdout
    assert "what they left in spoken is scored again, all at once; no agent runs" in done.stdout
    assert "With a result in spoken: 1. 1 attempt without: not scored again." in done.stdout
    assert "Attempts of spoken without a result are not scored again: 1 infra_error." in done.stderr
    refused = stage.system.hawk("eval-set", "run", "x.yaml", "--name", "spoken-rescore-1", check=False)
    assert refused.returncode != 0
