"""Which of several servers acts on jobs: the one that holds a Lease. The others only serve.

The holder's own times are never compared with this machine's clock: a lease has run out when it was not seen to change
for as long as it is said to last.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
import socket
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psutil

from hawk.core.text import parse_time
from hawk.engine.kubernetes import names
from hawk.errors import ClusterError

if TYPE_CHECKING:
    from hawk.kube.api import Cluster

LASTS = 15
"""Seconds after which the lease of a holder that is gone is taken over."""

EVERY = 4.0
"""Seconds between renewals."""

SURE = 10.0
"""Seconds after the last renewal for which the holder is sure that nobody else acts: less than `LASTS`."""

_log = logging.getLogger(__name__)


class Leadership:
    """One server's part in it.

    Args:
        name: Of the Lease: servers that share it are rivals.
        home: Of this server; on one machine only one server runs for it.

    Attributes:
        skew: Seconds that the API server's clock is ahead of ours, as of its last answer.
    """

    def __init__(self, cluster: Cluster, name: str, home: str) -> None:
        self._cluster, self._name = cluster, name
        mark = hashlib.sha256(home.encode()).hexdigest()[:6]
        self._place = f"{socket.gethostname()[:40]}_{mark}"
        self.identity = f"{self._place}_{os.getpid()}_{secrets.token_hex(3)}"
        self.skew = 0.0
        self._renewed: float | None = None
        self._seen: tuple[str, float] = ("", 0.0)
        self._alone = False
        self._told = ""

    @property
    def leading(self) -> bool:
        """Whether this server is the one to act."""
        return self._alone or (self._renewed is not None and time.monotonic() - self._renewed < SURE)

    async def run(self) -> None:
        """Hold it whenever nobody else does, until cancelled."""
        while True:
            try:
                await self.step()
                self._told = ""
            except ClusterError as ex:
                self._refused(ex)
            await asyncio.sleep(EVERY)

    async def step(self) -> None:
        """Renew it, or take it when it is free.

        Raises:
            ClusterError: The cluster does not let us, or can't be asked.
        """
        began, local = time.monotonic(), datetime.now(UTC)
        lease = await self._cluster.get("Lease", self._name, patience=EVERY)
        if lease is None:
            made = await self._cluster.create(self._document(None), exist_ok=True, patience=EVERY)
            self._learn(made, local)
            if _holder(made) == self.identity:
                self._renewed = began
            return
        holder = _holder(lease)
        if holder not in ("", self.identity) and not self._run_out(lease) and not self._dead(holder):
            self._renewed = None
            return
        try:
            kept = await self._cluster.replace(self._document(lease), patience=EVERY)
        except ClusterError as ex:
            if ex.fields.get("status") == 409:  # another was quicker
                self._renewed = None
                return
            raise
        self._learn(kept, local)
        self._renewed = began

    async def release(self) -> None:
        """Let the next server act at once."""
        if self._renewed is None:
            return
        self._renewed = None
        with contextlib.suppress(ClusterError):
            lease = await self._cluster.get("Lease", self._name, patience=2)
            if lease is not None and _holder(lease) == self.identity:
                freed = self._document(lease)
                freed["spec"]["holderIdentity"] = ""
                await self._cluster.replace(freed, patience=2)

    def _run_out(self, lease: dict[str, Any]) -> bool:
        version = str(lease["metadata"].get("resourceVersion"))
        if version != self._seen[0]:
            self._seen = version, time.monotonic()
            return False
        lasts = float((lease.get("spec") or {}).get("leaseDurationSeconds") or LASTS)
        return time.monotonic() - self._seen[1] > lasts

    def _dead(self, holder: str) -> bool:
        """Whether it was a server of this very place that has ended without a word."""
        place, _, rest = holder.rpartition("_")[0].rpartition("_")
        if place != self._place or not rest.isdigit():
            return False
        return int(rest) == os.getpid() or not psutil.pid_exists(int(rest))

    def _refused(self, ex: ClusterError) -> None:
        if ex.fields.get("status") == 403 and not self._alone:
            _log.warning("no lease can be kept (%s): this server acts as if it were alone", ex.message)
            self._alone = True
        elif not self._alone and self._told != (reason := str(ex.fields.get("reason"))):
            _log.warning(
                "the lease can't be renewed, and nothing is done for jobs without it: %s", ex.message
            )
            self._told = reason

    def _document(self, old: dict[str, Any] | None) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = (old or {}).get("spec") or {}
        mine = before.get("holderIdentity") == self.identity
        spec = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": LASTS,
            "renewTime": now,
            "acquireTime": before.get("acquireTime") if mine else now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (0 if mine or old is None else 1),
        }
        meta: dict[str, Any] = {
            "name": self._name,
            "labels": {**names.APP, names.COMPONENT: "server"},
        }
        if old is not None:
            meta["resourceVersion"] = old["metadata"].get("resourceVersion")
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}

    def _learn(self, lease: dict[str, Any], local: datetime) -> None:
        """The API server notes when it took a change: to the second."""
        meta = lease["metadata"]
        times = [
            parse_time(field.get("time"))
            for field in meta.get("managedFields") or ()
            if isinstance(field, dict)
        ]
        at = max((t for t in times if t is not None), default=None) or parse_time(
            meta.get("creationTimestamp")
        )
        if at is None:
            return
        skew = (at - local).total_seconds()
        self.skew = 0.0 if -1.5 < skew < 1.0 else round(skew, 1)


def _holder(lease: dict[str, Any]) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")
