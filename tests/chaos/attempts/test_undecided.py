"""Pairs of which no attempt has a result: an error that names them, never a silent fail."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.chaos.attempts.conftest import Stage

pytestmark = pytest.mark.slow

GOOD = [(0.1, "pass"), (0.1, "fail")]
BROKEN = [(0.1, "boom"), (0.1, "boom")]
BAD = [(0.1, "fail"), (0.1, "fail")]


def run(stage: Stage, job: str, script: dict[str, Any]) -> dict[str, Any]:
    """The job's report, as `hawk report --json` prints it."""
    stage.play(job, script, {"policy": "parallel", "infra_retries": 0})
    stage.system.finish(job)
    printed = stage.system.hawk("report", job, "--json").stdout
    report: dict[str, Any] = json.loads(printed)
    return report


def exit_status(stage: Stage, job: str) -> int:
    return stage.system.hawk("report", job, "--exit-status", check=False).returncode


def test_a_pair_whose_attempts_all_failed_to_run_is_named_and_is_no_fail(stage: Stage) -> None:
    report = run(stage, "undecided", {"good": GOOD, "broken": BROKEN, "idle": [(0.1, "idle")] * 2})
    assert (report["passed"], report["failed"], report["undecided"]) == (1, 0, 2)
    rows = {row["pair"]["sample"]: row for row in report["pairs"]}
    assert rows["broken"].get("passed") is None
    assert "2 infra_error" in rows["broken"]["error"]
    assert "RuntimeError: boom" in rows["broken"]["error"]
    assert "2 infra_error" in rows["idle"]["error"]
    assert rows["good"].get("error") is None
    assert sorted(name.rpartition(" ")[2] for name in report["unfinished"]) == ["broken", "idle"]
    assert report["outcomes"] == {"fail": 1, "infra_error": 4, "pass": 1}
    assert sum(report["tally"].values()) == 1
    assert exit_status(stage, "undecided") == 2
    shown = stage.system.hawk("report", "undecided").stdout
    assert "broken" in shown
    assert "boom" in shown


def test_a_job_of_which_nothing_has_a_result_has_no_rate(stage: Stage) -> None:
    report = run(stage, "nothing", {"broken": BROKEN})
    assert (report["passed"], report["failed"], report["undecided"]) == (0, 0, 1)
    assert report["any_pass"] is None
    assert report["pass_at_1"] is None
    assert exit_status(stage, "nothing") == 2


def test_a_failed_pair_is_another_exit_status(stage: Stage) -> None:
    report = run(stage, "some", {"good": GOOD, "bad": BAD})
    assert (report["passed"], report["failed"], report["undecided"]) == (1, 1, 0)
    assert exit_status(stage, "some") == 1
