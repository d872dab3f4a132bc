"""A server that does not see the submitter's disk: nobody should notice."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from hawk.cli import sending
from hawk.cli.context import App
from hawk.errors import ConfigError, ServerUnavailableError
from tests.server.fakes import FakeEngine
from tests.server.serving import Service, serving
from tests.store.runs import settings_in
from tests.system import TASKS, System, running

TASK = "from inspect_ai import task\n\n\n@task\ndef t(): ...\n"
CONFIG: dict[str, Any] = {"tasks": [{"file": "t.py", "items": [{"name": "t"}]}]}


class Relay:
    """Lets connections through to a server, and cuts the first ones that bring a body."""

    def __init__(self, port: int, cuts: int) -> None:
        self._port, self.cuts = port, cuts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                threading.Thread(target=self._carry, args=(near, far), daemon=True).start()
                threading.Thread(target=self._carry, args=(far, near), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self.cuts and data.startswith(b"PUT"):
                    self.cuts -= 1
                    break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A server of another home, whose jobs never begin."""
    settings = settings_in(tmp_path / "server")
    with serving(settings, FakeEngine(settings.root)) as running:
        yield running


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A directory to submit from."""
    base = tmp_path / "evals"
    base.mkdir()
    (base / "t.py").write_text(TASK)
    (base / ".env").write_text("TOKEN=very-secret-value")
    return base


@pytest.fixture
def app(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    """The command's surroundings, of somebody who has only the server's address and token."""
    monkeypatch.setenv("HAWK_HOME", str(tmp_path / "client"))
    monkeypatch.setenv("HAWK_API_URL", service.url)
    monkeypatch.setenv("HAWK_ACCESS_TOKEN", service.token)
    monkeypatch.setattr(sending, "PAUSE", 0.01)
    return App()


def body(base: Path, config: Any = CONFIG, **more: Any) -> dict[str, Any]:
    return {"eval_set_config": config, "eval_set_id": "a", "base_dir": str(base), "script": None, **more}


def files_of(service: Service, job_id: str = "a") -> dict[str, str]:
    """What the job has, where it works."""
    spec = service.context.registry.run(job_id).read_spec()
    return (
        {p.name: p.read_text() for p in Path(spec.base_dir).rglob("*") if p.is_file()} if spec.files else {}
    )


def test_files_go_along_once_and_hidden_ones_never(
    app: App, service: Service, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted, said = sending.submit(app, body(base), None)
    assert (submitted.created, said) == (True, "Sent 1 file, 49 B")
    assert files_of(service) == {"t.py": TASK}
    assert capsys.readouterr().err.startswith("Hidden files stay here: .env.")
    submitted, said = sending.submit(app, body(base, eval_set_id="b"), None)
    assert said == "1 file, 49 B: the server has them already"
    (base / "t.py").write_text(TASK + "#")
    submitted, _ = sending.submit(app, body(base, eval_set_id="b"), None)
    assert "b runs with the files that it was started with" in submitted.warnings[0]


def test_nothing_goes_along_where_the_server_sees_the_disk_or_nothing_is_named(
    app: App, service: Service, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = {"tasks": [{"package": "no-such-package", "items": [{"name": "t.py"}]}]}
    assert sending.submit(app, body(base, packages, eval_set_id="p"), None)[1] is None
    run = service.context.registry.run("p")
    assert run.read_spec().base_dir == str(run.path)
    assert sending.submit(app, body(base, eval_set_id="n"), False)[1] is None
    assert service.context.registry.run("n").read_spec().base_dir == str(base)
    monkeypatch.setenv("HAWK_HOME", str(service.context.settings.home))
    assert sending.submit(App(), body(base, eval_set_id="s"), None)[1] is None
    assert sending.submit(App(), body(base, eval_set_id="u"), True)[1] is not None
    # A server of before says nothing of where it is, and takes no files.
    monkeypatch.setattr(type(app.client), "place", lambda _: None)
    assert sending.submit(app, body(base, eval_set_id="o"), None)[1] is None


def test_a_script_and_absolute_paths_are_found_there(app: App, service: Service, base: Path) -> None:
    (base / "s.py").write_text("eval_set()")
    sending.submit(app, body(base, None, script=str(base / "s.py")), None)
    spec = service.context.registry.run("a").read_spec()
    assert spec.script == f"{spec.base_dir}/s.py"
    absolute = {
        "tasks": [{"file": str(base / "t.py"), "items": [{"name": "t", "args": {"data": str(base)}}]}]
    }
    sending.submit(app, body(base, absolute, eval_set_id="b"), None)
    (entry,) = service.context.registry.run("b").read_spec().config["tasks"]
    assert entry["file"] == "./t.py"


def test_a_connection_that_is_cut_is_tried_again(
    app: App,
    service: Service,
    base: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url, _, port = service.url.rpartition(":")
    with closing(Relay(int(port), cuts=2)) as relay:
        monkeypatch.setenv("HAWK_API_URL", f"{url}:{relay.port}")
        assert sending.submit(App(), body(base), None)[1] is not None
        assert relay.cuts == 0
        assert capsys.readouterr().err.count("Sending the files again") == 2
        relay.cuts = 3
        (base / "more.txt").write_text("another archive")
        with pytest.raises(ServerUnavailableError):
            sending.submit(App(), body(base), None)


def test_files_that_have_gone_meanwhile_are_sent_again(
    app: App, service: Service, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(app.client), "has_source", lambda *_: True)  # a moment ago
    assert sending.submit(app, body(base), None)[1] is not None
    assert files_of(service) == {"t.py": TASK}


def test_what_can_not_go_along_is_named(
    app: App, service: Service, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (base / ".hidden").mkdir()
    for name in (".hidden/t.py", "../outside.py"):
        (base / name).write_text(TASK)
    wrong = {
        "tasks": [{"file": name, "items": [{"name": "t"}]} for name in (".hidden/t.py", "../outside.py")],
        "packages": ["./nowhere"],
    }
    with pytest.raises(ConfigError) as refused:
        sending.submit(app, body(base, wrong), None)
    assert refused.value.message.splitlines() == [
        "tasks[0].file: .hidden/t.py does not go along to the server: it is in a hidden directory.",
        f"tasks[1].file: ../outside.py does not go along to the server: it is not in {base}.",
        "packages[0]: ./nowhere does not go along to the server: it is not there.",
    ]
    argued = {"tasks": [{"file": "t.py", "items": [{"name": "t", "args": {"keys": ".env"}}]}]}
    sending.submit(app, body(base, argued), None)
    assert "Warning: .env does not go along to the server: it is hidden." in capsys.readouterr().err
    with (base / "large.bin").open("wb") as file:
        file.truncate(65 * 2**20)
    with pytest.raises(ConfigError, match=r"large\.bin alone has 65 MiB"):
        sending.submit(app, body(base), None)


SETS = """
tasks: [{{file: tasks/t.py, items: [{{name: left, args: {{ledger: "{ledger}", samples: 2, seconds: 0.05}}}}]}}]
models: [{{file: tasks/t.py, items: [{{name: counted/m}}]}}]
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[System]:
    with running(tmp_path / "server") as system:
        yield system


@pytest.mark.slow
def test_what_is_finished_is_not_run_again_when_files_have_changed_and_moved(
    server: System, tmp_path: Path
) -> None:
    """Real processes, two homes."""
    ledger = tmp_path / "ledger"
    environ = {
        **{k: v for k, v in os.environ.items() if not k.startswith("HAWK_")},
        "HAWK_HOME": str(tmp_path / "client"),
        "HAWK_API_URL": server.client().url,
        "HAWK_ACCESS_TOKEN": (server.home / "token").read_text().strip(),
    }

    def submit(base: Path, more: str) -> str:
        (base / "tasks").mkdir(parents=True)
        (base / "tasks" / "t.py").write_text(TASKS.read_text() + more)
        (base / "evals.yaml").write_text(SETS.format(ledger=ledger))
        command = [
            sys.executable,
            "-m",
            "hawk.cli",
            "eval-set",
            base / "evals.yaml",
            "--name",
            "sent",
            "--wait",
        ]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "Sent 2 files, " in submit(tmp_path / "mine", "")
    first = ledger.read_text()
    assert first.count("done") == 2
    assert "resumed" in submit(tmp_path / "a colleague's", "\n# changed\n")
    assert ledger.read_text() == first
    assert (server.run_dir("sent").path / ".source" / "tasks" / "t.py").read_text().endswith("# changed\n")
