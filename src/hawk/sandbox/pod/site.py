"""The cluster as one event loop of a worker has it: a connection, one watch, network policies, pods kept warm."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from hawk.config.cluster import load_cluster_settings
from hawk.errors import ClusterError
from hawk.sandbox.holding import Holders
from hawk.sandbox.pod import names, network
from hawk.sandbox.pod.guard import Guard
from hawk.sandbox.pod.manifest import Defaults
from hawk.sandbox.pod.network import Resolved
from hawk.sandbox.pod.options import Network, PodConfig
from hawk.sandbox.pod.tracking import Tracking

if TYPE_CHECKING:
    from hawk.kube.api import Cluster
    from hawk.sandbox.pod.warm import WarmPool

_log = logging.getLogger(__name__)
_EMPTYING = 15.0  # seconds
_DELETING = 120.0  # seconds for which a deletion is tried again


class Site:
    """What all sandboxes of one loop share. Made by `current`.

    Attributes:
        owner: Whose they are.
        tracking: What is known of its pods.
    """

    def __init__(self, cluster: Cluster, owner: names.Owner, defaults: Defaults) -> None:
        self.cluster, self.owner, self.defaults = cluster, owner, defaults
        self.tracking = Tracking(cluster, owner.runner)
        self.pools: dict[PodConfig, WarmPool] = {}
        self._networks: dict[Network, asyncio.Task[tuple[str, Resolved]]] = {}
        self._policies: list[str] = []
        self._later: set[asyncio.Task[None]] = set()
        self._guard: Guard | None = None

    async def start(self) -> None:
        """Begin to watch, and remove what dead processes of the same job left.

        Raises:
            ClusterError: The cluster can't be reached, or pods may not be watched.
        """
        await self.tracking.start()
        if self.owner.reference is None and connecting is None:
            self._guard = await asyncio.to_thread(Guard, self.owner, self.cluster.namespace)
        if self.owner.job:
            from hawk.sandbox.pod.sweep import sweep_dead

            self.later(sweep_dead(self.cluster, job=self.owner.job))

    async def network(self, wanted: Network) -> tuple[str, Resolved]:
        """The label's value for a network and its addresses; its policy is in force then, made once.

        Raises:
            SandboxError: A domain is not known.
            ClusterError: The policy can't be made.
        """
        task = self._networks.get(wanted)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = asyncio.ensure_future(self._make_network(wanted))
            self._networks[wanted] = task
        return await asyncio.shield(task)

    async def _make_network(self, wanted: Network) -> tuple[str, Resolved]:
        resolved = await network.resolve(wanted)
        key = network.key_of(wanted, resolved)
        manifest = network.policy(wanted, resolved, self.owner, key)
        if manifest is not None:
            await self.cluster.create(manifest, exist_ok=True)
            self._policies.append(manifest["metadata"]["name"])
        return key, resolved

    def later(self, work: Awaitable[Any]) -> None:
        """Do something nobody waits for; what the cluster refuses is logged."""

        async def run() -> None:
            try:
                await work
            except ClusterError as ex:
                _log.warning("%s", ex.message)

        task = asyncio.ensure_future(run())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def delete(self, kind: str, name: str) -> None:
        """Delete an object of ours, tried again for two minutes; what stays then is left to the sweep."""
        try:
            await self.cluster.delete(kind, name, patience=_DELETING)
        except ClusterError as ex:
            _log.warning("%s", ex.message)

    async def close(self) -> None:
        """End it: pods kept warm, policies, watch, connection."""
        for pool in self.pools.values():
            await pool.close()
        if self._policies and self.owner.reference is None:  # otherwise they go with their owner
            await self.tracking.emptied(
                _EMPTYING
            )  # a pod that is still ending must not reach more than before
            await asyncio.gather(*(self.delete("NetworkPolicy", name) for name in self._policies))
        if self._later:
            await asyncio.wait(self._later, timeout=10)
        for task in (*self._later, *self._networks.values()):
            task.cancel()
        await self.tracking.close()
        await self.cluster.close()
        if self._guard is not None:
            self._guard.release()


_sites: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Site]] = weakref.WeakKeyDictionary()

connecting: Callable[[], Awaitable[Cluster]] | None = None
"""Where the connection comes from, in tests; the environment says it otherwise."""


async def current() -> Site:
    """The site of the running loop, made at need.

    Raises:
        ClusterError: There is no usable configuration, or the cluster can't be reached.
    """
    loop = asyncio.get_running_loop()
    task = _sites.get(loop)
    if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
        task = loop.create_task(_make())
        _sites[loop] = task
    return await asyncio.shield(task)


async def _make() -> Site:
    if connecting is None:
        from hawk.kube.api import connect

        cluster = await connect()
    else:
        cluster = await connecting()
    settings = load_cluster_settings()
    defaults = Defaults(
        settings.image,
        settings.pull_policy,
        settings.pull_secrets,
        settings.runtime_class,
        os.environ.get("HAWK_KUBE_CLUSTER_DOMAIN") or "cluster.local",
    )
    site = Site(cluster, names.this_owner(), defaults)
    try:
        await site.start()
    except BaseException:
        await site.tracking.close()
        await cluster.close()
        raise
    return site


async def close() -> None:
    """End the site of the running loop, if there is one."""
    task = _sites.pop(asyncio.get_running_loop(), None)
    if task is None:
        return
    if not task.done():
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError, ClusterError):
        await (await task).close()


_holders = Holders(close)
hold, release = _holders.hold, _holders.release
