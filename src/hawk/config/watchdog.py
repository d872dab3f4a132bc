"""The `watchdog:` of an eval set: remedies that are carried out without a person, and who is told of trouble."""

# ruff: noqa: RUF012 - pydantic copies mutable defaults

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from hawk.config.entries import Fields, Name, Strict
from hawk.config.options import Count

Cause = Literal[
    "rate_limited",
    "overloaded",
    "server_error",
    "auth_rejected",
    "quota_exhausted",
    "model_not_found",
    "context_overflow",
    "invalid_request",
    "content_refused",
    "malformed_response",
    "empty_output",
    "connect_refused",
    "dns_or_tls",
    "black_hole",
    "stream_stalled",
    "slow_generation",
    "client_timeout_too_short",
    "down",
    "token_expired",
    "token_revoked",
    "model_not_permitted",
    "queue_wait",
    "budget_exhausted",
    "breaker_open",
    "replay_miss",
    "proxy_fault",
    "loop_blocked",
    "await_never_resolved",
    "cpu_starved",
    "memory_near_limit",
    "oom_killed",
    "crashed",
    "killed",
    "disk_full",
    "log_store_unwritable",
    "database_locked",
    "control_socket_lost",
    "dataset_loading",
    "environment_install",
    "import_error",
    "config_error",
    "image_pull",
    "create_failed",
    "crash_loop",
    "unschedulable",
    "start_timeout",
    "tool_hung",
    "exec_lost",
    "network_denied",
    "limiter_starved",
    "retry_loop",
    "limit_hit",
    "agent_looping",
    "scorer_hung",
    "scorer_error",
    "setup_failed",
    "awaiting_approval",
    "awaiting_input",
    "no_slot",
    "paused",
    "queued",
    "stopping",
]
"""What `hawk diagnose` may name, but for what is healthy. A test holds it to `hawk.core.diagnosis.causes`, which may not \
be imported here."""

Action = Literal[
    "cancel_tool_call",
    "requeue",
    "score",
    "pause_model",
    "restart_worker",
]
"""Remedies of `hawk fix` that need no number to be set."""

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def _seconds(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", value)
    if match is None:
        raise ValueError(f"{value!r} is no time: write seconds (90), or 90s, 10m, 2h")
    return float(match[1]) * _UNITS[match[2]]


Time = Annotated[
    Annotated[float, Field(ge=1, le=7 * 24 * 3600)],
    BeforeValidator(_seconds, json_schema_input_type=float | str),
]
"""Seconds, or text such as `90s`, `10m`, `2h`."""

Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""Name of an environment variable."""


def _as_webhook(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


class Webhook(Strict):
    """Where JSON is posted when something happens. Exactly one of `url` and `url_from` is given."""

    url: Annotated[str, Field(pattern=r"^https?://[^\s/]+")] | None = None
    """The address. It is stored with the job: one with a secret in it belongs into `url_from`."""

    url_from: Variable | None = None
    """Environment variable of the submitter that holds the address. Its value is never stored."""

    headers: dict[Name, str] = {}
    """Headers to send. They are stored with the job."""

    headers_from: dict[Name, Variable] = {}
    """Headers to send, by the environment variables of the submitter that hold them. Their values are never stored."""

    @model_validator(mode="after")
    def _one_address(self) -> Webhook:
        if (self.url is None) == (self.url_from is None):
            raise ValueError("give either 'url' or 'url_from'")
        if self.url is not None and re.match(r"https?://[^/]*@", self.url):
            raise ValueError(
                "the address holds a password, which would be stored: use 'url_from' or 'headers_from'"
            )
        return self


class Email(Strict):
    """A mail server, and who is written to."""

    host: Name
    """Name of the mail server."""

    port: Annotated[int, Field(ge=1, le=65535)] = 25
    """Its port."""

    starttls: bool = False
    """Whether the connection is encrypted before anything is said."""

    from_: Annotated[str, Field(alias="from", pattern=r"^[^\s@]+@[^\s@]+$")]
    """The sender's address."""

    to: Annotated[list[Annotated[str, Field(pattern=r"^[^\s@]+@[^\s@]+$")]], Field(min_length=1)]
    """Addresses of who is written to."""

    user_from: Variable | None = None
    """Environment variable of the submitter that holds the name to sign in with. Its value is never stored."""

    password_from: Variable | None = None
    """The same for the password."""

    @field_validator("to", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _both_or_none(self) -> Email:
        if (self.user_from is None) != (self.password_from is None):
            raise ValueError("'user_from' and 'password_from' go together")
        return self


class Notify(Strict):
    """Who is told, and of what. Once when it begins, not again while it holds."""

    on: Annotated[list[Literal["stuck", "fatal", "done", "failed"]], Field(min_length=1)] = [
        "stuck",
        "fatal",
        "done",
        "failed",
    ]
    """Of what: something won't go on by itself, something is over unless somebody acts, the job is complete, it failed."""

    webhook: Annotated[Webhook | None, BeforeValidator(_as_webhook, json_schema_input_type=str | Webhook)] = (
        None
    )
    """JSON is posted there. A text is its `url`."""

    command: list[Name] = []
    """A program and its arguments, run on the machine of the runner with the same JSON on its standard input."""

    email: Email | None = None
    """A mail is sent."""

    @model_validator(mode="after")
    def _somebody(self) -> Notify:
        if self.webhook is None and not self.command and self.email is None:
            raise ValueError("nobody is told: give 'webhook', 'command' or 'email'")
        return self


class Watchdog(Fields):
    """Carries out remedies by itself, and tells people. Off unless it is given."""

    model_config = Strict.model_config

    after: Time = 600.0
    """How long something must have held that won't go on by itself, before it is acted on: seconds, or `90s`, `10m`, `2h`."""

    causes: list[Cause] | Literal["all safe"] = "all safe"
    """Which causes are acted on. `all safe`: all whose remedy loses nothing that has ended and changes no result. A list: \
those, whatever their remedy is."""

    actions: dict[Cause, Action] = {}
    """For a cause, another remedy than its own; it is then acted on whatever `causes` says."""

    most: Count = 10
    """Remedies that are carried out in one job, at most."""

    per_attempt: Count = 2
    """Remedies of which one attempt is a subject, at most."""

    dry_run: bool = False
    """Only write into the journal what would be done."""

    notify: Notify | None = None
    """Who is told, and of what."""

    @property
    def secret_names(self) -> list[str]:
        """Environment variables whose values it needs."""
        return list(dict.fromkeys(self._named()))

    def _named(self) -> Iterator[str]:
        webhook = self.notify.webhook if self.notify is not None else None
        email = self.notify.email if self.notify is not None else None
        if webhook is not None:
            yield from [webhook.url_from] if webhook.url_from else []
            yield from webhook.headers_from.values()
        if email is not None:
            yield from (name for name in (email.user_from, email.password_from) if name)
