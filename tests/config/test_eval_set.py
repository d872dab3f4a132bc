"""What an eval set may say, and what becomes of it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from hawk.config.check import PASSTHROUGH, RESERVED, WITHOUT_EFFECT
from hawk.config.eval_set import EvalSetConfig

PUBLIC: dict[str, Any] = {
    "name": "demo",
    "eval_set_id": None,
    "packages": ["git+https://github.com/acme/tools@v2"],
    "tasks": [
        {
            "package": "git+https://github.com/acme/tasks@v1",
            "name": "tasks",
            "items": [
                {"name": "ctf", "args": {"level": 2}, "sample_ids": ["a", 2], "secrets": [{"name": "FLAG"}], "isolation": None}
            ],
        },
        {"package": "inspect-evals", "name": "inspect_evals", "items": [{"name": "mbpp", "args": None, "sample_ids": None}]},
    ],
    "models": [
        {"package": "inspect-ai", "items": [{"name": "openai/gpt-4o", "args": {"config": {"temperature": 0.5}, "api_key": None}}]},
        {"package": "acme-models==1.2", "name": "acme", "items": [{"name": "big"}]},
    ],
    "model_roles": {"grader": {"package": "inspect-ai", "items": [{"name": "openai/gpt-4o-mini"}]}},
    "solvers": None,
    "agents": [{"package": "inspect-ai", "items": [{"name": "react", "args": {"attempts": 2}}]}],
    "approval": {"approvers": [{"name": "human", "tools": ["bash*"]}, {"name": "auto", "tools": "*"}]},
    "score": True,
    "limit": [0, 10],
    "sample_shuffle": 7,
    "epochs": {"epochs": 4, "reducer": ["mean", "at_least_1"]},
    "message_limit": 100,
    "token_limit": 200000,
    "time_limit": 3600,
    "working_limit": 1800,
    "cost_limit": 2.5,
    "model_cost_config": {"openai/gpt-4o": {"input": 1, "output": 2, "input_cache_write": 0, "input_cache_read": 0}},
    "retry_attempts": 3,
    "max_retries": 5,
    "log_realtime": True,
    "log_model_api": True,
    "adaptive_connections": "5-10-50",
    "acp_server": 8000,
    "approval_timeout_minutes": 30,
    "monitor": False,
    "isolation": {"level": "strict", "allow_domains": ["example.org"]},
    "checkpoint": {"enabled": True, "trigger": {"type": "turn", "every": 20}, "sandbox_paths": {"default": ["/w"]}},
    "human_eval": None,
    "scan": None,
    "tags": ["x"],
    "metadata": {"any": {"thing": [1, None]}},
    "secrets": [{"type": "env", "name": "HF_TOKEN", "description": "for data sets"}],
    "runner": {
        "image_tag": None,
        "memory": "8Gi",
        "cpu": "2",
        "cleanup": True,
        "secrets": [{"name": "HF_TOKEN"}, {"name": "OPENAI_API_KEY"}],
        "environment": {"FOO": "bar", "N": 3},
    },
}  # fmt: skip


def make(**fields: Any) -> EvalSetConfig:
    return EvalSetConfig.model_validate({"tasks": ["a.py@t"], **fields})


def test_the_public_clients_format_validates_and_survives_a_round_trip() -> None:
    config = EvalSetConfig.model_validate(PUBLIC)
    assert EvalSetConfig.model_validate(config.to_data()) == config
    assert config.attempts_per_pair == 4
    assert [secret.name for secret in config.required_secrets] == ["FLAG", "HF_TOKEN", "OPENAI_API_KEY"]
    assert config.runner.environment == {"FOO": "bar", "N": "3"}
    assert config.requirements == [
        "git+https://github.com/acme/tasks@v1",
        "inspect-evals",
        "acme-models==1.2",
        "git+https://github.com/acme/tools@v2",
    ]


def test_plain_data_holds_only_what_was_said() -> None:
    assert make(runs=2, agents=None).to_data() == {
        "tasks": [{"file": "a.py", "items": [{"name": "t"}]}],
        "runs": 2,
    }


def test_short_forms_stand_for_entries() -> None:
    config = make(
        tasks=["a.py", "dir/b.py@t", "pkg/t", {"package": "some-evals>=1", "items": [{"name": "x"}]}],
        models=["openai/gpt", "own.py@scripted/a"],
        agents=["react"],
        secrets=["KEY"],
        sandbox="local",
        attempts="parallel",
        isolation="standard",
    )
    whole, one, package, derived = config.tasks
    assert (whole.file, whole.items) == ("a.py", [])
    assert (one.file, one.items[0].name) == ("dir/b.py", "t")
    assert package.qualified("t") == "pkg/t"
    assert derived.qualified("x") == "some_evals/x"
    assert config.models[0].qualified(config.models[0].items[0].name) == "openai/gpt"
    assert (config.models[1].file, config.models[1].items[0].name) == ("own.py", "scripted/a")
    assert config.agents[0].package == "inspect-ai"
    assert config.sandbox is not None
    assert config.sandbox.type == "local"


def test_a_word_or_a_path_among_tasks_is_a_folder_of_evals() -> None:
    config = make(
        tasks=["evals", "more/", "./a/b", "../up/x", {"folder": "/abs/y", "suites": ["s*"]}, "p/task"]
    )
    assert [entry.folder for entry in config.tasks] == ["evals", "more/", "./a/b", "../up/x", "/abs/y", None]
    assert [entry.folder_name for entry in config.tasks[:5]] == ["evals", "more", "a-b", "up-x", "y"]
    assert config.requirements == ["p"]


def test_experiments_bring_their_secrets_and_packages() -> None:
    model = {"package": "acme-models", "items": [{"name": "big", "secrets": ["KEY"]}]}
    config = make(experiments=[{"name": "a", "model": model, "agent": "react", "time_limit": 5}])
    assert config.experiments[0].limits == {"time_limit": 5}
    assert config.requirements == ["acme-models"]
    assert [secret.name for secret in config.required_secrets] == ["KEY"]
    assert EvalSetConfig.model_validate(config.to_data()) == config


def test_a_model_of_a_package_may_be_written_with_or_without_its_prefix() -> None:
    entry = make(models=[{"package": "acme", "items": [{"name": "big"}]}]).models[0]
    assert entry.qualified("big") == entry.qualified("acme/big") == "acme/big"


@pytest.mark.parametrize(
    ("fields", "number"),
    [
        ({}, None),
        ({"runs": 3}, 3),
        ({"epochs": 3}, 3),
        ({"epochs": 3, "runs": 3}, 3),
        ({"epochs": {"epochs": 2}}, 2),
    ],
)
def test_runs_and_epochs_are_one_number(fields: dict[str, Any], number: int | None) -> None:
    assert make(**fields).attempts_per_pair == number


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"runs": 3, "epochs": 2}, "give one of them"),
        ({"eval_set_id": "x" * 44}, "44 characters"),
        ({"eval_set_id": "Has Spaces"}, "has-spaces"),
        ({"tasks": []}, "at least 1"),
        ({"tasks": [{"package": "p", "file": "f.py"}]}, "either 'package', 'file' or 'folder'"),
        ({"tasks": [{"folder": "f", "items": [{"name": "t"}]}]}, "no 'items'"),
        ({"tasks": [{"file": "f.py", "suites": ["s"]}]}, "for other tasks use 'items'"),
        ({"models": [{"package": "p", "file": "f.py"}]}, "either 'package' or 'file'"),
        ({"experiments": ["x.yaml"]}, "has to be read with its directory"),
        ({"experiments": [{"name": "a/b", "model": "p/m"}]}, "experiments.0.name"),
        ({"experiments": [{"name": "a"}]}, "experiments.0.model"),
        ({"tasks": [{"file": "f.txt"}]}, "must be a Python file"),
        ({"tasks": [{"package": "p"}]}, "'items' must name at least one"),
        ({"tasks": [{"package": "git+https://x/y", "items": [{"name": "t"}]}]}, "'name' is missing"),
        ({"tasks": [{"package": "inspect_ai[x]", "items": [{"name": "t"}]}]}, "package: inspect-ai"),
        ({"tasks": [{"file": "f.py", "items": [{"name": "t", "sample_ids": [1, "1"]}]}]}, "more than once: 1"),
        ({"models": [{"package": "inspect-ai", "items": [{"name": "m/x", "args": {"api_key": "k"}}]}]}, "'api_key'"),
        ({"model_roles": {"judge": {"package": "inspect-ai", "items": [{"name": "a/b"}, {"name": "c/d"}]}}}, "one is allowed"),
        ({"attempts": "paralel"}, "'parallel'"),
        ({"token_limit": 0}, "greater than or equal to 1"),
    ],
)  # fmt: skip
def test_what_can_not_be_meant_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words.replace("[", r"\[")):
        make(**fields)


def test_every_option_of_inspects_eval_set_is_accounted_for() -> None:
    """An upgrade of Inspect that adds or drops an option fails here."""
    code = (
        "import inspect\nfrom inspect_ai import eval_set\n"
        "from inspect_ai.model._generate_config import GenerateConfigArgs as G\n"
        "print(*(set(inspect.signature(eval_set).parameters) - {'kwargs'}) | set(G.__annotations__))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    inspects = set(done.stdout.split())
    ours = set(EvalSetConfig.model_fields)
    assert inspects - ours - PASSTHROUGH - set(RESERVED) - set(WITHOUT_EFFECT) == set()
    assert PASSTHROUGH | set(WITHOUT_EFFECT) <= inspects
    assert set(RESERVED) - inspects == {"scans", "scanners"}, "words of the public Hawk"
    assert not ours & (PASSTHROUGH | set(RESERVED) | set(WITHOUT_EFFECT))
