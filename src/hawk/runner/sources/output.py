"""What workers complain of in their output: known sentences of databases, disks and stores, counted as they come."""

from __future__ import annotations

import re
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.evidence import Evidence
from hawk.runner.sources.context import Context
from hawk.store.tails import Tail

COMPLAINTS = {
    "database is locked": re.compile(rb"database is locked|database table is locked", re.IGNORECASE),
    "no space left": re.compile(
        rb"No space left on device|\[Errno 28\]|disk quota exceeded|database or disk is full", re.IGNORECASE
    ),
    "can't write": re.compile(
        rb"(?:Read-only file system|Permission denied|AccessDenied|\[Errno 30\])[^\n]{0,300}(?:\.eval|/logs/|log_dir)"
        rb"|(?:\.eval|/logs/|log_dir)[^\n]{0,300}(?:Read-only file system|Permission denied|AccessDenied)",
    ),
}
"""Name to what is looked for."""

WINDOW = 300.0
"""Seconds for which a complaint counts."""

PIECE = 1 << 20
"""Bytes that are looked at in one look: the newest, where a worker writes more."""


class OutputReader:
    """See the module."""

    source = Source.LOGS

    def __init__(self) -> None:
        self._files: dict[Path, Tail] = {}
        self._heard: dict[tuple[int, str], deque[float]] = {}

    def fill(self, evidence: Evidence, context: Context) -> None:
        now = context.now.timestamp()
        for worker in evidence.workers:
            path = context.run_dir.worker(worker.index) / "output.jsonl"
            text = self._new(path)
            for name, pattern in COMPLAINTS.items():
                heard = self._heard.setdefault((worker.index, name), deque(maxlen=1000))
                heard.extend(now for _ in pattern.findall(text))
                while heard and heard[0] < now - WINDOW:
                    heard.popleft()
                if heard:
                    worker.complaints[name] = len(heard)
                    worker.complaint_at[name] = datetime.fromtimestamp(heard[-1], UTC).isoformat()

    def _new(self, path: Path) -> bytes:
        """What was written since the last look."""
        try:
            return b"".join(self._files.setdefault(path, Tail(path, most=PIECE)).lines())
        except OSError:
            return b""
