"""Where each attempt's own code waits, from what the workers' recorders wrote last."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.evidence import Evidence, Wait
from hawk.core.recorder.stacks import Chain, StackRecord, Who, own_frame, waits
from hawk.core.recorder.waitkinds import WaitKind, wait_kind
from hawk.core.text import one_line
from hawk.runner.sources.context import Context
from hawk.store import stacks

FRAMES = 30
"""Function names of one chain: the innermost, which tell chains apart."""

_LARGEST = 64 << 20

_FIRST = (
    *(WaitKind.RUNNING, WaitKind.NETWORK, WaitKind.PROCESS, WaitKind.THREAD, WaitKind.TIMER),
    *(WaitKind.LIMITER, WaitKind.QUEUE, WaitKind.CONDITION, WaitKind.EVENT, WaitKind.LOCK, WaitKind.FUTURE),
    WaitKind.TASKS,
)
"""Of several chains of an attempt, which one it waits for: what goes on by itself before what others must do."""


@dataclass
class _Read:
    """One worker's record, as it was read last."""

    stamp: tuple[int, int]
    waits: dict[Who, Wait]


@dataclass
class _Place:
    """Where an attempt was seen, since when, and in how many records."""

    place: str
    since: str
    looks: int
    at: str


class ChainReader:
    """See the module. A record is read again only when it was written again."""

    source = Source.RECORDER

    def __init__(self) -> None:
        self._read: dict[int, _Read] = {}
        self._places: dict[Who, _Place] = {}
        self._decoder = msgspec.json.Decoder(StackRecord)

    def fill(self, evidence: Evidence, context: Context) -> None:
        names = {(attempt.name, attempt.worker): attempt for attempt in evidence.attempts}
        seen: set[Who] = set()
        for worker in context.workers:
            read = self._of(worker.index, stacks.last_file(worker.home))
            if read is None:
                continue
            for who, wait in read.waits.items():
                attempt = context.attempts.get(who.uuid) or names.get((who.name, worker.index))
                if attempt is None:
                    continue
                seen.add(who)
                attempt.wait = self._placed(who, wait)
        for gone in self._places.keys() - seen:
            del self._places[gone]

    def _of(self, index: int, path: Path) -> _Read | None:
        try:
            stat = path.stat()
            stamp = (stat.st_mtime_ns, stat.st_ino)
            read = self._read.get(index)
            if read is not None and read.stamp == stamp:
                return read
            if stat.st_size > _LARGEST:
                return None
            record = self._decoder.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return self._read.get(index)  # between two processes, or torn by a full disk
        read = self._read[index] = _Read(stamp, waits_of(record))
        return read

    def _placed(self, who: Who, wait: Wait) -> Wait:
        """The wait, with since when it is there."""
        key = f"{wait.place} {wait.innermost} {wait.awaits}"
        at = wait.at or ""
        place = self._places.get(who)
        if place is None or place.place != key:
            place = self._places[who] = _Place(key, at, 1, at)
        elif at != place.at:
            place.looks, place.at = place.looks + 1, at
        return msgspec.structs.replace(wait, since=place.since or None, looks=place.looks)


def waits_of(record: StackRecord) -> dict[Who, Wait]:
    """What each attempt of a record waits for."""
    at = record.chains_at or record.at
    by_attempt: dict[Who, list[tuple[WaitKind, Chain]]] = {}
    for chain in waits(record):
        kind = wait_kind(chain.frames, chain.awaits)
        for who in chain.attempts:
            by_attempt.setdefault(who, []).append((kind, chain))
    made: dict[int, Wait] = {}  # equal chains are one: so are their waits
    found: dict[Who, Wait] = {}
    for who, its in by_attempt.items():
        kind, chain = min(its, key=lambda pair: (pair[1].aside, _FIRST.index(pair[0])))
        wait = made.get(id(chain))
        if wait is None:
            wait = made[id(chain)] = _wait(chain, kind, at)
        if len(its) > 1:
            others = sorted(str(k) for k, c in its if c is not chain and not c.aside)
            wait = msgspec.structs.replace(wait, others=others[:20])
        found[who] = wait
    return found


def _wait(chain: Chain, kind: WaitKind, at: str) -> Wait:
    own = own_frame(chain.frames)
    last = chain.frames[-1]
    frame = own or last
    return Wait(
        place=one_line(f"{frame.place} {frame.function}", 200),
        innermost=one_line(f"{last.place} {last.function}", 200),
        awaits=one_line(chain.awaits, 80),
        label=chain.label,
        own=own is not None,
        frames=[one_line(f.function, 80) for f in chain.frames[-FRAMES:]],
        at=at,
        kind=kind,
    )
