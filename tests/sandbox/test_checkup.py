"""`hawk doctor` on sandboxes: it makes real ones, looks out of them, and says what it found."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from hawk.sandbox import checkup, pool
from hawk.sandbox.box import Box
from hawk.sandbox.checkup import Checkup, check
from hawk.sandbox.client import Keeper
from hawk.sandbox.errors import SandboxError
from tests.sandbox import ordinary
from tests.sandbox.hawkrun import HAWK
from tests.sandbox.rooms import needs_root
from tests.sandbox.test_cli import dead_keeper
from tests.sandbox.traces import assert_nothing_left, of_this_process

HERE = Path("/usr/bin/env")
"""A file that sandboxes see."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has no time for a check has not failed it."""
    monkeypatch.setattr(checkup, "PATIENCE", 120.0)
    monkeypatch.setattr(checkup, "SWEEP_PATIENCE", 60.0)


def soon_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever hangs once there is a keeper is waited for only shortly."""
    start = pool.start

    async def started(store: Path) -> Keeper:
        keeper = await start(store)
        monkeypatch.setattr(checkup, "PATIENCE", 1.0)
        return keeper

    monkeypatch.setattr(pool, "start", started)


@pytest.fixture
def near(home: Path, tmp_path: Path) -> Iterator[Path]:
    """Where the checkup may work: nothing is left there in the end."""
    yield tmp_path
    assert list(tmp_path.iterdir()) == []
    assert_nothing_left(of_this_process())


async def test_all_is_well_on_this_machine_and_nothing_is_left(near: Path) -> None:
    began = time.monotonic()
    found = await check(near, [Path.home() / ".profile", Path("/etc/ssh")])
    assert found.exposed == []
    assert found.lacking == []
    assert found.summary.startswith("bubblewrap 0.")
    assert found.summary.endswith(" ms to start")
    assert "limits by " in found.summary
    assert 0 < found.seconds < time.monotonic() - began


async def test_a_directory_that_can_not_be_written_is_no_obstacle(home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = await check(tmp_path / "file")
    assert found.summary


async def test_a_file_that_is_seen_is_named(near: Path) -> None:
    found = await check(near, [Path("/no/such/file"), HERE])
    assert found.exposed[0] == f"files of this machine as its user: {HERE}"
    assert found.lacking == []


def altered(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Sandboxes of the checkup get something else than it asks for."""
    before = checkup.create_message

    def message(*args: Any) -> dict[str, Any]:
        asked: dict[str, Any] = before(*args)
        return {**asked, **changes, "limits": {**asked["limits"], **changes.get("limits", {})}}

    monkeypatch.setattr(checkup, "create_message", message)


async def test_an_open_network_is_noticed(near: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    altered(monkeypatch, network="host")
    found = await check(near)
    assert any("this machine's network" in said for said in found.exposed)


@pytest.mark.parametrize(("limit", "value"), [("memory", 8 << 30), ("processes", 4000)])
async def test_a_limit_that_does_not_act_is_noticed(
    near: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    altered(monkeypatch, limits={limit: value})
    found = await check(near)
    assert [said for said in found.lacking if "not limited" in said and limit.rstrip("es") in said]
    assert found.exposed == []


async def test_a_layer_that_is_not_seen_is_noticed(near: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    altered(monkeypatch, layers=())
    found = await check(near)
    assert any("layers are not seen" in said for said in found.lacking)


async def test_a_sandbox_that_hangs_is_given_up(near: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(box: Box, result: Checkup) -> None:
        await box.run(["sleep", "1000"])

    soon_impatient(monkeypatch)
    monkeypatch.setattr(checkup, "_try_limits", hang)
    with pytest.raises(SandboxError, match="did not do what it was asked"):
        await check(near)


async def test_a_keeper_that_hangs_is_given_up_and_swept(near: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stop(box: Box, result: Checkup) -> None:
        for process in psutil.Process(box.keeper.pid).children(recursive=True):
            process.send_signal(signal.SIGSTOP)
        await box.run(["true"])

    soon_impatient(monkeypatch)
    monkeypatch.setattr(checkup, "_try_limits", stop)
    with pytest.raises(SandboxError, match="did not do what it was asked"):
        await check(near)


# --- hawk doctor


def checks(command: list[str], env: dict[str, str]) -> dict[str, dict[str, str]]:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout, done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)["checks"]}


DOCTOR = [*HAWK, "doctor", "--json"]


def test_doctor_says_how_sandboxes_are(home: Path) -> None:
    found = checks(DOCTOR, dict(os.environ))
    assert found["sandboxes"]["state"] == "ok"
    assert "bubblewrap 0." in found["sandboxes"]["detail"]
    assert found["sandbox store"]["detail"].startswith("0 layers")
    assert not (home / "sandbox").exists() or not any((home / "sandbox" / "keepers").iterdir())


def test_doctor_names_what_dead_keepers_left(home: Path) -> None:
    dead_keeper(home)
    found = checks(DOCTOR, dict(os.environ))["sandbox store"]
    assert (found["state"], found["remedy"]) == ("warn", "hawk sandbox sweep")


@needs_root
def test_doctor_says_why_a_machine_refuses_and_what_can_be_done(home: Path) -> None:
    """In a user namespace that may have no others below it: as on machines whose owner forbids them."""
    if shutil.which("unshare") is None:
        pytest.skip("NOT TESTED: no unshare (util-linux)")
    forbid = 'echo 0 >/proc/sys/user/max_user_namespaces; exec "$@"'
    found = checks(
        ["unshare", "--user", "--map-root-user", "sh", "-ec", forbid, "sh", *DOCTOR], dict(os.environ)
    )
    assert found["sandboxes"]["state"] == "warn"
    assert "refuses" in found["sandboxes"]["detail"]
    assert "user.max_user_namespaces=" in found["sandboxes"]["remedy"]


def test_doctor_as_an_ordinary_user_says_what_is_kept_how_and_why() -> None:
    if (reason := ordinary.why_not()) is not None:  # not while tests are collected: it takes seconds
        pytest.skip(reason)
    with ordinary.directory() as home:
        found = checks(ordinary.command(DOCTOR), ordinary.environment(home))["sandboxes"]
    assert found["state"] == "ok", found
    assert "one user per sandbox" in found["detail"]
    assert "limits by rlimit (" in found["detail"] or "limits by cgroup" in found["detail"]
