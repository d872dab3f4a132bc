"""Which lines of a trace or a log are about one sample. Pure.

A person names a sample by what is at hand: the uuid of an attempt, the sample's id, or `id/epoch`. Trace lines carry
all of that in fields; log lines name samples in their text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from hawk.core.recorder.trace import parse_line

_CONTEXT = re.compile(
    r"(?:task=(?P<task>[^\n]*?) )?sample=(?P<sample>[^\n]*?)(?: epoch=(?P<epoch>\d+))?(?:\n|$)"
)


class Attempt(NamedTuple):
    """One attempt as a snapshot knows it; `task` as the lines name it."""

    task: str
    sample_id: str
    epoch: int
    uuid: str


class About:
    """Recognises lines that are about a sample.

    Args:
        named: What the person gave: a uuid, an id, `id/epoch` or `task/id/epoch`.
        attempts: The job's attempts, to know whose uuid it is; lines do not always carry it.
    """

    def __init__(self, named: str, attempts: Iterable[Attempt] = ()) -> None:
        self._named = named
        self._attempt = next((one for one in attempts if one.uuid == named), None)
        names = {named} if self._attempt is None else {named, self._attempt.sample_id}
        for name in tuple(names):
            head, slash, last = name.rpartition("/")
            if slash and last.isdecimal():
                names |= {head, *(head[i + 1 :] for i, c in enumerate(head) if c == "/")}
        # Within JSON text, as written with and without escapes for what is not ASCII.
        self._needles = {
            json.dumps(name, ensure_ascii=escaped).strip('"').encode("utf-8", "replace")
            for name in names
            for escaped in (True, False)
        }
        texts = {named} if self._attempt is None else {named, _path(*self._attempt[:3])}
        self._text = re.compile("|".join(rf"(?<![\w.-]){re.escape(t)}(?![\w.-])" for t in sorted(texts)))

    def may_be_in(self, data: bytes) -> bool:
        """Whether such a line can be among these bytes: False is certain, and cheap to find out."""
        return any(needle in data for needle in self._needles)

    def trace_line(self, line: bytes) -> bool:
        """Whether a trace line is of the sample."""
        if not self.may_be_in(line):
            return False
        found = parse_line(line)
        return found is not None and self.fields(found.sample_uuid, found.task, found.sample_id, found.epoch)

    def fields(
        self, uuid: str | None, task: str | None, sample_id: str | int | None, epoch: int | None
    ) -> bool:
        """Whether these name the sample; None: not known."""
        if uuid is not None and uuid == self._named:
            return True
        if sample_id is None:
            return False
        if self._attempt is not None:
            # A line with a uuid of its own is of another attempt: the names alone may fit several models' attempts.
            same = str(sample_id) == self._attempt.sample_id and epoch in (None, self._attempt.epoch)
            return uuid is None and same and (task is None or _same_task(task, self._attempt.task))
        known = [str(sample_id), _path(None, sample_id, epoch), _path(task, sample_id, epoch)]
        return self._named in known or (task is None and self._named.endswith(f"/{known[1]}"))

    def log_line(self, message: str, attributes: Mapping[str, Any]) -> bool:
        """Whether a log line names the sample: in the context that Inspect puts before it, or anywhere in it."""
        context = _CONTEXT.match(message)
        if context is not None:
            # Inspect leaves out the attempt where each sample has one.
            epoch = int(context["epoch"] or 1)
            return self.fields(None, context["task"], context["sample"], epoch)
        if self._text.search(message):
            return True
        return any(isinstance(value, str) and self._text.search(value) for value in attributes.values())


def _path(task: str | None, sample_id: str | int, epoch: int | None) -> str:
    return "/".join(str(part) for part in (task, sample_id, epoch) if part is not None)


def _same_task(a: str, b: str) -> bool:
    """A task is named with or without its package."""
    return a == b or a.rpartition("/")[2] == b.rpartition("/")[2]
