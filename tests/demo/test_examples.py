"""Every example loads, and says what it would run."""

from pathlib import Path

import pytest

from hawk.config.load import load_eval_set
from tests.commandline import EXAMPLES, CommandLine

CONFIGS = sorted(EXAMPLES.glob("*.yaml"))
SECRETS = {"openai.yaml": "OPENAI_API_KEY", "packages.yaml": "ANTHROPIC_API_KEY"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_example_loads_without_a_warning(path: Path) -> None:
    loaded = load_eval_set(path, environ={})
    assert loaded.warnings == []
    assert loaded.config is not None
    assert loaded.config.tasks


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_files_that_an_example_names_exist(path: Path) -> None:
    config = load_eval_set(path, environ={}).config
    assert config is not None
    for entry in [*config.tasks, *config.models]:
        assert entry.file is None or (EXAMPLES / entry.file).is_file()


@pytest.mark.parametrize("path", [*CONFIGS, EXAMPLES / "script.py"], ids=lambda path: path.name)
def test_check_submits_nothing(path: Path, tmp_path: Path) -> None:
    secrets = {SECRETS[path.name]: "for-the-test"} if path.name in SECRETS else {}
    hawk = CommandLine(tmp_path, **secrets)
    assert "Nothing was submitted." in hawk.ok("eval-set", path, "--check")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(("name", "secret"), SECRETS.items())
def test_missing_key_is_named_before_anything_runs(name: str, secret: str, tmp_path: Path) -> None:
    hawk = CommandLine(tmp_path)
    hawk.environ.pop(secret, None)
    done = hawk.run("eval-set", EXAMPLES / name)
    assert done.returncode != 0
    assert secret in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "home").exists()
