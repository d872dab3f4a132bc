"""One request through the middleman: who asks, may it, may it now, and what became of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http.client import responses
from urllib.parse import unquote

from hawk.config.providers import Kind
from hawk.core.traffic.lane import Ticket
from hawk.middleman import fields, forward, playback
from hawk.middleman.body import Asked, model_in_path, read_body
from hawk.middleman.catalog import Route
from hawk.middleman.exchange import Exchange, Phase
from hawk.middleman.house import House
from hawk.middleman.own import Page
from hawk.middleman.paths import Target, parse
from hawk.middleman.refusals import Refusal
from hawk.middleman.reply import Reply
from hawk.middleman.request import Request, TooLargeError
from hawk.middleman.tokens import Principal
from hawk.middleman.traces import child_of

SIGN_OF_LIFE = 15.0
"""Seconds after which a queued client is told that it is still there (`102 Processing`, RFC 2518): its own time-out for an
answer must not end what only waits for its turn."""

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})

_log = logging.getLogger(__name__)

LARGEST = 512 << 20
"""Bytes of a body that is read whole."""

Own = Callable[[Request, Target], Awaitable[Page]]


class Relay:
    """The handler of every request.

    Args:
        own: The middleman's own paths, by first segment.
    """

    def __init__(self, house: House, own: Mapping[str, Own]) -> None:
        self._house = house
        self._own = own

    async def __call__(self, request: Request, reply: Reply) -> None:
        house = self._house
        exchange = Exchange(house.next_id(), now=house.loop.time(), wall=time.time())
        try:
            target = _aliased(parse(request.target))
            own = self._own.get(target.provider)
            if own is not None:
                _show(reply, await own(request, target))
                return
            exchange.dialect = house.kind_of(target.provider)
            exchange.transport = request.transport
            exchange.task = asyncio.current_task()
            await self._relay(request, reply, target, exchange)
        except Refusal as refusal:
            _refuse(reply, exchange, refusal)
        except asyncio.CancelledError:
            if exchange.cut is None:
                exchange.client_gone = True
                raise
            exchange.error = exchange.cut.kind
            if reply.begun or exchange.task is None:
                raise
            exchange.task.uncancel()
            _refuse(reply, exchange, exchange.cut)
        except Exception:
            _log.exception("request %s", exchange.id)
            if reply.begun:
                raise
            fault = Refusal(
                "hawk_internal", f"A fault of the middleman's own; its log names request {exchange.id}."
            )
            _refuse(reply, exchange, fault)
        finally:
            exchange.phase = Phase.DONE
            exchange.ended = house.loop.time()
            exchange.task = exchange.transport = None
            if exchange.provider or exchange.error:
                house.finish(exchange)

    async def _relay(self, request: Request, reply: Reply, target: Target, exchange: Exchange) -> None:
        house = self._house
        if request.method not in _METHODS:
            message = f"{request.method[:20]} is not passed on."
            raise Refusal("hawk_method_not_allowed", message, allow=sorted(_METHODS))
        token = fields.credential(request.headers) or target.key
        try:
            principal = house.verifier.who(token, exchange.wall)
        except Refusal as refusal:
            if refusal.bearer is not None:  # its job wants to know why nothing works any more
                _identify(exchange, refusal.bearer, request.headers)
                exchange.provider, exchange.path = target.provider, target.rest
            raise
        if principal.claims is not None and target.provider in principal.claims.upstreams:
            exchange.dialect = Kind(principal.claims.upstreams[target.provider].kind)
        _identify(exchange, principal, request.headers)
        exchange.provider, exchange.path = target.provider, target.rest
        house.exchanges.add(exchange)
        if house.draining:
            raise Refusal("hawk_draining", "The middleman is about to end; try again.", retry_after=1)
        if "expect" in request.headers:
            request.keep_going()
        body, asked = await _read(request, exchange.dialect, target)
        exchange.model, exchange.asked = asked.model, asked
        exchange.bytes_in = len(body) if isinstance(body, bytes) else 0
        house.check_model(principal, target.provider, asked.model)
        house.job(principal, token)
        house.check_budget(principal)
        cassette = principal.claims.cassette if principal.claims is not None else None
        if cassette is not None and cassette.mode == "replay":
            await playback.replay(house, reply, target, exchange, principal, body)
            return
        route = house.route(principal, target.provider, asked.model)
        exchange.account, exchange.route = route.account, route
        trace = child_of(request.headers.get("traceparent"))
        exchange.trace_id, exchange.span_id, exchange.parent_id = (
            trace.trace_id,
            trace.span_id,
            trace.parent_id,
        )
        with_key = fields.to_provider(
            request.fields,
            kind=route.provider.kind,
            key=route.key,
            extra=route.headers,
            traceparent=trace.traceparent,
        )
        recording = None
        if cassette is not None:
            secrets = tuple(secret for secret in (route.key, token) if secret)
            recording = playback.record(house, target, exchange, principal, body, secrets)
        await self._admit(request, exchange, route, asked)
        try:
            house.check_budget(principal)  # others may have used it up meanwhile
        except Refusal:
            forward.give_back(exchange)
            raise
        await forward.forward(
            house, forward.Sending(target, with_key, body, request, reply, recording), exchange, route
        )

    async def _admit(self, request: Request, exchange: Exchange, route: Route, asked: Asked) -> None:
        """Wait until it may go.

        Raises:
            Refusal: The provider fails every request, or its turn did not come in time.
        """
        house = self._house
        turnstile = house.turnstile(route, asked.model)
        if (job := house.jobs.get(exchange.job)) is not None:
            job.lanes[turnstile.name] = None
        now = house.loop.time()
        irid = request.headers.get("x-irid", "")
        ticket = Ticket(
            exchange.job, asked.tokens, exchange.arrived, key=f"{exchange.job}/{irid}" if irid else ""
        )
        breaker = turnstile.breaker.state(now)
        if breaker.open and breaker.retry_at is not None and breaker.retry_at > now:
            raise forward.breaker_refusal(route, breaker, now)
        exchange.lane, exchange.ticket = turnstile, ticket
        exchange.total_due = now + route.deadlines.total
        house.deadlines.wake()
        if not turnstile.ask(ticket):
            exchange.phase = Phase.QUEUED
            exchange.due = now + route.deadlines.queue
            alive = _SignsOfLife(request, house.loop)
            try:
                await turnstile.granted(ticket)
            finally:
                alive.stop()
        exchange.admitted = house.loop.time()


class _SignsOfLife:
    """Says `102 Processing` to a client that waits, where its HTTP knows that."""

    def __init__(self, request: Request, loop: asyncio.AbstractEventLoop) -> None:
        self._request, self._loop = request, loop
        self._timer = loop.call_later(SIGN_OF_LIFE, self._say)

    def _say(self) -> None:
        self._request.still_here()
        self._timer = self._loop.call_later(SIGN_OF_LIFE, self._say)

    def stop(self) -> None:
        self._timer.cancel()


def _aliased(target: Target) -> Target:
    """Google's SDK uploads files to `/upload/…` of the host, whatever path its base URL has."""
    if target.provider != "upload":
        return target
    return Target("gemini", f"/upload{target.rest}", target.query, target.key)


def _identify(exchange: Exchange, principal: Principal, headers: Mapping[str, str]) -> None:
    """Who asks, for which attempt. A job's name comes from its token alone."""
    exchange.user, exchange.job = principal.user, principal.job
    exchange.task_name = _said(headers, "x-hawk-task", 600)
    exchange.sample = _said(headers, "x-hawk-sample", 600)
    exchange.sample_uuid = _said(headers, "x-hawk-sample-uuid", 100)
    exchange.attempt = _said(headers, "x-hawk-attempt", 20)
    retry = headers.get("x-stainless-retry-count", "0")
    exchange.retry = int(retry) if retry.isdecimal() and len(retry) < 6 else 0


def _said(headers: Mapping[str, str], name: str, most: int) -> str:
    """A header of ours: percent-encoded where it is not plain text, and never what can't be written down again."""
    value = headers.get(name, "")[:most]
    if "%" in value:
        value = unquote(value)
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


async def _read(
    request: Request, kind: Kind, target: Target
) -> tuple[bytes | AsyncIterator[bytes] | None, Asked]:
    """The body, whole where the model stands in it, else as it comes."""
    if not request.has_body:
        return None, Asked(model_in_path(kind, target.rest), streaming=False, tokens=0)
    packed = request.headers.get("content-encoding", "identity") != "identity"
    if "json" not in request.headers.get("content-type", "json") or packed:
        return request.parts(), Asked(model_in_path(kind, target.rest), streaming=False, tokens=0)
    try:
        body = await request.read(LARGEST)
    except TooLargeError as ex:
        raise Refusal(
            "hawk_body_too_large", "The request is larger than this middleman takes.", no_retry=True
        ) from ex
    return body, read_body(kind, target.rest, body) if body else Asked(None, streaming=False, tokens=0)


def _refuse(reply: Reply, exchange: Exchange, refusal: Refusal) -> None:
    exchange.status, exchange.error = refusal.status, refusal.kind
    if not exchange.said:
        exchange.said = refusal.message[: forward.SAID]
    fields = [*refusal.headers().items(), ("x-hawk-request-id", exchange.id)]
    if exchange.attempt:
        fields.append(("x-hawk-attempt", printable(exchange.attempt)))
    reply.whole(refusal.status, responses.get(refusal.status, ""), fields, refusal.body(exchange.dialect))


def _show(reply: Reply, page: Page) -> None:
    fields = [("content-type", page.kind), ("cache-control", "no-store")]
    reply.whole(page.status, responses.get(page.status, ""), fields, page.body)


def printable(text: str) -> str:
    """A value that came from outside, as a header may hold it."""
    return "".join(c if " " < c < "\x7f" else "_" for c in text)
