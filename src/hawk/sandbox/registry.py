"""The sandboxes of this process by the attempt that each is of, for whoever reports on attempts. No I/O.

The runner says for which attempt the current code runs, and is told of those whose sandbox hit a limit or was lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Protocol

from hawk.core.snapshot import SandboxFacts


class Group(Protocol):
    """The sandboxes of one attempt, whichever provider made them."""

    def facts(self) -> SandboxFacts:
        """What is to be known of them."""


class Registry:
    """What one process has. Its event loop writes; any thread may read.

    Attributes:
        attempt: Names the attempt for which it is called; None: of nobody's.
        ended: Told the attempt and the facts of sandboxes that hit a limit or were lost, at their end.
    """

    def __init__(self) -> None:
        self.attempt: Callable[[], str | None] = lambda: None
        self.ended: Callable[[str, SandboxFacts], None] = lambda attempt, facts: None
        self._groups: dict[str, Group] = {}
        self._awaited: dict[str, tuple[Hashable, ...]] = {}
        self._work: dict[Hashable, str] = {}

    # --- writing

    @contextlib.contextmanager
    def working(self, what: Hashable, text: str) -> Iterator[None]:
        """Something is made that sandboxes wait for."""
        self._work[what] = text
        try:
            yield
        finally:
            self._work.pop(what, None)

    @contextlib.contextmanager
    def starting(self, needs: Iterable[Hashable]) -> Iterator[Callable[[Group], None]]:
        """An attempt's sandboxes are made, which takes what is made under these keys; call with the group at the end."""
        attempt = self.attempt()
        if attempt is None:
            yield lambda group: None
            return
        self._awaited[attempt] = tuple(needs)
        try:
            yield lambda group: self._groups.update({attempt: group})
        finally:
            self._awaited.pop(attempt, None)

    def closed(self, group: Group) -> None:
        """Its attempt has ended."""
        for attempt, its in list(self._groups.items()):
            if its is group:
                del self._groups[attempt]
                facts = group.facts()
                if facts.troubles or facts.lost:
                    self.ended(attempt, facts)

    # --- reading

    def facts(self) -> dict[str, SandboxFacts]:
        """The sandboxes that live, by attempt."""
        return {attempt: group.facts() for attempt, group in self._groups.copy().items()}

    def waits(self) -> dict[str, str]:
        """What attempts wait for that have no sandbox yet, in words."""
        work = self._work.copy()
        awaited = self._awaited.copy()
        return {
            attempt: next((work[key] for key in keys if key in work), "starting its sandbox")
            for attempt, keys in awaited.items()
        }

    def work(self) -> str | None:
        """What is being made here, whoever waits for it."""
        return next(iter(self._work.copy().values()), None)


registry = Registry()
"""Of this process."""
