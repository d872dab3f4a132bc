"""The server as its own process: `python -m hawk.server`."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from hawk.store.database import open_database
from tests.server.serving import until
from tests.store.runs import settings_in

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def run(*arguments: str, fds: tuple[int, ...] = (), **environment: str) -> subprocess.Popen[bytes]:
        env = {
            **os.environ,
            "HAWK_HOME": str(tmp_path / "h"),
            "HAWK_MIDDLEMAN": "0",
            "HAWK_WARM": "0",
            "HAWK_RUN_BASE": str(tmp_path / "r"),
            **environment,
        }
        command = [sys.executable, "-m", "hawk.server", *arguments]
        process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, pass_fds=fds, cwd=tmp_path)
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def listening(tmp_path: Path, process: subprocess.Popen[bytes]) -> str:
    file = tmp_path / "h" / "server.json"
    until(lambda: file.exists() or process.poll() is not None, 60)
    assert process.poll() is None, process.communicate()
    record = json.loads(file.read_bytes())
    assert record["pid"] == process.pid
    return str(record["url"])


def output(process: subprocess.Popen[bytes]) -> str:
    return process.communicate(timeout=60)[1].decode()


def test_it_says_where_it_listens_and_cleans_up_at_the_end(start: Start, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    process = start("--port", "0", "--ready-fd", str(writer), fds=(writer,))
    os.close(writer)
    with os.fdopen(reader) as ready:
        url = ready.readline().strip()
    assert url == listening(tmp_path, process)
    assert httpx.get(f"{url}/health/live", trust_env=False).status_code == 200
    assert (tmp_path / "h" / "token").stat().st_mode & 0o777 == 0o600
    process.send_signal(signal.SIGTERM)
    log = output(process)
    assert process.returncode == 0
    assert not (tmp_path / "h" / "server.json").exists()
    assert (tmp_path / "h" / "token").read_text().strip() not in log


def test_a_port_that_is_taken_is_named(start: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = start("--port", str(port))
        said = output(process)
    assert process.returncode == 1
    assert f"port {port}" in said
    assert "Traceback" not in said


def test_a_home_has_one_server_and_after_its_kill_the_next_one_starts(start: Start, tmp_path: Path) -> None:
    first = start("--port", "0")
    url = listening(tmp_path, first)
    second = start("--port", "0")
    said = output(second)
    assert second.returncode == 1
    assert "runs already" in said
    assert httpx.get(f"{url}/health/live", trust_env=False).status_code == 200
    assert (tmp_path / "h" / "server.json").exists()
    first.kill()
    first.wait()
    third = start("--port", "0")
    until(lambda: json.loads((tmp_path / "h" / "server.json").read_bytes())["pid"] == third.pid, 60)


def test_a_stop_ends_open_streams(start: Start, tmp_path: Path) -> None:
    process = start("--port", "0")
    url = listening(tmp_path, process)
    token = (tmp_path / "h" / "token").read_text().strip()
    headers = {"authorization": f"Bearer {token}"}
    script = tmp_path / "patient.py"
    script.write_text("import time; time.sleep(600)  # eval_set()")
    body = {"script": str(script), "eval_set_id": "a"}
    with httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
        assert client.post("/eval_sets/", json=body).status_code == 200
        with client.stream("GET", "/monitoring/jobs/a/eval-set-status/stream") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: status"
            process.send_signal(signal.SIGTERM)
            for _ in lines:
                pass
        assert process.wait(60) == 0
    again = start("--port", "0")
    with httpx.Client(
        base_url=listening(tmp_path, again), headers=headers, timeout=60, trust_env=False
    ) as client:
        assert client.delete("/eval_sets/a").status_code == 200


def test_an_idle_server_ends_by_itself(start: Start, tmp_path: Path) -> None:
    process = start("--port", "0", HAWK_IDLE_EXIT="1")
    said = output(process)
    assert process.returncode == 0
    assert "nothing to do" in said


def test_a_database_of_a_newer_hawk_stops_the_start(start: Start, tmp_path: Path) -> None:
    settings = settings_in(tmp_path / "h")
    database = open_database(settings.database_url)
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    process = start("--port", "0")
    said = output(process)
    assert process.returncode == 1
    assert "newer Hawk" in said
    assert "Traceback" not in said


def test_a_home_that_cannot_be_made_stops_the_start(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    process = start(HAWK_HOME=str(tmp_path / "file" / "h"))
    said = output(process)
    assert process.returncode == 1
    assert "HAWK_HOME" in said
    assert "Traceback" not in said


def test_the_server_does_not_import_inspect() -> None:
    code = "import sys, hawk.server.__main__, hawk.engine.local; print('inspect_ai' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
