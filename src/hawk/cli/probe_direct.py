"""A small request straight to a provider, with the key that this person has: what `hawk probe` does without a middleman."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from hawk.config.providers import Kind, credential, provider_of
from hawk.config.settings import Settings
from hawk.config.smallrequest import small_request
from hawk.errors import HawkError, UsageError

PATIENCE = 60.0
SHOWN = 500


def without_middleman(settings: Settings, model: str, down: HawkError) -> dict[str, Any]:
    """The document of a probe (see `POST /admin/probe`) whose first leg is that there is no middleman.

    Raises:
        UsageError: The model is none that goes through a middleman.
    """
    found = provider_of(model)
    if found is None:
        raise UsageError(
            f"{model!r} does not go through the middleman.",
            remedy="Name a model as Inspect does: openai/gpt-5.",
        )
    through = _no_answer(down.message, "down")
    direct = _ask(settings, *found)
    works = isinstance(direct["status"], int) and 200 <= direct["status"] < 300
    return {
        "model": model,
        "provider": found[0],
        "through": through,
        "direct": direct,
        "verdict": "The middleman is down; "
        + ("the provider works." if works else "and the provider does not work directly, either."),
        "whose": "middleman" if works else "unknown",
        "remedy": down.remedy or "",
    }


def _ask(settings: Settings, provider: str, model: str) -> dict[str, Any]:
    from hawk.cli.middleman_link import request
    from hawk.middleman.catalog import Unroutable, load_catalog
    from hawk.middleman.keys import KeyStore

    try:
        catalog = load_catalog(settings.home, os.environ, KeyStore(settings.home, os.environ))
        route = catalog.route(provider, model, job_keys={}, job_upstreams={})
    except Unroutable as ex:
        return _no_answer(f"{ex.message} {ex.remedy}", ex.type)
    except HawkError as ex:
        return _no_answer(ex.message, "settings")
    path, body = small_request(route.provider, model)
    path = path.removeprefix(route.provider.prefix)
    headers = {"Content-Type": "application/json", "Connection": "close", **route.headers}
    if route.key is not None:
        name, value = credential(route.provider.kind, route.key)
        headers[name] = value
    if route.provider.kind is Kind.ANTHROPIC:
        headers["anthropic-version"] = "2023-06-01"
    began = time.monotonic()
    answer: dict[str, Any] = {"status": None, "error": None, "type": None, "body": ""}
    try:
        status, data = request(route.base_url, "POST", path, headers, json.dumps(body).encode(), PATIENCE)
        answer |= {"status": status, "body": data[:SHOWN].decode("utf-8", "replace")}
    except OSError as ex:
        answer |= {"error": str(ex) or type(ex).__name__, "type": type(ex).__name__}
    return {**answer, "seconds": round(time.monotonic() - began, 3)}


def _no_answer(error: str, kind: str) -> dict[str, Any]:
    return {"status": None, "error": error, "type": kind, "body": "", "seconds": 0.0}
