"""The example: folder evals and experiments, from the eval set to what came of every attempt."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commandline import EXAMPLES, CommandLine, command_line
from tests.sandbox.programs import needs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(660), needs("python3", "curl")]

SET = EXAMPLES / "folder-evals" / "eval-set.yaml"
PASSES = {
    ("careful", "access-log"): [True, True],
    ("careful", "backup-script"): [True, True],
    ("careful", "duration-parser"): [True, True],
    ("careful", "order-totals"): [False, True],
    ("hasty", "access-log"): [False, True],
    ("hasty", "backup-script"): [False, True],
    ("hasty", "duration-parser"): [False, False],
    ("hasty", "order-totals"): [False, False],
}


@pytest.fixture
def hawk(supported: None) -> Iterator[CommandLine]:
    base = Path(tempfile.mkdtemp(prefix="hk-"))  # short: sockets will be below
    with command_line(base) as line:
        yield line
    shutil.rmtree(base, ignore_errors=True)


def results(hawk: CommandLine) -> list[dict[str, Any]]:
    """Every `result.json` of the job."""
    files = sorted(Path(hawk.environ["HAWK_HOME"]).glob("runs/*/attempts/*/*/result.json"))
    return [json.loads(file.read_bytes()) for file in files]


def test_every_pair_of_eval_and_experiment_has_its_attempts(hawk: CommandLine) -> None:
    said = hawk.ok("eval-set", SET, "--runs", "2", "--parallel-attempts", "--wait", timeout=600)
    assert "Complete" in said
    ended = sorted(results(hawk), key=lambda result: result["attempt"])
    found: dict[tuple[str, str], list[bool]] = {}
    for result in ended:
        key = (result["pair"]["agent"], result["pair"]["sample"])
        found.setdefault(key, []).append(result["outcome"] == "pass")
    assert found == PASSES
    [circles] = [result for result in ended if result["outcome"] == "limit"]
    assert (circles["pair"]["sample"], circles["limit"], circles["attempt"]) == ("order-totals", "message", 1)
    scores = [score for result in ended for score in result["scores"].values()]
    assert {"EVAL", "bytes is right"} <= {
        check["name"] for score in scores for check in score.get("checks", [])
    }


def test_a_part_of_it_can_be_chosen(hawk: CommandLine) -> None:
    chosen = ("--suite", "smoke", "--experiment", "careful", "--runs", "1")
    assert "1 eval: access-log" in hawk.ok("eval-set", SET, *chosen, "--check")
    hawk.ok("eval-set", SET, *chosen, "--wait", timeout=600)
    assert [(r["pair"]["sample"], r["outcome"]) for r in results(hawk)] == [("access-log", "pass")]
