"""One HTTP/1.1 connection on a socket: `http.client` loads TLS and a mail parser before it says a word.

No more than an API needs: no proxies, redirects or cookies. TLS is loaded for the addresses that want it.
"""

from __future__ import annotations

import io
import socket
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_LINE = 65536
MAX_HEADERS = 200
BUFFER = 1 << 18


class BrokenAnswerError(ConnectionError):
    """The other side went away within an answer, or does not speak HTTP."""


class Response:
    """Status and headers (names in lower case) of an answer, and its body to be read."""

    def __init__(self, stream: io.BufferedReader[Any]) -> None:
        version, self.status = _status_line(stream)
        self.headers = _headers(stream)
        while self.status < 200:  # "continue" and the like announce the answer proper
            version, self.status = _status_line(stream)
            self.headers = _headers(stream)
        self._length: int | None = None
        self._body = stream
        self._keeps = version != "HTTP/1.0" and self.headers.get("connection", "").lower() != "close"
        if self.status in (204, 304):
            self._length = 0
        elif self.headers.get("transfer-encoding", "").lower() == "chunked":
            self._body = io.BufferedReader(_Chunks(stream), BUFFER)
        elif "content-length" in self.headers:
            self._length = _number(self.headers["content-length"], 10)
        else:
            self._keeps = False  # the end of the connection is the end of the body
        if self._length is None and self.headers.get("content-encoding", "").lower() == "zstd":
            self._body = io.BufferedReader(_Unpacked(self._body), BUFFER)

    @property
    def keeps_connection(self) -> bool:
        """Whether another request may follow once the body has been read."""
        return self._keeps

    def read(self) -> bytes:
        """The whole body. Raises: BrokenAnswerError when it ends too early."""
        if self._length is None:
            return self._body.read()
        body = self._body.read(self._length)
        if len(body) < self._length:
            raise BrokenAnswerError(f"{self._length - len(body)} bytes of the answer are missing")
        return body

    def part(self, most: int) -> bytes:
        """Some of a body that is sent bit by bit, as much as has come; empty at its end."""
        return self._body.read1(most)

    def readline(self) -> bytes:
        """A line of a body that is sent bit by bit; empty at its end."""
        return self._body.readline()


def stream_encoding() -> str:
    """What to accept for a body that is sent bit by bit: Zstandard, where there is something to unpack it."""
    try:
        import hawk.core.zstd  # noqa: F401  other requests do without, and start sooner
    except ImportError:
        return "identity"
    return "zstd"


class Connection:
    """A connection to one host, kept open between requests; connects at once.

    Raises:
        OSError: From every method, when the connection can't be made or breaks.
    """

    def __init__(self, host: str, port: int | None, *, tls: bool, timeout: float) -> None:
        self._host = f"[{host}]" if ":" in host else host
        if port is not None:
            self._host += f":{port}"
        # As bytes: a name given as text is first run through the tables for international names.
        name = host.encode("ascii" if host.isascii() else "idna")
        self._socket = socket.create_connection((name, port or (443 if tls else 80)), timeout)  # type: ignore[arg-type]
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls:
                import ssl

                context = ssl.create_default_context()
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
            self._stream = io.BufferedReader(socket.SocketIO(self._socket, "r"), BUFFER)
        except BaseException:
            self._socket.close()
            raise

    def settimeout(self, seconds: float) -> None:
        """Bound what each read and write may take."""
        self._socket.settimeout(seconds)

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        parts: Iterable[bytes] = (),
    ) -> Response:
        """Send a request and read the answer up to its body.

        Args:
            parts: A body that is sent bit by bit; `headers` say how long it is.
        """
        sent = {"Host": self._host, "Accept-Encoding": "identity", **headers}
        if body is not None or method == "POST":
            sent["Content-Length"] = str(len(body or b""))
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
        if not all(line.isprintable() for line in lines):
            raise ValueError("a control character in a request")
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))
        try:
            for part in parts:
                self._socket.sendall(part)
        except (BrokenPipeError, ConnectionResetError) as ex:
            return self._early(ex)
        return Response(self._stream)

    def _early(self, ex: OSError) -> Response:
        """The answer of one that hung up before it had everything, if it said anything."""
        try:
            return Response(self._stream)
        except OSError:
            raise ex from None

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


class _Chunks(io.RawIOBase):
    """The body within a chunked one."""

    def __init__(self, stream: io.BufferedReader[Any]) -> None:
        self._stream = stream
        self._left = 0  # of the chunk under way
        self._begun = self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """What is there of one chunk: whoever waits for a line must not wait for the next one."""
        if self._left == 0 and not self._ended:
            self._next()
        if self._ended:
            return 0
        view = memoryview(buffer).cast("B")[: self._left]
        count = self._stream.readinto1(view)
        if count == 0:
            raise BrokenAnswerError("the answer broke off")
        self._left -= count
        return count

    def _next(self) -> None:
        if self._begun:
            _line(self._stream)  # ends the chunk before
        self._begun = True
        self._left = _number(_line(self._stream).partition(";")[0], 16)
        if self._left == 0:
            _headers(self._stream)
            self._ended = True


class _Unpacked(io.RawIOBase):
    """What the Zstandard frames of a body hold."""

    def __init__(self, packed: io.BufferedReader[Any]) -> None:
        from hawk.core.zstd import Unpacker, ZstdError

        self._packed = packed
        self._unpacker = Unpacker()
        self._damage = ZstdError
        self._text = memoryview(b"")  # unpacked, and not yet taken

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """What has arrived, as soon as it can be said."""
        while not self._text:
            packed = self._packed.read1()
            if not packed:
                return 0
            try:
                self._text = memoryview(self._unpacker.feed(packed))
            except self._damage as ex:
                raise BrokenAnswerError(f"the answer is damaged ({ex})") from ex
        view = memoryview(buffer).cast("B")
        count = min(len(view), len(self._text))
        view[:count] = self._text[:count]
        self._text = self._text[count:]
        return count


def _line(stream: io.BufferedReader[Any]) -> str:
    line = stream.readline(MAX_LINE)
    if not line.endswith(b"\n"):
        raise BrokenAnswerError(
            "a line without end" if len(line) == MAX_LINE else "the connection was closed"
        )
    return line.decode("latin-1").rstrip("\r\n")


def _status_line(stream: io.BufferedReader[Any]) -> tuple[str, int]:
    version, _, rest = _line(stream).partition(" ")
    if not version.startswith("HTTP/1."):
        raise BrokenAnswerError("the answer is not HTTP")
    return version, _number(rest[:3], 10)


def _headers(stream: io.BufferedReader[Any]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(MAX_HEADERS):
        line = _line(stream)
        if not line:
            return headers
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    raise BrokenAnswerError("headers without end")


def _number(text: str, base: int) -> int:
    try:
        number = int(text, base)
    except ValueError:
        number = -1
    if number < 0:
        raise BrokenAnswerError("the answer is not HTTP")
    return number
