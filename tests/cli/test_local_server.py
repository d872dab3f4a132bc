"""The real server, started and found by the commands."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

Env = dict[str, str]


@pytest.fixture
def home(env: Env, run: Run) -> Iterator[Env]:
    """A home whose server, if one is started, is stopped in the end."""
    env["HAWK_WARM"] = "0"
    yield env
    run("server", "stop", env=env)


def record(env: Env) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((Path(env["HAWK_HOME"]) / "server.json").read_text())
    return loaded


def test_a_command_starts_the_server_and_the_next_one_finds_it(home: Env, run: Run) -> None:
    assert run("server", "status", env=home).returncode == 1
    assert run("list", "eval-sets", env=home).returncode == 0
    first = record(home)
    assert os.getsid(first["pid"]) == first["pid"], (
        "in a session of its own: Ctrl-C at the terminal spares it"
    )
    assert run("server", "start", env=home).stdout.startswith(first["url"])
    assert record(home)["pid"] == first["pid"]
    assert run("server", "stop", env=home).returncode == 0
    assert run("server", "status", "--json", env=home).stdout.strip() == '{"running": false}'


def test_two_commands_at_once_start_one_server(home: Env, run: Run) -> None:
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: run("server", "start", env=home), range(3)))
    assert [d.returncode for d in done] == [0, 0, 0]
    assert len({d.stdout for d in done}) == 1


def test_a_killed_server_is_replaced(home: Env, run: Run) -> None:
    run("server", "start", env=home)
    old = record(home)["pid"]
    os.kill(old, signal.SIGKILL)
    assert run("list", "eval-sets", env=home).returncode == 0
    assert record(home)["pid"] != old


def test_a_taken_port_is_said_with_what_the_server_said(home: Env, run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("list", "eval-sets", env={**home, "HAWK_PORT": str(port)})
    assert done.returncode == 1
    assert f"Can't listen on 127.0.0.1 port {port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_home_that_is_a_file_is_said(home: Env, run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("list", "eval-sets", env={**home, "HAWK_HOME": str(tmp_path / "file")})
    assert done.returncode == 1
    assert "Set HAWK_HOME" in done.stderr


def test_a_server_of_another_version_is_said(home: Env, run: Run) -> None:
    run("server", "start", env=home)
    path = Path(home["HAWK_HOME"]) / "server.json"
    path.write_text(json.dumps({**record(home), "version": "0.0.1"}))
    done = run("list", "eval-sets", env=home)
    assert done.returncode == 0
    assert done.stderr.count("version 0.0.1") == 1
    assert "hawk server stop" in done.stderr


def test_local_commands_refuse_a_server_of_someone_else(env: Env, run: Run) -> None:
    for command in ("start", "stop", "status", "reindex"):
        assert run("server", command, env={**env, "HAWK_API_URL": "http://elsewhere.example"}).returncode == 2


def test_server_run_stays_in_the_foreground(home: Env, run: Run) -> None:
    from tests.cli.conftest import HAWK

    process = subprocess.Popen([*HAWK, "server", "run"], env=home, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while run("server", "status", env=home).returncode != 0:
        assert time.monotonic() < deadline
    assert record(home)["pid"] == process.pid
    process.send_signal(signal.SIGINT)
    assert process.wait(20) is not None
