"""Answers from a cassette instead of a provider, and onto one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http.client import responses

from hawk.errors import StorageError
from hawk.middleman.cassette import Identity
from hawk.middleman.exchange import Exchange, Phase
from hawk.middleman.house import House
from hawk.middleman.meter import Meter
from hawk.middleman.paths import Target
from hawk.middleman.record import Recording
from hawk.middleman.refusals import Refusal
from hawk.middleman.replay import ReplayMissError
from hawk.middleman.reply import Reply
from hawk.middleman.tokens import Principal

Body = bytes | AsyncIterator[bytes] | None


def record(
    house: House,
    target: Target,
    exchange: Exchange,
    principal: Principal,
    body: Body,
    secrets: tuple[str, ...],
) -> Recording | None:
    """Begin to record an exchange. A body that is passed on as it comes (an upload) is not recorded.

    Args:
        secrets: What must not be written even where somebody repeats it: the provider's key, the client's token.
    """
    assert principal.claims is not None
    if not isinstance(body, bytes | None):
        return None
    keys = (*secrets, *house.keys_of(principal).values())
    recorder = house.tapes.recorder(principal.claims)
    return recorder.begin(_identity(exchange), target.provider, _path(target), body or b"", keys)


async def replay(
    house: House,
    reply: Reply,
    target: Target,
    exchange: Exchange,
    principal: Principal,
    body: Body,
) -> None:
    """The recorded answer, with its pauses.

    Raises:
        Refusal: The cassette can't be read, or holds no answer to this request.
    """
    assert principal.claims is not None
    if not isinstance(body, bytes | None):
        raise Refusal(
            "hawk_replay_miss", "Uploads are not recorded, and so can't be replayed.", no_retry=True
        )
    exchange.replayed = True
    try:
        player = await house.tapes.player(principal.claims)
        found = player.find(
            _identity(exchange), target.provider, _path(target), body or b"", run=exchange.sample_uuid
        )
    except ReplayMissError as ex:
        nearest = f" Nearest: {ex.nearest}." if ex.nearest else ""
        detail = {"nearest": ex.nearest, "difference": ex.difference}
        # The SDKs show the message alone.
        message = f"hawk_replay_miss: {ex.message}{nearest} {ex.remedy}"
        raise Refusal("hawk_replay_miss", message, no_retry=True, detail=detail) from ex
    except StorageError as ex:
        raise Refusal("hawk_replay_miss", f"{ex.message} {ex.remedy}", no_retry=True) from ex
    exchange.admitted = exchange.sent = house.loop.time()
    if found.status == 0:
        _cut(exchange, reply)
        return
    headers = dict(found.headers)
    headers["x-hawk-request-id"] = exchange.id
    headers["x-hawk-upstream-status"] = str(found.status)
    reply.begin(found.status, responses.get(found.status, ""), headers.items())
    meter = Meter(house.kind_of(target.provider), headers.get("content-type", ""), "")
    exchange.status, exchange.phase = found.status, Phase.WAITING
    for pause, chunk in found.chunks:
        if pause:
            await asyncio.sleep(pause)
        if exchange.phase is not Phase.STREAMING:
            exchange.phase, exchange.first_byte = Phase.STREAMING, house.loop.time()
        await reply.part(chunk, last=False)
        exchange.bytes_out += len(chunk)
        meter.feed(chunk)
    exchange.usage = meter.usage()
    if found.complete:
        reply.end()
    else:
        reply.flush()
        _cut(exchange, reply)


def _cut(exchange: Exchange, reply: Reply) -> None:
    """The connection ends without an end of the answer, as it was recorded."""
    exchange.error = "hawk_upstream_closed"
    reply.cut()


def _identity(exchange: Exchange) -> Identity:
    return Identity(exchange.task_name, exchange.sample, exchange.attempt)


def _path(target: Target) -> str:
    return f"{target.rest}?{target.query}" if target.query else target.rest
