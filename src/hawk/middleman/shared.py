"""Several middlemen behind one address: what they share goes through a database five times a second, and at need.

Nothing of the data path waits for it. While it is away each goes on with the shares that it has, and what it could not
tell is told when it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hawk.core.traffic.lane import Limits
from hawk.core.traffic.ledger import Budget, Spend
from hawk.errors import ConfigError, ServerUnavailableError
from hawk.middleman.shared_database import (
    HEARD_FOR,
    Heard,
    KeysRow,
    Open,
    ReplicaRow,
    RevokedRow,
    SharedDatabase,
    SpentRow,
    Told,
)
from hawk.middleman.shared_keys import Sealer
from hawk.middleman.shared_lane import SharedLane
from hawk.middleman.shared_lanes import Names, SharedLanes
from hawk.middleman.shared_peers import Asker, Peers

if TYPE_CHECKING:
    from hawk.middleman.house import House

PERIOD = 0.2
"""Seconds between two round trips."""

_GAP = 0.02
"""At least so long, though there be news; unless somebody waits for it."""

_ANSWER = 2.5
"""Seconds that a round trip may take."""

_FROZEN = 3.0
"""Seconds after the database is back in which nobody asks for more: the others may not be back yet."""

_LEAVE = 5.0
_BACK_OFF = 1.0
_PROMPT = 5.0
"""A revocation that is so young concerns every token that was seen; clocks may differ by as much."""

_REPUBLISHED = 3600.0
"""Seconds of revocations that are told again: a database that crashed may have lost them."""

_NEAR_PART, _NEAR_REQUESTS = 0.05, 200
"""A budget of which less than this part, or than so many requests cost, is left is looked at after each request."""

_ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104  # what nobody connects to

_log = logging.getLogger(__name__)


class Sharing:
    """The link of one middleman to the others. Used on its event loop only.

    Args:
        url: Of the database.
        key: The signing key, which has to be the same for all.
        host: Where others reach this one; None: at its address on the way to the database, or where it listens.

    Attributes:
        problem: Why the others are not heard of at the moment; None: they are.

    Raises:
        UsageError: It is no PostgreSQL URL, or the driver is not installed.
    """

    def __init__(self, url: str, key: bytes, host: str | None = None) -> None:
        self._key, self._host = key, host
        self._others: list[ReplicaRow] = []
        self._wake, self._hurry = asyncio.Event(), asyncio.Event()
        self._database = SharedDatabase(url, self._rush)
        self._sealer = Sealer(key)
        self.problem: str | None = None
        self._good_at = self._began_at = self._frozen_until = 0.0
        self._heard_for = HEARD_FOR
        self._version = self._batch = 0
        self._tell = self._ended = False
        self._running: asyncio.Task[None] | None = None
        self._totals: dict[str, Spend] = {}
        self._known: set[str] = set()
        self._sealed: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._revoked: dict[str, float] = {}
        self._said: dict[str, float] = {}

    def attach(self, house: House) -> None:
        """The house that it works for."""
        self._house = house
        self._lanes = SharedLanes(house.instance)
        self.peers = Peers(self._key, house.instance)
        house.ledger.share(self._spent)

    # --- what happens here --------------------------------------------------------------------------------

    def lane(self, names: Names, limits: Limits, now: float) -> SharedLane:
        """A lane; what it may use comes at once, when the database is there."""
        lane = SharedLane(limits, now, self._urge)
        self._lanes.hold(names, lane, now)
        self._urge()
        return lane

    def adopt(self, job: str) -> dict[str, str]:
        """A job is seen here for the first time. Returns its own keys; its spend is in the ledger then."""
        ledger = self._house.ledger
        kept, total = ledger.spend(job), self._totals.get(job, Spend())
        if kept.requests:
            self._known.add(job)
        self._totals[job] = _larger(kept, total)
        ledger.common(job, self._totals[job])
        sealed = self._sealed.get(job)
        return self._sealer.open(job, sealed) if sealed is not None else {}

    def keys(self, job: str, keys: dict[str, str]) -> None:
        """A job brought keys of its own."""
        self._sealed[job] = self._keys[job] = self._sealer.seal(job, keys)
        self._urge(tell=True)
        self._rush()

    def revoked(self, job: str, at: float) -> None:
        """A job was revoked here."""
        self._revoked[job] = at
        self._forget(job)
        self._keys.pop(job, None)
        self._urge(tell=True)
        self._rush()

    def _forget(self, job: str) -> None:
        self._sealed.pop(job, None)

    def _spent(self, job: str) -> None:
        known = self._house.jobs.get(job)
        if known is not None and _near(self._house.ledger.spend(job), known.budget):
            self._urge(tell=True)

    def _urge(self, *, tell: bool = False) -> None:
        self._tell = self._tell or tell
        self._wake.set()
        if self.problem is not None:
            self._house.loop.call_soon(self._go_offline)

    def _rush(self) -> None:
        self._wake.set()
        self._hurry.set()

    def _go_offline(self) -> None:
        if self.problem is not None:
            self._lanes.go_offline(self._house.turnstiles.values(), self._house.loop.time())

    def document(self) -> dict[str, Any]:
        """What people see: `replicas` that live, seconds since they were heard of, and what is wrong."""
        behind = self._house.loop.time() - self._good_at
        return {
            "replicas": len(self._lanes.living),
            "behind_s": round(behind, 2),
            "problem": self.problem,
        }

    def open_elsewhere(self, job: str) -> Open:
        """Requests of a job that the others have, as of a moment ago."""
        rows = [row.open[job] for row in self._others if job in row.open]
        return Open(sum(row.in_flight for row in rows), sum(row.waiting for row in rows))

    async def ask_others(self, asker: Asker) -> tuple[list[dict[str, Any]], list[str]]:
        """What they say of a job; and who does not answer."""
        return await self.peers.ask(self._others, asker)

    # --- the round trips ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Meet the others, and stay in touch until `close`.

        Raises:
            ServerUnavailableError: The database can't be reached.
            ConfigError: Another replica has another signing key.
        """
        try:
            await self._database.connect()
            await self._exchange()
        except self._database.failures as ex:
            raise ServerUnavailableError(
                f"The database that replicas share can't be used: {_line(ex)}",
                remedy="Check --database-url (HAWK_MIDDLEMAN_DATABASE_URL), and that its user may create a schema.",
            ) from ex
        if self.problem is not None:
            await self.close()
            raise ConfigError(
                self.problem, remedy="Give all replicas of one database the same HAWK_MIDDLEMAN_KEY_FILE."
            )
        self._running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        pause = 0.1
        while not self._ended:
            try:
                if self._database.handle is None:
                    await self._database.connect()
                    self._back()
                else:
                    await self._idle()
                await self._exchange()
                pause = 0.1
            except self._database.failures as ex:
                await self._lost(_line(ex))
                await asyncio.sleep(pause)
                pause = min(pause * 2, _BACK_OFF)
            except Exception as ex:
                _log.exception("replicas")
                await self._lost(f"a fault of the middleman's own: {type(ex).__name__}")
                await asyncio.sleep(_BACK_OFF)

    async def _idle(self) -> None:
        """Until something happens here or elsewhere, or it is time."""
        loop, handle = self._house.loop, self._database.handle
        assert handle is not None
        loop.add_reader(handle, self._rush)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._began_at + PERIOD - loop.time())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), self._began_at + _GAP - loop.time())
        finally:
            loop.remove_reader(handle)

    async def _exchange(self) -> None:
        loop = self._house.loop
        self._began_at = loop.time()
        self._wake.clear()
        self._hurry.clear()
        told = self._told()
        trip = asyncio.create_task(self._database.exchange(told))
        try:
            await asyncio.wait({trip}, timeout=_ANSWER)
        finally:
            late = not trip.done()
            if late:
                self._database.cut()
        try:
            heard = await trip
        except self._database.failures as ex:
            if late:
                raise TimeoutError(f"no answer within {_ANSWER:g} s") from ex
            raise
        self._good_at = loop.time()
        self._arrived(told)
        self._apply(heard)

    def _told(self) -> Told:
        house, now = self._house, self._house.loop.time()
        leases, limits, pauses = self._lanes.ask(
            house.turnstiles.values(), now, frozen=now < self._frozen_until
        )
        if now >= self._frozen_until:
            self._heard_for = HEARD_FOR
        spent = house.ledger.batch()
        tell = self._tell or bool(pauses)
        self._tell = False
        return Told(
            replica=house.instance,
            fingerprint=self._sealer.fingerprint,
            url=self._url(),
            batch=self._batch + bool(spent),
            heard_for=self._heard_for,
            version=self._version,
            lanes=[row.lane for row in leases],
            leases=leases,
            limits=limits,
            pauses=pauses,
            spent=[_row(job, spend) for job, spend in spent.items()],
            known=[_row(job, self._totals[job]) for job in self._known],
            revoked=[RevokedRow(job, at) for job, at in self._revoked.items()],
            keys=[KeysRow(job, sealed) for job, sealed in self._keys.items()],
            open=_open(house),
            tell=tell,
        )

    def _url(self) -> str:
        """Where the others reach this one: one that listens on all addresses is at none of that name."""
        listens = urlsplit(self._house.url)
        host = self._host
        if host is None and listens.hostname in _ALL_ADDRESSES:
            host = self._database.address() or "127.0.0.1"
        if host is None:
            return self._house.url
        return f"http://{f'[{host}]' if ':' in host else host}:{listens.port}"

    def _arrived(self, told: Told) -> None:
        """The others know it."""
        self._house.ledger.arrived()
        self._batch = told.batch
        self._known.difference_update(row.job for row in told.known)
        self._keys = {
            job: sealed for job, sealed in self._keys.items() if KeysRow(job, sealed) not in told.keys
        }
        for row in told.revoked:
            if self._revoked.get(row.job) == row.at:
                del self._revoked[row.job]
                self._said[row.job] = row.at

    def _apply(self, heard: Heard) -> None:
        house, now = self._house, self._house.loop.time()
        if heard.stranger is not None:
            self.problem = f"The replica at {heard.stranger} has another signing key."
        elif self.problem is not None:
            self.problem = None
            _log.info("replicas are heard of again")
        self._version = heard.version(self._version)
        self._others = [row for row in heard.replicas or () if row.id != house.instance]
        for row in heard.jobs or ():
            self._totals[row.job] = row.spend()
            if row.job in house.jobs:
                house.ledger.common(row.job, row.spend())
        self._apply_revoked(heard.revoked or [])
        for key in heard.keys or ():
            if key.job not in self._keys and self._sealed.get(key.job) != key.sealed:
                self._sealed[key.job] = key.sealed
                house.keys_from_elsewhere(key.job, self._sealer.open(key.job, key.sealed))
        self._lanes.hear_pauses(heard.pauses or (), house.turnstiles.values(), now)
        self._lanes.apply(heard, now)

    def _apply_revoked(self, rows: list[RevokedRow]) -> None:
        house, old = self._house, {}
        for row in rows:
            if house.verifier.revoked_at(row.job) >= row.at:
                continue
            self._forget(row.job)
            known = house.jobs.get(row.job)
            claims = known.principal.claims if known is not None and known.principal is not None else None
            if row.age < _PROMPT or (claims is not None and claims.iat <= row.at):
                house.revoke(row.job, row.at)
            else:  # its tokens of today were given later
                old[row.job] = row.at
        if old:
            house.verifier.learn(old, time.time())

    # --- the database goes and comes ------------------------------------------------------------------------

    async def _lost(self, why: str) -> None:
        if self.problem is None:
            _log.warning("the other replicas are not heard of: %s", why)
        self.problem = f"The database is away: {why}"
        await self._database.close()
        self._go_offline()

    def _back(self) -> None:
        """Nothing of what was there is taken for granted: it may be another one, or an older state."""
        now, wall = self._house.loop.time(), time.time()
        self._frozen_until = now + _FROZEN
        self._heard_for = HEARD_FOR + now - self._good_at
        self._version = 0
        self._known.update(job for job in self._house.jobs if job in self._totals)
        self._said = {job: at for job, at in self._said.items() if at > wall - _REPUBLISHED}
        self._revoked = {**self._said, **self._revoked}

    async def close(self) -> None:
        """Tell the last, and give back everything."""
        self._ended = True
        self._wake.set()
        if self._running is not None:
            await asyncio.wait({self._running}, timeout=_LEAVE)
            self._running.cancel()
        with contextlib.suppress(*self._database.failures, TimeoutError):
            if self._database.handle is not None:
                self._tell = True
                await self._exchange()
                await asyncio.wait_for(self._database.leave(self._house.instance), 1.0)
        await self._database.close()


def _open(house: House) -> dict[str, Open]:
    return {job: Open(*count) for job, count in house.exchanges.counts().items() if job}


def _row(job: str, spend: Spend) -> SpentRow:
    return SpentRow(job, spend.usd, spend.tokens, spend.requests, spend.unpriced)


def _larger(one: Spend, other: Spend) -> Spend:
    return Spend(
        max(one.usd, other.usd),
        max(one.tokens, other.tokens),
        max(one.requests, other.requests),
        max(one.unpriced, other.unpriced),
    )


def _near(spend: Spend, budget: Budget) -> bool:
    """Whether the budget may be used up within the time of a round trip."""
    return any(
        bound is not None
        and bound - used < max(_NEAR_PART * bound, _NEAR_REQUESTS * used / max(spend.requests, 1))
        for bound, used in ((budget.usd, spend.usd), (budget.tokens, spend.tokens))
    )


def _line(ex: Exception) -> str:
    """The first line; libpq's messages go on with hints and addresses."""
    return (str(ex).strip() or type(ex).__name__).splitlines()[0]
