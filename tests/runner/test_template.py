"""What the template makes: a small supervisor, whose child is the zygote, with nothing that is not theirs."""

from __future__ import annotations

import os
import socket
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

import hawk
from hawk.runner import template
from hawk.runner.template import Request, Sources, Told
from tests.system import kill, shared_template, until


class Asked:
    """A supervisor that waits for its job, asked of the shared template."""

    def __init__(self, errors: int, **request: str) -> None:
        self.environ = {**os.environ, "HAWK_TEST_MARK": "a secret"}
        words = {"version": hawk.__version__, "python": sys.executable, "package": template.package()}
        line = msgspec.json.encode(Request(**{**words, **request}, environ=self.environ)) + b"\n"
        theirs, self.stdin = os.pipe()
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.connection.settimeout(60)
        self.connection.connect(shared_template())
        socket.send_fds(self.connection, [line[:100]], [theirs, errors])
        self.connection.sendall(line[100:])
        os.close(theirs)
        self._lines = self.connection.makefile("rb")

    def hear(self) -> Told:
        return msgspec.json.decode(self._lines.readline(), type=Told)

    def close(self) -> None:
        os.close(self.stdin)
        self._lines.close()
        self.connection.close()


@pytest.fixture
def errors(tmp_path: Path) -> Iterator[int]:
    with (tmp_path / "errors").open("w") as file:
        yield file.fileno()


def held(pid: int) -> dict[int, str]:
    return {int(fd.name): str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_supervisor_and_zygote_have_what_is_theirs_and_no_more(errors: int, tmp_path: Path) -> None:
    other = Asked(errors)  # its descriptors must not be found in the next one
    other.hear()
    asked = Asked(errors)
    try:
        pid = asked.hear().pid
        supervisor = psutil.Process(pid)
        assert "--told" in supervisor.cmdline()
        [zygote] = supervisor.children()
        until("the zygote is alone", lambda: len(held(zygote.pid)) == 4)
        assert supervisor.environ() == asked.environ
        assert (supervisor.cwd(), os.getsid(pid)) == ("/", pid)
        assert (zygote.cwd(), os.getsid(zygote.pid)) == ("/", pid)
        assert "HAWK_TEST_MARK" not in zygote.environ()
        assert (zygote.cmdline(), zygote.name()) == (["hawk.runner.zygote"], "hawk-zygote")
        files = held(pid)
        assert (files[1], files[2]) == ("/dev/null", str(tmp_path / "errors"))
        assert files[0].startswith("pipe:")
        assert len([name for name in files.values() if name.startswith("socket:")]) == 1
        assert {fd: name for fd, name in held(zygote.pid).items() if fd != 3} == {
            0: "/dev/null",
            1: "/dev/null",
            2: str(tmp_path / "errors"),
        }
        assert zygote.num_threads() == 1
        until("it waits for its job", lambda: supervisor.status() == psutil.STATUS_SLEEPING)
        assert supervisor.memory_info().rss < 60e6

        kill(pid)
        assert asked.hear().status == -9
        zygote.wait(20)
        assert psutil.pid_exists(pid) is False
    finally:
        asked.close()
        other.close()


def test_it_refuses_who_is_installed_otherwise(errors: int) -> None:
    for other in ({"version": "0.0.0"}, {"python": "/usr/bin/other"}, {"package": "/elsewhere/hawk"}):
        asked = Asked(errors, **other)
        assert "another installation" in asked.hear().error
        asked.close()


def test_nonsense_is_answered_and_the_next_one_is_served(errors: int) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(60)
        connection.connect(shared_template())
        connection.sendall(b"no request\n")
        assert b'"error"' in connection.recv(4096)
    asked = Asked(errors)
    assert asked.hear().pid > 0
    os.close(asked.stdin)  # without a job
    asked.stdin = os.open(os.devnull, os.O_RDONLY)
    assert asked.hear().status == 0
    asked.close()


def test_changed_sources_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "package", lambda: str(tmp_path))
    module = types.ModuleType("of_the_test")
    file = tmp_path / "of_the_test.py"
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "of_the_test", module)
    file.write_text("one = 1\n")
    sources = Sources()
    (tmp_path / "never_imported.py").write_text("")
    sources.note()
    assert sources.changed() is None
    file.write_text("one, two = 1, 2\n")
    assert sources.changed() == str(file)
    file.unlink()
    assert sources.changed() == str(file)
