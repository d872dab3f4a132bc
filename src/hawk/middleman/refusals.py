"""The middleman's own errors. They never look like a provider's: their type begins with `hawk_`.

The body has the shape that the client's library expects, so that it shows the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from hawk.config.providers import Kind

if TYPE_CHECKING:
    from hawk.middleman.tokens import Principal

STATUS: Mapping[str, int] = {
    "hawk_token_missing": 401,
    "hawk_token_invalid": 401,
    "hawk_token_expired": 401,
    "hawk_token_revoked": 401,
    "hawk_no_key": 401,
    "hawk_budget_exhausted": 402,
    "hawk_model_not_permitted": 403,
    "hawk_not_permitted": 403,
    "hawk_upstream_forbidden": 403,
    "hawk_unknown_provider": 404,
    "hawk_unknown_path": 404,
    "hawk_unknown_job": 404,
    "hawk_unknown_key": 404,
    "hawk_replay_miss": 404,
    "hawk_bad_path": 400,
    "hawk_bad_request": 400,
    "hawk_method_not_allowed": 405,
    "hawk_body_too_large": 413,
    "hawk_connect_refused": 502,
    "hawk_dns": 502,
    "hawk_tls": 502,
    "hawk_connect_timeout": 502,
    "hawk_upstream_closed": 502,
    "hawk_upstream_protocol": 502,
    "hawk_first_byte_timeout": 504,
    "hawk_total_timeout": 504,
    "hawk_idle_timeout": 504,
    "hawk_queue_timeout": 503,
    "hawk_breaker_open": 503,
    "hawk_draining": 503,
    "hawk_internal": 500,
}
"""Every error of the middleman, with its HTTP status."""

_GEMINI_STATUS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 402: "RESOURCE_EXHAUSTED",
                  403: "PERMISSION_DENIED", 404: "NOT_FOUND", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}  # fmt: skip


class Refusal(Exception):  # noqa: N818  # an answer, more than an error
    """The middleman answers instead of the provider.

    Args:
        kind: One of `STATUS`.
        message: What happened, with the provider's or job's name in it.
        retry_after: Seconds after which it is worth another try.
        no_retry: Trying again can't help: clients that honour `x-should-retry` give up at once.
        allow: Methods that the path knows, where it is for the method.
        detail: More for the body's error, beside type and message.
        bearer: Who asked, where a token that is good for nothing any more says so.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        retry_after: float | None = None,
        no_retry: bool = False,
        allow: Iterable[str] = (),
        detail: Mapping[str, Any] | None = None,
        bearer: Principal | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = STATUS[kind]
        self.retry_after = retry_after
        self.no_retry = no_retry
        self.allow = tuple(allow)
        self.detail = dict(detail or {})
        self.bearer = bearer

    def headers(self) -> dict[str, str]:
        found = {"content-type": "application/json"}
        if self.retry_after is not None:
            found["retry-after"] = str(max(1, round(self.retry_after)))
        if self.no_retry:
            found["x-should-retry"] = "false"  # honoured by the SDKs of OpenAI and Anthropic
        if self.allow:
            found["allow"] = ", ".join(self.allow)
        return found

    def body(self, dialect: Kind) -> bytes:
        """The error as this kind of client reads it."""
        error: dict[str, Any] = {"message": self.message, "type": self.kind, **self.detail}
        if dialect is Kind.ANTHROPIC:
            return msgspec.json.encode({"type": "error", "error": error})
        if dialect is Kind.GEMINI:
            error |= {"code": self.status, "status": _GEMINI_STATUS.get(self.status, "INTERNAL")}
        else:
            error |= {"code": self.kind, "param": None}
        return msgspec.json.encode({"error": error})
