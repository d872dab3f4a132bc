"""What the other replicas know of a job: behind one address each answer is of one of them, and a job wants that of all.

Replicas ask each other at the addresses that they tell through the database. A question bears no token of anybody's, which
whoever can write into the database could have sent to himself, but a ticket that is good for this answer alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from hawk.errors import HawkError
from hawk.middleman import calls
from hawk.middleman.refusals import Refusal
from hawk.middleman.shared_database import ReplicaRow
from hawk.middleman.shared_keys import Sealer

HERE = "/job/status/here"
"""Where a replica tells another one what it knows of a job."""

PATIENCE = 1.5
"""Seconds that a replica may take; a job's own patience is longer."""

LIFETIME = 30.0
"""Seconds for which a ticket is good: clocks may differ by some."""


class Asker(NamedTuple):
    """The job and the person for whom another replica asks."""

    job: str
    user: str


class Peers:
    """Asks and admits.

    Args:
        key: The signing key, which all replicas have.
        instance: This replica.
    """

    def __init__(self, key: bytes, instance: str) -> None:
        self._sealer = Sealer(key, "tickets of replicas")
        self._instance = instance

    def ticket(self, replica: str, asker: Asker) -> str:
        """Opens `HERE` of one replica, for one job."""
        content = {"to": replica, "user": asker.user, "until": str(time.time() + LIFETIME)}
        return self._sealer.seal(asker.job, content)

    def admit(self, ticket: str | None) -> Asker:
        """Who is asked for.

        Raises:
            Refusal: It is no ticket of another replica's for this one, or an old one.
        """
        job, content = self._sealer.read(ticket or "") or ("", {})
        if content.get("to") != self._instance or float(content.get("until", 0)) < time.time():
            raise Refusal("hawk_token_invalid", "This is for the other replicas only.", no_retry=True)
        return Asker(job, content.get("user", ""))

    async def ask(self, others: Iterable[ReplicaRow], asker: Asker) -> tuple[list[dict[str, Any]], list[str]]:
        """What each of the others says of a job, and the addresses of those that do not answer."""
        asked = list(others)
        answers = await asyncio.gather(*(self._ask(other, asker) for other in asked))
        found = [answer for answer in answers if answer is not None]
        silent = [other.url for other, answer in zip(asked, answers, strict=True) if answer is None]
        return found, silent

    async def _ask(self, other: ReplicaRow, asker: Asker) -> dict[str, Any] | None:
        ticket = self.ticket(other.id, asker)
        try:
            found = await asyncio.to_thread(calls.call, other.url, ticket, "GET", HERE, timeout=PATIENCE)
        except (OSError, HawkError, ValueError):
            return None
        return found if isinstance(found, dict) and found.get("instance") == other.id else None
