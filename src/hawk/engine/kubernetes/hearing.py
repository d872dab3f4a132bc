"""Whose events are: from the namespace's stream of them into the chronicles of the jobs that they are about.

An event names its object by uid. It may come before the object itself, by another stream, or after the object was there
at all: then its name tells the job.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from hawk.core.cluster import Event, Job, Pod
from hawk.core.cluster_said import JOB, About, about_pod, from_event
from hawk.engine.kubernetes.books import Book
from hawk.kube import parsing
from hawk.kube.names import fit

PATIENCE = 5.0
"""Seconds for which an event's object may still be seen."""

_EARLY = 1_000
_OBJECTS = 4_000
_KEPT = 8
"""Events that wait for their object; objects that are remembered; events of one that are."""


class _Whose(NamedTuple):
    book: Book
    about: About
    events: OrderedDict[str, Event]


class _Early(NamedTuple):
    until: float
    uid: str
    name: str
    event_uid: str
    event: Event


class Hearing:
    """For one namespace; all on the engine's loop.

    Args:
        books: Of all jobs that are this server's.
    """

    def __init__(self, books: Callable[[], list[Book]]) -> None:
        self._books = books
        self._whose: OrderedDict[str, _Whose] = OrderedDict()
        self._uids: dict[str, str] = {}  # by name: the taint manager's events have no uid
        self._early: deque[_Early] = deque(maxlen=_EARLY)

    def pod(self, book: Book, pod: Pod) -> None:
        """A pod was seen: it may be an attempt's only from now on."""
        self._know(pod.uid, book, about_pod(pod))

    def job(self, book: Book, job: Job) -> None:
        """A Job was seen."""
        self._know(job.uid, book, About(job.name, JOB))

    def _know(self, uid: str, book: Book, about: About) -> None:
        known = self._whose.get(uid)
        if known is not None and known.about == about:
            return
        self._whose[uid] = _Whose(book, about, known.events if known is not None else OrderedDict())
        self._uids[about.name] = uid
        if len(self._whose) > _OBJECTS:
            oldest, whose = self._whose.popitem(last=False)
            if self._uids.get(whose.about.name) == oldest:
                del self._uids[whose.about.name]

    def of(self, uid: str) -> list[Event]:
        """The newest events about an object, newest last."""
        known = self._whose.get(uid)
        return parsing.newest(known.events.values()) if known is not None else []

    def event(self, item: dict[str, Any]) -> None:
        """Take an event; none is kept by the watch itself."""
        kind, name, uid = parsing.concerns(item)
        if kind not in ("Pod", "Job"):
            return
        uid = uid or self._uids.get(name, "")
        event, event_uid = parsing.event(item), str(item["metadata"]["uid"])
        if uid in self._whose:
            self._hear(self._whose[uid], event_uid, event)
        elif name.startswith("hawk-"):
            self._early.append(_Early(time.monotonic() + PATIENCE, uid, name, event_uid, event))

    def settle(self) -> None:
        """Look again at events that came before what they are about."""
        now = time.monotonic()
        for _ in range(len(self._early)):
            early = self._early.popleft()
            if early.uid in self._whose:
                self._hear(self._whose[early.uid], early.event_uid, early.event)
            elif early.until > now:
                self._early.append(early)
            elif (book := self._named(early.name)) is not None:
                self._hear(_Whose(book, About(early.name), OrderedDict()), early.event_uid, early.event)

    def _hear(self, whose: _Whose, event_uid: str, event: Event) -> None:
        whose.events[event_uid] = event
        whose.events.move_to_end(event_uid)
        if len(whose.events) > _KEPT:
            whose.events.popitem(last=False)
        said = from_event(event_uid, event, whose.about)
        if said is not None:
            whose.book.chronicle.add(said)

    def _named(self, name: str) -> Book | None:
        """The job whose objects have such names: the longest that fits, because ids may begin alike."""
        fits = [book for book in self._books() if name.startswith(f"{fit(f'hawk-{book.run.job_id}')}-")]
        return max(fits, key=lambda book: len(book.run.job_id), default=None)
