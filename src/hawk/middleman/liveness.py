"""Whether a provider that is silent lives at all: a question that costs nothing, asked only while something is silent.

A request without a byte may be a long generation or one that is never answered, and looks the same from outside. The list
of models is answered at once by a provider that lives; any HTTP answer counts, whatever its status.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple

from hawk.config.providers import Kind, credential
from hawk.middleman.exchange import Exchange, Phase
from hawk.middleman.pool import Pool, address_of, failure, target_of
from hawk.middleman.routes import Route

if TYPE_CHECKING:
    from hawk.middleman.admission import Turnstile
    from hawk.middleman.house import House

SILENT = 20.0
"""Seconds without a byte after which the question is asked."""

BETWEEN = 15.0
"""Seconds between two questions of one lane."""

PATIENCE = 5.0
"""Seconds for an answer."""

PERIOD = 2.5
"""Seconds between looks."""

_LISTS = {Kind.OPENAI: "/v1/models", Kind.ANTHROPIC: "/v1/models", Kind.GEMINI: "/v1beta/models"}
_LISTS_OF = {"groq": "/openai/v1/models"}


class Sign(NamedTuple):
    """What came back. `at` is in seconds since the epoch, `why` says why nothing did."""

    at: float
    answered: bool
    seconds: float
    status: int | None = None
    why: str = ""


def last_byte(x: Exchange) -> float | None:
    """When something came last from the provider, or the request was sent to it, on the loop's clock.

    The idle deadline is set anew with each piece of an answer, so that no piece costs more than that.
    """
    if x.phase is Phase.STREAMING and x.route is not None:
        return x.due - x.route.deadlines.idle
    return x.first_byte if x.first_byte is not None else x.sent


class Liveness:
    """Looks at all open requests now and then."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._asked: dict[tuple[str, str, str], float] = {}
        self._asking: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until canceled."""
        while True:
            await asyncio.sleep(PERIOD)
            if self._house.exchanges.count:
                self._look()
            elif self._asked:
                self._asked.clear()

    def _look(self) -> None:
        now = self._house.loop.time()
        for x in self._house.exchanges:
            if x.lane is None or x.route is None or x.replayed or x.sent is None:
                continue
            last = last_byte(x)
            name = x.lane.name
            if last is None or now - last < SILENT or now - self._asked.get(name, -BETWEEN) < BETWEEN:
                continue
            self._asked[name] = now
            task = asyncio.create_task(self._ask(x.lane, x.route))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _ask(self, turnstile: Turnstile, route: Route) -> None:
        turnstile.sign = await ask(route, Pool(self._house.forbidden if route.of_job else None))


async def ask(route: Route, pool: Pool) -> Sign:
    """Ask a provider for its models, on a connection of its own."""
    provider = route.provider
    rest = _LISTS_OF.get(provider.name, _LISTS[provider.kind])
    headers = [*route.headers.items()]
    if route.key is not None:
        headers.append(credential(provider.kind, route.key))
    if provider.kind is Kind.ANTHROPIC:
        headers.append(("anthropic-version", "2023-06-01"))
    at, started = time.time(), time.monotonic()
    address = address_of(route.base_url)
    target = target_of(address, provider.prefix, rest, "")
    try:
        async with asyncio.timeout(PATIENCE):
            connection = await pool.fresh(address, connect=PATIENCE)
            answer = await connection.ask("GET", target, address.authority, headers, None)
        connection.close()
        return Sign(at, True, time.monotonic() - started, answer.status)
    except TimeoutError:
        return Sign(at, False, time.monotonic() - started, why=f"no answer within {PATIENCE:g} s")
    except OSError as ex:
        return Sign(at, False, time.monotonic() - started, why=failure(provider.name, address, ex).message)
    finally:
        pool.close()
