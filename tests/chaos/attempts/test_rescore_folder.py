"""A folder eval's scorer is mended, and what its agents left is scored again."""

from __future__ import annotations

import pytest

from tests.chaos.attempts.conftest import Stage

pytestmark = pytest.mark.slow

PROMPT = """---
start: mkdir -p /tmp/made && echo tool > /tmp/made/tool
---
Write `answer.txt`.
"""
ANSWERING = """
from inspect_ai.solver import solver
from inspect_ai.util import sandbox

@solver
def answering(ledger):
    async def solve(state, generate):
        with open(ledger, "a") as f:
            f.write(f"begin {state.sample_id}/{state.epoch}\\n")
        done = await sandbox().exec(["sh", "-ec", "./given.sh > answer.txt; rm given.sh"])
        assert done.success, done.stderr
        return state
    return solve
"""
MENDED = """
async def score(sandbox):
    looked = await sandbox.exec("cat answer.txt /tmp/made/tool; ls")
    return {"passed": looked.stdout == "42\\ntool\\nanswer.txt\\n", "checks": [
        {"name": "seen", "passed": True, "notes": looked.output}]}
"""


def test_a_folder_evals_scorer_is_mended(stage: Stage) -> None:
    base = stage.base / "folder"
    eval_ = base / "evals" / "count"
    (eval_ / "local").mkdir(parents=True)
    (eval_ / "PROMPT.md").write_text(PROMPT)
    (eval_ / "local" / "given.sh").write_text("#!/bin/sh\necho 42\n")
    (eval_ / "local" / "given.sh").chmod(0o755)
    (eval_ / "EVAL.py").write_text("async def score(sandbox):\n    raise ValueError('broken')\n")
    (base / "agent.py").write_text(ANSWERING)
    ledger = stage.system.ledger("folder")
    config = {
        "tasks": [{"folder": "evals"}],
        "solvers": [{"file": "agent.py", "items": [{"name": "answering", "args": {"ledger": str(ledger)}}]}],
        "models": ["none/none"],
        "runs": 2,
        "attempts": "parallel",
    }
    with stage.system.client() as client:
        client.submit({"eval_set_config": config, "eval_set_id": "folder", "base_dir": str(base)})
    stage.system.finish("folder")
    assert stage.outcomes("folder") == {"count/1": "scorer_error", "count/2": "scorer_error"}
    (eval_ / "EVAL.py").write_text(MENDED)
    with stage.system.client() as client:
        job = client.submit({"rescore": "folder"}).eval_set_id
    stage.system.finish(job)
    seen = [check.notes for r in stage.results(job).values() for s in r.scores.values() for check in s.checks]
    assert seen == ["42\ntool\nanswer.txt"] * 2
    assert stage.outcomes(job) == {"count/1": "pass", "count/2": "pass"}
    assert len(stage.system.lines("folder", "begin")) == 2
