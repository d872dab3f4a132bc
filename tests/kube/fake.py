"""A cluster in this process: objects, watches, events, and commands that really run, as processes of this machine.

Pods go from pending to running by themselves, in the order of a real kubelet; a test changes what becomes of them by
`scenario`, and what the API answers by `answers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import parse_qs

from aiohttp import WSMsgType, web

from hawk.kube.access import Access
from hawk.kube.api import Cluster
from hawk.kube.kinds import KINDS

Object = dict[str, Any]
PLURALS = {kind.plural: name for name, kind in KINDS.items()}
V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"


class Fake:
    """State and knobs.

    Attributes:
        scenario: What becomes of a new pod: an async function of the pod; running at once when None.
        before: Awaited before each request is looked at.
        answers: Asked first for each request (method, path); a response wins over the usual answer.
        protocols: What a command's stream may speak.
        hang: Commands with one of these words in them never end their stream.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[tuple[str, str], Object]] = {}
        self.log: list[Object] = []  # every change: {type, object, kind, version}
        self.version = 0
        self.oldest = 0
        self.asked: list[tuple[str, str]] = []
        self.scenario: Callable[[Object], Any] | None = None
        self.answers: Callable[[str, str, web.Request], web.StreamResponse | None] = lambda *_: None
        self.before: Callable[[web.Request], Any] | None = None
        self.protocols = (V5, V4)
        self.hang: set[str] = set()
        self.tokens: set[str] = set()
        self.running: dict[str, set[asyncio.subprocess.Process]] = {}
        self.watches: set[asyncio.Task[Any]] = set()
        self._news = asyncio.Condition()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._uids = itertools.count(1)
        self.url = ""
        self.home = "/"  # where commands begin
        self.environs: dict[str, dict[str, str]] = {}  # of commands, by pod; ours when it is not there

    # --- objects

    def of(self, kind: str) -> dict[tuple[str, str], Object]:
        return self.objects.setdefault(kind, {})

    def named(self, kind: str, name: str, namespace: str = "test") -> Object | None:
        return self.of(kind).get((namespace, name))

    async def put(self, change: str, kind: str, item: Object) -> None:
        self.version += 1
        meta = item["metadata"]
        meta["resourceVersion"] = str(self.version)
        key = (meta.get("namespace", "test"), meta["name"])
        if change == "DELETED":
            self.of(kind).pop(key, None)
        else:
            self.of(kind)[key] = item
        copy = json.loads(json.dumps(item))
        self.log.append({"type": change, "object": copy, "kind": kind, "version": self.version})
        async with self._news:
            self._news.notify_all()

    async def event(self, pod: Object, reason: str, message: str, kind: str = "Warning") -> None:
        uid = f"event-{next(self._uids)}"
        await self.put(
            "ADDED",
            "Event",
            {
                "kind": "Event",
                "metadata": {"name": uid, "uid": uid, "namespace": pod["metadata"]["namespace"]},
                "involvedObject": {
                    "kind": "Pod",
                    "name": pod["metadata"]["name"],
                    "uid": pod["metadata"]["uid"],
                },
                "reason": reason,
                "message": message,
                "type": kind,
                "count": 1,
                "lastTimestamp": "2025-01-01T00:00:00Z",
            },
        )

    async def status(self, pod: Object, phase: str, **state: Any) -> None:
        """Set a pod's phase and the state of all its containers: running=…, waiting=…, terminated=…"""
        names = [c["name"] for c in pod["spec"]["containers"]]
        ready = "running" in state
        pod["status"] = {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [
                {"name": n, "ready": ready, "restartCount": 0, "state": state, "image": "x"} for n in names
            ],
            "podIP": "10.0.0.1" if ready else "",
        }
        await self.put("MODIFIED", "Pod", pod)

    async def run_pod(self, pod: Object) -> None:
        await self.status(pod, "Running", running={"startedAt": "2025-01-01T00:00:00Z"})

    async def end_pod(
        self, name: str, *, code: int = 137, reason: str = "OOMKilled", namespace: str = "test"
    ) -> None:
        pod = self.of("Pod")[namespace, name]
        for process in self.running.get(name, set()):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await self.status(pod, "Failed", terminated={"exitCode": code, "reason": reason})

    async def remove(self, kind: str, item: Object) -> None:
        if kind == "Pod":
            for process in self.running.get(item["metadata"]["name"], set()):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        await self.put("DELETED", kind, item)

    # --- HTTP

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path))
        if self.before is not None:
            await self.before(request)
        answer = self.answers(request.method, request.path, request)
        if answer is not None:
            return answer
        if (
            self.tokens
            and request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens
        ):
            return refuse(401, "Unauthorized", "Unauthorized")
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.34.0"})
        parts = request.path.strip("/").split("/")
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        kind = PLURALS[parts[0]]
        name = parts[1] if len(parts) > 1 else ""
        if len(parts) > 2 and parts[2] == "exec":
            return await self.exec(request, namespace, name)
        if len(parts) > 2 and parts[2] == "log":
            return web.Response(text="a line\n")
        method: Any = getattr(self, f"do_{request.method.lower()}")
        done: web.StreamResponse = await method(request, kind, namespace, name)
        return done

    async def do_get(self, request: web.Request, kind: str, namespace: str, name: str) -> web.StreamResponse:
        if name:
            item = self.named(kind, name, namespace)
            return web.json_response(item) if item else refuse(404, "NotFound", f'{kind} "{name}" not found')
        if request.query.get("watch"):
            return await self.watch(request, kind, namespace)
        items = [i for (ns, _), i in self.of(kind).items() if ns == namespace and matches(request, i)]
        limit = int(request.query.get("limit", "0")) or len(items)
        start = int(request.query.get("continue", "0"))
        meta: Object = {"resourceVersion": str(self.version)}
        if start + limit < len(items):
            meta["continue"] = str(start + limit)
        return web.json_response(
            {"kind": f"{kind}List", "metadata": meta, "items": items[start : start + limit]}
        )

    async def do_post(self, request: web.Request, kind: str, namespace: str, name: str) -> web.StreamResponse:
        item = await request.json()
        if kind == "SelfSubjectAccessReview":
            return web.json_response({**item, "status": {"allowed": True}}, status=201)
        meta = item["metadata"]
        if self.named(kind, meta["name"], namespace):
            return refuse(409, "AlreadyExists", f"{kind} {meta['name']} already exists")
        meta |= {
            "namespace": namespace,
            "uid": f"uid-{next(self._uids)}",
            "creationTimestamp": "2025-01-01T00:00:00Z",
        }
        if request.query.get("dryRun"):
            return web.json_response(item, status=201)
        if kind == "Pod":
            item["status"] = {"phase": "Pending"}
        await self.put("ADDED", kind, item)
        if kind == "Pod":
            task = asyncio.ensure_future((self.scenario or self.run_pod)(item))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return web.json_response(item, status=201)

    async def do_patch(
        self, request: web.Request, kind: str, namespace: str, name: str
    ) -> web.StreamResponse:
        item = self.named(kind, name, namespace)
        if item is None:
            return refuse(404, "NotFound", f"{kind} {name} not found")
        merge(item, await request.json())
        await self.put("MODIFIED", kind, item)
        return web.json_response(item)

    async def do_delete(
        self, request: web.Request, kind: str, namespace: str, name: str
    ) -> web.StreamResponse:
        if not name:
            for (ns, _), item in list(self.of(kind).items()):
                if ns == namespace and matches(request, item):
                    await self.remove(kind, item)
            return web.json_response({"kind": "Status", "status": "Success"})
        item = self.named(kind, name, namespace)
        if item is None:
            return refuse(404, "NotFound", f'{kind} "{name}" not found')
        await self.remove(kind, item)
        return web.json_response({"kind": "Status", "status": "Success"})

    async def watch(self, request: web.Request, kind: str, namespace: str) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        reply = web.StreamResponse()
        await reply.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self.watches.add(task)
        try:
            if since < self.oldest:
                gone = {
                    "kind": "Status",
                    "code": 410,
                    "reason": "Expired",
                    "message": "too old resource version",
                }
                await reply.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
                return reply
            while True:
                for change in [c for c in self.log if c["version"] > since]:
                    since = change["version"]
                    item = change["object"]
                    if (
                        change["kind"] == kind
                        and item["metadata"].get("namespace") == namespace
                        and matches(request, item)
                    ):
                        line = json.dumps({"type": change["type"], "object": item}).encode() + b"\n"
                        await reply.write(line)
                async with self._news:
                    await self._news.wait_for(lambda seen=since: self.version > seen)  # type: ignore[misc]
        finally:
            self.watches.discard(task)

    def drop_watches(self) -> None:
        """Cut every watch, as a load balancer does."""
        for task in list(self.watches):
            task.cancel()

    # --- commands

    async def exec(self, request: web.Request, namespace: str, name: str) -> web.StreamResponse:
        query = parse_qs(request.query_string, keep_blank_values=True)
        pod = self.named("Pod", name, namespace)
        if pod is None:
            return refuse(404, "NotFound", f'pods "{name}" not found')
        if (pod.get("status") or {}).get("phase") != "Running":
            return refuse(500, "InternalError", "container not found")
        socket = web.WebSocketResponse(protocols=self.protocols, max_msg_size=0)
        await socket.prepare(request)
        words = query["command"]
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE if "stdin" in query else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            cwd=self.home,
            env=self.environs.get(name),
        )
        ours = self.running.setdefault(name, set())
        ours.add(process)
        tasks = [
            asyncio.ensure_future(_pump(process.stdout, socket, 1)),
            asyncio.ensure_future(_pump(process.stderr, socket, 2)),
        ]
        feeding = asyncio.ensure_future(_feed(socket, process, socket.ws_protocol == V5))
        tasks.append(feeding)
        try:
            await asyncio.wait({*tasks[:2]}, return_when=asyncio.ALL_COMPLETED)
            code = await process.wait()
            if any(word in self.hang for word in words):
                await asyncio.sleep(3600)
            await socket.send_bytes(b"\x03" + json.dumps(outcome(code)).encode())
        except (ConnectionError, RuntimeError):
            pass
        finally:
            for task in tasks:
                task.cancel()
            ours.discard(process)
            process._transport.close()  # type: ignore[attr-defined]
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        return socket


async def _pump(stream: asyncio.StreamReader | None, socket: web.WebSocketResponse, channel: int) -> None:
    assert stream is not None
    while data := await stream.read(1 << 15):
        await socket.send_bytes(bytes([channel]) + data)


async def _feed(socket: web.WebSocketResponse, process: asyncio.subprocess.Process, closes: bool) -> None:
    async for message in socket:
        if message.type is not WSMsgType.BINARY or process.stdin is None:
            continue
        if message.data[0] == 255 and closes:
            process.stdin.close()
        elif message.data[0] == 0:
            process.stdin.write(message.data[1:])
            with contextlib.suppress(ConnectionError):
                await process.stdin.drain()


def outcome(code: int) -> Object:
    if code == 0:
        return {"kind": "Status", "status": "Success"}
    code = code if code > 0 else 128 - code
    cause = {"reason": "ExitCode", "message": str(code)}
    return {
        "kind": "Status",
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "details": {"causes": [cause]},
    }


def refuse(status: int, reason: str, message: str, **headers: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status}
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.json_response(body, status=status, headers=names)


def matches(request: web.Request, item: Object) -> bool:
    labels = item["metadata"].get("labels") or {}
    for term in filter(None, request.query.get("labelSelector", "").split(",")):
        name, equals, value = term.partition("=")
        if name not in labels or (equals and labels[name] != value):
            return False
    for term in filter(None, request.query.get("fieldSelector", "").split(",")):
        found: Any = item
        name, _, value = term.partition("=")
        for part in name.split("."):
            found = (found or {}).get(part)
        if found != value:
            return False
    return True


def merge(target: Object, patch: Object) -> None:
    for key, value in patch.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            merge(target[key], value)
        elif value is None:
            target.pop(key, None)
        else:
            target[key] = value


@contextlib.asynccontextmanager
async def fake_cluster() -> AsyncIterator[tuple[Fake, Cluster]]:
    """A server of it, and a connection to that."""
    fake = Fake()
    application = web.Application(client_max_size=1 << 26)
    application.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1, max_line_size=1 << 20)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    fake.url = f"http://127.0.0.1:{port}"
    cluster = Cluster(Access(fake.url, "test"))
    try:
        yield fake, cluster
    finally:
        await cluster.close()
        fake.drop_watches()
        await runner.cleanup()
