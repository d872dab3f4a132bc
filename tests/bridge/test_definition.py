"""Real captures and runs of configs, each in a process of its own, with a model that needs no network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import list_eval_logs, read_eval_log

PROVIDER = """
from inspect_ai.model import ModelAPI, ModelOutput, ModelUsage, modelapi

@modelapi("scripted")
def scripted():
    class Scripted(ModelAPI):
        def __init__(self, model_name, base_url=None, api_key=None, config=None, answer="4", **kwargs):
            super().__init__(model_name, base_url, api_key, [], config)
            self.answer = answer

        async def generate(self, input, tools, tool_choice, config):
            output = ModelOutput.from_content(self.model_name, self.answer)
            output.usage = ModelUsage(input_tokens=3, output_tokens=1, total_tokens=4)
            return output

    return Scripted
"""

PROBLEMS = """
from pathlib import Path
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match
from helper import question

def samples(name, ids):
    with Path("constructed.txt").open("a") as f:
        f.write(name + "\\n")
    return [Sample(input=question(), target="4", id=i) for i in ids]

@task
def sums(level: int = 1):
    return Task(dataset=samples(f"sums-{level}", ["one", "two", "three"]), scorer=match())

@task
def products():
    return Task(dataset=samples("products", [None, None]), scorer=match())

@task
def broken():
    raise OSError("the data set is gone")
"""

AGENTS = """
from inspect_ai.agent import Agent, AgentState, agent
from inspect_ai.model import get_model
from inspect_ai.solver import solver

@agent
def echo(times: int = 1) -> Agent:
    async def execute(state: AgentState) -> AgentState:
        from helper import question  # a neighbour, imported late
        question()
        state.output = await get_model().generate(state.messages)
        state.messages.append(state.output.message)
        return state
    return execute

@solver
def quiet():
    async def solve(state, generate):
        return await generate(state)
    return solve
"""

RUN = """
import gc, json, sys
gc.disable()
from hawk.bridge.preload import Preload
Preload().finish(worker=False)  # as the process that forks workers does: twice as fast
gc.freeze()
gc.enable()
from hawk.bridge.definition import run_definition
from hawk.errors import HawkError
request = json.load(sys.stdin)
for config in request["configs"]:
    try:
        run_definition(config, job_id="job-1", base_dir=request["base"], log_dir=request["logs"],
                       defaults={"max_retries": 12, "attempt_timeout": 1800, "retry_on_error": 2})
    except HawkError as ex:
        print("REFUSED " + str(ex))
"""

PACKAGE = """
from inspect_ai import Task, task
from inspect_ai.model import ModelAPI, modelapi

@modelapi("oracle")
class Oracle(ModelAPI):
    pass

@task
def puzzle(size: int = 3):
    return Task()

@task
def riddle():
    return Task()
"""


def write_evals(folder: Path) -> Path:
    folder.mkdir()
    (folder / "provider.py").write_text(PROVIDER)
    (folder / "problems.py").write_text(PROBLEMS)
    (folder / "agents.py").write_text(AGENTS)
    (folder / "helper.py").write_text("def question(): return 'What is 2 + 2?'\n")
    return folder


def install_package(site: Path, name: str, code: str) -> None:
    """What pip leaves behind for a package that offers tasks to Inspect."""
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").write_text("")
    (site / name / "registry.py").write_text(code)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[inspect_ai]\n{name} = {name}.registry\n")
    (info / "top_level.txt").write_text(f"{name}\n")
    (info / "RECORD").write_text(f"{name}/__init__.py,,\n{name}/registry.py,,\n")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_evals(tmp_path / "evals")


MODEL = {"file": "provider.py", "items": [{"name": "scripted/a"}]}


def run(base: Path, *configs: dict[str, Any], **env: str) -> subprocess.CompletedProcess[str]:
    request = {"configs": configs, "base": str(base), "logs": str(base.parent / "logs")}
    paths = os.pathsep.join([str(base.parent / "site-packages"), os.environ.get("PYTHONPATH", "")])
    settings = {
        "INSPECT_DISPLAY": "none",
        "XDG_DATA_HOME": str(base.parent / "data"),
        "PYTHONPATH": paths,
        **env,
    }
    return subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(request),
        env={**os.environ, **settings},
        cwd=base.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )


def capture(base: Path, config: dict[str, Any]) -> dict[str, Any]:
    out = base.parent / "capture.json"
    done = run(base, config, INSPECT_EVAL_SET_CAPTURE=str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    assert out.exists(), done.stdout + done.stderr
    manifest: dict[str, Any] = json.loads(out.read_text())
    return manifest


def select(base: Path, config: dict[str, Any], tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run some tasks of a capture; the logs they leave."""
    document = {
        "version": 7,
        "eval_set_id": "job-1",
        "tasks": [{key: task[key] for key in ("identifier", "registry_name", "args_hash")} for task in tasks],
    }
    path = base.parent / "selection.json"
    path.write_text(json.dumps(document))
    (base / "constructed.txt").unlink(missing_ok=True)
    done = run(base, config, INSPECT_EVAL_SET_SELECTION=str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    logs = [read_eval_log(info).model_dump(mode="json") for info in list_eval_logs(str(base.parent / "logs"))]
    assert logs, done.stdout + done.stderr
    return logs


def test_capture_enumerates_tasks_times_agents_times_models(base: Path) -> None:
    manifest = capture(
        base,
        {
            "tasks": ["problems.py@sums", "problems.py@products"],
            "agents": [
                "agents.py@echo",
                {"file": "agents.py", "items": [{"name": "echo", "args": {"times": 2}}]},
            ],
            "solvers": ["agents.py@quiet"],
            "models": [
                {
                    "file": "provider.py",
                    "items": [{"name": "scripted/a"}, {"name": "scripted/b", "args": {"answer": "5"}}],
                }
            ],
            "runs": 2,
        },
    )
    tasks = manifest["tasks"]
    assert len(tasks) == len({task["identifier"] for task in tasks}) == 2 * 3 * 2
    assert {(t["name"], t["model"], t["solver"]) for t in tasks} == {
        (name, model, solver)
        for name in ("sums", "products")
        for model in ("scripted/a", "scripted/b")
        for solver in ("echo", "quiet")
    }
    assert {task["epochs"] for task in tasks} == {2}
    assert {task["file"] for task in tasks} == {"problems.py"}, "identity must not hold the machine's path"


def test_selection_runs_only_the_named_task_and_constructs_no_other(base: Path) -> None:
    config = {
        "tasks": [
            {
                "file": "problems.py",
                "items": [{"name": "sums"}, {"name": "sums", "args": {"level": 2}}, {"name": "products"}],
            }
        ],
        "models": [{"file": "provider.py", "items": [{"name": "scripted/a"}, {"name": "scripted/b"}]}],
        "agents": ["agents.py@echo"],
        "epochs": {"epochs": 2, "reducer": "max"},
        "tags": ["t1"],
        "metadata": {"team": "x"},
        "message_limit": 30,
    }
    tasks = capture(base, config)["tasks"]
    chosen = [t for t in tasks if t["args"] == {"level": 2} and t["model"] == "scripted/b"]
    (log,) = select(base, config, chosen)
    assert (base / "constructed.txt").read_text().split() == ["sums-2"]
    assert log["status"] == "success"
    assert log["eval"]["model"] == "scripted/b"
    assert log["eval"]["task_args"] == {"level": 2}
    assert log["eval"]["eval_set_id"] == "job-1"
    assert log["eval"]["tags"] == ["t1"]
    assert log["eval"]["metadata"]["team"] == "x"
    assert log["eval"]["config"]["epochs_reducer"] == ["max"]
    assert log["eval"]["config"]["message_limit"] == 30
    assert len(log["samples"]) == 3 * 2
    assert {sample["scores"]["match"]["value"] for sample in log["samples"]} == {"C"}
    assert log["plan"]["steps"][-1]["solver"] == "echo"
    assert log["plan"]["config"]["max_retries"] == 12
    assert log["eval"]["config"]["retry_on_error"] == 2


def test_defaults_yield_to_the_config_and_to_a_models_own(base: Path) -> None:
    own = {"name": "scripted/b", "args": {"config": {"max_retries": 3}}}
    config = {
        "tasks": ["problems.py@products"],
        "models": [{"file": "provider.py", "items": [{"name": "scripted/a"}, own]}],
        "retry_on_error": 0,
    }
    logs = select(base, config, capture(base, config)["tasks"])
    retries = {log["eval"]["model"]: log["eval"]["model_generate_config"]["max_retries"] for log in logs}
    assert retries == {"scripted/a": 12, "scripted/b": 3}
    assert {log["plan"]["config"].get("max_retries") for log in logs} == {None}
    assert {log["plan"]["config"]["attempt_timeout"] for log in logs} == {1800}
    assert {log["eval"]["config"]["retry_on_error"] for log in logs} <= {0, None}


def test_sample_ids_choose_samples_and_unset_ids_keep_their_position(base: Path) -> None:
    config = {
        "tasks": [
            {"file": "problems.py", "items": [
                {"name": "sums", "sample_ids": ["three", "one"]},
                {"name": "products", "sample_ids": [2]},
            ]}
        ],
        "models": [MODEL],
    }  # fmt: skip
    tasks = capture(base, config)["tasks"]
    assert [task["samples"] for task in tasks] == [2, 1]
    logs = select(base, config, tasks)
    ids = {log["eval"]["task"]: [sample["id"] for sample in log["samples"]] for log in logs}
    assert ids == {"sums": ["one", "three"], "products": [2]}


def test_file_without_items_gives_all_its_tasks(base: Path) -> None:
    (base / "two.py").write_text(
        "from inspect_ai import Task, task\n@task\ndef first(): return Task()\n@task\ndef second(): return Task()\n"
    )
    tasks = capture(base, {"tasks": ["two.py"], "models": [MODEL]})["tasks"]
    assert [task["name"] for task in tasks] == ["first", "second"]


def test_two_files_may_define_tasks_of_one_name(base: Path) -> None:
    for folder in ("x", "y"):
        (base / folder).mkdir()
        (base / folder / "t.py").write_text(
            "from inspect_ai import Task, task\nfrom inspect_ai.dataset import Sample\n"
            f"@task\ndef same(): return Task(dataset=[Sample(input='{folder}', id='{folder}')])\n"
        )
    config = {"tasks": ["x/t.py@same", "y/t.py@same"], "models": [MODEL]}
    logs = select(base, config, capture(base, config)["tasks"])
    assert {log["eval"]["task_file"]: log["samples"][0]["id"] for log in logs} == {
        "x/t.py": "x",
        "y/t.py": "y",
    }


def test_builtin_agent_roles_sandbox_and_approval_are_passed_on(base: Path) -> None:
    config = {
        "tasks": ["problems.py@products"],
        "models": [MODEL],
        "solvers": ["generate"],
        "model_roles": {"grader": {"file": "provider.py", "items": [{"name": "scripted/judge"}]}},
        "sandbox": "local",
        "approval": {"approvers": [{"name": "auto", "args": {"decision": "approve"}}]},
        "adaptive_connections": "2-8",
        "temperature": 0.5,
        "max_samples": 2,
        "runner": {"environment": {"SEEN": "yes"}},
    }
    (log,) = select(base, config, capture(base, config)["tasks"])
    assert log["eval"]["model_roles"]["grader"]["model"] == "scripted/judge"
    assert log["eval"]["sandbox"]["type"] == "local"
    assert log["eval"]["config"]["approval"]["approvers"][0]["name"] == "auto"
    assert log["plan"]["config"]["temperature"] == 0.5
    assert log["plan"]["config"]["adaptive_connections"]["max"] == 8


def item(file: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"file": file, "items": [{"name": name, **fields}]}


REFUSALS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "task of a file": ({"tasks": ["problems.py@sum"]}, ["no task 'sum'", "Did you mean 'sums'?", "products"]),
    "task of a package": (
        {"tasks": ["acme_evals/puzle"]},
        ["acme_evals has no task 'puzle'", "'puzzle'", "riddle"],
    ),
    "package": ({"tasks": ["acme_eval/puzzle"]}, ["No installed package", "Did you mean 'acme_evals'?"]),
    "package that fails": ({"tasks": ["torn_evals/x"]}, ["torn_evals", "ImportError: no such luck"]),
    "argument": (
        {"tasks": [item("problems.py", "sums", args={"lvel": 2})]},
        ["takes no argument 'lvel'", "Did you mean 'level'?"],
    ),
    "sample": (
        {"tasks": [item("problems.py", "sums", sample_ids=["thre"])]},
        ["no sample 'thre'", "Did you mean 'three'?"],
    ),
    "data set": (
        {"tasks": ["problems.py@broken"]},
        ["Task broken", "OSError: the data set is gone", "problems.py:"],
    ),
    "provider": (
        {"models": [{"package": "inspect-ai", "items": [{"name": "antropic/m"}]}]},
        ["Model antropic/m", "no model provider 'antropic'", "Did you mean 'anthropic'?"],
    ),
    "provider of a package": (
        {"models": [{"package": "acme-evals", "name": "acme_evals", "items": [{"name": "oracle/m"}]}]},
        ["Model acme_evals/oracle/m", "acme_evals is a package", "It has: oracle", "`name:`"],
    ),
    "model option": (
        {"models": [item("provider.py", "scripted/a", args={"config": {"temprature": 1}})]},
        ["no option 'temprature'", "Did you mean 'temperature'?"],
    ),
    "agent": (
        {"agents": ["reactt"]},
        ["inspect-ai has no agent or solver 'reactt'", "Did you mean 'react'?"],
    ),
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What is said to each of REFUSALS, from one process."""
    base = write_evals(tmp_path_factory.mktemp("refusals") / "evals")
    install_package(base.parent / "site-packages", "acme_evals", PACKAGE)
    install_package(base.parent / "site-packages", "torn_evals", "raise ImportError('no such luck')")
    whole = {"tasks": ["problems.py@sums"], "models": [MODEL]}
    done = run(
        base,
        *({**whole, **change} for change, _ in REFUSALS.values()),
        INSPECT_EVAL_SET_CAPTURE=str(base.parent / "capture.json"),
    )
    said = [line.removeprefix("REFUSED ") for line in done.stdout.splitlines() if line.startswith("REFUSED ")]
    assert len(said) == len(REFUSALS), done.stdout + done.stderr
    return said


@pytest.mark.parametrize("what", REFUSALS)
def test_what_can_not_be_made_is_named_with_what_there_is(refused: list[str], what: str) -> None:
    said = refused[list(REFUSALS).index(what)]
    for word in REFUSALS[what][1]:
        assert word in said


def test_task_of_an_installed_package_is_found_by_its_registry_name(base: Path) -> None:
    install_package(base.parent / "site-packages", "acme_evals", PACKAGE)
    entry = {
        "package": "acme-evals",
        "name": "acme_evals",
        "items": [{"name": "puzzle", "args": {"size": 4}}],
    }
    (task,) = capture(base, {"tasks": [entry], "models": [MODEL]})["tasks"]
    assert (task["registry_name"], task["args"]) == ("acme_evals/puzzle", {"size": 4})


def test_script_runs_as_main_with_its_own_directory_first(base: Path) -> None:
    script = base / "my_evals.py"
    script.write_text(
        "import sys\nfrom helper import question\nfrom inspect_ai import eval_set\nfrom problems import products\n"
        "import provider\n"
        "if __name__ == '__main__':\n"
        "    assert sys.argv[1:] == ['--fast'] and __file__.endswith('my_evals.py')\n"
        "    eval_set([products()], log_dir='ignored', model='scripted/a')\n"
    )
    out = base.parent / "capture.json"
    code = "import sys; from pathlib import Path; from hawk.bridge.definition import run_script; run_script(Path(sys.argv[1]), ['--fast'])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(script)],
        env={**os.environ, "INSPECT_EVAL_SET_CAPTURE": str(out), "INSPECT_DISPLAY": "none"},
        cwd=base,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert [task["name"] for task in json.loads(out.read_text())["tasks"]] == ["products"]
