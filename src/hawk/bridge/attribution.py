"""Says on every request to the middleman which attempt it is of.

Below the clients of all providers, where the request leaves, so that it holds for an agent's own calls as well. Inspect's
hook for headers would put them into every model event and every key of its cache: no answer could be cached any more.

Imports Inspect: for code that runs inside a worker.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from inspect_ai.log._samples import sample_active
from multidict import CIMultiDict
from yarl import URL

_CLIENTS = ("httpx", "httpx2")
"""Libraries that the providers' SDKs send with."""

MODEL_CALL = "x-irid"
"""Inspect's id of one model call; the same for every try of the SDK's."""


def attribute(url: str, token: str) -> None:
    """Mark every request of this process to the middleman, once.

    Args:
        url: The middleman's address. Other requests are not touched.
        token: The job's token; some of Inspect's providers send a fixed word instead of the key that they are given.
    """
    parts = urlsplit(url)
    address = (parts.hostname, parts.port)
    for name in _CLIENTS:
        try:
            library = importlib.import_module(name)
        except ImportError:
            continue
        _wrap_async(library.AsyncClient, address, token)
        _wrap_sync(library.Client, address, token)
    _wrap_aiohttp(address, token)


def _wrap_async(client: Any, address: tuple[str | None, int | None], token: str) -> None:
    send = client.send

    async def marked(self: Any, request: Any, **options: Any) -> Any:
        if (request.url.host, request.url.port) == address:
            mark(request.headers, token)
        return await send(self, request, **options)

    client.send = marked


def _wrap_sync(client: Any, address: tuple[str | None, int | None], token: str) -> None:
    send = client.send

    def marked(self: Any, request: Any, **options: Any) -> Any:
        if (request.url.host, request.url.port) == address:
            mark(request.headers, token)
        return send(self, request, **options)

    client.send = marked


def _wrap_aiohttp(address: tuple[str | None, int | None], token: str) -> None:
    """Google's SDK sends with it."""
    client: Any = aiohttp.ClientSession
    send = client._request

    async def marked(self: Any, method: str, url: Any, **options: Any) -> Any:
        target = URL(url) if isinstance(url, str) else url
        if (target.host, target.port) == address:
            headers = CIMultiDict(options.get("headers") or {})
            mark(headers, token)
            options["headers"] = headers
        return await send(self, method, url, **options)

    client._request = marked


def mark(headers: MutableMapping[str, str], token: str) -> None:
    """Add the token, the attempt that is active here, and its trace context."""
    headers["authorization"] = f"Bearer {token}"
    active = sample_active()
    if active is None:
        return
    uuid = active.sample_uuid or active.id
    headers["x-hawk-task"] = _ascii(active.task)
    headers["x-hawk-sample"] = _ascii(str(active.sample.id))
    headers["x-hawk-sample-uuid"] = _ascii(uuid)
    headers["x-hawk-attempt"] = str(active.epoch)
    if "traceparent" not in headers:
        headers["traceparent"] = f"00-{trace_id(uuid)}-{span_id(headers.get(MODEL_CALL) or uuid)}-01"


def trace_id(sample_uuid: str) -> str:
    """The trace of an attempt: whoever knows its uuid knows the trace."""
    return hashlib.sha256(sample_uuid.encode()).hexdigest()[:32]


def span_id(call: str) -> str:
    """The span of a model call."""
    return hashlib.sha256(call.encode()).hexdigest()[:16]


def _ascii(text: str) -> str:
    """As a header may hold it: percent-encoded where it is not plain text."""
    from urllib.parse import quote

    return quote(text[:200], safe=" !#$&'()*+,/:;=?@[]-._~")
