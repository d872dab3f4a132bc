"""Telling people, for real: a web server, a mail server, a program; and what fails."""

from __future__ import annotations

import json
import os
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawk.config.settings import load_settings
from hawk.core.diagnosis.causes import Layer, Scope, Severity, Who
from hawk.core.diagnosis.evidence import Attempt, Evidence
from hawk.core.diagnosis.verdict import Diagnosis, Fix, FixKind, Verdict
from hawk.core.states import ActivityType, JobStatus
from hawk.runner import notify
from hawk.runner.watchdog import Watchdog
from hawk.store import actions
from hawk.store.rundir import JobSpec, JournalEntry, RunDir

SECRET = "s3cret-value"  # a made-up one


Posted = tuple[str, str | None, dict[str, Any]]
"""Path, header, body."""


class Hook(BaseHTTPRequestHandler):
    """Takes what is posted; fails the first times when it is told to."""

    got: list[Posted]
    failures: list[int]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.got.append((self.path, self.headers.get("Authorization"), body))
        status = self.failures.pop() if self.failures else 204
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        return


class Mail(socketserver.StreamRequestHandler):
    """Speaks as much SMTP as a mail needs."""

    got: list[str]

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        for raw in self.rfile:
            word = raw.decode().split(" ")[0].strip().upper()
            if word == "EHLO":
                self.wfile.write(b"250 here\r\n")
            elif word == "DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = iter(self.rfile.readline, b".\r\n")
                self.got.append(b"".join(lines).decode())
                self.wfile.write(b"250 taken\r\n")
            elif word == "QUIT":
                self.wfile.write(b"221 bye\r\n")
                return
            else:
                self.wfile.write(b"250 ok\r\n")


@contextmanager
def listening(server: socketserver.TCPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, args=[0.05])
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Reaped:
    """Collects children as the supervisor does."""

    def collect(self) -> None:
        """Nothing: the tests' own children are nobody else's to collect."""

    def status(self, pid: int) -> int | None:
        found, status = os.waitpid(pid, os.WNOHANG)
        return status if found else None


class Notes:
    def __init__(self) -> None:
        self.lines: list[JournalEntry] = []

    def __call__(self, kind: str, subject: str, state: str, reason: str, data: dict[str, Any]) -> None:
        self.lines.append(JournalEntry("", kind, subject, state, reason, data))


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "runs" / "j")
    run.create()
    return run


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "PAUSES", (0.01,))


def watchdog(run: RunDir, notes: Notes, **config: Any) -> Watchdog:
    spec = JobSpec("j", "/", {"watchdog": config})
    settings = load_settings({"HAWK_HOME": str(run.path.parent), "HAWK_API_URL": "http://here"})
    return Watchdog(run, spec, {"HOOK_TOKEN": SECRET, "OTHER": "x"}, settings, Reaped(), notes)


def stuck(severity: Severity = Severity.STUCK) -> tuple[Diagnosis, Evidence]:
    attempt = Attempt("t#1", "a", 1, "t/a/1", "U1", worker=0, activity=ActivityType.TOOL, detail="bash")
    verdict = Verdict(
        1,
        "tool_hung",
        Layer.SANDBOX,
        Scope.ATTEMPT,
        severity,
        "bash does nothing",
        Who.OPERATOR,
        "Cancel it",
        "hawk fix j 1",
        uuids=["U1"],
        held=["t/a/1"],
        fix=Fix(FixKind.CANCEL_TOOL_CALL, ["U1"]),
    )
    return Diagnosis("j", "", "running", [verdict]), Evidence(
        "j", "2026-01-01T00:00:00+00:00", attempts=[attempt]
    )


def test_everybody_is_told_once_and_no_secret_is_written_down(run_dir: RunDir, tmp_path: Path) -> None:
    posted: list[Posted] = []
    letters: list[str] = []
    hook = type("Taking", (Hook,), {"got": posted, "failures": [500]})
    mail = type("Post", (Mail,), {"got": letters})
    notes, file = Notes(), tmp_path / "told"
    with (
        listening(ThreadingHTTPServer(("127.0.0.1", 0), hook)) as web,
        listening(socketserver.ThreadingTCPServer(("127.0.0.1", 0), mail)) as smtp,
    ):
        dog = watchdog(
            run_dir,
            notes,
            after=1e6,
            notify={
                "webhook": {
                    "url": f"http://127.0.0.1:{web}/hook?a=b",
                    "headers_from": {"Authorization": "HOOK_TOKEN"},
                },
                "command": ["sh", "-c", f"cat > {file}; env >> {file}"],
                "email": {"host": "127.0.0.1", "port": smtp, "from": "a@x.org", "to": ["b@x.org"]},
            },
        )
        diagnosis, evidence = stuck()
        for now in (0.0, 1.0, 2.0):
            dog.look(diagnosis, evidence, now)
        dog.ended(JobStatus.COMPLETE, diagnosis.verdicts)
    paths = [path for path, _, _ in posted]
    assert paths == ["/hook?a=b"] * 3  # the first was answered 500
    assert {token for _, token, _ in posted} == {SECRET}
    told = [body["event"] for _, _, body in posted]
    assert told == ["stuck", "stuck", "done"]
    news = posted[0][2]
    assert (news["job_id"], news["status"]) == ("j", "running")
    assert news["verdicts"][0]["cause"] == "tool_hung"
    assert news["url"] == "http://here/monitoring/jobs/j/diagnosis"
    assert "Subject: Hawk: j stuck" in letters[0]
    assert "bash does nothing" in letters[0]
    assert len(letters) == 2
    assert '"event":"done"' in file.read_text()
    assert SECRET not in file.read_text()
    assert [line.state for line in notes.lines] == ["notified"] * 6
    assert all(SECRET not in str(line) for line in notes.lines)


def test_what_can_not_be_told_is_journaled_and_harms_nothing(run_dir: RunDir) -> None:
    posted: list[Posted] = []
    hook = type("Redirecting", (Hook,), {"got": posted, "failures": [302, 302, 302]})
    notes = Notes()
    with listening(ThreadingHTTPServer(("127.0.0.1", 0), hook)) as web:
        dog = watchdog(
            run_dir,
            notes,
            notify={
                "on": ["failed"],
                "webhook": {
                    "url": f"http://127.0.0.1:{web}/",
                    "headers_from": {"Authorization": "HOOK_TOKEN"},
                },
                "command": ["sh", "-c", "exit 3"],
                "email": {"host": "127.0.0.1", "port": 9, "from": "a@x.org", "to": ["b@x.org"]},
            },
        )
        dog.look(*stuck(Severity.FATAL))
        dog.ended(JobStatus.FAILED, [])
    assert len(posted) == 3  # and a redirect is not followed
    assert [(line.subject, line.state) for line in notes.lines] == [
        ("webhook", "not notified"),
        ("command", "not notified"),
        ("email", "not notified"),
    ]
    assert "302" in notes.lines[0].reason
    assert "ended with 3" in notes.lines[1].reason


def test_the_watchdog_leaves_requests_and_remembers_what_was_spent(run_dir: RunDir) -> None:
    notes = Notes()
    dog = watchdog(run_dir, notes, after=10, most=1)
    for now in (0.0, 11.0, 200.0):
        dog.look(*stuck(), now)
    (asked,) = actions.pending(run_dir)
    assert (asked.by, asked.cause, asked.held) == ("watchdog", "tool_hung", ["t/a/1"])
    assert asked.fix == Fix(FixKind.CANCEL_TOOL_CALL, ["U1"])
    data = {"by": "watchdog", "held": asked.held, "id": asked.id, "fix": msgspec.to_builtins(asked.fix)}
    run_dir.append_journal(JournalEntry("", "fix", "tool_hung", "asked", "", data))
    actions.answered(run_dir, asked)
    other = watchdog(run_dir, notes, after=10, most=1)
    for now in (0.0, 11.0):
        other.look(*stuck(), now)
    assert actions.pending(run_dir) == []


def test_a_dry_run_only_says_what_it_would_do(run_dir: RunDir) -> None:
    notes = Notes()
    dog = watchdog(run_dir, notes, after=10, dry_run=True)
    for now in (0.0, 11.0):
        dog.look(*stuck(), now)
    assert actions.pending(run_dir) == []
    assert [(line.state, line.subject) for line in notes.lines] == [("would be done", "tool_hung")]
    assert "t/a/1" in notes.lines[0].reason
