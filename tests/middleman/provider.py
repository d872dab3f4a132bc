"""A provider that does what a test says: right answers, wrong ones, none; and remembers all that it was asked.

In a test: `with Provider() as provider: provider.on(rate_limited(), model="m")`. What no rule matches gets the
answer that fits its dialect. By hand: `python -m tests.middleman.provider --port 8099 --fault black_hole`.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.middleman.provider_answers import WORDS, error, polite
from tests.middleman.provider_faults import FAULTS
from tests.middleman.provider_raw import Answer, Connection, Received

Say = Answer | Callable[[Received], Answer]


@dataclass
class Rule:
    """Answers to give, in order, to requests that match; the last one again and again if `always`."""

    answers: deque[Say]
    path: str | None
    model: str | None
    always: bool

    def matches(self, request: Received) -> bool:
        if self.path is not None and self.path not in request.target:
            return False
        return self.model is None or request.json().get("model") == self.model

    def next(self) -> Say:
        return self.answers[0] if self.always and len(self.answers) == 1 else self.answers.popleft()


@dataclass
class Limit:
    """What the provider allows; beyond it, 429.

    Attributes:
        in_flight: Requests at once.
        per_minute: Requests in a window of 60 s (or, in proportion, of `window` seconds).
        silent: Give no Retry-After and no rate-limit headers.
    """

    in_flight: int | None = None
    per_minute: float | None = None
    window: float = 60.0
    silent: bool = False
    open: int = 0
    most_open: int = 0
    allowed: int = 0
    refused: int = 0
    recent: deque[float] = field(default_factory=deque)

    def refusal(self, now: float) -> Answer | None:
        """The 429 for a request that comes now, or None, and then it is counted as open."""
        while self.recent and self.recent[0] <= now - self.window:
            self.recent.popleft()
        wait: float | None = None
        most = None if self.per_minute is None else self.per_minute * self.window / 60
        if most is not None and len(self.recent) >= most:
            wait = self.recent[0] + self.window - now
        elif self.in_flight is not None and self.open >= self.in_flight:
            wait = 1.0
        if wait is not None:
            self.refused += 1
            headers = [] if self.silent else [("Retry-After", f"{wait:.3f}")]
            return error(
                429, "rate_limit_error", "Rate limit reached for requests", headers, "rate_limit_exceeded"
            )
        self.recent.append(now)
        self.allowed += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        return None


class Provider:
    """One scriptable provider on 127.0.0.1, in a thread of its own.

    Args:
        port: 0 for a free one.
        tls: Serve HTTPS with this context.
        limit: What it allows.
        default: The answer where no rule matches.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        tls: ssl.SSLContext | None = None,
        limit: Limit | None = None,
        default: Callable[[Received], Answer] = polite,
    ) -> None:
        self.limit = limit
        self.default = default
        self.received: list[Received] = []
        self.port = port
        self._tls = tls
        self._rules: list[Rule] = []
        self._open: set[int] = set()
        self._connections: list[Connection] = []
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    @property
    def url(self) -> str:
        """Its address, without a path."""
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    # --- scripts --------------------------------------------------------------------------------------

    def on(
        self, *answers: Say, path: str | None = None, model: str | None = None, always: bool = False
    ) -> None:
        """Give these answers, one after the other, to requests whose target holds `path` and that ask `model`.

        The last rule that matches wins. A rule without answers left is forgotten.
        """
        with self._lock:
            self._rules.insert(0, Rule(deque(answers), path, model, always))

    def reset(self) -> None:
        """Forget rules, limit and requests."""
        with self._lock:
            self._rules.clear()
            self.received.clear()
            self.limit = None

    def drop_connections(self) -> None:
        """Close every connection from this side."""
        for connection in list(self._connections):
            self._loop.call_soon_threadsafe(connection.transport.close)

    @property
    def connected(self) -> int:
        """Clients that are connected now."""
        return sum(not c.gone.is_set() for c in self._connections)

    # --- life -----------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10), "the scriptable provider did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await self._loop.create_server(
            lambda: Connection(self._answer, self.received.append, self._finished, self._connections.append),
            "127.0.0.1",
            self.port,
            ssl=self._tls,
            backlog=4096,
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for connection in self._connections:
            connection.transport.abort()

    # --- requests -------------------------------------------------------------------------------------

    async def _answer(self, request: Received, early: bool) -> Answer | None:
        with self._lock:
            rule = next((r for r in self._rules if r.matches(request)), None)
            if early:
                first = rule.answers[0] if rule else None
                if not (isinstance(first, Answer) and first.early):
                    return None
            elif self.limit is not None:
                refusal = self.limit.refusal(time.monotonic())
                if refusal is not None:
                    return refusal
                self._open.add(id(request))
            say: Say = rule.next() if rule else self.default
            if rule and not rule.answers:
                self._rules.remove(rule)
        return say if isinstance(say, Answer) else say(request)

    def _finished(self, request: Received) -> None:
        with self._lock:
            if id(request) in self._open:
                self._open.discard(id(request))
                if self.limit is not None:
                    self.limit.open -= 1


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--fault", choices=sorted(FAULTS), help="give this to every request")
    parser.add_argument("--in-flight", type=int)
    parser.add_argument("--per-minute", type=float)
    parser.add_argument("--words", type=int, default=len(WORDS), help="words of an answer")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between streamed words")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before an answer")
    args = parser.parse_args()
    words = tuple(WORDS[i % len(WORDS)] for i in range(args.words))

    def default(request: Received) -> Answer:
        answer = polite(request, words, args.pause)
        answer.delay = args.delay
        return answer

    with Provider(args.port, limit=Limit(args.in_flight, args.per_minute), default=default) as provider:
        if args.fault:
            provider.on(FAULTS[args.fault](), always=True)
        print(provider.url, flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print(
                f"{len(provider.received)} requests, {provider.limit.refused if provider.limit else 0} refused"
            )


if __name__ == "__main__":
    main()
