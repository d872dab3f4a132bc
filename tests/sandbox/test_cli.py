"""`hawk sandbox`: build, list, sweep, prune, import, as processes with real sandboxes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from hawk.sandbox.layers import LayerStore
from tests.cli.terminal import Terminal
from tests.sandbox.hawkrun import JOB, hawk, listed, living, said, small_root, write_config

pytestmark = pytest.mark.slow

SETUP = """
setup:
  files: {data.txt: {text: "some data"}}
  script: "cat data.txt; echo made > made.txt"
"""


@pytest.fixture
def config(home: Path, tmp_path: Path) -> Path:
    return write_config(tmp_path, SETUP)


def grown_old(home: Path, days: float) -> None:
    """Nobody has used any layer for so long."""
    at = time.time() - days * 86400
    for path in (home / "sandbox" / "locks").glob("*.use"):
        os.utime(path, (at, at))


def keys(home: Path) -> set[str]:
    return {layer.key for layer in LayerStore(home / "sandbox").list()}


# --- build


def test_build_shows_its_steps_and_builds_once(config: Path) -> None:
    first = said("build", config)
    assert "s  setup: files" in first
    assert "s  setup: the script" in first
    assert "default: setup: 1 file, script cat data.txt" in first
    assert "built (" in first
    again = said("build", cwd=config.parent)
    assert "already there (" in again
    assert "s  setup:" not in again


def test_a_layer_that_was_built_is_what_sandboxes_see(config: Path) -> None:
    said("build", config)
    assert hawk("shell", config, "--", "cat", "made.txt").stdout == b"made\n"
    assert [layer["description"] for layer in listed()["layers"]] == [
        "setup: 1 file, script cat data.txt; echo made > made.txt"
    ]


def test_build_verifies_and_builds_again_what_was_damaged(config: Path, home: Path) -> None:
    assert "verified" in said("build", config, "--verify")
    [made] = (home / "sandbox" / "layers").glob("*/root/workspace/made.txt")
    info = made.stat()
    made.write_text("MADE\n")  # as long as before, and dated back: only reading it tells
    os.utime(made, ns=(info.st_atime_ns, info.st_mtime_ns))
    damaged = said("build", config, "--verify", code=1)
    assert "made.txt" in damaged
    assert "hawk sandbox build --rebuild" in damaged
    assert "built (" in said("build", config, "--rebuild", "--verify")
    assert made.read_text() == "made\n"


def test_a_layer_in_use_is_not_rebuilt(config: Path, home: Path) -> None:
    said("build", config)
    [key] = keys(home)
    with LayerStore(home / "sandbox").hold(key):
        assert "is in use" in said("build", config, "--rebuild", code=1)
    assert keys(home) == {key}


def test_inspects_tools_are_built_and_rebuilt_with_the_rest(home: Path, tmp_path: Path) -> None:
    (tmp_path / "sandbox.yaml").write_text("network: host\n")
    assert "Inspect's tools, version" in said("build", cwd=tmp_path)
    assert "built (" in said("build", "--rebuild", cwd=tmp_path)


def test_a_step_that_fails_says_how_it_ended(home: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, "setup: {script: 'echo before; echo the reason >&2; exit 9'}")
    text = said("build", path, code=1)
    assert "the script ended with exit code 9" in text
    assert "the reason" in text
    assert "Traceback" not in text
    assert keys(home) == set()


def test_build_says_when_there_is_nothing_to_do(home: Path, tmp_path: Path) -> None:
    assert "nothing to build" in said("build", write_config(tmp_path, "network: host"))
    assert "There is no sandbox.yaml here" in said("build", cwd=home.parent, code=2)


EVALS = "tasks: [{file: deep/tasks.py, items: [{name: easy}]}]\nmodels: [{package: inspect-ai, items: [{name: mockllm/model}]}]\n"


@pytest.mark.parametrize(
    "sandbox",
    [
        "sandbox: bubblewrap",  # finds what is beside the task, as Inspect does
        "sandbox: {type: bubblewrap, config: deep/sandbox.yaml}",
        "sandbox: {type: bubblewrap, config: {inspect_tools: false, setup: {script: echo deep}}}",
    ],
)
def test_build_takes_the_sandbox_of_an_eval_set(home: Path, tmp_path: Path, sandbox: str) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/tasks.py").write_text("from inspect_ai import task\n\n@task\ndef easy():\n    pass\n")
    write_config(tmp_path / "deep", "setup: {script: echo deep}")
    evals = tmp_path / "evals.yaml"
    evals.write_text(f"{EVALS}{sandbox}\n")
    assert "default: setup: script echo deep: built" in said("build", evals)


def test_an_eval_set_without_bubblewrap_is_refused(home: Path, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/tasks.py").write_text("from inspect_ai import task\n\n@task\ndef easy():\n    pass\n")
    evals = tmp_path / "evals.yaml"
    for sandbox, why in (("", "it names no sandbox"), ("sandbox: docker\n", "its sandbox is 'docker'")):
        evals.write_text(EVALS + sandbox)
        assert why in said("build", evals, code=2)


# --- list and sweep


def test_list_names_the_sandboxes_that_live_and_whose_they_are(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with living(monkeypatch, environment={"A": "not for lists"}) as label:
        [row] = listed()["sandboxes"]
        assert (row["label"], row["job_id"], row["worker"]) == (label, JOB, "3")
        assert row["age"] >= 0
        assert "environment" not in row
        text = said("list")
        assert label in text
        assert JOB in text
    assert listed()["sandboxes"] == []
    assert "No sandbox lives" in said("list")


def dead_keeper(home: Path, name: str = "1-dead") -> Path:
    """What a keeper leaves that was killed with all its processes: here its files."""
    store = home / "sandbox"
    (store / "scratch" / name / "box").mkdir(parents=True)
    (store / "keepers").mkdir(exist_ok=True)
    path = store / "keepers" / f"{name}.json"
    path.write_text(json.dumps({"HAWK_JOB_ID": JOB, "pid": 1}))
    return path


def test_sweep_removes_what_dead_keepers_left_and_nothing_of_the_living(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with living(monkeypatch) as label:
        left = dead_keeper(home)
        assert listed()["left"] == ["1-dead"]
        assert "hawk sandbox sweep" in said("list")
        assert "Would remove what 1 dead keeper left" in said("sweep", "--dry-run")
        assert left.exists()
        swept = json.loads(said("sweep", "--json"))
        assert (swept["keepers"], swept["directories"]) == (["1-dead"], 1)
        assert not left.exists()
        assert not (home / "sandbox/scratch/1-dead").exists()
        assert [row["label"] for row in listed()["sandboxes"]] == [label]
    assert "Nothing was left behind" in said("sweep")


# --- prune


def test_prune_removes_layers_that_were_not_used_for_long(config: Path, home: Path, tmp_path: Path) -> None:
    said("build", config)
    assert "No layer to remove" in said("prune", "-y")
    grown_old(home, 8)
    newer = write_config(tmp_path, "setup: {script: echo newer}", "newer.yaml")
    said("build", newer)
    assert "could be removed" in said("prune", "--dry-run")
    assert len(keys(home)) == 2
    assert "no terminal" in said("prune", code=2)
    assert "Removed 1 layer" in said("prune", "-y")
    assert [layer["description"] for layer in listed()["layers"]] == ["setup: script echo newer"]
    assert "Removed 1 layer" in said("prune", "--all", "-y")
    assert keys(home) == set()


def test_prune_keeps_what_is_in_use_and_what_was_imported(
    config: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root.tar").write_bytes(small_root("cat"))
    said("import", "mine", tmp_path / "root.tar")
    image = keys(home)
    said("build", config)
    grown_old(home, 8)
    [setup] = keys(home) - image
    with LayerStore(home / "sandbox").hold(setup):
        assert "No layer to remove" in said("prune", "--all", "-y")
    said("prune", "--all", "-y")
    assert keys(home) == image


def test_prune_asks_on_a_terminal(config: Path, home: Path) -> None:
    said("build", config)
    for answer, code, left in (("n", 1, 1), ("y", 0, 0)):
        with Terminal("sandbox", "prune", "--all", env=dict(os.environ)) as terminal:
            terminal.until(r"Remove 1 layer, .*\[y/N\]")
            terminal.process.sendline(answer)
            assert terminal.end(100) == code
        assert len(keys(home)) == left


def test_prune_wants_one_age_that_makes_sense(home: Path) -> None:
    assert "'soon' is not a duration" in said("prune", "--older-than", "soon", code=2)
    assert "can't both be meant" in said("prune", "--older-than", "1d", "--all", code=2)


# --- import


def test_an_imported_image_is_a_root_file_system_by_its_name(home: Path, tmp_path: Path) -> None:
    (tmp_path / "root.tar").write_bytes(small_root("cat"))
    assert "mine: rootfs: root.tar: unpacked (" in said("import", "mine", "root.tar", cwd=tmp_path)
    assert "already there" in said("import", "same:1", "root.tar", cwd=tmp_path)
    found = listed()
    assert set(found["images"]) == {"mine", "same:1"}
    assert set(found["images"].values()) == keys(home)
    config = write_config(tmp_path, "rootfs: same:1")
    assert hawk("shell", config, "--", "cat", "/etc/motd").stdout == b"a small one\n"
    assert "another name still" in said("import", "--remove", "mine")
    assert "Removed same:1" in said("import", "--remove", "same:1")
    assert keys(home) == set()
    assert "There is no image 'same:1'" in said("build", config, code=2)


def test_a_directory_can_be_imported(home: Path, tmp_path: Path) -> None:
    (tmp_path / "tree/bin").mkdir(parents=True)
    said("import", "tree", tmp_path / "tree")
    assert set(listed()["images"]) == {"tree"}


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["Not/a/name", "x.tar"], "can't be the name of an image"),
        (["image.tar"], "can't be the name of an image"),
        (["mine", "./none.tar"], "There is no file './none.tar'"),
        (["--remove", "mine"], "There is no image 'mine'"),
        (["--remove", "mine", "source"], "takes a name and no source"),
    ],
)
def test_what_can_not_be_imported_is_said(home: Path, args: list[str], why: str) -> None:
    assert why in said("import", *args, code=2)


def test_a_file_that_is_no_root_file_system_is_refused(home: Path, tmp_path: Path) -> None:
    (tmp_path / "noise.tar").write_bytes(b"this is no archive" * 100)
    assert "could not be unpacked" in said("import", "noise", tmp_path / "noise.tar", code=1)
    assert listed()["images"] == {}
