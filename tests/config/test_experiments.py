"""Experiments: files beside an eval set, read into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hawk.config.load import LoadedEvalSet, load_eval_set, parse_eval_set
from hawk.errors import ConfigError

AGENTS = "from inspect_ai.agent import agent\n@agent\ndef careful(): ...\n"
CAREFUL = """\
agent: ../agents.py@careful
model: openai/small
config: {temperature: 0.2}
message_limit: 20
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "problems.py").write_text("from inspect_ai import task\n@task\ndef easy(): ...\n")
    (tmp_path / "agents.py").write_text(AGENTS)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "careful.yaml").write_text(CAREFUL)
    (tmp_path / "experiments" / "hasty.yaml").write_text("name: quick\nmodel: openai/${SIZE}\n")
    return tmp_path


def load(folder: Path, text: str = "experiments: [experiments/*.yaml]", **environ: str) -> LoadedEvalSet:
    path = folder / "set.yaml"
    path.write_text(f"tasks: [problems.py@easy]\n{text}\n")
    return load_eval_set(path, environ={"SIZE": "tiny", **environ})


def problems(folder: Path, text: str = "experiments: [experiments/*.yaml]") -> list[dict[str, Any]]:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    found: list[dict[str, Any]] = caught.value.fields["problems"]
    return found


@pytest.mark.parametrize("pattern", ["experiments/*.yaml", "experiments", "./experiments/"])
def test_files_become_part_of_the_config(folder: Path, pattern: str) -> None:
    config = load(folder, f"experiments: [{pattern}]").config
    assert config is not None
    careful, quick = config.experiments
    assert (careful.name, careful.config, careful.limits) == (
        "careful",
        {"temperature": 0.2},
        {"message_limit": 20},
    )
    assert careful.agent is not None
    assert (careful.agent.file, careful.agent.items[0].name) == ("agents.py", "careful")
    assert (quick.name, quick.agent, quick.model.items[0].name) == ("quick", None, "openai/tiny")


def test_what_is_submitted_needs_the_files_no_more(folder: Path) -> None:
    config = load(folder).config
    assert config is not None
    data = config.to_data()
    (folder / "experiments" / "careful.yaml").unlink()
    assert parse_eval_set(data, base_dir=folder).config == config


def test_a_mistake_names_the_experiments_own_file_and_line(folder: Path) -> None:
    (folder / "experiments" / "careful.yaml").write_text("model: openai/x\nmesage_limit: 3\n")
    [problem] = problems(folder)
    assert (problem["file"], problem["line"]) == ("experiments/careful.yaml", 2)
    assert problem["suggestion"] == "message_limit"


def test_an_agent_that_its_file_does_not_define_is_named(folder: Path) -> None:
    (folder / "experiments" / "careful.yaml").write_text("model: openai/x\nagent: ../agents.py@carefull\n")
    [problem] = problems(folder)
    assert (problem["file"], problem["line"], problem["suggestion"]) == (
        "experiments/careful.yaml",
        2,
        "careful",
    )


def test_bad_yaml_in_an_experiment_is_named(folder: Path) -> None:
    (folder / "experiments" / "careful.yaml").write_text("model: [")
    [problem] = problems(folder)
    assert problem["file"] == "experiments/careful.yaml"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("experiments: [experimnts/*.yaml]", "no file matches"),
        ("experiments: [experiments/carefull.yaml]", "did you mean 'careful.yaml'"),
        ("experiments: [experiments, experiments/careful.yaml]", "two experiments are called 'careful'"),
        ("experiments: [experiments]\nmodels: [openai/x]", "leave out 'models'"),
        ("experiments: [experiments]\nagents: [react]", "leave out 'agents'"),
        ("experiments: [experiments]\ntemperature: 1", "by the experiment 'careful': give it once"),
        ("experiments: [{name: a, model: openai/x, agent: {file: agents.py, items: []}}]", "names 0 items"),
    ],
)
def test_what_can_not_be_meant_is_refused(folder: Path, text: str, words: str) -> None:
    assert any(words in problem["message"] for problem in problems(folder, text))


def test_a_request_without_a_directory_can_not_name_files() -> None:
    with pytest.raises(ConfigError, match="nothing says which directory"):
        parse_eval_set({"tasks": ["p/t"], "experiments": ["x.yaml"]})


def test_a_folder_of_evals_must_be_one(folder: Path) -> None:
    (folder / "evals" / "one").mkdir(parents=True)
    path = folder / "set.yaml"
    for tasks, words in {
        "[mbpp]": "there is no directory 'mbpp'",
        "[eval/]": "Did you mean 'evals'",
        "[evals]": "holds no evals",
        "[evals, ./evals]": "two folders are called 'evals'",
    }.items():
        path.write_text(f"tasks: {tasks}\n")
        with pytest.raises(ConfigError, match=words):
            load_eval_set(path, environ={})
    (folder / "evals" / "one" / "PROMPT.md").write_text("Do it.")
    path.write_text("tasks: [evals/one]\n")
    with pytest.raises(ConfigError, match=r"taken for a package with a task. Did you mean 'evals/one/'"):
        load_eval_set(path, environ={})
    for tasks in ("[evals]", "[evals/]", "[evals/one/]", "[{folder: evals, suites: [a]}]"):
        path.write_text(f"tasks: {tasks}\n")
        load_eval_set(path, environ={})
