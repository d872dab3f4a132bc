"""What `hawk rescore` asks the server for."""

from __future__ import annotations

from pathlib import Path

import pytest

from hawk.cli.rescore import _body
from hawk.errors import ConfigError, UsageError

CONFIG = """
eval_set_id: original
tasks: [{package: some-package, name: some_package, items: [{name: t}]}]
attempts: {pass: {threshold: 0.5}}
"""


def test_without_a_config_the_saved_one_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "x")
    assert _body("original", None, None, ("A_KEY",), ()) == {
        "rescore": "original",
        "eval_set_id": None,
        "eval_set_config": None,
        "secrets": {"A_KEY": "x"},
    }


def test_another_config_does_not_bring_its_own_id(tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_text(CONFIG)
    body = _body("original", "new-name", file, (), ())
    assert (body["rescore"], body["eval_set_id"], body["base_dir"]) == ("original", "new-name", str(tmp_path))
    assert body["eval_set_config"]["attempts"]["pass"] == {"threshold": 0.5}
    assert body["source"] == CONFIG
    assert _body("original", None, file, (), ())["eval_set_id"] is None


def test_what_is_wrong_is_said_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not valid"):
        _body("original", "Not An Id", None, (), ())
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("tasks: []\nmesage_limit: 3\n")
    with pytest.raises(ConfigError):
        _body("original", None, wrong, (), ())
