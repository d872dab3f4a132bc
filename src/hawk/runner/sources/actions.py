"""Actions of Inspect's in flight, by attempt, from the workers' traces; and how long tools took that have ended."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from hawk.bridge.tracesegments import TraceFiles
from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.evidence import Call, Evidence, Times
from hawk.core.recorder.trace import OUTERMOST, InFlight, TraceLine
from hawk.core.text import one_line
from hawk.runner.sources.context import Context
from hawk.runner.sources.durations import Durations

MOST = 8
"""Calls of one attempt that are shown, the oldest."""

CATCH_UP = 4 << 20
"""Bytes of trace that are read in one look. With more to read, what is in flight is taken from the worker's own list."""

TOOL_CALL = "Tool Call"
_TIMEOUT = re.compile(r"\btimeout(?:_?s(?:ec(?:ond)?s?)?)?=['\"]?(\d+(?:\.\d+)?)\b", re.IGNORECASE)
_IN_CONTAINER = re.compile(r"/usr/bin/timeout -k \d+s (\d+)s ")
"""How Inspect's Docker provider bounds a command."""


class ActionReader:
    """See the module."""

    source = Source.TRACE

    def __init__(self) -> None:
        self._workers: dict[Path, _Followed] = {}
        self._tools = Durations()

    def times(self) -> dict[str, Times]:
        """How long calls of tools took that came to an end by themselves, by the tool's name."""
        return self._tools.times()

    def fill(self, evidence: Evidence, context: Context) -> None:
        calls: dict[str, list[Call]] = {}
        without = []
        for worker in context.workers:
            followed = self._workers.setdefault(worker.home, _Followed(worker.home, self._tools))
            if not followed.read():
                without.append(str(worker.index))
            for line in followed.open:
                if line.sample_uuid is not None and line.action != OUTERMOST:
                    calls.setdefault(line.sample_uuid, []).append(_call(line))
        for uuid, its in calls.items():
            attempt = context.attempts.get(uuid)
            if attempt is not None:
                attempt.calls = sorted(its, key=lambda call: call.since or "")[:MOST]
        evidence.learnt.tools = {**evidence.learnt.tools, **self.times()}
        if without and len(without) == len(context.workers):
            evidence.missing[self.source] = f"no trace yet of worker {', '.join(without)}"


class _Followed:
    """One worker's trace, up to where it was read."""

    def __init__(self, home: Path, tools: Durations) -> None:
        self._home, self._tools = home, tools
        self._at: int | None = None
        self._in_flight = InFlight()

    @property
    def open(self) -> list[TraceLine]:
        """Lines of the actions that are in flight."""
        return self._in_flight.actions

    def read(self) -> bool:
        """Read what came since. False: there is no trace."""
        try:
            files = TraceFiles(self._home)
        except OSError:
            return False
        with files:
            if (
                self._at is None
                or not files.begin <= self._at <= files.end
                or files.end - self._at > CATCH_UP
            ):
                self._start(files)
            for raw in files.lines(self._at or 0):
                self._take(raw)
            self._at = files.end
        return True

    def _start(self, files: TraceFiles) -> None:
        """Begin with the worker's own list of what is in flight."""
        sidecar = files.sidecar
        if sidecar is None or sidecar.at > files.end:
            self._in_flight = InFlight()
            self._at = max(files.begin, files.end - CATCH_UP)
            return
        self._in_flight = InFlight(bytes(raw) for raw in sidecar.actions)
        self._at = sidecar.at

    def _take(self, raw: bytes) -> None:
        ended = self._in_flight.feed(raw)
        if ended is None or ended.event != "exit" or ended.action != TOOL_CALL or ended.duration is None:
            return
        self._tools.add(tool_of(ended.detail or ""), ended.duration)


def _call(line: TraceLine) -> Call:
    detail = line.detail or line.message
    since = line.timestamp
    if line.start_time is not None:
        since = datetime.fromtimestamp(line.start_time, UTC).isoformat(timespec="milliseconds")
    return Call(line.action or "", one_line(detail, 300), since or None, timeout_of(detail))


def tool_of(detail: str) -> str:
    """The tool's name in the detail of a call: `bash(command='…')`."""
    return one_line(detail.partition("(")[0], 60)


def timeout_of(detail: str) -> float | None:
    """The deadline in seconds that a call names for itself: `timeout=30`, or Docker's of a command in a container."""
    found = _TIMEOUT.search(detail) or _IN_CONTAINER.search(detail)
    return float(found[1]) or None if found else None
