"""Folder evals as Inspect runs them: one task, a sample for each, its own sandbox, limits and scorer."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import eval as inspect_eval
from inspect_ai import task_with
from inspect_ai.log import EvalLog, EvalSample
from inspect_ai.solver import Generate, Solver, TaskState, solver

from hawk.bridge.solvers import in_the_name_of
from hawk.errors import ConfigError
from hawk.evals.scorer import evals_of
from hawk.evals.task import folder_evals, within_limits
from hawk.evals.tree import File, Tree
from tests.evals.making import python, write
from tests.sandbox.evals import MODEL

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home"), pytest.mark.timeout(240)]

Move = tuple[str, dict[str, Any]]
DONE: Move = ("submit", {"answer": "done"})
SCORER = "#!/bin/sh\n" + 'test "$(cat out.txt)" = "$(cat "$HAWK_TESTS/expected.txt")"\n'


def bash(command: str) -> Move:
    return ("bash", {"command": command})


def written(folder: Path, name: str, *moves: Move, front: str = "", **files: str | bytes) -> None:
    """An eval whose task is what the scripted model does."""
    prompt = f"---\nsandbox: {{inspect_tools: false}}\n{front}\n---\n{json.dumps(moves)}\n"
    write(folder, name, **{"PROMPT.md": prompt, **files})


def run(folder: Path, **options: Any) -> EvalLog:
    task = folder_evals(str(folder), **options.pop("args", {}))
    for key in [key for key in options if key == "solver"]:
        task_with(task, solver=options.pop(key))
    [log] = inspect_eval(
        task, model=MODEL, display="none", log_level="error", log_dir=str(folder.parent / "logs"), **options
    )
    assert log.error is None, log.error.traceback
    return log


def samples(log: EvalLog) -> dict[str, EvalSample]:
    return {str(sample.id): sample for sample in log.samples or []}


def value(sample: EvalSample) -> str:
    assert sample.error is None, sample.error.traceback
    assert sample.scores
    return str(sample.scores["verdict"].value)


def test_the_folders_own_agent_works_in_the_evals_sandbox_and_is_scored_by_it(tmp_path: Path) -> None:
    folder = tmp_path / "evals"
    files: dict[str, str | bytes] = {"EVAL": SCORER, "tests/expected.txt": "42\n", "local/in.txt": "6 7\n"}
    written(folder, "right", bash("awk '{print $1*$2}' in.txt > out.txt"), DONE, front="suite: core", **files)
    written(folder, "wrong", bash("echo 43 > out.txt"), DONE, front="tags: [a, b]", **files)
    log = run(folder)
    assert (log.eval.task, log.eval.task_registry_name) == ("evals", "hawk/folder_evals")
    found = samples(log)
    assert {name: value(sample) for name, sample in found.items()} == {"right": "C", "wrong": "I"}
    assert found["right"].metadata["suite"] == "core"
    assert found["wrong"].metadata["tags"] == ["a", "b"]
    assert len({sample.metadata["digest"] for sample in found.values()}) == 2
    assert found["wrong"].scores is not None
    score = found["wrong"].scores["verdict"]
    assert score.explanation == "1 of 1 checks failed: EVAL (exit code 1)"
    assert score.metadata == {"checks": [{"name": "EVAL", "passed": False, "notes": "exit code 1"}]}
    assert log.results is not None
    assert log.results.scores[0].metrics["accuracy"].value == 0.5
    assert log.plan.steps[-1].solver.removeprefix("hawk/") == "shell_agent"
    assert "42" not in found["right"].model_dump_json(include={"input", "files", "metadata"})


def test_files_arrive_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "evals"
    odd = {
        "a: b": "colon",
        "with 'quotes' *": "glob",
        "data:,x": "uri",
        "deep/er/empty": "",
        "raw": b"\xff\x00\r\n",
    }
    files: dict[str, str | bytes] = {f"local/{name}": content for name, content in odd.items()}
    files |= {
        "local/path.txt": "/etc/passwd",
        "local/url.txt": "http://localhost:1/x",
        "local/run!": "#!/bin/sh\n",
    }
    body = """
names = await sandbox.files()
contents = {name: await sandbox.read_bytes(name) for name in names}
ran = await sandbox.exec(["./run"])
import json
return {"passed": ran.ok, "checks": [
    {"name": json.dumps({name: list(content) for name, content in contents.items()}), "passed": True}]}
"""
    written(folder, "one", DONE, **{"EVAL.py": python(body), **files})
    sample = samples(run(folder))["one"]
    assert value(sample) == "C"
    assert sample.scores is not None
    [check] = (sample.scores["verdict"].metadata or {})["checks"]
    expected = {**odd, "path.txt": "/etc/passwd", "url.txt": "http://localhost:1/x", "run": "#!/bin/sh\n"}
    bytes_of = {
        name: list(text.encode() if isinstance(text, str) else text) for name, text in expected.items()
    }
    assert check["name"] == json.dumps(dict(sorted(bytes_of.items())))[:199] + "…"


@pytest.mark.parametrize(
    ("front", "kind"),
    [
        ("message_limit: 6", "message"),
        ("turn_limit: 3", "turn"),
        ("token_limit: 7", "token"),
        ("time_limit: 5", "time"),
    ],
)
def test_each_evals_own_limit_ends_its_attempts_and_scores_them_as_they_are(
    tmp_path: Path, front: str, kind: str
) -> None:
    folder = tmp_path / "evals"
    files: dict[str, str | bytes] = {"EVAL": SCORER, "tests/expected.txt": "42\n"}
    moves = [bash("echo 42 > out.txt"), *[bash("sleep 3600" if kind == "time" else "true")] * 40]
    written(folder, "limited", *moves, front=front, **files)
    written(folder, "free", moves[0], *[bash("true")] * 5, DONE, **files)
    found = samples(run(folder))
    assert found["limited"].limit is not None
    assert found["limited"].limit.type == kind
    assert found["free"].limit is None
    assert [value(sample) for sample in found.values()] == ["C", "C"]


@solver
def stranger(times: int = 30) -> Solver:
    """Another agent than the folder's."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        for _ in range(times):
            state = await generate(state, tool_calls="none")
        return state

    return solve


def test_another_agent_keeps_to_the_limits_in_its_own_name(tmp_path: Path) -> None:
    folder = tmp_path / "evals"
    written(folder, "one", front="turn_limit: 3")
    inner = stranger(times=9)
    log = run(folder, solver=in_the_name_of(inner, within_limits(inner)))
    sample = samples(log)["one"]
    assert sample.limit is not None
    assert sample.limit.type == "turn"
    assert (log.plan.steps[-1].solver, log.plan.steps[-1].params_passed) == ("stranger", {"times": 9})


def test_a_scorer_that_raises_gives_no_score_and_ends_no_attempt(tmp_path: Path) -> None:
    folder = tmp_path / "evals"
    written(folder, "one", DONE, **{"EVAL.py": python("return {}['missing']")})
    sample = samples(run(folder, fail_on_error=False))["one"]
    assert sample.error is None
    [score] = (sample.scores or {}).values()
    assert math.isnan(score.as_float())
    assert "KeyError" in (score.explanation or "")
    assert "return {}['missing']" in (score.metadata or {})["traceback"]


def test_evals_and_suites_are_chosen_by_arguments(tmp_path: Path) -> None:
    folder = tmp_path / "evals"
    for name, front in {"a-1": "suite: core", "a-2": "suite: slow", "b": "suite: core"}.items():
        written(folder, name, DONE, front=front)

    def ids(**args: Any) -> list[str]:
        return [str(sample.id) for sample in folder_evals(str(folder), **args).dataset]

    assert ids() == ["a-1", "a-2", "b"]
    assert ids(evals="a-1,b") == ["a-1", "b"]
    assert ids(evals=["a-*"], suites="core") == ["a-1"]
    with pytest.raises(ConfigError, match="Did you mean"):
        ids(suites="cor")


def test_an_attempt_is_scored_by_what_was_there_when_its_task_was_made(tmp_path: Path) -> None:
    folder = tmp_path / "evals"
    written(folder, "one", DONE, **{"tests/t": "before"})
    task = folder_evals(str(folder))
    written(folder, "one", DONE, **{"tests/t": "after"})
    assert evals_of(str(folder))["one"].tests == Tree({"t": File(b"before")})
    folder_evals(str(folder))
    assert evals_of(str(folder))["one"].tests == Tree({"t": File(b"after")})
    assert task.name == "evals"


def test_bare_inspect_knows_folder_evals(tmp_path: Path) -> None:
    folder = tmp_path / "evals"
    written(folder, "one", DONE, EVAL="#!/bin/sh\nexit 0\n")
    written(folder, "other", DONE, EVAL="#!/bin/sh\nexit 1\n")
    code = "import tests.sandbox.evals\nfrom inspect_ai._cli.main import main\nmain()\n"
    command = ["eval", "hawk/folder_evals", "-T", "folder=evals", "-T", "evals=one", "--model", MODEL]
    done = subprocess.run(
        [sys.executable, "-c", code, *command, "--display", "plain", "--log-dir", str(tmp_path / "logs")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "accuracy" in done.stdout
    assert "1.000" in done.stdout
