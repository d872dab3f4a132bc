"""The recorder thread of a worker: a heartbeat that does not need the event loop.

Every second `heartbeat.json` says how late the loop is, how much memory the process holds, how often each
attempt's HTTP calls were retried and how its sandbox is. As each task starts, a line of `tasks.jsonl` ties its log
to the plan; as a sandbox ends that hit a limit, a line of `sandboxes.jsonl` keeps that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from hawk.bridge import live
from hawk.core.snapshot import SandboxFacts
from hawk.errors import StorageError
from hawk.runner.heartbeat import Heartbeat, SandboxEnded, TaskStarted
from hawk.sandbox.registry import registry
from hawk.store.rundir import write_json

PERIOD = 1.0


class Recorder:
    """Writes into the worker's directory until the process ends."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked: float | None = None  # when the loop was given a callback that it has not run yet
        self._lock = threading.Lock()

    def start(self) -> None:
        live.on_task_start(self._task_started)
        registry.attempt = live.current_attempt
        registry.ended = self._sandbox_ended
        threading.Thread(target=self._beat, name="hawk-recorder", daemon=True).start()

    def _task_started(
        self, identifier: str, task_id: str, eval_id: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._loop = loop
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

    def _beat(self) -> None:
        while True:
            with contextlib.suppress(StorageError):  # a full disk: the supervisor sees the heartbeat's age
                write_json(self._home / "heartbeat.json", self._heartbeat(), durable=False)
            time.sleep(PERIOD)

    def _heartbeat(self) -> Heartbeat:
        times = os.times()
        return Heartbeat(
            at=datetime.now(UTC).isoformat(),
            pid=os.getpid(),
            loop_lag=round(self._lag(), 1),
            rss=_rss(),
            cpu=round(times.user + times.system, 1),
            http_retries=live.http_retries(),
            sandboxes=registry.facts(),
            sandbox_waits=registry.waits(),
            preparing=registry.work(),
        )

    def _lag(self) -> float:
        loop = self._loop
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
            self._loop = None
        return 0.0

    def _answered(self) -> None:
        with self._lock:
            self._asked = None


def _rss() -> int:
    with open("/proc/self/statm", "rb") as f:  # noqa: PTH123  # psutil would be imported for this alone
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
