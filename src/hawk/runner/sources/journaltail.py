"""The journal's last changes of job and workers, read as it grows."""

from __future__ import annotations

from collections import deque

import msgspec

from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.evidence import CHANGES, Change, Evidence
from hawk.runner.sources.context import Context
from hawk.store.rundir import JournalEntry
from hawk.store.tails import Tail

MOST = 200
"""Changes that are kept: a rule needs the last ends, starts and stalls, not the story."""

FIRST = 1 << 20
"""Bytes at the end of a journal that are read, of one that has more to tell."""


class JournalTail:
    """See the module."""

    source = Source.JOURNAL

    def __init__(self) -> None:
        self._tail: Tail | None = None
        self._decoder = msgspec.json.Decoder(JournalEntry)
        self._changes: deque[Change] = deque(maxlen=MOST)

    def fill(self, evidence: Evidence, context: Context) -> None:
        if self._tail is None:
            self._tail = Tail(context.run_dir.journal_file, most=FIRST)
        for entry in self._tail.read(self._decoder):
            if entry.kind in CHANGES:
                self._changes.append(
                    Change(entry.at, entry.kind, entry.subject, entry.state, entry.reason, entry.data)
                )
        evidence.journal = list(self._changes)
