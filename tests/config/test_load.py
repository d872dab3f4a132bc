"""Files as people write them: every problem said, with file, line, field, and the nearest right spelling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hawk.config.load import LoadedEvalSet, load_eval_set, parse_eval_set
from hawk.errors import ConfigError, from_envelope

TASKS = """
from inspect_ai import Task, task
import inspect_ai

@task
def easy(): ...

@inspect_ai.task(name="hard-one")
def hard(): ...
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "problems.py").write_text(TASKS)
    return tmp_path


def load(folder: Path, text: str, **environ: str) -> LoadedEvalSet:
    path = folder / "demo.yaml"
    path.write_text(text)
    return load_eval_set(path, environ=environ)


def refused(folder: Path, text: str, **environ: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(folder, text, **environ)
    return caught.value


def data(loaded: LoadedEvalSet) -> dict[str, Any]:
    assert loaded.config is not None
    return loaded.config.to_data()


def test_good_file_keeps_its_text_and_directory(folder: Path) -> None:
    text = "tasks: [problems.py@easy, problems.py@hard-one]\nmodels: [openai/x]\n"
    loaded = load(folder, text)
    assert loaded.config is not None
    assert (loaded.source, loaded.base_dir, loaded.warnings, loaded.script) == (text, folder, [], None)


def test_all_problems_are_said_at_once_with_line_field_and_suggestion(folder: Path) -> None:
    error = refused(
        folder,
        """\
task: [problems.py@easy]
tasks:
  - file: problems.py
    items:
      - nmae: easy
log_dir: here
epochs: three
attempts: {policy: paralel}
max_tokns: 5
""",
    )
    problems = {p["field"]: p for p in error.fields["problems"]}
    assert {field: p["line"] for field, p in problems.items()} == {
        "task": 1,
        "tasks[0].items[0].name": 5,
        "tasks[0].items[0].nmae": 5,
        "log_dir": 6,
        "epochs": 7,
        "attempts.policy": 8,
        "max_tokns": 9,
    }
    assert problems["task"]["suggestion"] == "tasks"
    assert problems["tasks[0].items[0].nmae"]["suggestion"] == "name"
    assert problems["attempts.policy"]["suggestion"] == "parallel"
    assert problems["max_tokns"]["suggestion"] == "max_tokens"
    assert problems["epochs"]["found"] == "'three'"
    assert problems["epochs"]["allowed"] == "integer"
    assert all(p["file"] == str(folder / "demo.yaml") for p in problems.values())
    text = error.render()
    assert "demo.yaml has 7 problems" in text
    assert (
        "demo.yaml:8: attempts.policy: has a value that is not allowed. Found: 'paralel'. Did you mean 'parallel'?"
        in text
    )
    assert from_envelope(error.envelope(), 422).render() == text, "a server's error prints as our own"


def test_missing_tasks_is_one_problem(folder: Path) -> None:
    error = refused(folder, "models: [openai/x]\n")
    assert [(p["field"], p["message"]) for p in error.fields["problems"]] == [("tasks", "is required")]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("tasks: [a\nmodels: {\n", 2, "bad YAML at column 7"),
        ("tasks:\n\t- a\n", 2, "bad YAML"),
        ("tasks: [a.py@b]\nname: x\nname: y\n", 3, "given twice (first in line 2)"),
        ("a: &x [*x]\n", 1, "An alias must not refer to what it is part of"),
        ("tasks: a\n---\nb: c\n", 2, "found another document"),
        ("tasks: !!python/object:os.system x\n", 1, "could not determine a constructor"),
        ("- a\n- b\n", 1, "mapping of fields"),
        ("", None, "empty"),
        ("# only a comment\n", None, "empty"),
        ("name: 'a\x07b'\n", 1, "not allowed in YAML"),
        ("metadata: {a: ${X}}\n", 1, "put ${VAR} in quotes"),
    ],
)
def test_what_is_not_an_eval_set_at_all(folder: Path, text: str, line: int | None, words: str) -> None:
    error = refused(folder, text)
    assert words in error.message
    assert error.fields["problems"][0]["line"] == line


def test_syntax_error_shows_the_line_with_a_caret(folder: Path) -> None:
    error = refused(folder, "tasks: [a.py@b]\nname: x: y\n")
    shown, caret = error.message.splitlines()[-2:]
    assert shown.strip() == "name: x: y"
    assert caret.index("^") == shown.index(": y")


def test_aliases_that_grow_without_end_are_refused(folder: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert "far too large" in refused(folder, "\n".join(lines)).message


def test_merged_mappings_and_anchors_work(folder: Path) -> None:
    loaded = load(
        folder,
        """\
tasks:
  - file: problems.py
    items:
      - &first {name: easy, args: {level: 1}}
      - {<<: *first, args: {level: 2}}
""",
    )
    assert [item["args"]["level"] for item in data(loaded)["tasks"][0]["items"]] == [1, 2]


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"\x00\x01\xff", "not a text file"), (b"a: \x00b", "not a text file"), (None, "no such file")],
)
def test_unreadable_files(folder: Path, content: bytes | None, words: str) -> None:
    path = folder / "evals.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        load_eval_set(path, environ={})


def test_missing_file_suggests_its_neighbour(folder: Path) -> None:
    (folder / "quickstart.yaml").touch()
    with pytest.raises(ConfigError, match=r"Did you mean 'quickstart\.yaml'"):
        load_eval_set(folder / "quikstart.yaml", environ={})


def test_a_directory_is_not_a_file(folder: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        load_eval_set(folder, environ={})


def test_variables_are_replaced_and_keep_their_type(folder: Path) -> None:
    loaded = load(
        folder,
        'tasks: [problems.py@easy]\nruns: ${N}\nname: ${NAME:-none}\ntags: ["${N}", "a-${N}", "$${N}"]\n'
        "metadata: {e: '${EMPTY:-}', d: 2026-01-02}\ntime_limit: ${EMPTY:-60}\n",
        N="3",
        EMPTY="",
    )
    config = data(loaded)
    assert (config["runs"], config["name"], config["time_limit"]) == (3, "none", 60)
    assert config["tags"] == ["3", "a-3", "${N}"]
    assert config["metadata"] == {"e": "", "d": "2026-01-02"}
    assert "${N}" in loaded.source


def test_unset_variable_names_line_and_nearest(folder: Path) -> None:
    error = refused(folder, "tasks: [problems.py@easy]\nname: ${MY_NAM}\n", MY_NAME="x")
    (problem,) = error.fields["problems"]
    assert (problem["line"], problem["field"], problem["suggestion"]) == (2, "name", "MY_NAME")
    assert "MY_NAM is not set" in error.message


def test_half_a_variable_is_an_error(folder: Path) -> None:
    assert "write '$${'" in refused(folder, "tasks: [problems.py@easy]\nname: a${b c}\n").message


@pytest.mark.parametrize(
    "declared",
    [
        "secrets: [API_KEY]",
        "secrets: [{name: API_KEY}]",
        "runner: {secrets: [{name: API_KEY}]}",
        "agents: [{package: inspect-ai, items: [{name: react, secrets: [{name: API_KEY}]}]}]",
    ],
)
def test_a_secret_can_not_be_written_into_the_config(folder: Path, declared: str) -> None:
    error = refused(
        folder, f"tasks: [problems.py@easy]\nmetadata:\n  key: ${{API_KEY}}\n{declared}\n", API_KEY="s3cr3t"
    )
    assert "would store a secret" in error.message
    assert error.fields["problems"][0]["line"] == 3
    assert "s3cr3t" not in str(error.envelope())


def test_a_secret_of_the_command_line_can_not_be_written_into_the_config(folder: Path) -> None:
    path = folder / "demo.yaml"
    path.write_text("tasks: [problems.py@easy]\nname: ${K}\n")
    with pytest.raises(ConfigError, match="would store a secret"):
        load_eval_set(path, environ={"K": "v"}, secret_names=["K"])


def test_a_variable_that_looks_secret_is_warned_about(folder: Path) -> None:
    loaded = load(
        folder, "tasks: [problems.py@easy]\nmodels: [a/b]\nmetadata: {t: '${GH_TOKEN}'}\n", GH_TOKEN="x"
    )
    assert loaded.warnings == [
        "${GH_TOKEN} is stored with the eval set; if it is secret, name it under `secrets`."
    ]


def test_no_value_near_secrets_or_in_arguments_is_printed(folder: Path) -> None:
    error = refused(
        folder,
        "tasks: [problems.py@easy]\nsecrets: [sk-hunter2]\n"
        "models: [{package: inspect-ai, items: [{name: a/b, args: {api_key: sk-hunter2}}]}]\n",
    )
    assert len(error.fields["problems"]) == 2
    assert "hunter2" not in str(error.envelope())


@pytest.mark.parametrize(
    ("entry", "line", "words"),
    [
        ("problem.py@easy", 2, "there is no such file. Did you mean 'problems.py'?"),
        ("problems.py@eazy", 2, "no @task named 'eazy'. Did you mean 'easy'? Allowed: easy, hard-one."),
        ("problems.py@hard", 2, "no @task named 'hard'"),
        ("{file: torn.py}", 3, "not valid Python"),
        ("{file: empty.py}", 2, "defines no @task"),
    ],
)
def test_files_are_checked_before_anything_starts(folder: Path, entry: str, line: int, words: str) -> None:
    (folder / "torn.py").write_text("a = 1\n\ndef (:\n")
    (folder / "empty.py").touch()
    error = refused(folder, f"tasks:\n  - {entry}\n")
    assert words in error.message
    assert error.fields["problems"][0]["line"] == line


def test_an_imported_task_is_left_to_the_runner(folder: Path) -> None:
    (folder / "more.py").write_text("from problems import easy\n")
    assert load(folder, "tasks: [more.py@easy]\n").config is not None


def test_agents_are_checked_for_either_decorator(folder: Path) -> None:
    (folder / "agents.py").write_text("@agent\ndef a(): ...\n\n@solver\ndef s(): ...\n")
    assert load(
        folder, "tasks: [problems.py]\nagents: [agents.py@a]\nsolvers: [agents.py@s, agents.py@a]\n"
    ).config
    error = refused(folder, "tasks: [problems.py]\nagents: [agents.py@b]\n")
    assert "no @agent or @solver named 'b'" in error.message


def test_the_same_task_twice_is_an_error_unless_its_arguments_differ(folder: Path) -> None:
    error = refused(folder, "tasks:\n  - problems.py@easy\n  - problems.py@easy\nmodels: [a/b, a/b]\n")
    assert [p["line"] for p in error.fields["problems"]] == [3, 4]
    assert "also tasks[0].items[0]" in error.message
    both = "[{name: easy, args: {n: 1}}, {name: easy, args: {n: 2}}]"
    assert load(folder, f"tasks: [{{file: problems.py, items: {both}}}]\n").config is not None


def test_options_of_inspect_pass_through_with_a_warning(folder: Path) -> None:
    loaded = load(
        folder,
        "tasks: [problems.py@easy]\ntemperature: 0.5\nfail_on_error: 0.1\nfuture_thing: 1\n"
        "isolation: standard\nrunner: {memory: 8Gi}\n",
    )
    assert loaded.config is not None
    assert loaded.config.passthrough["temperature"] == 0.5
    assert [warning.split(" ", 1)[0] for warning in loaded.warnings] == [
        "temperature", "fail_on_error", "future_thing", "isolation", "runner:",
    ]  # fmt: skip


@pytest.mark.parametrize("sandbox", ["local", "{type: local}"])
def test_a_sandbox_without_isolation_is_warned_about(folder: Path, sandbox: str) -> None:
    (warning,) = load(folder, f"tasks: [problems.py@easy]\nsandbox: {sandbox}\n").warnings
    assert warning.startswith("sandbox local is no isolation: commands that a model writes run as you")
    assert "`sandbox: bubblewrap`" in warning


@pytest.mark.parametrize("sandbox", ["bubblewrap", "docker", "{type: docker, config: local}"])
def test_a_sandbox_with_isolation_is_not(folder: Path, sandbox: str) -> None:
    assert load(folder, f"tasks: [problems.py@easy]\nsandbox: {sandbox}\n").warnings == []


def test_a_sandbox_can_be_described_in_the_eval_set(folder: Path) -> None:
    config = {"network": "host", "limits": {"memory": "4g"}, "setup": {"packages": {"pip": ["numpy"]}}}
    text = f"tasks: [problems.py@easy]\nsandbox: {json.dumps({'type': 'bubblewrap', 'config': config})}\n"
    assert data(load(folder, text))["sandbox"] == {"type": "bubblewrap", "config": config}


def test_an_engine_that_is_not_there_is_refused(folder: Path) -> None:
    assert "engine" in refused(folder, "tasks: [problems.py@easy]\nengine: moon\n").message


def test_what_only_acts_on_a_cluster_is_said_elsewhere_only(folder: Path) -> None:
    runner = "runner: {memory: 2Gi, gpu: 1, volumes: [{mount: /data, claim: data}], deadline: 3600}\n"
    there = load(folder, f"tasks: [problems.py@easy]\nengine: kubernetes\n{runner}")
    assert there.warnings == []
    assert data(there)["engine"] == "kubernetes"
    (spread,) = load(folder, "tasks: [problems.py@easy]\nrunner: {workers: pods}\n").warnings
    assert "runner: workers only act on a cluster" in spread
    assert load(folder, "tasks: [problems.py@easy]\nrunner: {workers: processes}\n").warnings == []
    (here,) = load(folder, f"tasks: [problems.py@easy]\n{runner}").warnings
    assert "only act on a cluster" in here


@pytest.mark.parametrize(
    "runner",
    [
        "{memory: lots}",
        "{cpu: -1}",
        "{volumes: [{mount: data}]}",
        "{volumes: [{mount: /a, claim: b, secret: c}]}",
        "{deadline: 5}",
    ],
)
def test_a_runner_that_no_cluster_could_make_is_refused(folder: Path, runner: str) -> None:
    assert (
        "runner"
        in refused(folder, f"tasks: [problems.py@easy]\nengine: kubernetes\nrunner: {runner}\n").message
    )


def test_strict_isolation_is_refused_where_nothing_enforces_it(folder: Path) -> None:
    error = refused(
        folder,
        "tasks:\n  - file: problems.py\n    items: [{name: easy, isolation: {level: strict}}]\nisolation: strict\n",
    )
    assert sorted((p["line"], p["field"]) for p in error.fields["problems"]) == [
        (3, "tasks[0].items[0].isolation"),
        (4, "isolation"),
    ]


def test_data_from_a_request_is_checked_alike(folder: Path) -> None:
    good = {
        "tasks": [{"file": "problems.py", "items": [{"name": "easy"}]}],
        "agents": None,
        "who_knows": None,
    }
    loaded = parse_eval_set(good, base_dir=folder)
    assert data(loaded)["tasks"] == good["tasks"]
    assert loaded.warnings == []
    for body in ([], None, "x", {}, {"tasks": "a"}, {"tasks": [3]}, {"tasks": [{"file": "nope.py"}]}):
        with pytest.raises(ConfigError):
            parse_eval_set(body, base_dir=folder)
    with pytest.raises(ConfigError, match="nothing says which directory"):
        parse_eval_set(good)


def test_what_was_loaded_is_accepted_again_as_data(folder: Path) -> None:
    loaded = load(folder, "tasks: [problems.py@easy]\nmodels: [a/b]\nruns: 2\nsecrets: [K]\n")
    assert parse_eval_set(data(loaded), base_dir=folder).config == loaded.config


def test_python_script_is_accepted(folder: Path) -> None:
    script = folder / "evals.py"
    script.write_text("from inspect_ai import eval_set\neval_set([])\n")
    loaded = load_eval_set(script, environ={})
    assert (loaded.config, loaded.script, loaded.warnings) == (None, script, [])
    script.write_text("print('hello')\n")
    assert "does not seem to call eval_set()" in load_eval_set(script, environ={}).warnings[0]
    script.write_text("def f(:\n  pass\n")
    with pytest.raises(ConfigError, match=r"evals\.py:1: not valid Python"):
        load_eval_set(script, environ={})
