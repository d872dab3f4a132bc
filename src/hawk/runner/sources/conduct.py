"""What attempts in flight have been doing: calls that repeat, tries that errored, the scorer that runs."""

from __future__ import annotations

import contextlib
from collections import OrderedDict, deque
from pathlib import Path

import msgspec

from hawk.bridge.buffer import Key, find
from hawk.bridge.conduct import Conduct, ConductReader
from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.evidence import Attempt, Evidence, Repeat, Times, Try, Unreached
from hawk.core.text import one_line
from hawk.core.timeline.records import WorkerNote
from hawk.runner.sources.context import Context
from hawk.runner.sources.durations import Durations
from hawk.store.tails import Tail

TRIES = 5
"""Tries of one attempt that are kept, the newest."""

ATTEMPTS = 20_000
"""Attempts whose tries are kept."""

_BLOCK = 4 << 20


class ConductSource:
    """See the module. Buffers are read as they grow, and so are the workers' notes."""

    source = Source.LOGS

    def __init__(self) -> None:
        self._buffers: dict[Path, ConductReader] = {}
        self._scorers, self._starts = Durations(), Durations()
        self._notes = Notes()

    def scorers(self) -> dict[str, Times]:
        """How long scorers took, by name."""
        return self._scorers.times()

    def starts(self) -> dict[str, Times]:
        """How long attempts took until their agent began, by task."""
        return self._starts.times()

    @property
    def tries(self) -> Notes:
        """What is known of tries that errored, for who counts errors."""
        return self._notes

    def fill(self, evidence: Evidence, context: Context) -> None:
        self._notes.read(context.run_dir.path / "spans")
        for attempt in evidence.attempts:
            if attempt.uuid is not None:
                attempt.tries = self._notes.of(attempt.uuid)
        self._follow(evidence, context)
        learnt = evidence.learnt
        learnt.scorers = {**learnt.scorers, **self.scorers()}
        learnt.starts = {**learnt.starts, **self.starts()}

    def _follow(self, evidence: Evidence, context: Context) -> None:
        by_task: dict[str, dict[Key, Attempt]] = {}
        for attempt in evidence.attempts:
            by_task.setdefault(attempt.task, {})[attempt.sample, attempt.epoch] = attempt
        homes = {identifier: worker.home for worker in context.workers for identifier in worker.identifiers}
        used: set[Path] = set()
        planned = context.plan.tasks if context.plan is not None else []
        for task, row in zip(planned, context.snapshot.tasks, strict=False):
            home, attempts = homes.get(task.identifier), by_task.get(task.identifier)
            if home is None or not attempts or not row.log_file:
                continue
            db = find(home / "data", context.run_dir.logs / row.log_file)
            if db is None:
                continue
            used.add(db)
            reader = self._buffers.get(db) or self._open(db, task.name)
            reader.read()
            reader.keep(set(attempts))
            for key, attempt in attempts.items():
                if (conduct := reader.of(*key)) is not None:
                    _amend(attempt, conduct)
        for gone in self._buffers.keys() - used:
            if not gone.exists():
                del self._buffers[gone]

    def _open(self, db: Path, task: str) -> ConductReader:
        reader = ConductReader(db, self._scorers.add, lambda seconds: self._starts.add(task, seconds))
        self._buffers[db] = reader
        return reader


class Notes:
    """Tries that errored, from what workers noted of them.

    Attributes:
        new: Those that came with the last reading.
    """

    def __init__(self) -> None:
        self._tails: dict[Path, Tail] = {}
        self._tries: OrderedDict[str, deque[Try]] = OrderedDict()
        self._decoder = msgspec.json.Decoder(WorkerNote)
        self.new: list[WorkerNote] = []

    def of(self, uuid: str) -> list[Try]:
        """Tries of one attempt, newest last."""
        return list(self._tries.get(uuid, ()))

    def read(self, folder: Path) -> None:
        """Take in what was added."""
        self.new = []
        for path in folder.glob("worker-*.jsonl"):
            tail = self._tails.setdefault(path, Tail(path, most=_BLOCK))
            with contextlib.suppress(OSError):
                for note in tail.read(self._decoder):
                    if note.kind == "try" and note.sample_uuid:
                        self._take(note)

    def _take(self, note: WorkerNote) -> None:
        self.new.append(note)
        kept = self._tries.setdefault(note.sample_uuid, deque(maxlen=TRIES))
        kept.append(Try(note.at, one_line(note.error, 200), note.seconds))
        if len(self._tries) > ATTEMPTS:
            self._tries.popitem(last=False)


def _amend(attempt: Attempt, conduct: Conduct) -> None:
    if conduct.scorer is not None:
        attempt.scorer = conduct.scorer[0]
    run = conduct.run
    if run is not None and run.count > 1:
        same = run.same == run.count
        # The last calls with one answer say more than all of them with several.
        count = run.count if same or run.same < 2 else run.same
        attempt.repeat = Repeat(run.tool, run.arguments, count, run.same > 1, run.since)
    spoke = [text for text in conduct.said if text]
    if spoke:
        first, last = conduct.unreached_at
        attempt.unreached = Unreached(len(spoke), len(conduct.said), spoke[-1], first, last)
