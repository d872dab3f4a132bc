"""What is imported ahead of time, and what only when somebody needs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from hawk.bridge import preload

OPENAI = "inspect_ai.model._providers.openai"
COMPATIBLE = "inspect_ai.model._providers.openai_compatible"
ANTHROPIC = "inspect_ai.model._providers.anthropic"


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ('{"name": "mockllm/model"}', []),
        ('{"name":"openai/gpt-5"},{"name":"anthropic/claude"}', [OPENAI, ANTHROPIC]),
        ("eval_set(tasks, model='anthropic/claude')", [ANTHROPIC]),
        ("openai-api/house/m", [COMPATIBLE]),
        ("openai-api-completions/house/m", [COMPATIBLE]),
        ("openrouter/anthropic/claude", [COMPATIBLE]),
        ("/src/openai/gpt", []),
    ],
)
def test_the_libraries_of_the_models_that_a_job_names(text: str, modules: list[str]) -> None:
    assert preload.providers_in(text) == modules


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Modules in the order in which they would be imported."""
    names: list[str] = []
    monkeypatch.setattr(preload, "importlib", SimpleNamespace(import_module=names.append))
    monkeypatch.setattr(preload, "_start_samples_light", lambda: names.append("light"))
    monkeypatch.setattr(preload, "_model_facts", lambda: names.append("facts"))
    return names


def test_while_no_job_is_known_everything_is_imported(imported: list[str]) -> None:
    work = preload.Preload()
    while not work.done:
        work.step()
    assert imported[:2] == ["inspect_ai._eval.evalset", "light"]
    assert imported[-5] == "facts"
    assert {OPENAI, COMPATIBLE, ANTHROPIC} < set(imported[-4:])
    work.know("openai/gpt-5")
    assert work.done


def test_for_a_job_only_the_libraries_that_it_names_are_imported(imported: list[str]) -> None:
    work = preload.Preload()
    work.step()
    work.know("openai/gpt-5")
    work.finish(worker=False)
    assert imported[-1] == OPENAI
    assert "facts" not in imported
    work.know("anthropic/claude")  # never another job
    work.finish(worker=True)
    assert imported[-1] == "facts"
    assert work.done
    assert {COMPATIBLE, ANTHROPIC} & set(imported) == set()
    assert len(set(imported)) == len(imported)


def test_samples_share_no_memory_of_a_provider_that_is_imported_while_they_run(tmp_path: Path) -> None:
    script = Path(__file__).with_name("lightly.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["status"], found["error"]) == ("success", "[]")
    assert found["not there"] == []
    assert (found["preloaded"], found["in a sample"]) == ([], [])
    for name in ("one", "two"):
        assert found[name]["anthropic"]["tool_call_internal_names"] == {name: "internal"}
        assert found[name]["openai"]["tool_calls"] == {name: {}}
        assert set(found[f"restored {name}"]["tool_calls"]) == {name, f"saved-{name}"}
    assert found["outside"] is None


def test_a_faster_parser_reads_the_same_table_of_models() -> None:
    from inspect_ai.model._model_data import model_data

    tables = sorted(Path(model_data.__file__).parent.glob("*.yml"))
    assert tables
    for table in tables:
        text = table.read_bytes()
        assert yaml.load(text, yaml.CSafeLoader) == yaml.safe_load(text)
