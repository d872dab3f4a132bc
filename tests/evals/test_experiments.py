"""Folders and experiments as a worker makes them: captures and runs of whole configs, each in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.bridge.test_definition import capture, run, select, write_evals
from tests.evals.making import make

pytestmark = pytest.mark.timeout(200)

MODEL = {"file": "provider.py", "items": [{"name": "scripted/a"}]}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = write_evals(tmp_path / "set")
    for name, suite in {"one": "core", "two": "core", "three": "slow"}.items():
        make(folder / "evals", name, f"suite: {suite}\nturn_limit: 3")
    return folder


def experiment(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "model": MODEL, **fields}


def test_the_grid_is_tasks_times_experiments_and_each_is_told_apart(base: Path) -> None:
    agent = {"file": "agents.py", "items": [{"name": "echo", "args": {"times": 2}}]}
    manifest = capture(
        base,
        {
            "tasks": [{"folder": "evals"}, "problems.py@sums"],
            "experiments": [
                experiment("plain"),
                experiment("warm", config={"temperature": 1.0}),
                experiment("with-agent", agent=agent, message_limit=7),
                experiment("same-agent", agent=agent),
            ],
            "message_limit": 20,
            "time_limit": 60,
        },
    )
    found = [(task["name"], task["solver"], task["model"], task["samples"]) for task in manifest["tasks"]]
    assert found == [
        (name, experiment, "scripted/a", 3)
        for experiment in ("plain", "warm", "with-agent", "same-agent")
        for name in ("evals", "sums")
    ]
    assert len({task["identifier"] for task in manifest["tasks"]}) == 8
    assert manifest["options"].get("message_limit") is None


@pytest.mark.slow
def test_a_run_keeps_experiments_their_settings_and_their_own_agents_name(base: Path) -> None:
    agent = {"file": "agents.py", "items": [{"name": "quiet"}]}
    experiments = [
        experiment("a", agent=agent, config={"temperature": 0.5}, message_limit=7),
        experiment("b", agent=agent, config={"temperature": 1.5}),
    ]
    config = {"tasks": ["problems.py@sums"], "experiments": experiments, "message_limit": 20}
    tasks = capture(base, config)["tasks"]
    logs = {log["eval"]["metadata"]["experiment"]: log for log in select(base, config, tasks)}
    assert set(logs) == {"a", "b"}
    for name, limit, temperature in (("a", 7, 0.5), ("b", 20, 1.5)):
        assert logs[name]["status"] == "success"
        assert logs[name]["eval"]["config"]["message_limit"] == limit
        assert logs[name]["eval"]["model_generate_config"]["temperature"] == temperature
        [step] = logs[name]["plan"]["steps"]
        assert (step["solver"], step["params_passed"]) == (name, {"agent": "quiet"})


def test_a_folder_takes_the_names_that_are_chosen_and_is_the_same_task(base: Path) -> None:
    def task(**fields: Any) -> dict[str, Any]:
        config = {"tasks": [{"folder": "evals", **fields}], "models": [MODEL]}
        [found] = capture(base, config)["tasks"]
        return dict(found)

    whole, some = task(), task(evals=["t*"], suites=["core"])
    assert (whole["samples"], some["samples"]) == (3, 1)
    assert whole["identifier"] == some["identifier"]
    assert whole["args"] == {"folder": "evals"}


def test_agents_of_an_eval_set_replace_the_folders_own(base: Path) -> None:
    config = {
        "tasks": ["evals"],
        "models": [MODEL],
        "agents": ["agents.py@echo"],
        "solvers": ["agents.py@quiet"],
    }
    assert [task["solver"] for task in capture(base, config)["tasks"]] == ["echo", "quiet"]
    config = {"tasks": ["evals"], "models": [MODEL]}
    assert [task["solver"] for task in capture(base, config)["tasks"]] == ["shell_agent"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"evals": ["on"]}, "There is no eval 'on'. Did you mean 'one'?"),
        ({"suites": ["cores"]}, "There is no suite 'cores'. Did you mean 'core'?"),
    ],
)
def test_what_a_folder_does_not_have_is_named(base: Path, fields: dict[str, Any], words: str) -> None:
    done = run(
        base,
        {"tasks": [{"folder": "evals", **fields}], "models": [MODEL]},
        INSPECT_EVAL_SET_CAPTURE=str(base.parent / "capture.json"),
    )
    assert f"REFUSED {words}" in done.stdout
