"""Every error a person can meet.

HawkError
├── UsageError                 wrong command line (exit 2)
│   └── ConfigError            the eval-set file is wrong; carries file, line and field
├── NotFoundError              unknown id (exit 2, HTTP 404)
├── ConflictError              the thing is in another state (HTTP 409)
├── AuthError                  no, wrong or expired token (HTTP 401)
│   └── PermissionDeniedError  a valid token that may not do this (HTTP 403)
├── SecretsNeededError         the job cannot go on without secrets that are nowhere stored
├── EnvironmentInstallError    a package of the eval set does not install
├── StorageError               a directory or database cannot be read or written
├── ServerUnavailableError     the server does not answer (HTTP 503)
├── ClusterError               the Kubernetes API refuses, or can't be reached (HTTP 502)
└── TransitionError            a state machine was asked for the impossible: a bug in Hawk

An error holds fields and renders itself: `message` says what happened and to which id, `remedy` what to
do next in one line. The same fields travel through the API's error envelope, so the CLI prints a server's
error exactly as it prints its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class HawkError(Exception):
    """Something a person can act on.

    Args:
        message: What happened, naming the id, file or value.
        remedy: What to do next, one line.
        **fields: Machine-readable details, kept in the API's envelope.
    """

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    title: ClassVar[str] = "Error"

    def __init__(self, message: str, *, remedy: str | None = None, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.fields = fields

    @property
    def code(self) -> str:
        """The stable machine name: the class name without `Error`, in snake case."""
        name = type(self).__name__.removesuffix("Error")
        return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")

    def envelope(self) -> dict[str, Any]:
        """The body of an error response: problem details (RFC 9457) plus `code`, `remedy` and `fields`."""
        return {
            "title": self.title,
            "status": self.http_status,
            "detail": self.message,
            "code": self.code,
            "remedy": self.remedy,
            "fields": self.fields,
        }

    def render(self) -> str:
        """The text for a terminal."""
        return self.message if self.remedy is None else f"{self.message}\n  → {self.remedy}"

    def __str__(self) -> str:
        return self.message


class UsageError(HawkError):
    """The command line or request is wrong."""

    exit_code = 2
    http_status = 400
    title = "Bad request"


class ConfigError(UsageError):
    """The eval-set file is wrong.

    Fields: `problems`, a list of `{file, line, field, message, found, allowed, suggestion}`.
    """

    http_status = 422
    title = "Invalid eval set"


class NotFoundError(HawkError):
    """No such job, sample, file or page."""

    exit_code = 2
    http_status = 404
    title = "Not found"


class ConflictError(HawkError):
    """The thing exists, in a state that does not allow this."""

    http_status = 409
    title = "Conflict"


class AuthError(HawkError):
    """No token, or one that is not valid."""

    http_status = 401
    title = "Unauthorized"


class PermissionDeniedError(AuthError):
    """A valid token that may not do this."""

    http_status = 403
    title = "Forbidden"


class SecretsNeededError(HawkError):
    """The job needs secrets again: they travel by pipe and are never stored. Field: `names`."""

    http_status = 409
    title = "Secrets needed"


class EnvironmentInstallError(HawkError):
    """A package of the eval set does not install. Fields: `packages`, `output` (the installer's last lines)."""

    http_status = 422
    title = "Package installation failed"


class StorageError(HawkError):
    """A directory, file or database cannot be read or written. Field: `path`."""

    http_status = 507
    title = "Storage"


class ServerUnavailableError(HawkError):
    """The server does not answer. Field: `url`."""

    http_status = 503
    title = "Server unavailable"


class ClusterError(HawkError):
    """The Kubernetes API refuses, or can't be reached.

    Fields: `status` (HTTP, 0 without an answer), `reason` (one of `hawk.kube.problems.Reason`).
    """

    http_status = 502
    title = "Kubernetes"


class TransitionError(HawkError):
    """A state machine was asked for an impossible transition. Field: `story`, what led there."""

    title = "Impossible transition"


_CLASSES: dict[str, type[HawkError]] = {}


def _register(cls: type[HawkError]) -> None:
    _CLASSES[cls("").code] = cls
    for child in cls.__subclasses__():
        _register(child)


_register(HawkError)


def from_envelope(body: Mapping[str, Any], status: int) -> HawkError:
    """Rebuild the error that a server sent, so that exit code and text are the same on both sides.

    Args:
        body: The decoded envelope; anything else becomes a plain error that names the HTTP status.
        status: The HTTP status of the response.
    """
    cls = _CLASSES.get(str(body.get("code")), HawkError)
    if cls is HawkError and status == 404:
        cls = NotFoundError
    elif cls is HawkError and status in (401, 403):
        cls = AuthError
    detail = body.get("detail")
    message = detail if isinstance(detail, str) else f"The server answered {status}."
    fields = body.get("fields")
    return cls(message, remedy=body.get("remedy"), **(fields if isinstance(fields, dict) else {}))
