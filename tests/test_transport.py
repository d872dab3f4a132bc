"""The connection against a socket that answers byte for byte what a test says."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hawk.client import HawkClient
from hawk.core import zstd
from hawk.errors import AuthError, ServerUnavailableError
from hawk.transport import BrokenAnswerError, Connection

OK = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def answering(*answers: bytes, pause: bool = False) -> Iterator[tuple[int, list[bytes]]]:
    """A port where one connection is accepted; each request gets the next answer, then the end.

    Args:
        answers: In this order.
        pause: Send each answer byte by byte.
    """
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            accepted, _ = server.accept()
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with accepted:
                for answer in answers:
                    asked.append(accepted.recv(65536))
                    for part in [answer[i : i + 1] for i in range(len(answer))] if pause else [answer]:
                        accepted.sendall(part)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], asked
        thread.join(10)


def get(port: int) -> tuple[Connection, bytes]:
    connection = Connection("127.0.0.1", port, tls=False, timeout=10)
    return connection, connection.request("GET", "/", {}).read()


@pytest.mark.parametrize("pause", [False, True])
@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (OK + b"Content-Length: 5\r\n\r\nhello", b"hello"),
        (OK + b"content-length:5\r\n\r\nhello", b"hello"),
        (
            OK + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: t\r\n\r\n",
            b"hello",
        ),
        (OK + b"\r\nhello", b"hello"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nhello", b"hello"),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b""),
    ],
)
def test_every_form_of_a_body_is_read_whole(answer: bytes, body: bytes, pause: bool) -> None:
    with answering(answer, pause=pause) as (port, _):
        connection, read = get(port)
        connection.close()
    assert read == body


@pytest.mark.parametrize("pause", [False, True])
def test_events_are_read_across_packed_frames(pause: bool) -> None:
    sent = [
        b"event: status\ndata: {}\n\n",
        b": ping\n\n",
        b"event: status\ndata: " + b"x" * 300_000 + b"\n\n",
    ]
    frames = [zstd.pack(event) for event in sent]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(frame), frame) for frame in frames)
    head = OK + b"Content-Encoding: zstd\r\nTransfer-Encoding: chunked\r\n\r\n"
    with answering(head + chunks + b"0\r\n\r\n", pause=pause) as (port, asked):
        events = list(HawkClient(f"http://127.0.0.1:{port}", "t").events("/stream"))
    assert b"\r\nAccept-Encoding: zstd\r\n" in asked[0]
    assert b"identity" not in asked[0]
    assert events == [("status", b"{}"), ("ping", b""), ("status", b"x" * 300_000)]


def test_a_damaged_frame_is_a_broken_answer() -> None:
    head = OK + b"Content-Encoding: zstd\r\n\r\n"
    with answering(head + b"no frame at all") as (port, _):
        connection = Connection("127.0.0.1", port, tls=False, timeout=10)
        with pytest.raises(BrokenAnswerError, match="damaged"):
            connection.request("GET", "/", {}).readline()
        connection.close()


def test_requests_follow_each_other_on_one_connection() -> None:
    chunked = OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"
    with answering(chunked, OK + b"Content-Length: 2\r\n\r\ncd") as (port, asked):
        connection, first = get(port)
        second = connection.request("POST", "/b", {"X-One": "1"}, b"{}")
        assert (first, second.read(), second.keeps_connection) == (b"ab", b"cd", True)
        connection.close()
    assert asked[0].startswith(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"Content-Length" not in asked[0]
    assert asked[1].startswith(b"POST /b HTTP/1.1\r\n")
    assert asked[1].endswith(b"X-One: 1\r\nContent-Length: 2\r\n\r\n{}")


@pytest.mark.parametrize("head", [b"HTTP/1.0 200 OK\r\n", OK + b"Connection: close\r\n"])
def test_a_connection_that_the_server_ends_is_not_kept(head: bytes) -> None:
    with answering(head + b"Content-Length: 2\r\n\r\nab") as (port, _):
        connection = Connection("127.0.0.1", port, tls=False, timeout=10)
        assert not connection.request("GET", "/", {}).keeps_connection
        connection.close()


def test_lines_of_a_stream_come_as_they_are_sent() -> None:
    events = b"7\r\n: ping\n\r\n1\r\n\n\r\n4\r\ndata\r\n3\r\n: 1\r\n1\r\n\n\r\n0\r\n\r\n"
    with answering(OK + b"Transfer-Encoding: chunked\r\n\r\n" + events, pause=True) as (port, _):
        connection = Connection("127.0.0.1", port, tls=False, timeout=10)
        response = connection.request("GET", "/", {})
        assert list(iter(response.readline, b"")) == [b": ping\n", b"\n", b"data: 1\n"]
        connection.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        OK + b"Content-Length: many\r\n\r\nhello",
        OK + b"Content-Length: 9\r\n\r\nhello",
        OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\nhello",
        OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\nhello",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        OK + b"A: b\r\n" * 1000,
        OK + b"A" * 100_000,
    ],
)
def test_what_is_no_whole_answer_is_an_unavailable_server(answer: bytes) -> None:
    with answering(answer) as (port, _), pytest.raises(BrokenAnswerError):
        get(port)
    with (
        answering(answer) as (port, _),
        pytest.raises(ServerUnavailableError, match=f":{port} does not answer"),
    ):
        HawkClient(f"http://127.0.0.1:{port}", "t", timeout=10).version()


def test_nothing_can_be_slipped_into_a_request() -> None:
    with answering(b"") as (port, _):
        connection = Connection("127.0.0.1", port, tls=False, timeout=10)
        with pytest.raises(ValueError, match="control character"):
            connection.request("GET", "/", {"X": "a\r\nY: b"})
        connection.close()
    with pytest.raises(AuthError):
        HawkClient("http://127.0.0.1:1", "a\r\nX: y")


def test_the_answer_of_one_that_does_not_wait_for_a_whole_body_is_heard() -> None:
    """As a proxy that takes no large bodies: it answers, and hangs up."""
    refusal = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno"
    with answering(refusal) as (port, _):
        connection = Connection("127.0.0.1", port, tls=False, timeout=10)
        parts = (bytes(1 << 20) for _ in range(256))
        answer = connection.request("PUT", "/x", {"Content-Length": str(1 << 28)}, parts=parts)
        assert (answer.status, answer.read()) == (413, b"no")


def test_a_body_that_breaks_off_is_an_unavailable_server() -> None:
    parts = (bytes(1 << 20) for _ in range(256))
    with (
        answering(b"") as (port, _),
        HawkClient(f"http://127.0.0.1:{port}", "token") as client,
        pytest.raises(ServerUnavailableError),
    ):
        client.send_source("0" * 64, parts, 1 << 28)
