"""Every error leaves as one envelope: `hawk.errors` knows its shape, this module where errors come from."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from hawk.errors import HawkError, NotFoundError, StorageError, UsageError

Methods = Callable[[str], Collection[str]]
PROBLEM = "application/problem+json"

_log = logging.getLogger(__name__)


class StreamBrokenError(Exception):
    """The stream can't be ended as it should: the connection is broken off, so that nobody takes it for whole."""


class InvalidRequestError(UsageError):
    """The request's body or parameters have the wrong form."""

    http_status = 422
    title = "Invalid request"


def problem(
    error: HawkError, *, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """The response for an error; `status` where HTTP has a better one than its class."""
    envelope = error.envelope()
    if status is not None:
        envelope["status"] = status
    body = msgspec.json.encode(envelope, enc_hook=str)
    return Response(body, envelope["status"], headers=dict(headers or {}), media_type=PROBLEM)


def internal(request_id: str) -> Response:
    """The response for a bug: the log has the traceback, under the request's id."""
    return problem(
        HawkError(
            "The server failed on this request.",
            remedy=f"Look for {request_id} in the server's log.",
            request_id=request_id,
        )
    )


def not_allowed(method: str, path: str, known: Collection[str]) -> Response:
    """The response where a path knows other methods."""
    allow = ", ".join(sorted(known))
    error = UsageError(f"{method} is not allowed on {path!r}.", remedy=f"Allowed are {allow}.")
    return problem(error, status=405, headers={"allow": allow})


def install(app: FastAPI, methods: Methods) -> None:
    """Handle every kind of exception that a route can raise.

    Args:
        methods: Those that a path knows.
    """
    app.add_exception_handler(HawkError, _hawk_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, partial(_http_exception, methods))
    app.add_exception_handler(SQLAlchemyError, _database_error)


def _hawk_error(_request: Request, ex: Exception) -> Response:
    assert isinstance(ex, HawkError)
    if ex.http_status >= 500:
        _log.error("%s", ex.message)
    return problem(ex)


def _invalid(_request: Request, ex: Exception) -> Response:
    assert isinstance(ex, RequestValidationError)
    problems: list[dict[str, Any]] = [
        {"field": ".".join(str(part) for part in error["loc"]), "message": error["msg"]}
        for error in ex.errors()
    ]
    said = "; ".join(f"{p['field']}: {p['message']}" for p in problems)
    return problem(InvalidRequestError(f"The request is not valid: {said}.", problems=problems))


def _http_exception(methods: Methods, request: Request, ex: Exception) -> Response:
    assert isinstance(ex, HTTPException)
    path = request.url.path
    if ex.status_code == 404:
        return problem(NotFoundError(f"There is no {path!r} here.", remedy="GET /openapi.json lists all."))
    if ex.status_code == 405:
        return not_allowed(request.method, path, methods(path))
    error = UsageError(str(ex.detail)) if ex.status_code < 500 else HawkError(str(ex.detail))
    return problem(error, status=ex.status_code, headers=ex.headers)


def _database_error(_request: Request, ex: Exception) -> Response:
    why = str(getattr(ex, "orig", None) or ex).strip().splitlines()[0]
    _log.error("database: %s", why)
    return problem(
        StorageError(f"The database can't be used: {why}.", remedy="Check its disk, then try again.")
    )
