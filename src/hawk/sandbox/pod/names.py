"""How pods are named and labelled, who owns them, and by what a dead owner's are found again. No I/O but /proc."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hawk import __version__
from hawk.kube.names import APP, CREATED_BY, NAME, VERSION
from hawk.kube.names import COMPONENT as COMPONENT
from hawk.kube.names import EPOCH as EPOCH
from hawk.kube.names import JOB as JOB
from hawk.kube.names import SAMPLE_ID as SAMPLE_ID
from hawk.kube.names import SERVICE as SERVICE
from hawk.kube.names import TASK as TASK
from hawk.kube.names import fit as fit

SANDBOX = "sandbox"
SAMPLE, ATTEMPT = "hawk/sample", "hawk/attempt"
RUNNER, NETWORK, GROUP, WARM = "hawk/runner", "hawk/network", "hawk/group", "hawk/warm"
PROCESS = "hawk/runner-process"
"""Annotation: the process whose sandbox it is, as `host/pid/start`."""

ALL = f"{NAME}=hawk,{COMPONENT}={SANDBOX}"
"""Selects every sandbox of a namespace."""

_LABEL = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Owner:
    """Whose sandboxes this process makes.

    Attributes:
        job: Id of the job; empty outside one.
        runner: Token of this process.
        reference: The runner Job as an ownerReference: the cluster removes with it what it owns. None on a machine.
        process: `host/pid/start`.
    """

    job: str
    runner: str
    reference: dict[str, Any] | None
    process: str
    created_by: str = ""
    extra: dict[str, str] = field(default_factory=dict)

    def labels(self) -> dict[str, str]:
        """The labels of everything that belongs to a sandbox."""
        result = {
            **APP,
            COMPONENT: SANDBOX,
            VERSION: label(__version__),
            RUNNER: self.runner,
        }
        return result | ({JOB: label(self.job)} if self.job else {})

    def meta(self, name: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, Any]:
        """The metadata of an object."""
        notes = {PROCESS: self.process, **annotations}
        if self.created_by:
            notes[CREATED_BY] = self.created_by
        result: dict[str, Any] = {
            "name": name,
            "labels": {**labels, **self.labels()},
            "annotations": notes,
        }
        if self.reference is not None:
            result["ownerReferences"] = [self.reference]
        return result

    def name(self, *parts: str) -> str:
        """A name of an object, of its parts, with the job in front."""
        return fit("-".join(["hawk", self.job or "local", *parts]))


def this_owner(environ: Mapping[str, str] | None = None) -> Owner:
    """Of this process, by its environment: HAWK_JOB_ID, HAWK_KUBE_OWNER, HAWK_KUBE_OWNER_UID, HAWK_POD_NAME."""
    env = os.environ if environ is None else environ
    reference = None
    if text := env.get("HAWK_KUBE_OWNER"):
        reference = json.loads(text)
        reference["uid"] = env.get("HAWK_KUBE_OWNER_UID") or reference.get("uid", "")
        if not reference["uid"]:
            reference = None  # an owner without a uid would be refused
    host = env.get("HAWK_POD_NAME") or socket.gethostname()
    pid = os.getpid()
    return Owner(
        env.get("HAWK_JOB_ID", ""),
        secrets.token_hex(6),
        reference,
        f"{host}/{pid}/{started(pid) or 0}",
        env.get("HAWK_CREATED_BY", ""),
    )


def started(pid: int) -> int | None:
    """When a process of this machine began, in its own clock's ticks; None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return int(f.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def is_dead(process: str, host: str) -> bool | None:
    """Whether the process named by the annotation has ended; None when that can't be seen from here."""
    where, _, rest = process.partition("/")
    pid, _, start = rest.partition("/")
    if where != host or not pid.isdecimal() or not start.isdecimal():
        return None
    return started(int(pid)) != int(start)


def this_host(environ: Mapping[str, str] | None = None) -> str:
    """The host part of this process's annotation."""
    env = os.environ if environ is None else environ
    return env.get("HAWK_POD_NAME") or socket.gethostname()


def label(value: str) -> str:
    """A label's value made of any text."""
    clean = _LABEL.sub("-", value).strip("-_.")
    if clean == value and len(value) <= 63:
        return value
    tail = hashlib.sha256(value.encode()).hexdigest()[:8]
    return f"{clean[:54].strip('-_.')}-{tail}".lstrip("-")


def short_hash(text: str) -> str:
    """Ten characters that tell texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:10]
