"""What is known of each pod of this process, kept by one shared watch on pods and one on events."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hawk.core.text import one_line
from hawk.errors import ClusterError
from hawk.kube import why
from hawk.kube.problems import Reason, reason_of
from hawk.sandbox.pod import names

if TYPE_CHECKING:
    from hawk.kube.api import Cluster
    from hawk.kube.watching import Watch

_EVENTS = 8  # of one pod, the newest


class Tracked:
    """One pod.

    Attributes:
        pod: As it is now; None until the watch has seen it.
        events: The newest events about it.
        gone: The cluster has it no more.
        ending: We ask for its end ourselves: none is a loss.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.pod: dict[str, Any] | None = None
        self.events: deque[dict[str, Any]] = deque(maxlen=_EVENTS)
        self.gone = self.ending = False
        self.listeners: list[Callable[[], None]] = []

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

    def waits_for(self) -> why.Why:
        """What keeps it from being ready."""
        if self.pod is None:
            return why.Why(why.Stage.SCHEDULING, "Created", "the cluster has not said anything yet")
        return why.waiting(self.pod, self.events)

    def ended(self, container: str | None = None) -> why.Why | None:
        """Why it, or one of its containers, is over; None while it lives."""
        if self.pod is not None and (over := why.ended(self.pod, main=container)) is not None:
            return over
        return (
            why.Why(why.Stage.ENDED, "Deleted", "somebody deleted the pod", wrong=True) if self.gone else None
        )

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
        self._pods = cluster.watch(
            "Pod", labels=f"{names.RUNNER}={runner}", keep=_slim_pod, on_change=self._pod_changed
        )
        self._events = cluster.watch(
            "Event", fields="involvedObject.kind=Pod", history=False, keep=self._event_came
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

    def _pod_changed(self, change: str, pod: dict[str, Any]) -> None:
        tracked = self.pods.get(pod["metadata"]["name"])
        if tracked is not None:
            tracked.pod = pod
            tracked.gone = change == "DELETED"
            tracked.tell()

    def _event_came(self, event: dict[str, Any]) -> None:
        """Take an event of one of ours; none is kept by the watch itself."""
        tracked = self.pods.get(str((event.get("involvedObject") or {}).get("name", "")))
        if tracked is not None:
            said = {key: event.get(key) for key in ("reason", "type", "lastTimestamp", "eventTime", "count")}
            tracked.events.append({**said, "message": one_line(str(event.get("message", "")), why.LONGEST)})
            tracked.tell()


def _slim_pod(pod: dict[str, Any]) -> dict[str, Any]:
    meta = pod["metadata"]
    kept = {key: meta[key] for key in ("name", "uid", "resourceVersion", "deletionTimestamp") if key in meta}
    status = pod.get("status") or {}
    with contextlib.suppress(KeyError):
        del status["qosClass"]
    return {"metadata": kept, "spec": {"nodeName": (pod.get("spec") or {}).get("nodeName")}, "status": status}
