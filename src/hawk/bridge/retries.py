"""Notes what a worker's attempts wait for that no event tells: back-off after a failed model call, and tries that errored.

Lines go to `<run>/spans/worker-<n>.jsonl` by a thread of their own: the event loop never waits for a disk. What can't be
written is lost, and said once; it never costs an attempt.

Imports Inspect: for code that runs inside a worker.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from inspect_ai.hooks import Hooks, ModelRetry, SampleAttemptEnd, SampleAttemptStart, hooks
from inspect_ai.log._samples import sample_active

from hawk.bridge.modelerror import without_request
from hawk.core.text import one_line
from hawk.core.timeline.records import WorkerNote

_MOST = 10_000
"""Lines that may wait in memory."""

_LAST = 2.0
"""Seconds that the end of the process waits for the disk."""

_log = logging.getLogger(__name__)


class NoteWriter:
    """Appends notes to a file.

    Attributes:
        lost: Notes that could not be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: queue.Queue[WorkerNote | None] = queue.Queue(_MOST)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.lost = 0

    def add(self, note: WorkerNote) -> None:
        """Take a note; never waits and never raises."""
        try:
            self._waiting.put_nowait(note)
        except queue.Full:
            self.lost += 1
            return
        if self._thread is None:
            self._start()

    def close(self) -> None:
        """Write what waits, for so long as the disk allows."""
        if self._thread is not None:
            try:
                self._waiting.put(None, timeout=_LAST)
            except queue.Full:
                return
            self._thread.join(_LAST)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="hawk-notes", daemon=True)
                self._thread.start()
                atexit.register(self.close)

    def _run(self) -> None:
        encoder = msgspec.json.Encoder()
        while True:
            notes = [self._waiting.get()]
            while not self._waiting.empty():
                notes.append(self._waiting.get())
            lines = [encoder.encode(note) + b"\n" for note in notes if note is not None]
            try:
                self._path.parent.mkdir(exist_ok=True)
                with self._path.open("ab") as f:
                    f.write(b"".join(lines))
            except OSError as ex:
                if not self.lost:
                    _log.warning("waits of retries can't be written to %s: %s", self._path, ex.strerror)
                self.lost += len(lines)
            if None in notes:
                return


def record(path: Path) -> NoteWriter:
    """Note the waits and the tries of all attempts of this process from now on, once."""
    writer = NoteWriter(path)
    begun: dict[str, float] = {}

    @hooks(name="hawk_retries", description="Notes how long attempts wait between retries.")
    class _Retries(Hooks):
        async def on_model_retry(self, data: ModelRetry) -> None:
            sample_id, epoch = _attempt()
            note = WorkerNote(
                kind="retry_wait",
                at=datetime.now(UTC).isoformat(),
                seconds=round(data.wait_time, 3),
                sample_uuid=data.sample_id or "",
                sample_id=sample_id,
                epoch=epoch,
                task=data.task_name or "",
                model=data.model_name,
                attempt=data.attempt,
                error=data.exception_type or "",
                status=data.status_code,
            )
            writer.add(note)

        async def on_sample_attempt_start(self, data: SampleAttemptStart) -> None:
            begun[data.sample_id] = time.time()

        async def on_sample_attempt_end(self, data: SampleAttemptEnd) -> None:
            now = time.time()
            start = begun.pop(data.sample_id, now)
            if not data.will_retry:
                return
            note = WorkerNote(
                kind="try",
                at=datetime.fromtimestamp(start, UTC).isoformat(),
                seconds=round(max(0.0, now - start), 3),
                sample_uuid=data.sample_id,
                sample_id=str(data.summary.id),
                epoch=data.summary.epoch,
                attempt=data.attempt,
                error=one_line(without_request(data.error.message), 200) if data.error is not None else "",
            )
            writer.add(note)

    return writer


def _attempt() -> tuple[str, int]:
    active = sample_active()
    return ("", 0) if active is None else (str(active.sample.id), active.epoch)
