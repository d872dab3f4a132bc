"""Names, labels and selectors of what Hawk makes in a cluster. Pure."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from hawk import __version__
from hawk.config.once import write_once
from hawk.kube.names import APP as APP
from hawk.kube.names import COMPONENT as COMPONENT
from hawk.kube.names import CREATED_BY as CREATED_BY
from hawk.kube.names import JOB as JOB
from hawk.kube.names import LONGEST, NAME, VERSION, fit
from hawk.kube.names import SERVICE as SERVICE

ROOT, GENERATION = "hawk/root", "hawk/generation"

OURS = f"{NAME}=hawk,{JOB}"
"""Selects all that belongs to jobs: what others have in the namespace is never listed."""

_NO_LABEL = re.compile(r"[^A-Za-z0-9._-]+")


def root_mark(root: Path) -> str:
    """Tells servers with other run directories apart that share a namespace: kept in the root, made at the first use."""
    path = root / ".cluster-mark"
    write_once(path, secrets.token_hex(6).encode())
    return path.read_text("ascii").strip()


def job_name(job_id: str, generation: int) -> str:
    """Of the Job; its pods' names add six characters."""
    return fit(f"hawk-{job_id}-g{generation}", LONGEST - 6)


def secret_name(job_id: str) -> str:
    return fit(f"hawk-{job_id}")


def keys_name(job_id: str) -> str:
    """Of the Secret with provider keys, which the runner itself never mounts."""
    return fit(f"hawk-{job_id}-keys")


def labels(job_id: str, component: str, **more: str) -> dict[str, str]:
    """What everything of a job bears."""
    return {
        **APP,
        COMPONENT: component,
        VERSION: label(__version__),
        JOB: job_id,
        **more,
    }


def label(text: str) -> str:
    """Text as the value of a label, which holds fewer characters."""
    return _NO_LABEL.sub("-", text)[:LONGEST].strip("-_.")


def of_job(job_id: str) -> str:
    """Selects all that belongs to one job."""
    return f"{NAME}=hawk,{JOB}={job_id}"
