"""One watch, shared: a store in memory that follows what the cluster says of a kind.

It lists, then watches from there. Whatever ends the stream (its own time-out, a lost connection, 410 because the
version is too old, an API that is away) it goes on by itself, with growing pauses; `problem` says what is wrong now,
and `fresh_at` until when the store is known to be right. Nobody else needs to list.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from hawk.errors import ClusterError
from hawk.kube.kinds import path_of
from hawk.kube.problems import Reason, error, reason_of, refusal, words_of
from hawk.kube.requests import PATIENCE

if TYPE_CHECKING:
    from hawk.kube.api import Cluster
    from hawk.kube.objects import Object

_LIFE = 290  # seconds of one watch, then the next goes on where it ended
_SILENCE = 330.0  # longer than that nothing is silent that lives
_LONGEST_PAUSE = 15.0


class Watch:
    """The objects of a kind that match, by uid.

    Attributes:
        objects: As they are now; what `keep` made of them.
        fresh_at: Wall-clock time of the last word from the cluster; None before the first.
        problem: Why the store may be out of date; None while the stream runs.
        ended: Objects that went away since they were last asked for, by uid: their last state.
    """

    def __init__(
        self,
        cluster: Cluster,
        kind: str,
        *,
        labels: str = "",
        fields: str = "",
        namespace: str | None = None,
        history: bool = True,
        keep: Callable[[Object], Object | None] | None = None,
        on_change: Callable[[str, Object], None] | None = None,
    ) -> None:
        """Prepare it.

        Args:
            history: False: only what happens from now on (events, say), so that the first list need not be read.
            keep: Makes an object smaller before it is kept; None drops it.
            on_change: Told `ADDED`, `MODIFIED` or `DELETED` and the object. Called in the loop; must be quick.
        """
        self.cluster, self.kind = cluster, kind
        self.objects: dict[str, Object] = {}
        self.fresh_at: float | None = None
        self.problem: ClusterError | None = None
        self._labels, self._fields, self._namespace = labels, fields, namespace
        self._history = history
        self._keep = keep or _without_managed_fields
        self._tell: list[Callable[[str, Object], None]] = [on_change] if on_change else []
        self._version = ""
        self._task: asyncio.Task[None] | None = None
        self._first = asyncio.Event()
        self._changed: set[asyncio.Future[None]] = set()

    async def start(self, patience: float = PATIENCE) -> Watch:
        """Begin, and return when the store is filled.

        Raises:
            ClusterError: The first list did not work within `patience` seconds.
        """
        if self._task is None:
            await self._list(patience)
            self._task = asyncio.get_running_loop().create_task(self._follow(), name=f"watch {self.kind}")
        return self

    async def close(self) -> None:
        """End it; whoever waits in `until` is told by TimeoutError at its own deadline."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def listen(self, on_change: Callable[[str, Object], None]) -> Callable[[], None]:
        """Have one more listener told of changes. Returns what ends it."""
        self._tell.append(on_change)
        return lambda: self._tell.remove(on_change)

    async def change(self, timeout: float) -> bool:  # noqa: ASYNC109  # returns, does not raise
        """Wait for any change of the store or of `problem`. Returns False when `timeout` seconds passed without."""
        waiting = asyncio.get_running_loop().create_future()
        self._changed.add(waiting)
        try:
            await asyncio.wait_for(waiting, timeout)
        except TimeoutError:
            return False
        finally:
            self._changed.discard(waiting)
        return True

    def named(self, name: str) -> Object | None:
        """The object of that name."""
        return next((item for item in self.objects.values() if item["metadata"]["name"] == name), None)

    # --- following

    async def _follow(self) -> None:
        failures = 0
        while True:
            try:
                if not self._version:
                    await self._list(PATIENCE)
                began = time.monotonic()
                await self._stream()
                failures = 0 if time.monotonic() - began > 1 else failures + 1
            except ClusterError as ex:
                failures += 1
                if reason_of(ex) == Reason.GONE:
                    self._version = ""  # too old: list again
                    failures = min(failures, 1)
                self._trouble(ex)
            except (aiohttp.ClientError, TimeoutError, OSError) as ex:
                failures += 1
                said = words_of(ex)
                if failures > 1:  # one lost connection is no news
                    self._trouble(
                        error(Reason.UNREACHABLE, f"The watch of {self.kind}s was lost: {said}", said=said)
                    )
            if failures:
                pause = min(0.2 * 2 ** min(failures - 1, 8), _LONGEST_PAUSE)
                await asyncio.sleep(pause * random.uniform(0.7, 1.3))  # noqa: S311  # no secret

    async def _list(self, patience: float) -> None:
        try:
            items, version = await self.cluster.list(
                self.kind,
                labels=self._labels,
                fields=self._fields,
                namespace=self._namespace,
                patience=patience,
                limit=None if self._history else 1,
            )
        except ClusterError as ex:
            self._trouble(ex)
            raise
        self._version = version
        if self._history:
            self._replace(items)
        self._fresh()
        self._wake()

    def _replace(self, items: list[Object]) -> None:
        """Take a whole list, and tell what is different."""
        before, self.objects = self.objects, {}
        for item in items:
            old = before.pop(item["metadata"]["uid"], None)
            if old is None:
                self._take("ADDED", item)
            elif old["metadata"].get("resourceVersion") != item["metadata"].get("resourceVersion"):
                self._take("MODIFIED", item)
            else:
                self.objects[item["metadata"]["uid"]] = old
        for gone in before.values():
            self._told("DELETED", gone)

    async def _stream(self) -> None:
        query = {
            "watch": "true",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_LIFE),
        }
        query |= {"labelSelector": self._labels} if self._labels else {}
        query |= {"fieldSelector": self._fields} if self._fields else {}
        path = path_of(self.kind, self._namespace or self.cluster.namespace)
        what = f"watch {self.kind}s"
        async with self.cluster.requests.lines(path, query, what=what, silence=_SILENCE) as lines:
            self._fresh()
            async for line in lines:
                if line:
                    self._event(line, what)

    def _event(self, line: bytes, what: str) -> None:
        try:
            event = msgspec.json.decode(line)
        except msgspec.DecodeError as ex:  # torn by a proxy, say: go on from the last whole one
            raise aiohttp.ClientPayloadError("a torn line") from ex
        kind, item = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            status = int(item.get("code") or 500)
            if status == 410 or item.get("reason") in ("Expired", "Gone"):
                self._version = ""
                status = 410
            raise refusal(status, item, what=what)
        self._version = (item.get("metadata") or {}).get("resourceVersion") or self._version
        self._fresh()
        if kind != "BOOKMARK":
            item.setdefault("kind", self.kind)
            self._take(str(kind), item)
            self._wake()

    def _take(self, change: str, item: Object) -> None:
        uid = item["metadata"]["uid"]
        kept = self._keep(item)
        if change == "DELETED":
            self.objects.pop(uid, None)
            if kept is not None:
                self._told(change, kept)
        elif kept is not None:
            self.objects[uid] = kept
            self._told(change, kept)

    def _told(self, change: str, item: Object) -> None:
        for tell in tuple(self._tell):
            tell(change, item)

    def _fresh(self) -> None:
        self.fresh_at = time.time()
        if self.problem is not None:
            self.problem = None
            self._wake()

    def _trouble(self, problem: ClusterError) -> None:
        self.problem = problem
        self._wake()

    def _wake(self) -> None:
        for waiting in self._changed:
            if not waiting.done():
                waiting.set_result(None)


def _without_managed_fields(item: Any) -> Any:
    item["metadata"].pop("managedFields", None)
    return item
