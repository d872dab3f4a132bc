"""What every object of Hawk's in a cluster bears, and names that Kubernetes takes. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

NAME, MANAGED_BY = "app.kubernetes.io/name", "app.kubernetes.io/managed-by"
COMPONENT, VERSION = "app.kubernetes.io/component", "app.kubernetes.io/version"
APP = {NAME: "hawk", MANAGED_BY: "hawk"}
JOB, SERVICE = "hawk/job", "hawk/service"
CREATED_BY = "hawk/created-by"

TASK, SAMPLE_ID, EPOCH = "hawk/task", "hawk/sample-id", "hawk/epoch"
"""Annotations: which attempt a pod is of."""

LONGEST = 63
"""Characters of a name or a label's value."""


def fit(name: str, longest: int = LONGEST) -> str:
    """A name that Kubernetes takes: small letters, digits and `-`; what is cut or replaced is told apart by a digest."""
    clean = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-") or "x"
    if len(clean) <= longest and clean == name:
        return clean
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{clean[: longest - 9].rstrip('-')}-{digest}"


def annotation(meta: Mapping[str, object], name: str) -> str:
    """An annotation of an object's metadata; empty for none."""
    found = meta.get("annotations")
    value = found.get(name) if isinstance(found, dict) else None
    return value if isinstance(value, str) else ""
