"""The fake cluster of `tests.kube.fake` with a Job controller, a garbage collector and a clock of its own, in a thread.

Runner pods do what `runner` says: an async function of the pod; running for good when it says nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from aiohttp import web

from hawk.kube.access import Access
from tests.kube.fake import Fake, Object, refuse

T = TypeVar("T")


class JobsFake(Fake):
    """Attributes: `skew`: seconds that its clock is ahead. `away`: it answers nobody. `retry`: seconds between tries. `removed`: is told."""

    def __init__(self) -> None:
        super().__init__()
        self.skew = 0.0
        self.away = False
        self.retry = 0.05
        self.removed: Callable[[str, Object], None] = lambda *_: None
        self.answers = self._answers
        self.refusals: list[Callable[[str, str], web.StreamResponse | None]] = []
        self._names = 0

    def _answers(self, method: str, path: str, request: web.Request) -> web.StreamResponse | None:
        if self.away:
            return refuse(503, "ServiceUnavailable", "the API is away", Retry_After="1")
        for refusal in self.refusals:
            answer = refusal(method, path)
            if answer is not None:
                return answer
        return None

    def now(self) -> str:
        return (datetime.now(UTC) + timedelta(seconds=self.skew)).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def put(self, change: str, kind: str, item: Object) -> None:
        meta = item["metadata"]
        if change == "ADDED":
            meta["creationTimestamp"] = self.now()
        meta["managedFields"] = [{"manager": "test", "time": self.now()}]
        await super().put(change, kind, item)
        if kind == "Job" and change != "DELETED" and not item["spec"].get("suspend") and "seen" not in item:
            item["seen"] = True
            task = asyncio.ensure_future(self._control(item))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def do_put(self, request: web.Request, kind: str, namespace: str, name: str) -> web.StreamResponse:
        item = await request.json()
        old = self.named(kind, name, namespace)
        if old is None:
            return refuse(404, "NotFound", f"{kind} {name} not found")
        if item["metadata"].get("resourceVersion") not in (None, old["metadata"]["resourceVersion"]):
            return refuse(409, "Conflict", "the object has been modified")
        item["metadata"] = {**old["metadata"], **item["metadata"]}
        await self.put("MODIFIED", kind, item)
        return web.json_response(item)

    async def remove(self, kind: str, item: Object) -> None:
        await super().remove(kind, item)
        self.removed(kind, item)
        uid = item["metadata"]["uid"]
        for other, items in list(self.objects.items()):
            for owned in list(items.values()):
                if any(o["uid"] == uid for o in owned["metadata"].get("ownerReferences") or ()):
                    await self.remove(other, owned)

    # --- the Job controller

    async def _control(self, job: Object) -> None:
        status = job["status"] = {"active": 0, "failed": 0, "succeeded": 0}
        tries = job["spec"]["backoffLimit"] + 1
        while self.there("Job", job):
            pod = await self.make_pod(job)
            status["active"] = 1
            await self.put("MODIFIED", "Job", job)
            while pod["status"]["phase"] not in ("Succeeded", "Failed") and self.there("Pod", pod):
                await asyncio.sleep(0.01)
            if not self.there("Job", job):
                return
            status["active"] = 0
            if pod["status"]["phase"] == "Succeeded":
                status["succeeded"] = 1
                return await self.end_job(job, "Complete", "CompletionsReached")
            disrupted = any(c["type"] == "DisruptionTarget" for c in pod["status"].get("conditions", ()))
            status["failed"] += 0 if disrupted else 1
            if exit_code(pod) == 64:
                return await self.end_job(job, "Failed", "PodFailurePolicy")
            if status["failed"] >= tries:
                return await self.end_job(job, "Failed", "BackoffLimitExceeded")
            await self.put("MODIFIED", "Job", job)
            await asyncio.sleep(self.retry)

    def there(self, kind: str, item: Object) -> bool:
        found = self.named(kind, item["metadata"]["name"])
        return found is not None and found["metadata"]["uid"] == item["metadata"]["uid"]

    async def make_pod(self, job: Object) -> Object:
        template = job["spec"]["template"]
        self._names += 1
        meta = {
            "name": f"{job['metadata']['name']}-{self._names:05}",
            "namespace": "test",
            "uid": f"uid-p{self._names}",
            "labels": dict(template["metadata"]["labels"]),
            "annotations": dict(template["metadata"].get("annotations") or {}),
            "ownerReferences": [
                {"kind": "Job", "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
            ],
        }
        pod = {"kind": "Pod", "metadata": meta, "spec": template["spec"], "status": {"phase": "Pending"}}
        await self.put("ADDED", "Pod", pod)
        task = asyncio.ensure_future((self.scenario or self.run_pod)(pod))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return pod

    async def end_job(self, job: Object, kind: str, reason: str) -> None:
        job["status"].setdefault("conditions", []).append({"type": kind, "status": "True", "reason": reason})
        await self.put("MODIFIED", "Job", job)

    async def add(self, kind: str, name: str, labels: dict[str, str], **more: Any) -> Object:
        """An object that somebody else makes."""
        self._names += 1
        meta = {
            "name": name,
            "namespace": "test",
            "uid": f"uid-x{self._names}",
            "labels": labels,
            **more.pop("meta", {}),
        }
        item: Object = {"kind": kind, "metadata": meta, "spec": {"containers": [{"name": "default"}]}, **more}
        item.setdefault("status", {"phase": "Running"})
        await self.put("ADDED", kind, item)
        return item


def exit_code(pod: Object) -> int | None:
    for container in pod["status"].get("containerStatuses") or ():
        ended = container["state"].get("terminated")
        if ended:
            return int(ended["exitCode"])
    return None


class Running:
    """The fake in a thread of its own, for code that blocks."""

    def __init__(self) -> None:
        self.fake = JobsFake()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._runner = self.do(self._start())
        self.access = Access(f"http://127.0.0.1:{self._runner.addresses[0][1]}", "test")

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def soon(self, work: Callable[[], Any]) -> None:
        self._loop.call_soon_threadsafe(work)

    async def _start(self) -> web.AppRunner:
        application = web.Application(client_max_size=1 << 26)
        application.router.add_route("*", "/{path:.*}", self.fake.handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner

    def close(self) -> None:
        async def end() -> None:
            self.fake.drop_watches()
            for task in list(self.fake._tasks):
                task.cancel()
            await self._runner.cleanup()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

        self.do(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@contextlib.contextmanager
def running() -> Iterator[Running]:
    cluster = Running()
    try:
        yield cluster
    finally:
        cluster.close()


def until(true: Callable[[], T], seconds: float = 60.0) -> T:
    """Wait until something is so; returns what it was. Fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)
    return found
