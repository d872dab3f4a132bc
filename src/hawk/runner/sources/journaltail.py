"""The journal's last changes of job and workers, read as it grows."""

from __future__ import annotations

from collections import deque

import msgspec

from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.evidence import CHANGES, Change, Evidence
from hawk.runner.sources.context import Context
from hawk.store.rundir import JournalEntry

MOST = 200
"""Changes that are kept: a rule needs the last ends, starts and stalls, not the story."""

FIRST = 1 << 20
"""Bytes of the end of a journal that there was before."""


class JournalTail:
    """See the module."""

    source = Source.JOURNAL

    def __init__(self) -> None:
        self._offset = -1
        self._changes: deque[Change] = deque(maxlen=MOST)

    def fill(self, evidence: Evidence, context: Context) -> None:
        decoder = msgspec.json.Decoder(JournalEntry)
        with context.run_dir.journal_file.open("rb") as file:
            if self._offset < 0:
                size = file.seek(0, 2)
                self._offset = max(0, size - FIRST)
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                try:
                    entry = decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue
                if entry.kind in CHANGES:
                    self._changes.append(
                        Change(entry.at, entry.kind, entry.subject, entry.state, entry.reason, entry.data)
                    )
        evidence.journal = list(self._changes)
