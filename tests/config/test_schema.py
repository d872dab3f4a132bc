"""The schema and the manual say what the code does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hawk.config.eval_set import EvalSetConfig
from hawk.config.schema import MANUAL_FILE, SCHEMA_FILE, json_schema, render_manual, render_schema
from tests.config.test_eval_set import PUBLIC

DOCS = Path(__file__).parents[2] / "docs"
STALE = "run: python -m hawk.config.schema"


def test_published_schema_is_current() -> None:
    assert (DOCS / SCHEMA_FILE).read_text("utf-8") == render_schema(), STALE


def test_manual_is_current_and_names_every_field() -> None:
    manual = (DOCS / MANUAL_FILE).read_text("utf-8")
    assert manual == render_manual(manual), STALE
    for name in EvalSetConfig.model_fields:
        assert f"| `{name}` |" in manual


def test_every_field_has_a_description() -> None:
    schema = json_schema()
    for title, model in {"": schema, **schema["$defs"]}.items():
        for name, field in model.get("properties", {}).items():
            assert field.get("description"), f"{title}.{name}"


def without_null(value: Any) -> Any:
    return (
        {k: without_null(v) for k, v in value.items() if v is not None} if isinstance(value, dict) else value
    )


@pytest.mark.parametrize(
    "config",
    [
        without_null({**PUBLIC, "tasks": ["a.py@t"], "models": ["openai/x"]}),
        {"tasks": ["a.py", {"file": "b.py", "items": [{"name": "t"}]}], "runs": 2, "temperature": 1},
        {
            "tasks": ["p/t"],
            "epochs": 2,
            "attempts": "parallel",
            "sandbox": {"type": "docker", "config": "c.yaml"},
        },
    ],
)
def test_editors_accept_what_hawk_accepts(config: dict[str, Any]) -> None:
    EvalSetConfig.model_validate(config)
    jsonschema.validate(config, json.loads(render_schema()))


@pytest.mark.parametrize(
    "change", [{"taks": []}, {"runs": 0}, {"tasks": []}, {"attempts": "x"}, {"log_dir": "x"}]
)
def test_editors_mark_what_hawk_refuses(change: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"tasks": ["a.py"], **change}, json_schema())
