"""The flight recorder of a worker: a thread that does not need the event loop.

Every second `heartbeat.json` says how late the loop is, how much memory the process holds, how often each
attempt's HTTP calls were retried and how its sandbox is. Every few seconds `stacks/last.json` says what every task
awaits; whoever asks at its socket gets the same at once. As each task starts, a line of `tasks.jsonl` ties its log
to the plan; as a sandbox ends that hit a limit, a line of `sandboxes.jsonl` keeps that.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import select
import socket
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from hawk.bridge import live, tracefile
from hawk.core.snapshot import SandboxFacts
from hawk.errors import StorageError
from hawk.runner.capture import Capture
from hawk.runner.heartbeat import RECORDER_SOCKET, Heartbeat, SandboxEnded, TaskStarted
from hawk.sandbox.registry import registry
from hawk.store import stacks
from hawk.store.rundir import write_json
from hawk.store.sockets import listening

PERIOD = 1.0

LOOK, SHARE = 5.0, 400.0
"""A record is written every `LOOK` seconds, or as much more seldom as keeps it below 1/`SHARE` of a core."""

ASKING = 2.0
"""Seconds that whoever asks may take to say what, and to take the answer."""


class Recorder:
    """Writes into the worker's directory until the process ends.

    Args:
        home: The worker's directory.
        data_home: Short path of its data directory, for the socket.
        worker: Its index.
    """

    def __init__(self, home: Path, data_home: Path, worker: int) -> None:
        self._home = home
        self._socket_path = data_home / RECORDER_SOCKET
        self._capture = Capture(worker, live.attempt_of)
        self._asked: float | None = None  # when the loop was given a callback that it has not run yet
        self._lock = threading.Lock()
        self._next_look = 0.0

    def start(self) -> None:
        live.on_task_start(self._task_started)
        registry.attempt = live.current_attempt
        registry.ended = self._sandbox_ended
        with contextlib.suppress(OSError):  # a full disk: the evaluation runs all the same
            stacks.folder(self._home).mkdir(exist_ok=True)
            with contextlib.suppress(StorageError):
                stacks.bury(self._home)
            self._watch_for_faults()
        threading.Thread(target=self._run, name="hawk-recorder", daemon=True).start()

    def _watch_for_faults(self) -> None:
        """Let Python write every thread's stack when the process dies of a fault in C."""
        path = stacks.fatal_file(self._home)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size:
                path.replace(path.with_name(f"fatal-{path.stat().st_mtime:.0f}.txt"))
        faulthandler.enable(path.open("w"), all_threads=True)

    def _task_started(
        self, identifier: str, task_id: str, eval_id: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._capture.loop = loop
        entry = TaskStarted(
            at=datetime.now(UTC).isoformat(), identifier=identifier, task_id=task_id, eval_id=eval_id
        )
        self._append("tasks.jsonl", entry)

    def _sandbox_ended(self, attempt: str, facts: SandboxFacts) -> None:
        entry = SandboxEnded(at=datetime.now(UTC).isoformat(), attempt=attempt, facts=facts)
        with contextlib.suppress(OSError):  # a full disk: an attempt does not fail for that
            self._append("sandboxes.jsonl", entry)

    def _append(self, name: str, entry: msgspec.Struct) -> None:
        with (self._home / name).open("ab") as f:
            f.write(msgspec.json.encode(entry) + b"\n")

    # --- the thread

    def _run(self) -> None:
        listener = self._listen()
        beat = time.monotonic()
        while True:
            self._beat()
            beat = max(beat + PERIOD, time.monotonic())
            while (left := beat - time.monotonic()) > 0:
                if listener is None:
                    time.sleep(left)
                elif select.select([listener], [], [], left)[0]:
                    self._answer(listener)

    def _beat(self) -> None:
        with contextlib.suppress(StorageError):  # a full disk: the supervisor sees the heartbeat's age
            write_json(self._home / "heartbeat.json", self._heartbeat(), durable=False)
        tracefile.checkpoint()
        if time.monotonic() >= self._next_look:
            began = time.thread_time()
            record = self._capture.record("last", self._lag())
            with contextlib.suppress(StorageError):
                write_json(stacks.last_file(self._home), record, durable=False)
            self._next_look = time.monotonic() + max(LOOK, SHARE * (time.thread_time() - began))

    def _listen(self) -> socket.socket | None:
        """None where there can't be a socket: records are written all the same."""
        try:
            return listening(self._socket_path)
        except OSError:
            return None

    def _answer(self, listener: socket.socket) -> None:
        """Take a record for who asks. The question is the reason for it, one line."""
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(ASKING)
                why = connection.recv(100).decode("utf-8", "replace").strip() or "asked"
                connection.sendall(msgspec.json.encode(self._capture.record(why, self._lag())))

    # --- the heartbeat

    def _heartbeat(self) -> Heartbeat:
        times = os.times()
        return Heartbeat(
            at=datetime.now(UTC).isoformat(),
            pid=os.getpid(),
            loop_lag=round(self._lag(), 1),
            rss=_rss(),
            cpu=round(times.user + times.system, 1),
            open_files=sum(1 for _ in os.scandir("/proc/self/fd")),
            http_retries=live.http_retries(),
            uuids=live.uuids(),
            sandboxes=registry.facts(),
            sandbox_waits=registry.waits(),
            preparing=registry.work(),
        )

    def _lag(self) -> float:
        loop = self._capture.loop
        if loop is None or loop.is_closed():
            return 0.0
        now = time.monotonic()
        with self._lock:
            if self._asked is not None:
                return now - self._asked
            self._asked = now
        try:
            loop.call_soon_threadsafe(self._answered)
        except RuntimeError:  # closed meanwhile
            self._capture.loop = None
        return 0.0

    def _answered(self) -> None:
        with self._lock:
            self._asked = None


def _rss() -> int:
    with open("/proc/self/statm", "rb") as f:  # noqa: PTH123  # psutil would be imported for this alone
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
