"""What is known of each pod of this process, kept by one shared watch on pods and one on events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hawk.core.cluster import Event, Pod
from hawk.core.cluster_why import PodEnd, Stage, Why, ending, waits_for
from hawk.errors import ClusterError
from hawk.kube import parsing
from hawk.kube.problems import Reason, reason_of
from hawk.kube.watching import Watch
from hawk.sandbox.pod import names

if TYPE_CHECKING:
    from hawk.kube.api import Cluster

_EVENTS = 8  # of one pod, the newest


class Tracked:
    """One pod.

    Attributes:
        pod: As it is now, with the newest events about it; None until the watch has seen it.
        ending: We ask for its end ourselves: none is a loss.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.pod: Pod | None = None
        self.ending = False
        self.listeners: list[Callable[[], None]] = []
        self._events: list[Event] = []

    async def changed(self, seconds: float) -> bool:
        """Wait for news. Returns False when there were none for so long."""
        told = asyncio.get_running_loop().create_future()

        def listener() -> None:
            if not told.done():
                told.set_result(None)

        self.listeners.append(listener)
        try:
            async with asyncio.timeout(seconds):
                await told
        except TimeoutError:
            return False
        finally:
            self.listeners.remove(listener)
        return True

    @property
    def ready(self) -> bool:
        """It runs, and all its containers are ready."""
        return self.pod is not None and self.pod.ready

    def waits_for(self) -> Why:
        """What keeps it from being ready."""
        if self.pod is None:
            said = "the cluster has not said anything yet"
            return Why("Created", said, stage=Stage.SCHEDULING, wrong=False)
        return waits_for(self.pod)

    def ended(self, container: str | None = None) -> PodEnd | None:
        """How it, or one of its containers, came to its end; None while it lives."""
        return None if self.pod is None else ending(self.pod, container)

    def saw(self, pod: Pod) -> None:
        """Take what the watch says."""
        self.pod = parsing.later(self.pod, pod)
        self.pod.events = self._events
        self.tell()

    def heard(self, event: Event) -> None:
        """Take an event about it."""
        self._events = [*self._events[1 - _EVENTS :], event]
        if self.pod is not None:
            self.pod.events = self._events
        self.tell()

    def tell(self) -> None:
        """Wake whoever waits for news."""
        for listener in tuple(self.listeners):
            listener()


class Tracking:
    """All pods of one process.

    Attributes:
        pods: By name.
    """

    def __init__(self, cluster: Cluster, runner: str) -> None:
        self.pods: dict[str, Tracked] = {}
        self._pods = Watch(
            cluster, "Pod", labels=f"{names.RUNNER}={runner}", keep=_kept, on_change=self._pod_changed
        )
        self._events = Watch(
            cluster, "Event", fields="involvedObject.kind=Pod", history=False, keep=self._event_came
        )
        self._started: list[Watch] = []

    async def start(self) -> None:
        """Begin to watch.

        Raises:
            ClusterError: Pods can't be watched.
        """
        self._started.append(await self._pods.start())
        try:
            self._started.append(await self._events.start())
        except ClusterError as ex:
            if reason_of(ex) != Reason.FORBIDDEN:  # without events less is said of why something waits
                raise

    async def close(self) -> None:
        """End it."""
        for watch in self._started:
            await watch.close()

    async def emptied(self, seconds: float) -> None:
        """Wait until the cluster has none of this process's pods any more, no longer than so many seconds."""
        until = asyncio.get_running_loop().time() + seconds
        while self._pods.objects and (left := until - asyncio.get_running_loop().time()) > 0:
            await self._pods.change(left)

    @property
    def problem(self) -> str | None:
        """Why nothing new is known of pods."""
        return None if self._pods.problem is None else self._pods.problem.message

    def track(self, name: str) -> Tracked:
        """Begin with a pod, before it is created."""
        return self.pods.setdefault(name, Tracked(name))

    def forget(self, name: str) -> None:
        """End with it."""
        self.pods.pop(name, None)

    def _pod_changed(self, change: str, item: dict[str, Any]) -> None:
        pod: Pod = item["seen"]
        tracked = self.pods.get(pod.name)
        if tracked is not None:
            if change == "DELETED":
                pod.removed = datetime.now(UTC).isoformat(timespec="seconds")
            tracked.saw(pod)

    def _event_came(self, item: dict[str, Any]) -> None:
        """Take an event of one of ours; none is kept by the watch itself."""
        _, name, _ = parsing.concerns(item)
        tracked = self.pods.get(name)
        if tracked is not None:
            tracked.heard(parsing.event(item))


def _kept(item: dict[str, Any]) -> dict[str, Any]:
    return parsing.kept(item, parsing.pod)
