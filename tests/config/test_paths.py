"""Paths and packages of the disk that an eval set names."""

from __future__ import annotations

from pathlib import Path

import pytest

from hawk.config.eval_set import EvalSetConfig
from hawk.config.load import parse_eval_set
from hawk.config.paths import existing_paths, leads_out, made_relative, named_paths
from hawk.config.place import make_place, place
from hawk.config.requirements import directory_of, located
from hawk.errors import ConfigError


@pytest.mark.parametrize(
    ("requirement", "directory", "where"),
    [
        ("./pkg", "./pkg", "/base/pkg"),
        (".", ".", "/base"),
        ("../pkg[dev, extra]", "../pkg", "/pkg[dev, extra]"),
        ("-e ./pkg", "./pkg", "-e /base/pkg"),
        ("/abs/pkg", "/abs/pkg", "/abs/pkg"),
        ("pkg @ file:///abs/pkg", "/abs/pkg", "pkg @ file:///abs/pkg"),
        ("pkg", None, "pkg"),
        ("pkg[x]>=1.2", None, "pkg[x]>=1.2"),
        ("git+https://host/a/b.git@v1", None, "git+https://host/a/b.git@v1"),
        ("inspect-evals==0.3 ; python_version < '4'", None, "inspect-evals==0.3 ; python_version < '4'"),
    ],
)
def test_a_package_of_the_disk_is_found_from_anywhere(
    requirement: str, directory: str | None, where: str
) -> None:
    assert directory_of(requirement) == directory
    assert located(requirement, "/base") == where


def test_every_path_that_must_be_there_is_named() -> None:
    config = EvalSetConfig.model_validate(
        {
            "tasks": ["a.py@t", "evals/", {"package": "./pkg", "name": "pkg", "items": [{"name": "t"}]}],
            "experiments": [{"name": "e", "model": "mockllm/model", "agent": "../d.py@x"}],
            "model_roles": {"judge": "m.py@p/m"},
            "packages": ["./more", "anthropic"],
        }
    )
    paths = [path for _, path in named_paths(config)]
    assert paths == ["a.py", "evals/", "./pkg", "m.py", "../d.py", "./more"]
    assert [path for path in paths if leads_out(path)] == ["../d.py"]


def test_paths_become_relative_where_they_are_in_the_directory(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.jsonl").touch()
    outside = str(tmp_path.parent)
    data = {
        "here": str(tmp_path),
        "a": [f"{tmp_path}/data/x.jsonl", outside],
        "name": "data",
        "b": {"c": "data", "d": f"{tmp_path}/no", "e": 1},
    }
    assert made_relative(data, tmp_path) == {
        "here": ".",
        "a": ["./data/x.jsonl", outside],
        "name": "data",
        "b": {"c": "data", "d": f"{tmp_path}/no", "e": 1},
    }
    assert existing_paths(
        {"a": ["data/x.jsonl", "no", outside], "name": "data", "b": "x" * 5000}, tmp_path
    ) == [
        "data/x.jsonl",
        outside,
    ]


@pytest.mark.parametrize(
    "config",
    [
        {"tasks": [{"file": "/etc/passwd.py", "items": [{"name": "t"}]}]},
        {"tasks": [{"folder": "a/../.."}]},
        {"tasks": ["t.py@x"], "packages": ["../pkg"]},
        {"tasks": ["t.py@x"], "experiments": ["../*.yaml"]},
        {"tasks": ["t.py@x"], "experiments": "/etc/*.yaml"},
    ],
)
def test_of_files_that_were_sent_none_is_looked_for_elsewhere(
    config: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "t.py").write_text("from inspect_ai import task\n@task\ndef x(): ...\n")
    with pytest.raises(ConfigError, match="leads out of the files that were sent along"):
        parse_eval_set(config, base_dir=tmp_path, inside=True)


def test_a_place_is_one_home_on_one_machine(tmp_path: Path) -> None:
    assert place(tmp_path / "a") is None
    here = make_place(tmp_path / "a")
    assert here is not None
    assert here == place(tmp_path / "a") == make_place(tmp_path / "a")
    assert here != make_place(tmp_path / "b")
    assert (tmp_path / "a" / "identity").stat().st_mode & 0o077 == 0
    assert (tmp_path / "a" / "identity").read_text().strip() not in here
