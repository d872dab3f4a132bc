"""What the API answers when it refuses, as an error that a person can act on. Pure."""

from __future__ import annotations

import enum
import re
from typing import Any

from hawk.core.text import one_line
from hawk.errors import ClusterError

LONGEST = 600
"""Characters of the API's own words that are kept."""

_TLS = re.compile(r" ssl:(?:<[^>]*>|\S+)")
"""In what aiohttp says of a connection: nothing for a person."""


class Reason(enum.StrEnum):
    """Why the API did not do it: the field `reason` of a `ClusterError`."""

    NOT_INSTALLED = "not-installed"
    NO_CONFIG = "no-config"
    UNREACHABLE = "unreachable"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    QUOTA = "quota"
    TERMINATING = "terminating"
    NOT_FOUND = "not-found"
    EXISTS = "exists"
    CONFLICT = "conflict"
    INVALID = "invalid"
    GONE = "gone"
    BUSY = "busy"
    EXEC = "exec"
    OTHER = "other"


REMEDIES = {
    Reason.NOT_INSTALLED: "Install it: pip install 'hawk-evals[kubernetes]'.",
    Reason.NO_CONFIG: "Set KUBECONFIG to a kubeconfig file, or HAWK_KUBE_CONTEXT to one of its contexts.",
    Reason.UNREACHABLE: "See whether `kubectl version` answers from here; the address is that of your kubeconfig.",
    Reason.UNAUTHORIZED: "Sign in to the cluster again, as you do for kubectl: the token is missing or has expired.",
    Reason.FORBIDDEN: "Ask whoever runs the namespace for that permission; `hawk server deploy --check` lists all.",
    Reason.QUOTA: "Wait until something ends, ask for less, or have the namespace's ResourceQuota raised.",
    Reason.TERMINATING: "The namespace is being deleted: choose another with HAWK_KUBE_NAMESPACE.",
    Reason.BUSY: "The cluster's API is overloaded or restarting; try again in a minute.",
}
"""What to do next, where there is one answer."""

RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses after which the same request may work."""


def error(
    reason: Reason, message: str, *, status: int = 0, remedy: str | None = None, **fields: Any
) -> ClusterError:
    """An error with its remedy; without one, with that which belongs to its reason."""
    text = one_line(message, LONGEST)
    return ClusterError(
        text, remedy=remedy or REMEDIES.get(reason), status=status, reason=str(reason), **fields
    )


def reason_of(ex: BaseException) -> str:
    """The reason of a `ClusterError`; empty for any other."""
    return str(ex.fields.get("reason", "")) if isinstance(ex, ClusterError) else ""


def refusal(status: int, body: Any, *, what: str) -> ClusterError:
    """The error for an answer other than success.

    Args:
        body: The decoded `Status` object, or whatever came instead.
        what: What was asked, in words: `create Pod hawk-abc in namespace evals`.
    """
    said = body if isinstance(body, dict) else {}
    theirs = str(said.get("message") or (body if isinstance(body, str) else "") or f"HTTP {status}")
    details = said.get("details") or {}
    return error(
        _reason(status, str(said.get("reason", "")), theirs, details),
        f"The cluster refused to {what}: {theirs}",
        status=status,
        remedy=_without_namespace(details) if status == 404 else None,
        said=one_line(theirs, LONGEST),
    )


def _without_namespace(details: dict[str, Any]) -> str | None:
    """The remedy where it is the namespace that was not found."""
    name = details.get("name")
    if details.get("kind") != "namespaces" or not name:
        return None
    return f"Make it (kubectl create namespace {name} && kubectl apply -n {name} -k deploy/engine), or set HAWK_KUBE_NAMESPACE."


def _reason(status: int, theirs: str, message: str, details: dict[str, Any]) -> Reason:
    causes = {cause.get("reason") for cause in details.get("causes") or () if isinstance(cause, dict)}
    if "NamespaceTerminating" in causes or "because it is being terminated" in message:
        return Reason.TERMINATING
    if status == 403 and "exceeded quota" in message:
        return Reason.QUOTA
    if status == 409:
        return Reason.EXISTS if theirs == "AlreadyExists" else Reason.CONFLICT
    if status in RETRIED:
        return Reason.BUSY
    by_status = {
        400: Reason.INVALID,
        401: Reason.UNAUTHORIZED,
        403: Reason.FORBIDDEN,
        404: Reason.NOT_FOUND,
        410: Reason.GONE,
        422: Reason.INVALID,
    }
    return by_status.get(status, Reason.OTHER)


def may_pass(status: int, body: Any) -> bool:
    """Whether the same request may work when it is sent again."""
    if status == 409 and isinstance(body, dict):  # two creations counted against one quota at the same moment
        return "resourcequotas" in str(body.get("message", "")) and body.get("reason") == "Conflict"
    return status in RETRIED


def words_of(ex: BaseException) -> str:
    """Why a connection failed, for a person."""
    said = _TLS.sub("", str(ex))
    return said or ("no answer in time" if isinstance(ex, TimeoutError) else type(ex).__name__)
