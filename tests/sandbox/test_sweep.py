"""The sweep: takes what dead keepers left, and nothing that a living or starting one has."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawk.sandbox import cgroups, pool
from hawk.sandbox.presence import Presence
from hawk.sandbox.sweep import Swept, keepers, sweep
from tests.system import until

DEAD, OLD = "1-dead", 3600.0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store in which a dead keeper's sandboxes had files, some of which not even their owner may enter."""
    (tmp_path / "keepers").mkdir()
    leave(tmp_path, DEAD, {"pid": 1, "HAWK_JOB_ID": "j"})
    deep = tmp_path / "scratch" / DEAD / "box" / "work" / "work"
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    deep.chmod(0)
    return tmp_path


def leave(store: Path, name: str, about: dict[str, object]) -> Path:
    path = store / "keepers" / f"{name}.json"
    path.write_text(json.dumps(about) if about else "")
    (store / "keepers" / f"{name}.sock").touch()
    return path


def files(store: Path) -> list[str]:
    return sorted(path.name for part in ("keepers", "scratch") for path in (store / part).iterdir())


@pytest.fixture
def holding() -> Iterator[list[int]]:
    """Descriptors that are closed in the end."""
    fds: list[int] = []
    yield fds
    for fd in fds:
        os.close(fd)


def test_what_a_dead_keeper_left_is_removed(store: Path) -> None:
    swept = sweep(store)
    assert (swept.keepers, swept.directories, swept.nothing) == ([DEAD], 1, False)
    assert files(store) == []
    assert sweep(store).nothing


def test_a_living_keeper_is_not_touched(store: Path, holding: list[int]) -> None:
    holding.append(os.open(store / "keepers" / f"{DEAD}.json", os.O_RDWR))
    fcntl.flock(holding[0], fcntl.LOCK_EX)
    before = files(store)
    assert sweep(store).nothing
    assert files(store) == before
    assert [(keeper.name, keeper.alive, keeper.about["HAWK_JOB_ID"]) for keeper in keepers(store)] == [
        (DEAD, True, "j")
    ]


def test_one_that_has_not_said_yet_whose_it_is_may_be_starting(store: Path) -> None:
    silent = leave(store, "2-silent", {})
    assert sweep(store).keepers == [DEAD]
    assert files(store) == ["2-silent.json", "2-silent.sock"]
    os.utime(silent, (time.time() - OLD, time.time() - OLD))
    assert sweep(store).keepers == ["2-silent"]
    assert files(store) == []


def test_processes_of_a_dead_keeper_are_killed(store: Path) -> None:
    environ = {**os.environ, pool.NAME: DEAD}
    other = {**os.environ, pool.NAME: "3-other"}
    code = "import sys, time; print(flush=True); time.sleep(60)"
    started = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE)
        for env in (environ, other)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        assert sweep(store).processes == 1
        assert until("the keeper's has ended", lambda: started[0].poll() is not None)
        assert started[1].poll() is None
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_what_can_not_be_removed_yet_is_found_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = store / f"hawk-{DEAD}"
    busy.mkdir()
    monkeypatch.setattr(cgroups, "leftovers", lambda: [busy])
    monkeypatch.setattr(cgroups, "remove_tree", lambda path: False)
    assert sweep(store).keepers == []
    assert f"{DEAD}.json" in files(store)
    monkeypatch.undo()
    assert sweep(store).keepers == [DEAD]


def test_there_is_nothing_to_do_without_a_store(tmp_path: Path) -> None:
    assert sweep(tmp_path / "none") == Swept([])
    assert not (tmp_path / "none").exists()


def test_a_keeper_that_starts_while_others_look_is_there(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from hawk.sandbox.sweep import keepers, sweep\n"
        "while True: keepers(Path(sys.argv[1])); sweep(Path(sys.argv[1])); print(flush=True)"
    )
    looking = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert looking.stdout is not None
        looking.stdout.readline()
        for n in range(200):
            presence = Presence(str(tmp_path), f"{n}-new")
            presence.announce({"HAWK_JOB_ID": "j"})
            assert [keeper.name for keeper in keepers(tmp_path) if keeper.alive] == [f"{n}-new"]
            presence.withdraw()
    finally:
        looking.kill()
        looking.communicate()
