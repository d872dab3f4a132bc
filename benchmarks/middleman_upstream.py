"""A fake provider: `python -m benchmarks.middleman_upstream` prints its port and serves until it is ended.

Chat completions by the name of the model: `fake` answers at once, with usage; `flow` streams; `idle` streams a first
chunk and is silent; `storm` takes its time and has the limits of a small account. `GET /counts` says what it served,
`POST /storm` {"latency": [s, s], "headers": bool} sets the storm up anew.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import signal
import time
from collections.abc import Callable
from typing import Any

from benchmarks.middleman_wire import END, LAST, LENGTH

USAGE = {"prompt_tokens": 180, "completion_tokens": 24, "total_tokens": 204}
FIRST_BYTE = (0.1, 0.3)  # seconds that `flow` thinks
PERIOD = 0.1  # seconds between chunks of `flow`
CHUNKS = 20
IN_FLIGHT, PER_MINUTE, BURST = 20, 300.0, 20.0


def _answer(status: str, content: bytes, more: str = "") -> bytes:
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nx-request-id: req_0123456789abcdef\r\n{more}"
        f"content-length: {len(content)}\r\n\r\n"
    ).encode() + content


def _chunk(content: bytes) -> bytes:
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


def _event(**more: Any) -> bytes:
    delta = {
        "id": "chatcmpl-0123456789abcdefghijklmnopqrs",
        "object": "chat.completion.chunk",
        "created": 1790000000,
        "model": "fake-2026-01-01",
        "service_tier": "default",
        "system_fingerprint": "fp_0123456789",
        "choices": [{"index": 0, "delta": {"content": " answer"}, "logprobs": None, "finish_reason": None}],
        **more,
    }
    return _chunk(b"data: " + json.dumps(delta, separators=(",", ":")).encode() + b"\n\n")


COMPLETION = _answer(
    "200 OK",
    json.dumps(
        {
            "id": "chatcmpl-0123456789abcdefghijklmnopqrs",
            "object": "chat.completion",
            "created": 1790000000,
            "model": "fake-2026-01-01",
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": "The answer is always the same.",
                        "refusal": None,
                    },
                    "logprobs": None,
                    "finish_reason": "stop",
                }
            ],
            "usage": USAGE,
            "service_tier": "default",
            "system_fingerprint": "fp_0123456789",
        }
    ).encode(),
)
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-request-id: req_0123456789abcdef\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
DELTA = _event()
FINISH = _event(choices=[], usage=USAGE) + _chunk(b"data: [DONE]\n\n") + LAST


class Storm:
    """A small account: so many in flight, so many a minute (a bucket that fills evenly, `BURST` deep)."""

    def __init__(self, latency: tuple[float, float] = (1.5, 2.5), headers: bool = False) -> None:
        self.latency, self.headers = latency, headers
        self.in_flight = self.most_in_flight = self.served = self.refused = self.over = 0
        self._bucket, self._at = BURST, time.monotonic()
        self._random = random.Random(7)

    def enter(self) -> tuple[float, str]:
        """Seconds that the answer takes and 0, or why not: seconds to wait and the reason."""
        now = time.monotonic()
        self._bucket = min(BURST, self._bucket + (now - self._at) * PER_MINUTE / 60)
        self._at = now
        if self.in_flight >= IN_FLIGHT:
            self.refused += 1
            self.over += 1
            return 1.0, "in flight"
        if self._bucket < 1:
            self.refused += 1
            return max(1.0, (1 - self._bucket) * 60 / PER_MINUTE), "requests"
        self._bucket -= 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        return self._random.uniform(*self.latency), ""

    def limits(self) -> str:
        """The rate-limit headers that OpenAI sends."""
        if not self.headers:
            return ""
        left = int(self._bucket)
        reset = (BURST - self._bucket) * 60 / PER_MINUTE
        return (
            f"x-ratelimit-limit-requests: {PER_MINUTE:.0f}\r\nx-ratelimit-remaining-requests: {left}\r\n"
            f"x-ratelimit-reset-requests: {reset:.3f}s\r\n"
        )

    def counts(self) -> dict[str, Any]:
        """What it did since it was set up; `bucket`: requests that it would take at once."""
        bucket = min(BURST, self._bucket + (time.monotonic() - self._at) * PER_MINUTE / 60)
        return {
            "at": time.monotonic(),
            "served": self.served,
            "refused": self.refused,
            "refused_in_flight": self.over,
            "in_flight": self.in_flight,
            "most_in_flight": self.most_in_flight,
            "bucket": bucket,
        }


class Provider(asyncio.Protocol):
    """One connection."""

    storm = Storm()
    thinking = random.Random(5)
    requests = 0
    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._kept = b""
        self._timer: asyncio.TimerHandle | None = None
        self._left: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()
        if self._left:
            self._left()

    def data_received(self, data: bytes) -> None:
        data = self._kept + data if self._kept else data
        while data:
            at = data.find(END)
            if at < 0:
                break
            found = LENGTH.search(data, 0, at)
            if found:
                stop = at + 4 + int(found[1])
            elif b"chunked" in data[:at].lower():
                last = data.find(b"\r\n" + LAST, at)
                stop = last + 2 + len(LAST) if last >= 0 else len(data) + 1
            else:
                stop = at + 4
            if len(data) < stop:
                break
            self._serve(data[:stop], at)
            data = data[stop:]
        self._kept = data

    def _serve(self, whole: bytes, at: int) -> None:
        Provider.requests += 1
        if whole.startswith(b"POST /v1/chat/completions"):
            if whole.find(b'"fake"', at) >= 0:
                self._transport.write(COMPLETION)
            elif whole.find(b'"flow"', at) >= 0:
                self._flow(time.monotonic_ns())
            elif whole.find(b'"idle"', at) >= 0:
                self._transport.write(STREAM_HEAD + DELTA)
            elif whole.find(b'"storm"', at) >= 0:
                self._storm()
            else:
                self._transport.write(_answer("404 Not Found", b'{"error":{"message":"no such model"}}'))
        elif whole.startswith(b"POST /storm"):
            Provider.storm = Storm(**json.loads(whole[at + 4 :]))
            self._transport.write(_answer("200 OK", b"{}"))
        elif whole.startswith(b"GET /counts"):
            counts = {**self.storm.counts(), "requests": Provider.requests}
            self._transport.write(_answer("200 OK", json.dumps(counts).encode()))
        else:
            self._transport.write(_answer("404 Not Found", b'{"error":{"message":"no such path"}}'))

    def _flow(self, received: int) -> None:
        self._timer = self._loop.call_later(self.thinking.uniform(*FIRST_BYTE), self._next, CHUNKS, received)

    def _next(self, left: int, received: int = 0) -> None:
        if received:
            # The clock is the same in every process of the machine: the generator takes this time off its own.
            first = _event(spent_ns=time.monotonic_ns() - received)
            self._transport.write(STREAM_HEAD + first)
        elif left:
            self._transport.write(DELTA)
        else:
            self._transport.write(FINISH)
            return
        self._timer = self._loop.call_later(PERIOD, self._next, left - 1)

    def _storm(self) -> None:
        storm = self.storm
        seconds, refusal = storm.enter()
        if refusal:
            content = {
                "error": {
                    "message": f"Rate limit reached: {refusal}",
                    "type": "requests",
                    "code": "rate_limit",
                }
            }
            more = f"retry-after: {seconds:.0f}\r\n{storm.limits()}"
            self._transport.write(_answer("429 Too Many Requests", json.dumps(content).encode(), more))
            return

        def left() -> None:
            storm.in_flight -= 1
            self._left = None

        def answer() -> None:
            left()
            storm.served += 1
            head, _, content = COMPLETION.partition(END)
            self._transport.write(head + b"\r\n" + storm.limits().encode() + b"\r\n" + content)

        self._left = left
        self._timer = self._loop.call_later(seconds, answer)


async def main() -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    server = await loop.create_server(Provider, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    gc.freeze()
    gc.disable()  # its pauses would be taken for the proxy's
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
