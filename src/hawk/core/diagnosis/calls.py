"""How one request to a model ended, from its status and from what was said: by the middleman, or by the provider.

Providers agree on little. A used-up quota is 402, 429, 400, 403 or 412; an unknown model 404, 400 or 403; a key that is
not accepted 401, 403 or, with two of them, 400. So words come first where they are clear, and the status else. The
phrases are of the providers' own answers and references: OpenAI, Anthropic, Gemini, Azure, Bedrock, Mistral, Groq, xAI,
DeepSeek, Together, Fireworks, OpenRouter, Moonshot, Cloudflare, Hugging Face; vLLM, SGLang, llama.cpp, Ollama.
"""

from __future__ import annotations

import re
from enum import StrEnum


class Kind(StrEnum):
    """How a request ended."""

    OK = "ok"
    # said by the provider
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    AUTH_REJECTED = "auth_rejected"
    QUOTA_EXHAUSTED = "quota_exhausted"
    MODEL_NOT_FOUND = "model_not_found"
    CONTEXT_OVERFLOW = "context_overflow"
    INVALID_REQUEST = "invalid_request"
    CONTENT_REFUSED = "content_refused"
    # an answer that is none
    MALFORMED = "malformed"
    EMPTY = "empty"
    # nothing was said
    CONNECT_REFUSED = "connect_refused"
    CONNECTION_LOST = "connection_lost"  # to whom is not known: an error of a client's own
    DNS = "dns"
    TLS = "tls"
    CLOSED = "closed"
    FIRST_BYTE_TIMEOUT = "first_byte_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    # the client's doing
    CLIENT_GONE = "client_gone"
    CLIENT_TIMEOUT = "client_timeout"  # an error of the client's own
    # said by the middleman
    TOKEN_EXPIRED = "token_expired"  # noqa: S105
    TOKEN_REVOKED = "token_revoked"  # noqa: S105
    TOKEN_INVALID = "token_invalid"  # noqa: S105
    NO_KEY = "no_key"
    NOT_PERMITTED = "not_permitted"
    BUDGET = "budget"
    BREAKER = "breaker"
    REPLAY_MISS = "replay_miss"
    QUEUE_TIMEOUT = "queue_timeout"
    DRAINING = "draining"
    INTERNAL = "internal"
    FORBIDDEN_ADDRESS = "forbidden_address"
    UNKNOWN = "unknown"

    @property
    def final(self) -> bool:
        """No retry of the same request helps."""
        return self in _FINAL


_FINAL = frozenset(
    {
        Kind.AUTH_REJECTED, Kind.QUOTA_EXHAUSTED, Kind.MODEL_NOT_FOUND, Kind.CONTEXT_OVERFLOW, Kind.INVALID_REQUEST,
        Kind.CONTENT_REFUSED, Kind.TOKEN_EXPIRED, Kind.TOKEN_REVOKED, Kind.TOKEN_INVALID, Kind.NO_KEY,
        Kind.NOT_PERMITTED, Kind.BUDGET, Kind.REPLAY_MISS, Kind.FORBIDDEN_ADDRESS,
    }
)  # fmt: skip

OURS: dict[str, Kind] = {
    "hawk_token_missing": Kind.TOKEN_INVALID,
    "hawk_token_invalid": Kind.TOKEN_INVALID,
    "hawk_token_expired": Kind.TOKEN_EXPIRED,
    "hawk_token_revoked": Kind.TOKEN_REVOKED,
    "hawk_no_key": Kind.NO_KEY,
    "hawk_budget_exhausted": Kind.BUDGET,
    "hawk_model_not_permitted": Kind.NOT_PERMITTED,
    "hawk_not_permitted": Kind.NOT_PERMITTED,
    "hawk_upstream_forbidden": Kind.FORBIDDEN_ADDRESS,
    "hawk_unknown_provider": Kind.MODEL_NOT_FOUND,
    "hawk_unknown_path": Kind.INVALID_REQUEST,
    "hawk_unknown_job": Kind.INVALID_REQUEST,
    "hawk_unknown_key": Kind.INVALID_REQUEST,
    "hawk_replay_miss": Kind.REPLAY_MISS,
    "hawk_bad_path": Kind.INVALID_REQUEST,
    "hawk_bad_request": Kind.INVALID_REQUEST,
    "hawk_method_not_allowed": Kind.INVALID_REQUEST,
    "hawk_body_too_large": Kind.CONTEXT_OVERFLOW,
    "hawk_connect_refused": Kind.CONNECT_REFUSED,
    "hawk_connect_timeout": Kind.CONNECT_REFUSED,
    "hawk_dns": Kind.DNS,
    "hawk_tls": Kind.TLS,
    "hawk_upstream_closed": Kind.CLOSED,
    "hawk_upstream_protocol": Kind.MALFORMED,
    "hawk_first_byte_timeout": Kind.FIRST_BYTE_TIMEOUT,
    "hawk_total_timeout": Kind.TOTAL_TIMEOUT,
    "hawk_idle_timeout": Kind.IDLE_TIMEOUT,
    "hawk_queue_timeout": Kind.QUEUE_TIMEOUT,
    "hawk_breaker_open": Kind.BREAKER,
    "hawk_draining": Kind.DRAINING,
    "hawk_internal": Kind.INTERNAL,
}
"""The middleman's own types of errors."""

_NOTES = {"malformed": Kind.MALFORMED, "empty": Kind.EMPTY, "refused": Kind.CONTENT_REFUSED}
"""What the middleman notes of an answer that it passed on."""


def _any(*phrases: str) -> re.Pattern[str]:
    return re.compile("|".join(phrases), re.IGNORECASE)


_TOO_LONG = _any(
    r"context[_ ]length[_ ]exceeded",
    r"maximum context length",
    r"max_context_length",
    r"exceed_context_size",
    r"available context size",
    r"context size has been exceeded",
    r"exceeds? (?:the |this model'?s? )?context (?:window|limit|length)",
    r"context (?:window|limit|length)(?: limit)? (?:is )?(?:exceeded|full)",
    r"exceeds? (?:model )?context window",
    r"(?:prompt|input)(?: is|'s)? too long",
    r"too many (?:input |prompt )?tokens (?:in|for)",
    r"too large for model",
    r"maximum prompt length",
    r"maximum model length",
    r"max(?:imum)?[_ ]model[_ ]len",
    r"input (?:token count|length)[^.]{0,60}exceed",
    r"exceeds the maximum number of (?:input )?tokens",
    r"exceeded model token limit",
    r"longer than the (?:maximum|model)",
    r"tokens? \+ `?max_(?:new_)?tokens`? must be",
    r"reduce the length of (?:the|your) (?:messages|prompt|input)",
    r"reduce your message size",
    r"request too large for",
    r"request_too_large",
    r"input or output tokens must be reduced",
    r"greater than the context length",
    r"exceeds the limit of \d+ tokens",
)

_SOON = _any(
    r"per[ _-]?(?:minute|second|min\b)",
    r"(?:retry|try again) in \d",
    r"retry after \d",
    r"\b(?:rpm|tpm)\b",
    r"requests? rate limit",
    r"token rate limit",
)
"""A rate, whatever else is said of a quota: it fills up again within minutes."""

_NO_CREDIT = _any(
    r"insufficient[_ ](?:quota|balance|credit|fund|account balance)",
    r"exceeded[_ ](?:your[_ ])?current[_ ]quota",
    r"credit balance is too low",
    r"requires more credits",
    r"(?:not enough|no|out of|used all (?:available )?|any) credits?\b",
    r"credit limit exceeded",
    r"(?:key|spending|spend|monthly|usage) limit (?:exceeded|reached|has been reached)",
    r"reached (?:your|its|the) (?:specified )?(?:api usage|monthly|spending|usage)",
    r"monthly (?:included credits|spending limit|quota)",
    r"billing[_ ](?:hard[_ ]limit|not[_ ]active|is not|details)",
    r"(?:enable|check your) (?:plan and )?billing",
    r"payment required",
    r"quota[^.]{0,90}per[ _-]?(?:day|month)",
    r"(?:quota|limit)[^.]{0,20}exhausted for (?:the|this) (?:day|month)",
    r"servicequotaexceeded",
    r"plans & billing",
    r"account[^.]{0,80}suspended",
    r"arrearage|overdue",
)

_NO_MODEL = _any(
    r"model[_ ]not[_ ](?:found|available|exist)",
    r"model not exist",
    r"model[^.{}]{0,120}(?:does not exist|doesn't exist|is not found|not found|was not found|has been decommissioned)",
    r"(?:no such|unknown|unsupported|invalid|incorrect)[_ ]model\b",
    r"invalid[_ ]model",
    r"model_decommissioned",
    r"not a valid model",
    r"no endpoints found",
    r"not supported for (?:generatecontent|this model)",
    r"(?:access|permission)s? to (?:the )?(?:this )?model",
    r"unable to access model",
    r"deploymentnotfound|deployment[^.]{0,60}does not exist",
    r"model identifier is invalid",
    r"could not resolve the foundation model",
    r'"?not_found_error"?[^{}]{0,40}model:',
    r"unknown_model",
)

_BAD_KEY = _any(
    r"(?:incorrect|invalid|wrong|missing|expired|bad)[_ ](?:x-)?api[_ -]?key",
    r"api[_ -]?key (?:is )?(?:not valid|invalid|expired|not found|missing)",
    r"api_key_invalid|invalid_api_key|authentication_?error|authentication fails",
    r"invalid (?:authentication|bearer|credential|subscription key|x-api-key)",
    r"unrecognizedclient|expiredtoken|invalidsignature|security token included",
    r"no auth credentials|unauthenticated",
    r"organization has been disabled",
)

_REFUSED = _any(
    r"content[_ ](?:policy|filter|management|moderation)",
    r"responsibleaipolicy",
    r"usage polic(?:y|ies)",
    r"safety (?:system|setting|filter|reason)",
    r"(?:blocked|flagged|rejected)[^.]{0,60}(?:content|safety|moderation|polic|harm|high risk)",
    r"output blocked|prohibited_content",
    r"content exists risk|data_inspection_failed|high risk",
    r"requires moderation",
    r"guardrail",
)

_BUSY = _any(
    r"overloaded",
    r"over[_ ]capacity|capacity (?:exceeded|reached)|at capacity|insufficient capacity",
    r"too busy|currently busy|is busy",
    r"loading model|model is (?:currently )?loading|currently loading|modelnotready|not ready",
    r"no available (?:model provider|capacity|server|worker|instance)",
    r"slow down",
)

_LIMITED = _any(
    r"rate[_ -]?limit",
    r"too[_ ]many[_ ]requests",
    r"throttl",
    r"resource[_ ](?:has been )?exhausted",
    r"quota",
)

_TYPE = re.compile(r"hawk_[a-z_]+")
_STATUS = (
    re.compile(r"\berror code: (\d{3})\b", re.IGNORECASE),
    re.compile(r"\bstatus[_ ]?code['\"]?\s*[:=]\s*(\d{3})\b", re.IGNORECASE),
    re.compile(r"\b(?:HTTP(?:/[\d.]+)?|status)\s*[:=]?\s*(\d{3})\b", re.IGNORECASE),
    re.compile(r"^(\d{3})\b(?=[ :.]+[A-Za-z{'\"])"),
    re.compile(r"[\"']code[\"']\s*:\s*(\d{3})\b"),
)

_TEXT = 2000
"""Characters of a text that are looked at."""


def kind_of(
    status: int,
    said: str = "",
    *,
    error: str | None = None,
    upstream: int | None = None,
    client_gone: bool = False,
    note: str = "",
) -> Kind:
    """How a request ended.

    Args:
        status: What the client got; 0: nothing.
        said: The beginning of the error, in whose words ever.
        error: A type of the middleman's own.
        upstream: The provider's status; None: it gave none.
        client_gone: The client went away first.
        note: What the middleman noted of a good answer: of `spans.Span.note`.
    """
    if error:
        return OURS.get(error, Kind.INTERNAL)
    if client_gone:
        return Kind.CLIENT_GONE
    if note in _NOTES:
        # Some gateways put an error into an answer of status 200.
        inside = _by_words(said[:_TEXT]) if note == "malformed" and '"error"' in said else None
        return inside or _NOTES[note]
    return of_answer(upstream if upstream is not None else status, said)


def of_answer(status: int, said: str) -> Kind:
    """How a request ended that a provider answered with this status and text."""
    if 0 < status < 400:
        return Kind.OK
    text = said[:_TEXT]
    if status in (500, 502, 504, 520, 521, 522, 523, 524):
        return Kind.OVERLOADED if _BUSY.search(text) and status == 500 else Kind.SERVER_ERROR
    if status in (503, 529, 498):
        return Kind.OVERLOADED
    if status == 402:
        return Kind.QUOTA_EXHAUSTED
    if status == 408:
        return Kind.SERVER_ERROR
    found = _by_words(text)
    if status == 429:
        return found if found in _OF_429 else Kind.RATE_LIMITED
    if found is not None and found not in (Kind.RATE_LIMITED, Kind.OVERLOADED):
        return found
    if status == 404:  # a path that is not there is a wrong base URL: who corrects it is the same
        return Kind.MODEL_NOT_FOUND
    if status in (401, 403):
        return Kind.AUTH_REJECTED
    if status == 413:
        return Kind.CONTEXT_OVERFLOW
    if 400 <= status < 500:
        return found or Kind.INVALID_REQUEST
    return Kind.SERVER_ERROR if status >= 500 else Kind.UNKNOWN


_OF_429 = frozenset({Kind.QUOTA_EXHAUSTED, Kind.CONTEXT_OVERFLOW, Kind.OVERLOADED})


def _by_words(text: str) -> Kind | None:
    """What a text says by itself; None: nothing that is known."""
    if _TOO_LONG.search(text):
        return Kind.CONTEXT_OVERFLOW
    if _NO_CREDIT.search(text) and not _SOON.search(text):
        return Kind.QUOTA_EXHAUSTED
    for pattern, kind in (
        (_NO_MODEL, Kind.MODEL_NOT_FOUND),
        (_BAD_KEY, Kind.AUTH_REJECTED),
        (_REFUSED, Kind.CONTENT_REFUSED),
        (_BUSY, Kind.OVERLOADED),
        (_LIMITED, Kind.RATE_LIMITED),
    ):
        if pattern.search(text):
            return kind
    return None


# --- errors as clients raise them

_CLIENTS = {
    "AuthenticationError": 401, "PermissionDeniedError": 403, "PermissionDenied": 403, "Unauthenticated": 401,
    "NotFoundError": 404, "BadRequestError": 400, "UnprocessableEntityError": 422, "RequestTooLargeError": 413,
    "RateLimitError": 429, "ResourceExhausted": 429, "OverloadedError": 529, "ServiceUnavailableError": 503,
    "InternalServerError": 500, "DeadlineExceededError": 504, "APIStatusError": 0, "APIError": 0, "ClientError": 0,
    "ServerError": 500, "SDKError": 0, "GroqError": 0, "APIResponseValidationError": 200,
}  # fmt: skip
"""Types of errors of providers' own libraries, with the status that each stands for; 0: several."""

_SILENT = {
    "APITimeoutError": Kind.CLIENT_TIMEOUT,
    "AttemptTimeoutError": Kind.CLIENT_TIMEOUT,
    "ReadTimeout": Kind.CLIENT_TIMEOUT,
    "StreamIdleTimeoutError": Kind.CLIENT_TIMEOUT,
    "APIConnectionError": Kind.CONNECTION_LOST,
    "RemoteProtocolError": Kind.CONNECTION_LOST,
    "ConnectError": Kind.CONNECTION_LOST,
    "ConnectTimeout": Kind.CONNECTION_LOST,
}
"""The same of those without an answer."""


_SPENT = re.compile(r"The budget of job \S+ is used up")
"""The middleman's own words, where a client shows the message without its type."""


def status_in(message: str) -> int | None:
    """The status that an error's text speaks of."""
    text = message[:_TEXT]
    return next((int(found[1]) for p in _STATUS if (found := p.search(text)) is not None), None)


def of_error(type_: str, message: str, status: int | None = None) -> Kind | None:
    """How the request ended that raised an error in a worker; None: it is no error of a request to a model.

    Args:
        type_: Of the exception, where it is known; it may also stand at the beginning of the message.
        message: As a log or a note has it.
        status: Where it is known.
    """
    text = message[:_TEXT]
    ours = _TYPE.search(text)
    if ours is not None and ours[0] in OURS:
        return OURS[ours[0]]
    if _SPENT.search(text) is not None:
        return Kind.BUDGET
    name = type_.rpartition(".")[2]
    if name not in _CLIENTS and name not in _SILENT:
        name = next(
            (n for n in re.findall(r"\b[A-Za-z]+(?:Error|Timeout|Exhausted|Denied)\b", text) if _known(n)), ""
        )
    if status is None:
        status = status_in(text)
        spelt = _STATUS[0].search(text) is not None
        if not name and not spelt:
            return None  # a number in the words of a tool or an agent is no status of a provider
    if status is None or not 100 <= status <= 599:
        if name in _SILENT:
            return _SILENT[name]
        status = _CLIENTS.get(name, 0)
        if not status:
            return _by_words(text)
    if status < 400:
        return Kind.MALFORMED if name == "APIResponseValidationError" else None
    return of_answer(status, text)


def _known(name: str) -> bool:
    return name in _CLIENTS or name in _SILENT
