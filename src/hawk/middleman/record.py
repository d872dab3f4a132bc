"""Recording: every exchange of a job into its cassette, by a thread that no request waits for.

A recording that fails (the disk is full) stops with a note in the log and in `Recorder.stopped`; requests go on.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from hawk.middleman.canonical import canonical, canonical_path
from hawk.middleman.cassette import Identity, Line, append, chunk_of, decoded, kept_headers, writable

LARGEST = 64 << 20
"""Bytes of request and answer that one exchange may hold in memory; a larger one is not recorded."""

MOST_WAITING = 256 << 20
"""Bytes of ended exchanges that may wait for a slow disk; then recording stops."""

_log = logging.getLogger(__name__)


class Recording:
    """One exchange while it happens. Every method is cheap, and none of them raises."""

    __slots__ = ("_body", "_chunks", "_encoding", "_headers", "_path", "_recorder", "_secrets", "_since", "_status",
                 "identity", "provider", "size", "wall")  # fmt: skip

    def __init__(
        self,
        recorder: Recorder,
        identity: Identity,
        provider: str,
        path: str,
        body: bytes,
        secrets: tuple[str, ...],
    ) -> None:
        self._recorder = recorder
        self.identity = identity.writable()
        self.provider = provider
        self.size = len(body)
        self.wall = datetime.now(UTC)
        self._path = path
        self._body = body
        self._secrets = secrets
        self._since = time.monotonic()
        self._status = 0
        self._headers: list[tuple[str, str]] = []
        self._encoding = ""
        self._chunks: list[tuple[float, bytes]] = []

    def head(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """The answer has begun."""
        self._status = status
        found = list(headers)
        self._headers = kept_headers(found)
        self._encoding = next((v.strip().lower() for k, v in found if k.lower() == "content-encoding"), "")

    def chunk(self, data: bytes, at: float) -> None:
        """A piece of the body as it came over the wire, at a time of `time.monotonic()`."""
        self.size += len(data)
        if self.size <= LARGEST:
            self._chunks.append((at - self._since, data))

    def end(self, complete: bool) -> None:
        """The answer has ended; `complete`: as the provider meant it to, not by a cut."""
        self._recorder._ended(self, complete)

    def line(self, complete: bool) -> Line:
        """The exchange as it is written: body without compression, without what must stay secret."""
        chunks = self._chunks
        headers = list(self._headers)
        if self._encoding not in ("", "identity"):
            plain = decoded(self._encoding, chunks)
            if plain is not None:
                chunks = plain
            elif not _plain_already(self._encoding, chunks):
                headers.append(("content-encoding", self._encoding))
        return Line(
            path=canonical_path(writable(self._path)),
            request=canonical(_without(self._body, self._secrets)),
            status=self._status,
            at=self.wall.isoformat(timespec="milliseconds"),
            task=self.identity.task,
            sample=self.identity.sample,
            attempt=self.identity.attempt,
            provider=self.provider,
            headers=headers,
            chunks=[chunk_of(at, data) for at, data in _masked(chunks, self._secrets)],
            complete=complete,
        )


class Recorder:
    """Writes one cassette; existing content stays.

    Attributes:
        stopped: Why it records no more, or None.
        skipped: Exchanges that were too large.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stopped: str | None = None
        self.skipped = 0
        self._waiting = 0
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[Recording, bool] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="cassette", daemon=True)
        self._thread.start()

    def begin(
        self,
        identity: Identity,
        provider: str,
        path_and_query: str,
        body: bytes,
        secrets: tuple[str, ...] = (),
    ) -> Recording:
        """A request is about to be sent.

        Args:
            path_and_query: At the provider, as the client sent it; credentials in the query are left out.
            secrets: Keys and tokens that must not be written even where a provider repeats them.
        """
        return Recording(self, identity, provider, path_and_query, body, secrets)

    def close(self, timeout: float = 30.0) -> None:
        """Write what has ended, and stop. What is still under way is not written."""
        self._queue.put(None)
        self._thread.join(timeout)

    def _ended(self, recording: Recording, complete: bool) -> None:
        if self.stopped is not None:
            return
        if recording.size > LARGEST:
            self.skipped += 1
            _log.warning("%s: an exchange of %d MiB is not recorded", self.path, recording.size >> 20)
            return
        with self._lock:
            self._waiting += recording.size
            if self._waiting > MOST_WAITING:
                self._stop("the disk is too slow")
                return
        self._queue.put((recording, complete))

    def _write(self) -> None:
        while (item := self._queue.get()) is not None:
            recording, complete = item
            try:
                if self.stopped is None:
                    append(self.path, recording.line(complete))
            except OSError as ex:
                self._stop(ex.strerror or str(ex))
            except Exception as ex:  # the thread must outlive an exchange that can't be written
                self.skipped += 1
                _log.warning("%s: an exchange is not recorded: %s", self.path, type(ex).__name__)
            with self._lock:
                self._waiting -= recording.size

    def _stop(self, why: str) -> None:
        self.stopped = why
        _log.error(
            "%s: recording has stopped: %s. Requests go on; replays of what follows will miss.",
            self.path,
            why,
        )


def _plain_already(encoding: str, chunks: list[tuple[float, bytes]]) -> bool:
    """Whoever handed over the chunks had taken the compression off."""
    first = next((data for _, data in chunks if data), b"")
    return encoding in ("gzip", "x-gzip") and not first.startswith(b"\x1f")


def _without(data: bytes, secrets: tuple[str, ...]) -> bytes:
    for secret in secrets:
        if secret:
            data = data.replace(secret.encode(), b"*" * len(secret.encode()))
    return data


def _masked(chunks: list[tuple[float, bytes]], secrets: tuple[str, ...]) -> list[tuple[float, bytes]]:
    """The same chunks with secrets as stars, also where one is split between two chunks."""
    whole = b"".join(data for _, data in chunks)
    masked = _without(whole, secrets)
    if masked == whole:
        return chunks
    result, start = [], 0
    for at, data in chunks:
        result.append((at, masked[start : start + len(data)]))
        start += len(data)
    return result
