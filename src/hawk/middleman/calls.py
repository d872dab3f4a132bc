"""Calls to a middleman's own paths, for whoever starts jobs. Light, and never for long."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from hawk.config.cluster import load_cluster_settings
from hawk.config.settings import Settings
from hawk.config.token import ensure_token
from hawk.errors import HawkError
from hawk.middleman import presence
from hawk.transport import Connection


def call(url: str, token: str, method: str, path: str, body: Any = None, *, timeout: float = 5.0) -> Any:
    """One request to a middleman's own paths, and its answer.

    Raises:
        OSError: It can't be reached, or goes away within its answer.
        HawkError: It refuses, with its own words.
    """
    parts = urlsplit(url)
    connection = Connection(parts.hostname or "", parts.port, tls=parts.scheme == "https", timeout=timeout)
    try:
        data = msgspec.json.encode(body) if body is not None else None
        headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Connection": "close",
        }
        answer = connection.request(method, path, headers, data)
        text = answer.read()
    finally:
        connection.close()
    try:
        found = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        found = {}
    if answer.status >= 400:
        said = found.get("error", {}).get("message") if isinstance(found, dict) else None
        raise HawkError(f"The middleman answered {answer.status}: {said or text[:200]!r}")
    return found


def revoke(settings: Settings, job_id: str) -> bool:
    """End a job's requests at once, at this home's middleman or at the cluster's. False: it could not be told."""
    found = presence.living(settings.home)
    url = found.url if found is not None else load_cluster_settings().middleman_url
    if url is None:
        return True
    try:
        call(url, ensure_token(settings), "POST", f"/admin/jobs/{quote(job_id, safe='')}/revoke", {})
    except (OSError, HawkError):
        return False
    return True
