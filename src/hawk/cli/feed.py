"""Snapshots of a job as they come, read on a thread so that the view can move between them.

A stream that breaks is opened again, with growing waits, for as long as it takes; the local server is
started again when it has died. Only an answer that will not change (unknown id, no access) ends it, and
a server that could not be reached in the first place.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass

from hawk.cli.context import App
from hawk.core.snapshot import Snapshot
from hawk.errors import ServerUnavailableError

WAITS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0)  # seconds between tries; the last one again and again


@dataclass(frozen=True)
class Arrived:
    snapshot: Snapshot
    at: float  # time.monotonic()


@dataclass(frozen=True)
class Lost:
    """The connection broke; said once, not at every try."""

    why: str


@dataclass(frozen=True)
class Failed:
    """No snapshot will come any more."""

    error: BaseException


Item = Arrived | Lost | Failed


class Feed:
    """The stream of one job. `next` never raises for trouble on the way: it hands it on.

    Args:
        app: Gives connections, and starts the local server again.
        job_id: Whose snapshots.
    """

    def __init__(self, app: App, job_id: str) -> None:
        self._app = app
        self._job_id = job_id
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._arrived = False
        self._ever = False
        threading.Thread(target=self._run, name="feed", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def next(self, timeout: float) -> Item | None:
        """The next item, or None after `timeout` seconds."""
        try:
            return self._items.get(timeout=timeout)
        except queue.Empty:
            return None

    def _run(self) -> None:
        tries = 0
        while not self._closed.is_set():
            try:
                if self._read():
                    return
                why = "the server ended the stream"
            except ServerUnavailableError as ex:
                if not self._ever:
                    self._items.put(Failed(ex))
                    return
                why = ex.message
            except Exception as ex:  # also a bug: it must end the command, not leave it waiting for ever
                self._items.put(Failed(ex))
                return
            if self._arrived:
                tries = 0
            if tries == 0:
                self._items.put(Lost(why))
            self._closed.wait(WAITS[min(tries, len(WAITS) - 1)])
            tries += 1

    def _read(self) -> bool:
        """Read one stream to its end; True when the job has ended."""
        self._arrived = False
        with self._app.connect() as client:
            for answer in client.stream_status(self._job_id):
                if self._closed.is_set():
                    return True
                if answer is not None:
                    self._arrived = self._ever = True
                    self._items.put(Arrived(answer.data, time.monotonic()))
                    if answer.data.status.terminal:
                        return True
        return False
