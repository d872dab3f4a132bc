"""Requests to the API: client-side time-outs on each, retries up to a deadline, errors that say what was asked.

One `Requests` is shared by all of a process's users in one event loop; how many are in flight at once is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import socket
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import msgspec

from hawk.errors import ClusterError
from hawk.kube.access import Access
from hawk.kube.problems import Reason, error, may_pass, refusal, words_of
from hawk.kube.replies import Reply

PATIENCE = 30.0
"""Seconds for which one request is tried again."""
AT_ONCE = 32
"""Requests in flight; streams (watches, commands) are not counted."""

DIALS = 24
"""Streams being opened at once: each is a TLS handshake here and work for the API server."""

_ANSWER = 15.0  # seconds that one try may take
_CONNECT = 8.0
_LONGEST_WAIT = 10.0  # between two tries, whatever Retry-After says
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
_USER_TIMEOUT = 30_000  # milliseconds


class Requests:
    """HTTP to one cluster.

    Attributes:
        sent: Requests so far by `VERB kind`, tries counted one by one.
        dials: Held while a stream is opened.
    """

    def __init__(self, access: Access, *, at_once: int = AT_ONCE) -> None:
        self.access = access
        self.sent: dict[str, int] = {}
        self._slots = asyncio.Semaphore(at_once)
        connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=60, socket_factory=_socket, ttl_dns_cache=60
        )
        self.dials = asyncio.Semaphore(DIALS)
        self.session = aiohttp.ClientSession(connector=connector, trust_env=True, response_class=Reply)

    async def close(self) -> None:
        """End it, with every stream that is open."""
        await self.session.close()

    async def options(self) -> dict[str, Any]:
        """What every request needs: who we are, certificates, proxy."""
        access = self.access
        result: dict[str, Any] = {"headers": await access.headers()}
        if access.ssl is not None:
            result["ssl"] = access.ssl
        if access.proxy:
            result["proxy"] = access.proxy
        if access.server_name:
            result["server_hostname"] = access.server_name
        return result

    async def send(
        self,
        verb: str,
        path: str,
        *,
        what: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        patience: float = PATIENCE,
        plain: bool = False,
    ) -> Any:
        """One request, tried again until it is answered or `patience` seconds have passed.

        Args:
            what: What it does, in words, for the error.
            plain: The answer is text, not JSON.

        Returns:
            The decoded answer.

        Raises:
            ClusterError: Refused, or not answered in time. Its field `again` is set when an earlier try may have worked.
        """
        until = time.monotonic() + patience
        data = None if body is None else msgspec.json.encode(body)
        renewed = unsure = False
        for tried in range(1_000):
            try:
                status, answer, wait = await self._once(verb, path, query, data, content_type, until, plain)
            except (aiohttp.ClientError, TimeoutError, OSError) as ex:
                failed, wait, unsure = self._unreachable(ex, what), None, True
            else:
                if status < 300:
                    return answer
                failed = refusal(status, answer, what=what)
                if status == 401 and not renewed:
                    renewed = await self.access.renew()
                    if renewed:
                        continue
                if not may_pass(status, answer):
                    failed.fields["again"] = unsure
                    raise failed
            pause = _pause(tried) if wait is None else min(max(wait, _pause(tried)), _LONGEST_WAIT)
            if time.monotonic() + pause >= until:
                raise failed
            await asyncio.sleep(pause)
        raise AssertionError

    async def _once(
        self,
        verb: str,
        path: str,
        query: Mapping[str, str] | None,
        data: bytes | None,
        content_type: str,
        until: float,
        plain: bool,
    ) -> tuple[int, Any, float | None]:
        """One try: status, decoded body, and the seconds that the server asks us to wait."""
        self.count(verb, path)
        options = await self.options()
        if data is not None:
            options["headers"]["Content-Type"] = content_type
        left = max(1.0, until - time.monotonic())
        limits = aiohttp.ClientTimeout(total=min(_ANSWER, left), connect=min(_CONNECT, left))
        async with (
            self._slots,
            self.session.request(
                verb,
                self.access.host + path,
                params=query,
                data=data,
                timeout=limits,
                allow_redirects=False,
                **options,
            ) as reply,
        ):
            content = await reply.read()
            wait = reply.headers.get("Retry-After", "")
            answer = content.decode(errors="replace") if plain and reply.status < 300 else _decoded(content)
            return reply.status, answer, float(wait) if wait.isdigit() else None

    @contextlib.asynccontextmanager
    async def lines(
        self, path: str, query: Mapping[str, str], *, what: str, silence: float
    ) -> AsyncIterator[Any]:
        """The body of a long answer, piece by piece: an async iterator of lines of bytes.

        Args:
            silence: Seconds without a byte after which it counts as dead.

        Raises:
            ClusterError: Refused.
        """
        self.count("WATCH", path)
        limits = aiohttp.ClientTimeout(total=None, connect=_CONNECT, sock_read=silence)
        options = await self.options()
        async with self.session.get(
            self.access.host + path, params=query, timeout=limits, **options
        ) as reply:
            if reply.status >= 300:
                if reply.status == 401:
                    await self.access.renew()
                raise refusal(reply.status, _decoded(await reply.content.read(1 << 20)), what=what)
            yield _lines(reply)

    def count(self, verb: str, path: str) -> None:
        """Note a request, by what it does and to which kind."""
        parts = path.split("/")
        at = parts.index("namespaces") + 2 if "namespaces" in parts else (3 if parts[1] == "api" else 4)
        key = f"{verb} {parts[at] if len(parts) > at else parts[-1]}"
        self.sent[key] = self.sent.get(key, 0) + 1

    def _unreachable(self, ex: BaseException, what: str) -> ClusterError:
        said = words_of(ex)
        said = re.sub(r" ssl:<[^>]*>", "", said)  # aiohttp's own words for a connection with TLS
        return error(
            Reason.UNREACHABLE,
            f"The cluster at {self.access.host} could not be reached to {what}: {said}",
            said=said,
        )


async def _lines(reply: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Lines of any length: aiohttp's own reader refuses long ones."""
    pieces: list[bytes] = []
    async for chunk in reply.content.iter_any():
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join((*pieces, line))
            pieces.clear()
        if rest:
            pieces.append(rest)


def _decoded(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content) if content else {}
    except msgspec.DecodeError:
        return content[:2_000].decode(errors="replace")


def _pause(tried: int) -> float:
    """Seconds before the next try: twice as long each time, scattered so that many do not come at once."""
    return float(min(0.2 * 2 ** min(tried, 6), 5.0) * random.uniform(0.6, 1.2))  # noqa: S311  # no secret


def _socket(info: Any) -> socket.socket:
    """A socket on which a peer that vanished is noticed within half a minute."""
    family, kind, protocol, *_ = info
    result = socket.socket(family, kind, protocol)
    result.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        result.setsockopt(socket.IPPROTO_TCP, option, value)
    result.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT)
    result.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return result
