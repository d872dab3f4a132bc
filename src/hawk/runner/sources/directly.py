"""Asks a provider past the middleman: whether it lives, by any HTTP answer to a question that costs nothing and needs no key."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from urllib.parse import urlsplit

from hawk.core.diagnosis.evidence import Probe
from hawk.core.text import one_line
from hawk.transport import Connection

BETWEEN = 15.0
"""Seconds between two questions to one address."""

PATIENCE = 5.0
"""Seconds for an answer."""


class Directly:
    """Keeps the newest answer of each address. Asking takes a thread, so that nobody waits for a silent provider."""

    def __init__(self) -> None:
        self._asked: dict[str, float] = {}
        self._answers: dict[str, Probe] = {}

    def ask(self, url: str) -> Probe | None:
        """The newest answer of a base URL; it is asked again when that is not new, and answers at a later look."""
        now = time.monotonic()
        if url.startswith(("http://", "https://")) and now - self._asked.get(url, -BETWEEN) >= BETWEEN:
            self._asked[url] = now
            threading.Thread(target=self._ask, args=(url,), name="ask a provider", daemon=True).start()
        return self._answers.get(url)

    def _ask(self, url: str) -> None:
        self._answers[url] = once(url)


def once(url: str) -> Probe:
    """Ask now."""
    at, started = datetime.now(UTC).isoformat(), time.monotonic()
    parts = urlsplit(url)
    try:
        tls = parts.scheme == "https"
        connection = Connection(parts.hostname or "", parts.port, tls=tls, timeout=PATIENCE)
        try:
            answer = connection.request(
                "GET", f"{parts.path.rstrip('/')}/models", {"Connection": "close"}, None
            )
        finally:
            connection.close()
    except (OSError, ValueError) as ex:
        why = one_line(f"{type(ex).__name__}: {ex}", 200)
        return Probe(at, False, round(time.monotonic() - started, 3), why=why)
    return Probe(at, True, round(time.monotonic() - started, 3), answer.status)
