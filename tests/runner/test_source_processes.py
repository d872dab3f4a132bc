"""What runs in real sandboxes, told from outside: what works, what sleeps and in what."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from hawk.core.diagnosis.evidence import Attempt, Call, Evidence, Process
from hawk.core.snapshot import SandboxFacts
from hawk.core.states import ActivityType
from hawk.runner.sources.processes import ProcessReader
from hawk.runner.sources.sleeping import sleeps_in
from hawk.sandbox.box import Box
from tests.sandbox.conftest import boxes_of, new_home, new_keeper
from tests.sandbox.programs import needs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

COMMANDS = {
    "naps": "sleep 1000",
    "works": "while :; do :; done",
    "reads": "mkfifo f; cat f",
    "bounded": "timeout 600 sleep 500",
    "locks": "(flock l sleep 400 >/dev/null 2>&1 &); sleep 0.3; exec flock l true",
    "loops": "while :; do sleep 0.3; done",
    "daemon": "sleep 900 >/dev/null 2>&1 & sleep 0.1",
}


def evidence(*attempts: Attempt) -> Evidence:
    return Evidence("job", datetime.now(UTC).isoformat(), attempts=list(attempts))


def attempt(name: str, label: str | None, **fields: Any) -> Attempt:
    since = (datetime.now(UTC) - timedelta(seconds=60)).isoformat()
    facts = SandboxFacts(label) if label is not None else None
    return Attempt(
        "t", name, 1, name, activity=ActivityType.TOOL, since=since, idle=60.0, sandbox=facts, **fields
    )


def look(reader: ProcessReader, seen: Evidence, *pids: int) -> dict[str, list[Process]]:
    """Look now, whenever the last look was."""
    reader._next = 0.0
    workers = [SimpleNamespace(pid=pid) for pid in pids]
    context: Any = SimpleNamespace(workers=workers, now=datetime.now(UTC))
    reader.fill(seen, context)
    return {attempt.sample: attempt.processes for attempt in seen.attempts}


async def poll(what: str, ready: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.2)


@needs("flock", "timeout")
def test_commands_of_sandboxes_by_what_they_do() -> None:
    async def scene() -> None:
        async with new_keeper() as keeper, boxes_of(keeper) as make:
            boxes: dict[str, Box] = {name: await make() for name in COMMANDS}
            runs = [
                asyncio.create_task(boxes[name].run(["sh", "-c", command]))
                for name, command in COMMANDS.items()
            ]
            reader = ProcessReader()
            seen = evidence(
                *(attempt(name, box.label) for name, box in boxes.items()), attempt("none", "gone.default")
            )
            found: dict[str, list[Process]] = {}

            def settled() -> bool:
                found.update(look(reader, seen))
                quiet = all(
                    p.quiet > 1 for name in ("naps", "reads", "locks", "bounded") for p in found[name]
                )
                return quiet and all(found[name] for name in COMMANDS) and found["works"][0].busy > 0.1

            await poll("everything runs or sleeps", settled)
            only = {name: rows[0] for name, rows in found.items() if rows}
            assert (only["naps"].command, only["naps"].waits, only["naps"].state) == (
                "sleep 1000",
                "a timer",
                "S",
            )
            assert only["naps"].age > 0
            assert only["reads"].waits == "a pipe"
            assert only["works"].waits == ""
            assert only["works"].quiet < 1
            assert only["bounded"].deadline == pytest.approx(600, abs=60)
            assert [p.waits for p in found["locks"] if p.command == "flock l true"] == ["a lock"]
            assert only["loops"].quiet < 1  # it starts another sleep all the time
            assert [p.background for p in found["daemon"]] == [True]
            assert found["none"] == []
            assert "can't be seen" in seen.missing["sandbox"]
            for run in runs:
                run.cancel()
            await asyncio.gather(*runs, return_exceptions=True)

    with new_home():
        asyncio.run(scene())


def test_what_an_ordinary_command_of_the_worker_does_is_found_by_its_line() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with running(command) as pid:
        calls = [Call("Subprocess", shlex.join(command))]
        seen: list[Process] = []

        def found() -> bool:
            seen[:] = look(ProcessReader(), evidence(attempt("a", None, calls=calls)), os.getpid())["a"]
            return bool(seen)

        poll_now(found)
        assert [process.command.endswith("time.sleep(600)") for process in seen] == [True]
        poll_now(lambda: sleeps_in(pid) == "a timer")
        other = evidence(attempt("a", None, calls=[Call("Subprocess", "docker exec x")]))
        assert look(ProcessReader(), other, os.getpid())["a"] == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys; sys.stdin.read()", "its standard input"),
        (
            "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); s.accept()",
            "a client: it serves",
        ),
        ("import socket; a, b = socket.socketpair(); a.recv(1)", "the network"),
        ("import threading; l = threading.Lock(); l.acquire(); l.acquire()", "a lock"),
        ("import subprocess; subprocess.run(['sleep', '600'])", "a child"),
        ("import signal; signal.pause()", "a signal"),
        (
            "import threading, socket; a, b = socket.socketpair();"
            "t = threading.Thread(target=a.recv, args=(1,)); t.start(); t.join()",
            "the network",
        ),
    ],
)
def test_what_a_process_sleeps_in(code: str, words: str) -> None:
    with running([sys.executable, "-c", code]) as pid:
        poll_now(lambda: sleeps_in(pid) == words)


def test_nobody_looks_while_nobody_waits() -> None:
    reader = ProcessReader()
    model = attempt("m", "x.default")
    model.activity = ActivityType.MODEL
    young = attempt("y", "x.default")
    young.idle = 1.0
    assert look(reader, evidence(model, young)) == {"m": [], "y": []}
    assert reader._next == 0.0


def poll_now(ready: Callable[[], bool]) -> None:
    asyncio.run(poll("it sleeps", ready))


@contextmanager
def running(command: list[str]) -> Iterator[int]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, 9)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
