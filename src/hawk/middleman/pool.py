"""Connections to providers, kept for the next request; what may be reached, and what a failure is called."""

from __future__ import annotations

import asyncio
import errno
import functools
import socket
import ssl
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import aiohappyeyeballs

from hawk.middleman.connection import Answer, AnswerError, Connection
from hawk.middleman.refusals import Refusal

KEEP_ALIVE = 4.0
"""Seconds an idle connection is kept. Some providers (llama.cpp, vLLM) close theirs after 5: a request must not meet that."""

LONGEST = 60.0
"""Seconds that one is kept at most where a provider says how long it keeps it."""

Forbidden = Callable[[str, int], str | None]


class ForbiddenAddressError(OSError):
    """A name leads where nothing of a job's may go."""


class Address(NamedTuple):
    """Where a provider is. `authority` is the Host header."""

    host: str
    port: int
    tls: bool
    authority: str
    path: str


@functools.lru_cache(maxsize=4096)
def address_of(base_url: str) -> Address:
    """Take a base URL apart.

    Raises:
        ValueError: It is none.
    """
    from urllib.parse import urlsplit

    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{base_url!r} is not the address of a provider")
    tls = parts.scheme == "https"
    return Address(
        parts.hostname,
        parts.port or (443 if tls else 80),
        tls,
        parts.netloc.rpartition("@")[2],
        parts.path.rstrip("/"),
    )


class Pool:
    """Asks providers. Used on one event loop.

    Args:
        forbidden: The reason why an address and port must not be reached, or None; left out where every one may.
    """

    def __init__(self, forbidden: Forbidden | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._forbidden = forbidden
        self._idle: defaultdict[tuple[str, int, bool], list[tuple[float, Connection]]] = defaultdict(list)
        self._tls: ssl.SSLContext | None = None
        self._sweep: asyncio.TimerHandle | None = None

    async def connection(self, address: Address, *, connect: float) -> Connection:
        """A connection for one request; its answer is then `release`d.

        Args:
            connect: Seconds that a new one may take.

        Raises:
            OSError: There is none: `ForbiddenAddressError`, `TimeoutError`, `socket.gaierror`, `ssl.SSLError`, others.
        """
        return self._take(address) or await self.fresh(address, connect=connect)

    async def fresh(self, address: Address, *, connect: float) -> Connection:
        """A connection that nobody has used. Arguments and errors as with `connection`."""
        return await self._connect(address, connect)

    def release(self, address: Address, answer: Answer) -> None:
        """An answer has been taken, or nobody wants the rest of it."""
        connection = answer._connection
        if not answer.release():
            return
        until = self._loop.time() + _kept(answer)
        self._idle[address.host, address.port, address.tls].append((until, connection))
        if self._sweep is None:
            self._sweep = self._loop.call_later(KEEP_ALIVE, self._close_old)

    def close(self) -> None:
        """Close what is idle."""
        if self._sweep is not None:
            self._sweep.cancel()
        for kept in self._idle.values():
            for _, connection in kept:
                connection.close()
        self._idle.clear()

    def _take(self, address: Address) -> Connection | None:
        kept = self._idle.get((address.host, address.port, address.tls))
        now = self._loop.time()
        while kept:
            until, connection = kept.pop()
            if not connection.closing and now < until:
                return connection
            connection.close()
        return None

    def _close_old(self) -> None:
        self._sweep = None
        now = self._loop.time()
        for key, kept in list(self._idle.items()):
            for until, connection in kept:
                if until <= now or connection.closing:
                    connection.close()
            self._idle[key] = [(until, c) for until, c in kept if until > now and not c.closing]
            if not self._idle[key]:
                del self._idle[key]
        if self._idle:
            self._sweep = self._loop.call_later(KEEP_ALIVE / 3, self._close_old)

    async def _connect(self, address: Address, seconds: float) -> Connection:
        async with asyncio.timeout(seconds):
            found = await self._loop.getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
            )
            if self._forbidden is not None:
                for *_, where in found:
                    why = self._forbidden(str(where[0]), address.port)
                    if why is not None:
                        raise ForbiddenAddressError(f"{address.host} leads to {where[0]}: {why}")
            # the addresses that were checked, not the name again
            raw = await aiohappyeyeballs.start_connection(found, happy_eyeballs_delay=0.25, interleave=1)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = None
            if address.tls:
                context = self._tls = self._tls or ssl.create_default_context()
            try:
                _, connection = await self._loop.create_connection(
                    lambda: Connection(self._loop),
                    sock=raw,
                    ssl=context,
                    server_hostname=address.host if context is not None else None,
                )
            except BaseException:
                raw.close()
                raise
            return connection


def _kept(answer: Answer) -> float:
    """Seconds for which the provider keeps an idle connection, less one for the way (`Keep-Alive: timeout=5, max=100`)."""
    said = answer.get("keep-alive").partition("timeout=")[2].partition(",")[0].strip()
    return min(float(said) - 1, LONGEST) if said.isdecimal() else KEEP_ALIVE


def target_of(address: Address, prefix: str, rest: str, query: str) -> str:
    """Path and query at the provider: its base, and what follows the prefix that clients of ours have.

    Args:
        rest: Path after the provider's name, checked by `paths.parse`.
    """
    if prefix and (rest == prefix or rest.startswith(prefix + "/")):
        rest = rest[len(prefix) :]
    path = address.path + rest or "/"
    return f"{path}?{query}" if query else path


def failure(provider: str, address: Address, ex: BaseException) -> Refusal:
    """What a failed request to a provider is called."""
    where = f"{provider} ({address.host}:{address.port})"
    match ex:
        case ForbiddenAddressError():
            return Refusal("hawk_upstream_forbidden", f"{where} must not be reached: {ex}", no_retry=True)
        case AnswerError(protocol=True):
            return Refusal("hawk_upstream_protocol", f"{where} answered with what is not HTTP: {ex}")
        case AnswerError():
            return Refusal("hawk_upstream_closed", f"{where} closed the connection without an answer.")
        case socket.gaierror():
            return Refusal("hawk_dns", f"The name of {where} can't be resolved: {_text(ex)}")
        case ssl.SSLError() | ssl.CertificateError():
            return Refusal("hawk_tls", f"No trusted connection to {where}: {_text(ex)}")
        case TimeoutError():
            return Refusal("hawk_connect_timeout", f"{where} did not accept a connection in time.")
        case OSError(errno=errno.ETIMEDOUT):
            return Refusal("hawk_connect_timeout", f"{where} did not accept a connection in time.")
        case OSError():
            return Refusal("hawk_connect_refused", f"No connection to {where}: {_text(ex)}")
    return Refusal("hawk_upstream_protocol", f"The request to {where} failed: {type(ex).__name__}")


def _text(ex: BaseException) -> str:
    text = (ex.strerror if isinstance(ex, OSError) and ex.strerror else str(ex)) or type(ex).__name__
    return " ".join(text.split())[:300]
