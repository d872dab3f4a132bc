"""The same eval set with and without a provider that refuses: told apart from noise, and by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.attempts.conftest import Stage

pytestmark = pytest.mark.slow

TASKS = Path(__file__).with_name("throttled.py")


def submit(stage: Stage, job: str, environment: dict[str, str]) -> None:
    config = {
        "tasks": [{"file": str(TASKS), "items": [{"name": "questions"}]}],
        "models": [{"file": str(TASKS), "items": [{"name": "meagre/m"}]}],
        "runs": 2,
        "attempts": {"policy": "parallel", "infra_retries": 0},
        "max_retries": 1,
        "runner": {"environment": environment},
    }
    with stage.system.client() as client:
        client.submit({"eval_set_config": config, "eval_set_id": job, "base_dir": str(TASKS.parent)})
    stage.system.finish(job)


def compared(stage: Stage, a: str, b: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stage.system.hawk("compare", a, b, "--json").stdout)
    return found


def test_throttling_is_named_with_its_provider_and_the_same_twice_is_noise(stage: Stage) -> None:
    submit(stage, "fed", {})
    submit(stage, "starved", {"THROTTLED": "1"})
    submit(stage, "fed-again", {})
    outcomes = stage.outcomes("starved")
    assert {end for name, end in outcomes.items() if name.startswith("hard")} == {"infra_error"}
    met = stage.results("starved")["questions/easy0/1"].provider_retries
    assert set(met) <= {"429 RateLimitError"}

    verdict = compared(stage, "fed", "starved")
    assert (verdict["judgement"], verdict["blame"]) == ("throttling", "meagre")
    said = stage.system.hawk("compare", "fed", "starved").stdout
    assert said.startswith("throttling")
    assert "meagre" in said
    assert "429" in said

    assert compared(stage, "fed", "fed-again")["judgement"] == "noise"
    assert compared(stage, "fed", "fed")["judgement"] == "noise"
