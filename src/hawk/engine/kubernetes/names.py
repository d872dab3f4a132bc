"""Names, labels and selectors of what Hawk makes in a cluster. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from hawk import __version__

NAME, MANAGED_BY = "app.kubernetes.io/name", "app.kubernetes.io/managed-by"
COMPONENT, VERSION = "app.kubernetes.io/component", "app.kubernetes.io/version"
JOB, ROOT, GENERATION = "hawk/job", "hawk/root", "hawk/generation"
SERVICE = "hawk/service"
CREATED_BY, TASK, SAMPLE_ID, EPOCH = "hawk/created-by", "hawk/task", "hawk/sample-id", "hawk/epoch"

OURS = f"{NAME}=hawk,{JOB}"
"""Selects all that belongs to jobs: what others have in the namespace is never listed."""

_LONGEST = 63
_NO_LABEL = re.compile(r"[^A-Za-z0-9._-]+")


def root_mark(root: Path) -> str:
    """Tells servers with other run directories apart that share a namespace: kept in the root, made at the first use."""
    path = root / ".cluster-mark"
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        pass
    import secrets

    fresh = path.with_name(f".cluster-mark.{secrets.token_hex(4)}")
    fresh.write_text(secrets.token_hex(6), "ascii")
    try:
        path.hardlink_to(fresh)  # can't replace the mark of a server that was first
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    return path.read_text("ascii").strip()


def job_name(job_id: str, generation: int) -> str:
    """Of the Job; its pods' names add six characters."""
    return fitting(f"hawk-{job_id}-g{generation}", _LONGEST - 6)


def secret_name(job_id: str) -> str:
    return fitting(f"hawk-{job_id}")


def keys_name(job_id: str) -> str:
    """Of the Secret with provider keys, which the runner itself never mounts."""
    return fitting(f"hawk-{job_id}-keys")


def fitting(name: str, longest: int = _LONGEST) -> str:
    """The name, or where it is too long its beginning and a digest of it."""
    if len(name) <= longest:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: longest - 9].rstrip('-')}-{digest}"


def labels(job_id: str, component: str, **more: str) -> dict[str, str]:
    """What everything of a job bears."""
    return {
        NAME: "hawk",
        MANAGED_BY: "hawk",
        COMPONENT: component,
        VERSION: label(__version__),
        JOB: job_id,
        **more,
    }


def label(text: str) -> str:
    """Text as the value of a label, which holds fewer characters."""
    return _NO_LABEL.sub("-", text)[:_LONGEST].strip("-_.")


def of_job(job_id: str) -> str:
    """Selects all that belongs to one job."""
    return f"{NAME}=hawk,{JOB}={job_id}"


def annotation(meta: Mapping[str, object], name: str) -> str:
    """An annotation of an object's metadata; empty for none."""
    found = meta.get("annotations")
    value = found.get(name) if isinstance(found, dict) else None
    return value if isinstance(value, str) else ""
