"""What every request passes: an id for it, who may ask, and one line in the log when it is done.

Plain ASGI: streams pass through untouched. Query strings and headers are never logged.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hawk import __version__
from hawk.errors import AuthError, PermissionDeniedError
from hawk.server.errors import Methods, internal, not_allowed, problem
from hawk.server.services.idle import Activity

OPEN_PATHS = frozenset(
    {"/health", "/health/live", "/version", "/openapi.json", "/auth/config", "/schemas/eval-set.json"}
)
LINK_PATH = re.compile(r"/runners/([^/]{1,128})/link")
"""The only WebSocket there is."""

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

_access = logging.getLogger("hawk.server.access")
_log = logging.getLogger(__name__)


class Gate:
    """The outermost layer of the app.

    Args:
        open_prefix: Of signed addresses: their route checks the signature instead.
        loopback: The server listens to this machine only: a Host header that names anything else comes from a
            page in a browser whose name was pointed here, and is refused.
        admits: Whether a token opens the link of a job's runner: it opens nothing else, and nothing else opens that.
        methods: Those that a path knows; empty where there is none. Whoever asks with another one learns that, token
            or not: the description of all paths is open anyway.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        activity: Activity,
        open_prefix: str,
        loopback: bool,
        methods: Methods,
        admits: Callable[[str, str], bool] = lambda _job, _token: False,
    ) -> None:
        self._app = app
        self._token = token.encode()
        self._activity = activity
        self._open_prefix = open_prefix
        self._loopback = loopback
        self._methods = methods
        self._admits = admits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._link(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = secrets.token_hex(8)
        started = time.perf_counter()
        status = 0

        async def tagged(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_id
                headers["x-hawk-server-version"] = __version__
            await send(message)

        self._activity.begin()
        try:
            refusal = self._refusal(scope)
            await (refusal or self._app)(scope, receive, tagged)
        except Exception:
            _log.exception("request %s: %s %s", request_id, scope["method"], scope["path"])
            if status:
                raise  # too late for another answer: the connection breaks, which the client notices
            await internal(request_id)(scope, receive, tagged)
        finally:
            self._activity.end()
            ms = (time.perf_counter() - started) * 1000
            _access.info("%s %s %d %.1f ms %s", scope["method"], _shown(scope), status, ms, request_id)

    async def _link(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the runner of a job in, by the token of that job."""
        headers = dict(scope["headers"])
        job = LINK_PATH.fullmatch(scope["path"])
        local = not self._loopback or _names_loopback(headers.get(b"host", b""))
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        token = given.strip().decode("latin-1")
        bears = scheme.lower() == b"bearer"
        if job is None or not local or not bears or not await asyncio.to_thread(self._admits, job[1], token):
            _access.info("WEBSOCKET %s 403", _shown(scope))
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        _access.info("WEBSOCKET %s opened", _shown(scope))
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Any:
        headers = dict(scope["headers"])
        if self._loopback and not _names_loopback(headers.get(b"host", b"")):
            error = PermissionDeniedError(
                "This server answers to localhost only.", remedy="Use http://127.0.0.1."
            )
            return problem(error)
        path = scope["path"]
        if path in OPEN_PATHS or path.startswith(self._open_prefix):
            return None
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token):
            return None
        known = self._methods(path)
        if known and scope["method"] not in known:
            return not_allowed(scope["method"], path, known)
        why = "The access token is not the one of this server." if given else "An access token is needed."
        remedy = "Send 'Authorization: Bearer <token>'; `hawk auth access-token` prints it."
        return problem(AuthError(why, remedy=remedy), headers={"www-authenticate": "Bearer"})


def _names_loopback(host: bytes) -> bool:
    try:
        return urlsplit(f"//{host.decode('ascii')}").hostname in LOOPBACK_NAMES
    except ValueError:
        return False


def _shown(scope: Scope) -> str:
    """The path, with nothing in it that could forge a line of the log."""
    return ascii(scope["path"])[1:-1][:200]
