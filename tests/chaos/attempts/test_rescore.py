"""Scoring again: what attempts left is back in real sandboxes, only scorers run, and everything else is as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hawk.core.attempts.results import Result
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
        (self.base / "sandbox.yaml").write_text(SANDBOX)
        self.plan(plan)
        self.scorer("")

    def plan(self, plan: Plan) -> None:
        self.runs = max(map(len, plan.values()))
        (self.base / "plan.json").write_text(json.dumps(plan))

    def scorer(self, decide: str) -> None:
        """Put another scorer into the task file: `decide(state)`."""
        text = BASE.replace('SANDBOX = ""', f"SANDBOX = {str(self.base / 'sandbox.yaml')!r}")
        (self.base / "kept.py").write_text(f"{text}\n\n{decide}\n")

    def config(self, attempts: Any, **args: Any) -> dict[str, Any]:
        files = {"plan": str(self.base / "plan.json"), "ledger": str(self.system.ledger(self.name))}
        return {
            "tasks": [{"file": "kept.py", "items": [{"name": "kept", "args": {**files, **args}}]}],
            "models": ["none/none"],
            "runs": self.runs,
            "attempts": attempts,
        }

    def run(self, attempts: Any) -> dict[str, Result]:
        config = self.config(attempts)
        self.submit(eval_set_config=config, eval_set_id=self.name, base_dir=str(self.base))
        self.system.finish(self.name)
        return self.results(self.name)

    def rescore(self, *, finish: bool = True, **body: Any) -> str:
        job: str = self.submit(**{"rescore": self.name, **body}).eval_set_id
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

    def workspace(self, job: str, result: Result) -> Path:
        return attempt_directory(self.system.run_dir(job), result.pair, result.attempt) / "workspace.tar.zst"


ALL = {"policy": "parallel", "infra_retries": 0}

PLAN: Plan = {
    "a": [["changes"], ["changes"]],
    "odd": [["odd"], ["large", "changes"]],
    "limited": [["changes", "limit"], ["limit", "own"]],
}
ALL_OF_IT = r"""
async def decide(state):
    words = json.loads(Path(PLAN_FILE).read_text())[str(state.sample_id)][state.epoch - 1]
    said = f"attempt {state.epoch}: " + "long " * 100
    assert [m.role for m in state.messages] == ["user", "assistant"], state.messages
    assert state.messages[-1].text == state.output.completion == said
    assert state.store.get("notes") == {"words": words}
    assert state.metadata == {"expected": EXPECTED, "seen": state.epoch}, state.metadata
    done = await sandbox().exec(["sh", "-ec", "cat /tmp/ready; ls -A | cat -A"])
    assert done.success, done.stderr
    names = done.stdout.replace("$\n", "\n").splitlines()
    untouched = ["base", "extra", "folder", "given", "start.txt"]
    if state.sample_id == "odd" and state.epoch == 1:
        pipe = [] if AGAIN else ["pipe"]
        expected = ["ready", " $(touch pwned)", "-rf", "a", "b", *untouched[:4], *pipe, "start.txt", "up"]
        assert names == expected, names
    elif "changes" not in words:
        assert names == ["ready", *untouched], names
    else:
        large = ["large"] if state.sample_id == "odd" and not AGAIN else []
        kept = ["given"] if AGAIN and state.sample_id == "odd" else []
        more = [name for name in ("start.txt",) if AGAIN and state.sample_id == "odd"]
        assert names == ["ready", "extra", *kept, *large, "left.txt", "out", *more], names
        done = await sandbox().exec(["sh", "-ec", "stat -c '%a %U' left.txt; readlink out; cat extra left.txt"])
        assert done.stdout == "751 user\n/etc/passwd\ngivenanswer\n", done
    return {"a": "C", "odd": "C", "limited": 0.5 if state.epoch == 1 else 0.1}[state.sample_id]
"""


def checking(play: Play, expected: str, *, again: bool) -> str:
    """A scorer that looks at all that there is. Of what was too large to keep, what comes back is known to differ."""
    values = {"PLAN_FILE": str(play.base / "plan.json"), "EXPECTED": expected, "AGAIN": again}
    head = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    return f"{head}\n{ALL_OF_IT}"


@pytest.fixture(scope="module")
def played(stage: Stage) -> Play:
    """A job that has ended, and was scored again by a scorer that looks at everything."""
    play = Play(stage, "played", PLAN)
    play.scorer(checking(play, "old", again=False))
    play.run(ALL)
    assert play.why("played") == {}
    play.scorer(checking(play, "old", again=True))
    assert play.rescore() == "played-rescore-1"
    return play


def test_state_and_workspace_are_as_the_agent_left_them(played: Play) -> None:
    job = "played-rescore-1"
    assert played.why(job) == {}
    assert played.outcomes(job) == played.outcomes("played")
    everything = sorted(f"{sample}/{k}" for sample in PLAN for k in (1, 2))
    assert played.lines("begin") == everything
    assert played.lines("setup") == sorted(everything * 2)  # what the task itself does is done again
    assert played.system.leftovers(job) == []
    assert not Path("/pwned").exists()


def test_what_an_attempt_took_is_as_it_was(played: Play) -> None:
    before, after = played.results("played"), played.results("played-rescore-1")
    assert before.keys() == after.keys()
    fields = [
        "pair",
        "attempt",
        "started_at",
        "ended_at",
        "duration",
        "working",
        "usage",
        "cost",
        "limit",
        "reason",
    ]
    fields += ["sandbox", "workspace", "tool_calls", "fingerprint"]
    for name, old in before.items():
        new = after[name]
        assert {f: getattr(new, f) for f in fields} == {f: getattr(old, f) for f in fields}
        assert (new.rescored_from, old.rescored_from) == ("played", None)
        assert new.uuid != old.uuid
        assert played.workspace("played", old).samefile(played.workspace("played-rescore-1", new))
    assert after["odd/2"].workspace.truncated  # type: ignore[union-attr]


def test_limits_and_scores_of_solvers_hold(played: Play) -> None:
    results = played.results("played-rescore-1")
    for name in ("limited/1", "limited/2"):
        assert (results[name].outcome, results[name].limit) == ("limit", "message")
        assert results[name].reason == "seven messages"
    assert set(results["limited/2"].scores) == {"judge", "own"}
    rows = {f"{s.id}/{s.epoch}": s for t in played.system.status("played-rescore-1").tasks for s in t.samples}
    assert (rows["limited/1"].limit, rows["limited/1"].outcome) == ("message", "limit")


def test_what_was_scored_again_can_be_so_once_more(played: Play) -> None:
    job = played.rescore(rescore="played-rescore-1")
    assert job == "played-rescore-1-rescore-1"
    assert (played.why(job), played.outcomes(job)) == ({}, played.outcomes("played"))
    assert {r.rescored_from for r in played.results(job).values()} == {"played-rescore-1"}


def test_another_config_has_its_pass_rule_its_samples_and_its_own_pairs(played: Play) -> None:
    played.scorer(checking(played, "new", again=True))
    played.plan({**{name: PLAN[name] for name in ("a", "limited")}, "more": [[], []]})
    try:
        config = played.config({**ALL, "pass": {"threshold": 0.4}}, expected="new")
        config["runs"] = 3
        job = played.rescore(eval_set_config=config, base_dir=str(played.base))
    finally:
        played.plan(PLAN)
    assert played.why(job) == {}
    assert played.outcomes(job) == {
        **{"a/1": "pass", "a/2": "pass", "a/3": "canceled"},
        **{"limited/1": "pass", "limited/2": "limit", "limited/3": "canceled"},
        **{"more/1": "canceled", "more/2": "canceled", "more/3": "canceled"},
    }
    notes = [e.reason for e in played.system.run_dir(job).journal() if e.state == "warning"]
    assert [note.partition(": ")[0] for note in notes] == [
        "not scored again, for played has no result of them",
        "in played and not in this eval set, so not scored again",
    ]
    assert "kept · leaver · none/none · more, attempt 1" in notes[0]
    assert "kept · leaver · none/none · odd, attempt 2" in notes[1]
    report = json.loads(played.system.hawk("report", job, "--json").stdout)
    assert list(report["unfinished"]) == ["kept · leaver · none/none · more"]


def test_a_scorer_that_was_broken_is_mended(stage: Stage) -> None:
    play = Play(stage, "mended", {"a": [["changes"], []], "b": [["changes"], ["boom"]]})
    play.scorer("async def decide(state):\n    raise ValueError('the scorer is broken')")
    play.run(ALL)
    broken = {"a/1": "scorer_error", "a/2": "scorer_error", "b/1": "scorer_error", "b/2": "infra_error"}
    assert play.outcomes("mended") == broken
    begun = play.lines("begin")
    play.scorer("async def decide(state):\n    return 'C' if state.epoch == 1 else 'I'")
    done = stage.system.hawk("rescore", "mended", "--wait", timeout=110)
    job = "mended-rescore-1"
    assert f"Eval set ID: {job} (submitted)" in done.stdout
    assert "what they left in mended is scored again, all at once; no agent runs" in done.stdout
    assert "With a result in mended: 3. 1 attempt without: not scored again." in done.stdout
    assert "Attempts of mended without a result are not scored again: 1 infra_error." in done.stderr
    end = stage.system.finish(job)
    assert (end.status, end.reason) == ("complete", None)
    assert (end.progress.completed, end.progress.canceled) == (3, 1)
    assert play.outcomes(job) == {"a/1": "pass", "a/2": "fail", "b/1": "pass", "b/2": "infra_error"}
    assert play.lines("begin") == begun  # no agent
    [row] = [s for task in end.tasks for s in task.samples if s.phase == "canceled"]
    assert (row.id, row.epoch, row.reason) == ("b", 2, "not needed: it has no result in mended")
    assert play.why(job) == {"b/2": "boom"}


def test_a_changed_verdict_shows_in_the_comparison_and_nothing_else_does(stage: Stage) -> None:
    play = Play(
        stage,
        "changed",
        {"one": [["changes"], []], "two": [["wrong"], ["changes"]], "three": [["changes"], []]},
    )
    play.run("sequential")
    assert play.outcomes("changed") == {"one/1": "pass", "two/1": "fail", "two/2": "pass", "three/1": "pass"}
    play.scorer("async def decide(state):\n    return 'I' if state.sample_id == 'one' else 'C'")
    job = play.rescore(eval_set_id="other-name")
    assert job == "other-name"
    assert play.outcomes(job) == {
        **{"one/1": "fail", "one/2": "canceled"},
        **{"two/1": "pass", "two/2": "pass"},
        **{"three/1": "pass", "three/2": "canceled"},
    }
    compared = json.loads(stage.system.hawk("compare", "changed", job, "--json").stdout)
    assert [name.rpartition(" ")[2] for name in compared["lost"]] == ["one"]
    assert (compared["gained"], compared["common"], compared["undecided"]) == ([], 3, [])
    assert not compared["different"]
    assert json.loads(stage.system.hawk("report", job, "--json").stdout)["policy"] == "sequential"


def test_without_a_workspace_only_what_looks_there_fails(stage: Stage) -> None:
    play = Play(stage, "bare", {name: [["changes"]] for name in ("gone", "damaged", "unseen")})
    for name, result in play.run(ALL).items():
        file = play.workspace("bare", result)
        file.write_bytes(b"damaged") if name == "damaged/1" else file.unlink()
    looks = "return 'C' if 'long' in state.output.completion else 'I'"
    old = BASE[BASE.index("async def decide") : BASE.index("@solver")].replace("decide", "decided")
    play.scorer(
        f"{old}\n\nasync def decide(state):\n    if state.sample_id != 'unseen':\n        return await decided(state)\n    {looks}"
    )
    job = play.rescore()
    assert play.outcomes(job) == {"gone/1": "scorer_error", "damaged/1": "infra_error", "unseen/1": "pass"}
    why = play.why(job)
    assert "there is no workspace of this attempt in bare" in why["gone/1"]
    assert "can't be put back" in why["damaged/1"]
    assert play.results(job)["unseen/1"].workspace_error == "it is not in bare any more"


def test_a_killed_worker_goes_on_without_scoring_twice_what_is_done(played: Play) -> None:
    scored, system = played.base / "scored", played.system
    played.scorer(
        f"""
async def decide(state):
    import asyncio
    name = f"{{state.sample_id}}/{{state.epoch}}"
    with open({str(scored)!r}, "a") as f:
        f.write(name + "\\n")
    while state.sample_id == "a" and not Path({str(scored)!r} + ".go").exists():
        await asyncio.sleep(0.05)
    return "C"
"""
    )
    begun = played.lines("begin")
    job = played.rescore(finish=False, eval_set_id="killed")
    until("all are at it", lambda: scored.exists() and len(scored.read_text().split()) == 6)
    until("four are scored", lambda: len(played.stage.results(job)) == 4)
    for pid in system.workers(job):
        kill(pid)
    Path(f"{scored}.go").touch()
    end = system.finish(job)
    assert (end.status, end.progress.total, end.progress.errored) == ("complete", 6, 0)
    assert set(played.outcomes(job).values()) == {"pass"}
    every = [f"{sample}/{k}" for sample in PLAN for k in (1, 2)]
    assert sorted(scored.read_text().split()) == sorted([*every, "a/1", "a/2"])
    assert played.lines("begin") == begun
    assert all(r.rescored_from == "played" and r.workspace for r in played.results(job).values())
    assert system.leftovers(job) == []


def test_one_that_was_stopped_has_scored_nothing_by_half_and_goes_on(played: Play) -> None:
    system, gate = played.system, played.base / "gate"
    played.scorer(
        f"""
async def decide(state):
    import asyncio
    while not Path({str(gate)!r}).exists():
        await asyncio.sleep(0.05)
    return "C"
"""
    )
    job = played.rescore(finish=False, eval_set_id="stopped")
    until("it runs", lambda: system.status(job).progress.running)
    system.hawk("stop", job)
    gate.touch()
    system.finish(job)
    assert set(played.outcomes(job).values()) <= {"canceled", "pass"}
    system.hawk("eval-set", "resume", job)
    end = system.finish(job)
    assert (end.status, end.progress.total, end.progress.canceled) == ("complete", 6, 0)
    assert set(played.outcomes(job).values()) == {"pass"}
    assert all(r.rescored_from == "played" for r in played.results(job).values())
    assert len(played.lines("begin")) == 6
