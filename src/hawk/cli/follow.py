"""Following a job to its end: a live view on a terminal, a line per change elsewhere."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType

import click

from hawk.cli import watch_plain
from hawk.cli.context import App, note, on_terminal
from hawk.cli.feed import Arrived, Failed, Feed, Item, Lost
from hawk.cli.watch_model import server_now
from hawk.core.snapshot import Snapshot
from hawk.core.states import JobStatus

TICK = 0.5  # seconds between two drawings: times move on although nothing has come
EXIT_STUCK = 3


class Follower:
    """The newest snapshot and when it came."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.snapshot: Snapshot | None = None
        self.notice = ""
        self._at = 0.0

    @property
    def now(self) -> datetime:
        """The server's clock."""
        here = datetime.now(UTC)
        return server_now(self.snapshot, time.monotonic() - self._at, here) if self.snapshot else here

    def wait(self, timeout: float) -> Item | None:
        """Take in the next item. Raises: what ended the feed."""
        item = self._feed.next(timeout)
        if isinstance(item, Failed):
            raise item.error
        if isinstance(item, Lost):
            self.notice = f"Connection lost ({item.why.rstrip('.')}); reconnecting."
        elif isinstance(item, Arrived):
            self.snapshot, self._at, self.notice = item.snapshot, item.at, ""
        return item


def follow(app: App, job_id: str, *, until_stuck: bool = False) -> Snapshot:
    """Show a job until it ends, then a summary. Ctrl-C is the caller's to explain (`job_runs_on`).

    Args:
        app: The command's surroundings.
        job_id: Which job.
        until_stuck: Return as well when it is stuck.

    Raises:
        NotFoundError: Unknown id.
    """
    feed = Feed(app, job_id)
    follower = Follower(feed)
    try:
        snapshot = _live(follower, until_stuck) if on_terminal() else _lines(follower, until_stuck)
    finally:
        feed.close()
    app.remember_job(job_id)
    click.echo(watch_plain.summary(snapshot, follower.now, _columns()))
    return snapshot


def exit_code(status: JobStatus, *, until_stuck: bool = False) -> int:
    """0 complete (or under way), 1 failed or deleted, 3 stuck where that was asked."""
    if status in (JobStatus.FAILED, JobStatus.DELETED):
        return 1
    return EXIT_STUCK if until_stuck and status is JobStatus.STUCK else 0


def _ended(snapshot: Snapshot | None, until_stuck: bool) -> bool:
    if snapshot is None:
        return False
    return snapshot.status.terminal or (until_stuck and snapshot.status is JobStatus.STUCK)


def _lines(follower: Follower, until_stuck: bool) -> Snapshot:
    shown: Snapshot | None = None
    while True:
        item = follower.wait(60.0)
        if isinstance(item, Lost):
            note(follower.notice)
        if not isinstance(item, Arrived):
            continue
        for line in watch_plain.changes(shown, item.snapshot, follower.now):
            click.echo(f"{datetime.now():%H:%M:%S} {line}")
        sys.stdout.flush()
        shown = item.snapshot
        if _ended(shown, until_stuck):
            return shown


def _live(follower: Follower, until_stuck: bool) -> Snapshot:
    """Redraw on a screen of its own, which leaves the terminal as it was: whatever size it takes meanwhile."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from hawk.cli.watch_view import Size, view

    console = Console()
    with _signals(), Live(Text("Connecting…"), console=console, screen=True, auto_refresh=False) as live:
        while not _ended(follower.snapshot, until_stuck):
            follower.wait(TICK)
            if follower.snapshot is None:
                live.update(Text(follower.notice or "Connecting…"), refresh=True)
                continue
            size = Size(console.width, console.height)
            frame = view(
                follower.snapshot,
                follower.now,
                size,
                notice=follower.notice,
                unicode=console.encoding.lower().startswith("utf"),
            )
            live.update(frame, refresh=True)
    assert follower.snapshot is not None
    return follower.snapshot


@contextmanager
def _signals() -> Iterator[None]:
    """A polite end gives the terminal its screen back first."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _columns() -> int:
    import shutil

    return max(40, shutil.get_terminal_size((110, 24)).columns)
