"""Supervisors start as copies of the template, which is as good as none when anything is wrong with it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from hawk.engine import starts
from hawk.engine.starts import Start, Template
from tests.system import System, kill, running, shared_template, until

NO_JOB = b"\n"
"""A supervisor that is told this ends at once, well."""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "HAWK_HOME": str(tmp_path / "home")}


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose path leaves room for a socket's."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


@pytest.fixture
def fake(short: Path) -> Iterator[Callable[[Callable[[socket.socket], None]], Path]]:
    """A template of the test's own: does something to the connection, then closes it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(short / "s"))
    listener.listen()
    threads: list[threading.Thread] = []

    def make(act: Callable[[socket.socket], None]) -> Path:
        def answer() -> None:
            with listener.accept()[0] as connection:
                connection.recv(1 << 20)
                act(connection)

        threads.append(threading.Thread(target=answer))
        threads[0].start()
        return short / "s"

    yield make
    for thread in threads:
        thread.join()
    listener.close()


def ended(start: Start) -> int | None:
    assert start.wait(60)
    return start.status


def test_the_template_starts_it_and_tells_how_it_ended(environ: dict[str, str]) -> None:
    start = Start(NO_JOB, environ, Path(shared_template()))
    until("it is started", lambda: not start.waiting())
    assert start.refusal is None
    assert start.pid is not None
    assert ended(start) == 0
    assert not psutil.pid_exists(start.pid), "nobody has reaped it"

    killed = Start(b"", environ, Path(shared_template()))
    until("it is started", lambda: killed.pid)
    kill(killed.pid)
    assert ended(killed) in (-signal.SIGKILL, 0)  # it may have been quicker


def test_another_environment_of_the_interpreter_takes_a_fresh_one(environ: dict[str, str]) -> None:
    start = Start(NO_JOB, {**environ, "PYTHONPATH": "/elsewhere"}, Path(shared_template()))
    until("it is started", lambda: not start.waiting())
    assert "environment of the interpreter" in (start.refusal or "")
    assert ended(start) == 0


@pytest.mark.parametrize("trouble", ["nobody", "closed", "refused", "silent"])
def test_without_the_template_a_fresh_interpreter_starts_it(
    trouble: str,
    environ: dict[str, str],
    fake: Callable[[Callable[[socket.socket], None]], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = tmp_path / "told"
    monkeypatch.setattr(sys, "executable", str(listening(tmp_path, told)))
    acts: dict[str, Callable[[socket.socket], None]] = {
        "closed": lambda connection: None,
        "refused": lambda connection: connection.sendall(b'{"error":"no"}\n'),
        "silent": until_closed,
    }
    monkeypatch.setattr(starts, "PATIENCE", 1.0)
    path = fake(acts[trouble]) if trouble in acts else tmp_path / "nothing"
    start = Start(b"the job\n", environ, path)
    assert ended(start) == 7
    assert start.refusal is not None
    assert told.read_text() == "the job\n"


def test_who_is_in_a_hurry_waits_no_longer_and_who_cancels_is_not_served(
    environ: dict[str, str],
    fake: Callable[[Callable[[socket.socket], None]], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = tmp_path / "told"
    monkeypatch.setattr(sys, "executable", str(listening(tmp_path, told)))
    start = Start(b"the job\n", environ, fake(until_closed))
    assert start.waiting()
    start.cancel()
    assert start.ended()
    start.hurry()
    assert not told.exists()


def until_closed(connection: socket.socket) -> None:
    connection.settimeout(20)
    connection.recv(1)


def listening(tmp_path: Path, told: Path) -> Path:
    """An interpreter that keeps what it is told and ends with 7."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\ncat > {told}\nexit 7\n")
    program.chmod(0o700)
    return program


def test_a_template_ends_with_its_owner_and_leaves_nothing(short: Path, environ: dict[str, str]) -> None:
    closed = Template(short, environ)
    closed.close()
    assert not closed.alive()
    assert not list(short.iterdir())


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_jobs_survive_the_template_and_it_does_not_survive_the_server(tmp_path: Path) -> None:
    with running(tmp_path, HAWK_WARM="1", HAWK_TEMPLATE="") as system:
        first = until("a template", lambda: template(system))
        system.submit("cold", seconds=30.0)  # while it still imports
        until("it runs", lambda: system.lines("cold", "begin"))
        supervisor = system.supervisor("cold")
        assert supervisor is not None
        assert psutil.Process(supervisor).ppid() == first.pid

        first.kill()
        until("it is dead", lambda: first.status() == psutil.STATUS_ZOMBIE)
        kill(supervisor)
        until("it is started again", lambda: system.supervisor("cold") not in (None, supervisor))
        journal = (system.run_dir("cold").path / "journal.jsonl").read_text()
        assert "its supervisor died" in journal
        second = until("there is a template again", lambda: template(system), timeout=90)
        assert second.pid != first.pid
        [folder] = folders(second)
        system.kill_server()
        second.wait(30)
        until("its socket is gone", lambda: not folder.exists())


def template(system: System) -> psutil.Process | None:
    """The server's own one."""
    assert system.server is not None
    for child in psutil.Process(system.server.pid).children():
        with contextlib.suppress(psutil.Error):
            if "hawk.runner.template" in child.cmdline():
                return child
    return None


def folders(process: psutil.Process) -> list[Path]:
    """Where its sockets are."""
    return [Path(str(c.laddr)).parent for c in process.net_connections("unix") if c.laddr]
