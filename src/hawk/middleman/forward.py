"""An admitted request to its provider and the answer back, byte for byte, nothing held up."""

from __future__ import annotations

import asyncio
import email.utils
from collections.abc import AsyncIterator
from typing import NamedTuple

from hawk.core.traffic.breaker import BreakerState
from hawk.core.traffic.lane import Outcome
from hawk.core.traffic.prices import cost
from hawk.core.traffic.usage import Usage
from hawk.middleman import fields
from hawk.middleman.body import BYTES_A_TOKEN
from hawk.middleman.catalog import Route
from hawk.middleman.connection import Answer, AnswerError
from hawk.middleman.exchange import Exchange, Phase
from hawk.middleman.fields import Fields
from hawk.middleman.house import House
from hawk.middleman.meter import Meter
from hawk.middleman.paths import Target
from hawk.middleman.pool import address_of, failure, target_of
from hawk.middleman.record import Recording
from hawk.middleman.refusals import Refusal
from hawk.middleman.reply import Reply
from hawk.middleman.request import Request

SAID = 500
"""Bytes of a provider's error that are remembered."""

_REQUEST_IDS = ("x-request-id", "request-id", "x-goog-request-id", "cf-ray")


class Sending(NamedTuple):
    """A request as it goes out."""

    target: Target
    headers: Fields
    body: bytes | AsyncIterator[bytes] | None
    request: Request
    reply: Reply
    recording: Recording | None


async def forward(house: House, sending: Sending, exchange: Exchange, route: Route) -> None:
    """Send it, and pass the answer on.

    Raises:
        Refusal: There is no answer.
    """
    turnstile, ticket = exchange.lane, exchange.ticket
    assert turnstile is not None
    assert ticket is not None
    outcome: Outcome | None = None
    now = house.loop.time()
    if not turnstile.breaker.allow(now):
        turnstile.done(ticket, None)
        raise breaker_refusal(route, turnstile.breaker.state(now), now)
    settled = False
    try:
        answer = await _ask(house, sending, exchange, route)
        try:
            await _pass_on(house, sending, exchange, route, answer)
        finally:
            house.pool_of(route).release(address_of(route.base_url), answer)
        outcome = _outcome(exchange, answer)
        if answer.status >= 500 or answer.status in (401, 403) or exchange.error is not None:
            said = exchange.said or exchange.error or f"status {answer.status}"
            kind = "refused" if answer.status in (401, 403) else "fault"
            turnstile.breaker.failure(house.loop.time(), said, kind)
        else:
            turnstile.breaker.success(house.loop.time())
        settled = True
    except Refusal as refusal:
        if refusal.status in (502, 504):
            outcome = Outcome(status=0, seconds=house.loop.time() - (exchange.sent or now))
            turnstile.breaker.failure(house.loop.time(), refusal.message)
            settled = True
        raise
    except asyncio.CancelledError:
        if exchange.cut is not None and exchange.cut.status == 504:
            outcome = Outcome(status=0, seconds=house.loop.time() - (exchange.sent or now))
            turnstile.breaker.failure(house.loop.time(), exchange.cut.message)
            settled = True
        raise
    finally:
        if not settled:
            turnstile.breaker.withdrawn(house.loop.time())
        _account(house, exchange, route)
        turnstile.done(ticket, outcome)
        if sending.recording is not None:
            sending.recording.end(complete=exchange.error is None and not exchange.client_gone and settled)


def give_back(exchange: Exchange) -> None:
    """It was let through and is not sent."""
    if exchange.lane is not None and exchange.ticket is not None:
        exchange.lane.done(exchange.ticket, None)


async def _ask(house: House, sending: Sending, exchange: Exchange, route: Route) -> Answer:
    """The head of the answer."""
    body, headers, method = sending.body, sending.headers, sending.request.method
    if isinstance(body, bytes):
        headers.append(("content-length", str(len(body))))
    elif body is not None and (length := sending.request.headers.get("content-length")) is not None:
        headers.append(("content-length", length))
    elif body is None and method not in ("GET", "HEAD", "DELETE"):
        headers.append(("content-length", "0"))
    address = address_of(route.base_url)
    target = target_of(address, route.provider.prefix, sending.target.rest, sending.target.query)
    exchange.phase = Phase.CONNECTING
    exchange.sent = now = house.loop.time()
    exchange.due = now + route.deadlines.first_byte
    pool, patience = house.pool_of(route), route.deadlines.connect
    try:
        connection = await pool.connection(address, connect=patience)
        exchange.phase = Phase.WAITING
        try:
            answer = await connection.ask(method, target, address.authority, headers, body)
        except AnswerError as ex:
            if not (connection.used and ex.silent and isinstance(body, bytes | None)):
                raise
            # a kept connection that the provider gave up as the request went out: nobody has seen it
            connection = await pool.fresh(address, connect=patience)
            answer = await connection.ask(method, target, address.authority, headers, body)
    except (OSError, ValueError) as ex:
        raise failure(route.provider.name, address, ex) from ex
    exchange.first_byte = house.loop.time()
    exchange.upstream_status = answer.status
    low = answer.low
    exchange.upstream_id = next((low[n][:100] for n in _REQUEST_IDS if n in low), None)
    return answer


async def _pass_on(house: House, sending: Sending, exchange: Exchange, route: Route, answer: Answer) -> None:
    """The answer to the client."""
    recording, idle, loop = sending.recording, route.deadlines.idle, house.loop
    headers = fields.to_client(answer.headers)
    headers.append(("x-hawk-request-id", exchange.id))
    headers.append(("x-hawk-upstream-status", str(answer.status)))
    if exchange.attempt and exchange.attempt.isalnum():
        headers.append(("x-hawk-attempt", exchange.attempt))
    if recording is not None:
        recording.head(answer.status, answer.headers)
    reply = sending.reply
    reply.begin(answer.status, answer.reason, headers)
    exchange.due = loop.time() + idle
    exchange.status, exchange.phase = answer.status, Phase.STREAMING
    good, said, last = answer.status < 400, b"", b""
    meter = Meter(route.provider.kind, answer.get("content-type"), answer.get("content-encoding").lower())
    try:
        if not answer.ready:
            reply.flush()
        while chunk := await answer.part():
            await reply.part(chunk, last=answer.ended)
            exchange.bytes_out += len(chunk)
            exchange.due = loop.time() + idle
            if good:
                meter.feed(chunk)
                last = chunk
            elif len(said) < SAID:
                said += chunk[:SAID]
            if recording is not None:
                recording.chunk(chunk, loop.time())
        reply.end()
    except AnswerError:
        exchange.error = "hawk_upstream_closed"
        reply.cut()  # what the provider sent is delivered, and no end after it
    except ConnectionError as ex:
        exchange.client_gone = True
        raise asyncio.CancelledError from ex
    finally:
        usage = exchange.usage = meter.usage()
        if usage is None and good and meter.events:
            exchange.usage = Usage(input=exchange.bytes_in // BYTES_A_TOKEN, output=meter.events)
    if good and exchange.error is None:
        exchange.note = meter.note(exchange.path, usage)
        if exchange.note == "malformed":
            said = last[:SAID]
    if said:
        text = " ".join(said[:SAID].decode("utf-8", "replace").split())
        exchange.said = text.replace(route.key, "…") if route.key else text


def _outcome(exchange: Exchange, answer: Answer) -> Outcome:
    seconds = (exchange.first_byte or 0.0) - (exchange.sent or 0.0)
    usage = exchange.usage
    tokens = usage.input + usage.output + usage.cache_write if usage is not None else 0
    return Outcome(
        status=answer.status,
        seconds=seconds,
        tokens=tokens,
        retry_after=_retry_after(answer.low.get("retry-after")) if answer.status >= 400 else None,
        headers=answer.low,
    )


def _retry_after(value: str | None) -> float | None:
    """Seconds (RFC 9110, 10.2.3: a number, or a date)."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        when = email.utils.parsedate_to_datetime(value)
        return max(0.0, (when - when.now(when.tzinfo)).total_seconds())
    except (ValueError, TypeError):
        return None


def _account(house: House, exchange: Exchange, route: Route) -> None:
    if exchange.usage is not None and route.price is not None:
        exchange.usd = cost(exchange.usage, route.price)
        if exchange.lane is not None:
            exchange.lane.paid(exchange.usd)
    if exchange.job and exchange.upstream_status is not None:
        house.ledger.add(exchange.job, exchange.usage or Usage(), exchange.usd)


def breaker_refusal(route: Route, state: BreakerState, now: float) -> Refusal:
    """Nothing is sent: every request of late has failed."""
    wait = max(0.0, (state.retry_at or now) - now)
    said = f" It said last: {state.said}" if state.said else ""
    message = f"{route.provider.name} fails every request; the next try is in {wait:.0f} s.{said}"
    return Refusal("hawk_breaker_open", message, retry_after=wait)
