"""Calls to a server: one connection that is kept open, errors as they were raised there, JSON as typed values.

On the standard library alone: importing an HTTP package costs more than the calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from hawk import __version__
from hawk.errors import AuthError, HawkError, ServerUnavailableError, from_envelope
from hawk.events import ServerEvent, parse_events
from hawk.transport import BrokenAnswerError, Connection, Response, stream_encoding

T = TypeVar("T")

CONNECT_TIMEOUT = 10.0
TIMEOUT = 60.0
STREAM_SILENCE = 45.0  # the server pings every 15 s: three missed pings are a dead connection


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Caller:
    """A connection to one server. Not for use by several threads at once.

    Args:
        url: Base address, a path prefix included.
        token: Bearer token, or None for the few open endpoints.
        timeout: Seconds that connecting and each read may take.
    """

    def __init__(self, url: str, token: str | None, *, timeout: float = TIMEOUT) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise HawkError(
                f"{url!r} is not the address of a server.", remedy="Set HAWK_API_URL to http(s)://host:port."
            )
        if token is not None and not (token.isascii() and token.isprintable()):
            raise AuthError(
                "The access token holds characters that no token has.",
                remedy="Set HAWK_ACCESS_TOKEN to one line of plain text.",
            )
        self.url = url.rstrip("/")
        self.server_version: str | None = None
        self._tls = parts.scheme == "https"
        self._host, self._port, self._prefix = parts.hostname, parts.port, parts.path.rstrip("/")
        self._token = token
        self._timeout = timeout
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, ex: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request. What may be repeated without harm is tried again when a kept connection had gone.

        Raises:
            HawkError: What the server answered, as the class it was raised with.
            ServerUnavailableError: No connection, or no answer in time.
        """
        data = None if body is None else msgspec.json.encode(body)
        reused = self._connection is not None and method != "POST"
        if method == "POST":
            self.close()
        try:
            answer = self._exchange(method, with_query(path, query), data, headers)
        except OSError as ex:
            if not reused or isinstance(ex, TimeoutError):
                raise self._unavailable(ex) from ex
            answer = self._again(method, with_query(path, query), data, headers)
        if answer.status >= 400:
            raise _error(answer)
        return answer

    def upload(self, path: str, parts: Iterable[bytes], size: int, kind: str) -> Answer:
        """Put a body that is sent bit by bit, on a connection of its own.

        Args:
            parts: Altogether `size` bytes.
            kind: Its media type.

        Raises:
            HawkError: What the server answered, as the class it was raised with.
            ServerUnavailableError: No connection, or it broke.
        """
        self.close()
        connection = None
        try:
            connection = self._connect(self._timeout)
            headers = {"Content-Type": kind, "Content-Length": str(size)}
            response = connection.request("PUT", self._prefix + path, self._headers(headers), parts=parts)
            answer = Answer(response.status, response.headers, response.read())
        except OSError as ex:
            raise self._unavailable(ex) from ex
        finally:
            if connection is not None:
                connection.close()
        if answer.status >= 400:
            raise _error(answer)
        return answer

    def events(self, path: str) -> Iterator[ServerEvent]:
        """Server-sent events of a path, on a connection of their own, until the server ends the stream."""
        accept = {"Accept": "text/event-stream", "Accept-Encoding": stream_encoding()}
        # A server that is killed does not get to end its streams.
        with self.streamed(path, accept, STREAM_SILENCE) as response, suppress(BrokenAnswerError):
            yield from parse_events(response)

    @contextmanager
    def streamed(self, path: str, headers: Mapping[str, str], timeout: float) -> Iterator[Response]:
        """An answer that is read as it comes, on a connection of its own."""
        self.close()
        connection = None
        try:
            connection = self._connect(timeout)
            response = connection.request("GET", self._prefix + path, self._headers(headers))
            if response.status >= 400:
                raise _error(Answer(response.status, response.headers, response.read()))
            yield response
        except OSError as ex:
            raise self._unavailable(ex) from ex
        finally:
            if connection is not None:
                connection.close()

    def json(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
    ) -> T:
        return decode(self.call(method, path, query=query, body=body).body, kind)

    def items(self, path: str, kind: type[T], **query: Any) -> list[T]:
        page = self.json("GET", path, dict[str, Any], query=query)
        return _convert(page.get("items", []), list[kind])  # type: ignore[valid-type]

    def _again(
        self, method: str, target: str, data: bytes | None, headers: Mapping[str, str] | None
    ) -> Answer:
        try:
            return self._exchange(method, target, data, headers)
        except OSError as ex:
            raise self._unavailable(ex) from ex

    def _exchange(
        self, method: str, target: str, data: bytes | None, headers: Mapping[str, str] | None
    ) -> Answer:
        connection = self._connection = self._connection or self._connect(self._timeout)
        sent = self._headers(headers or {})
        if data is not None:
            sent["Content-Type"] = "application/json"
        try:
            response = connection.request(method, self._prefix + target, sent, data)
            body = response.read()
        except BaseException:
            self.close()  # half an answer may be left in it: an interrupt must not poison the next call
            raise
        if not response.keeps_connection:
            self.close()
        self.server_version = response.headers.get("x-hawk-server-version") or self.server_version
        return Answer(response.status, response.headers, body)

    def _connect(self, timeout: float) -> Connection:
        connection = Connection(self._host, self._port, tls=self._tls, timeout=min(timeout, CONNECT_TIMEOUT))
        connection.settimeout(timeout)
        return connection

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        headers = {"X-Hawk-Client-Version": __version__, "User-Agent": f"hawk/{__version__}", **more}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def _unavailable(self, ex: Exception) -> ServerUnavailableError:
        why = "no answer in time" if isinstance(ex, TimeoutError) else str(ex) or type(ex).__name__
        return ServerUnavailableError(
            f"The server at {self.url} does not answer: {why}.",
            remedy="hawk doctor shows whether it runs; HAWK_API_URL says where it is looked for.",
            url=self.url,
        )


def decode(body: bytes, kind: type[T]) -> T:
    """Decode an answer. Raises: HawkError when the server speaks another language."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as ex:
        raise _foreign(ex) from ex


def _convert(value: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, type=kind)
    except msgspec.ValidationError as ex:
        raise _foreign(ex) from ex


def _foreign(ex: Exception) -> HawkError:
    return HawkError(
        f"The server's answer is not understood: {ex}.",
        remedy=f"Compare versions with 'hawk version': this command is {__version__}.",
    )


def segment(value: str) -> str:
    """An id as one URL segment: `../` can't leave its place."""
    return quote(value, safe="").replace(".", "%2E") if value.strip(".") == "" else quote(value, safe="")


def with_query(path: str, query: Mapping[str, Any] | None) -> str:
    given = {key: value for key, value in (query or {}).items() if value is not None}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def _error(answer: Answer) -> HawkError:
    body: dict[str, Any] = {}
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        decoded = msgspec.json.decode(answer.body)
        body = decoded if isinstance(decoded, dict) else {}
    return from_envelope(body, answer.status)
