"""The way to the middleman: where it is, and one request to it."""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import urlsplit

from hawk import __version__
from hawk.cli.local_server import process_lives
from hawk.config.settings import Settings
from hawk.config.token import ensure_token
from hawk.errors import AuthError, HawkError, ServerUnavailableError, UsageError
from hawk.transport import Connection

CONNECT = 5.0
PATIENCE = 150.0
"""Seconds that an answer may take: a probe is two requests to a provider."""

START = "It starts with the first job that needs it; alone: hawk middleman serve. Its log: middleman.log in HAWK_HOME."


class Link:
    """Requests to the middleman at `HAWK_MIDDLEMAN_URL`, else the one of this home.

    Args:
        settings: Where its address and the token are.
    """

    def __init__(self, settings: Settings) -> None:
        self.url = address(settings)
        self._settings = settings

    def get(self, path: str) -> Any:
        """The decoded answer. Raises: as `call`."""
        return self.call("GET", path)

    def post(self, path: str, body: Any) -> Any:
        """The decoded answer. Raises: as `call`."""
        return self.call("POST", path, body)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One request.

        Raises:
            ServerUnavailableError: There is no middleman, or it does not answer.
            AuthError: It does not take the token.
            HawkError: It answered with an error, or is something else.
        """
        if self.url is None:
            raise ServerUnavailableError("No middleman runs here.", remedy=START)
        headers = {
            "Authorization": f"Bearer {self._token()}",
            "User-Agent": f"hawk/{__version__}",
            "Connection": "close",
        }
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        try:
            status, answer = request(self.url, method, path, headers, data, PATIENCE)
        except OSError as ex:
            why = "no answer in time" if isinstance(ex, TimeoutError) else str(ex) or type(ex).__name__
            raise ServerUnavailableError(
                f"The middleman at {self.url} does not answer: {why}.", remedy=START, url=self.url
            ) from ex
        return self._understood(status, answer)

    def _token(self) -> str:
        """The access token. That of this home is never sent to a middleman of another one."""
        if self._settings.access_token is None and self.url != _recorded(self._settings):
            raise AuthError(
                f"No access token for the middleman at {self.url}.",
                remedy="Set HAWK_ACCESS_TOKEN to the one of the machine where it runs.",
            )
        return ensure_token(self._settings)

    def _understood(self, status: int, answer: bytes) -> Any:
        try:
            decoded = json.loads(answer)
        except ValueError:
            decoded = None
        if status < 400 and decoded is not None:
            return decoded
        error = decoded.get("error") if isinstance(decoded, dict) else None
        said = str(error.get("message")) if isinstance(error, dict) else f"it answered {status}"
        if status in (401, 403):
            raise AuthError(
                f"The middleman at {self.url} does not take this token: {said}",
                remedy="Set HAWK_ACCESS_TOKEN to the one of the machine where it runs.",
            )
        if error is None:
            raise HawkError(
                f"What answers at {self.url} is no middleman: {said}.", remedy="Correct HAWK_MIDDLEMAN_URL."
            )
        raise HawkError(said)


def address(settings: Settings) -> str | None:
    """Where the middleman should be; None when nothing says so.

    Raises:
        UsageError: `HAWK_MIDDLEMAN_URL` is no URL.
    """
    named = os.environ.get("HAWK_MIDDLEMAN_URL")
    if named:
        if urlsplit(named).scheme not in ("http", "https") or not urlsplit(named).hostname:
            raise UsageError(f"HAWK_MIDDLEMAN_URL={named!r} is not a URL.", remedy="Write http://HOST:PORT.")
        return named.rstrip("/")
    return _recorded(settings)


def _recorded(settings: Settings) -> str | None:
    """Where the middleman of this home is, while its process lives: its port may be another's by now."""
    try:
        record = json.loads((settings.home / "middleman.json").read_bytes())
        return str(record["url"]).rstrip("/") if process_lives(int(record["pid"])) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def told_to_reload(settings: Settings) -> str:
    """Have a running middleman read its settings again, and say what came of it, in a sentence."""
    try:
        Link(settings).post("/admin/reload", {})
    except ServerUnavailableError:
        return "No middleman runs; the next one finds it."
    except HawkError as ex:
        return f"The middleman did not take it: {ex.message}"
    return "The middleman knows."


def request(
    url: str, method: str, path: str, headers: dict[str, str], body: bytes | None, timeout: float
) -> tuple[int, bytes]:
    """One request on a connection of its own: (status, body).

    Raises:
        OSError: No connection, or it broke, or took too long.
    """
    parts = urlsplit(url)
    connection = Connection(
        parts.hostname or "", parts.port, tls=parts.scheme == "https", timeout=min(CONNECT, timeout)
    )
    try:
        connection.settimeout(timeout)
        response = connection.request(method, f"{parts.path.rstrip('/')}{path}", headers, body)
        return response.status, response.read()
    finally:
        connection.close()
