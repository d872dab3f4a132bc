"""One connection to a cluster. What is done with objects is in `hawk.kube.objects`; here what is beside them."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import TYPE_CHECKING

from hawk.kube.access import Access, find_access
from hawk.kube.kinds import path_of
from hawk.kube.objects import Object, Objects, said
from hawk.kube.requests import PATIENCE, Requests

if TYPE_CHECKING:
    from hawk.kube.exec import ByteStream
    from hawk.kube.output import Done

__all__ = ["Cluster", "Object", "connect"]

_Words = list[str]  # inside the class `list` is a method


async def connect(
    *, context: str | None = None, namespace: str | None = None, access: Access | None = None
) -> Cluster:
    """A connection; nothing is asked yet. The caller closes it.

    Args:
        context: Of the kubeconfig; HAWK_KUBE_CONTEXT, else its current one, when left out.
        namespace: Wins over HAWK_KUBE_NAMESPACE, which wins over the context's or the pod's.
        access: How the cluster is reached, when that is known already.

    Raises:
        ClusterError: There is no usable configuration, or kubernetes-asyncio is not installed.
    """
    return Cluster(access or await find_access(context, namespace))


class Cluster(Objects):
    """One connection, for one event loop; any number of tasks share it.

    Attributes:
        namespace: Where things are when no other is named.
        requests: What carries it; `requests.sent` counts.
    """

    def __init__(self, access: Access) -> None:
        self.namespace = access.namespace
        self.requests = Requests(access)
        self.stdin_closes: bool | None = None
        """Whether a command's input can be ended (version 5 of the protocol); None: not known yet."""

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End it, with everything that runs on it."""
        await self.requests.close()

    @property
    def host(self) -> str:
        """The API's address."""
        return self.requests.access.host

    # --- about us and the cluster

    async def may(
        self,
        verb: str,
        resource: str,
        *,
        subresource: str = "",
        group: str = "",
        namespace: str | None = None,
        name: str = "",
    ) -> bool:
        """Whether we are allowed to do something in a namespace.

        Args:
            resource: In the plural, as in a Role: `pods`.
        """
        asked = {
            "verb": verb,
            "resource": resource,
            "subresource": subresource,
            "group": group,
            "namespace": namespace or self.namespace,
            "name": name,
        }
        review = {"kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": asked}}
        answer = await self.create(review)
        return bool((answer.get("status") or {}).get("allowed"))

    async def version(self, *, patience: float = PATIENCE) -> str:
        """The cluster's version: `v1.34.1`."""
        answer = await self.requests.send("GET", "/version", what="read its version", patience=patience)
        return str(answer.get("gitVersion", "")) if isinstance(answer, dict) else ""

    async def logs(
        self,
        pod: str,
        container: str | None = None,
        *,
        previous: bool = False,
        tail: int | None = 200,
        limit: int = 1 << 20,
        namespace: str | None = None,
        patience: float = PATIENCE,
    ) -> str:
        """The last lines of what a container wrote.

        Args:
            previous: Of the container's last life, before it was restarted.
            tail: Lines; all when None.
            limit: Bytes.
        """
        where = namespace or self.namespace
        query = {"limitBytes": str(limit), "previous": str(previous).lower()}
        query |= {"container": container} if container else {}
        query |= {"tailLines": str(tail)} if tail is not None else {}
        text: str = await self.requests.send(
            "GET",
            path_of("Pod", where, pod, subresource="log"),
            query=query,
            what=said("read the log of", "Pod", pod, where),
            patience=patience,
            plain=True,
        )
        return text

    # --- streams

    async def exec(
        self,
        pod: str,
        command: _Words,
        *,
        container: str | None = None,
        stdin: bytes | AsyncIterable[bytes] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # it kills what it times out, which a caller can't
        limit: int = 10 << 20,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        namespace: str | None = None,
        patience: float = 20.0,
    ) -> Done:
        """Run a command in a pod: see `hawk.kube.exec.run`."""
        from hawk.kube.exec import run

        return await run(
            self,
            pod,
            command,
            container=container,
            stdin=stdin,
            timeout=timeout,
            limit=limit,
            cwd=cwd,
            env=env,
            user=user,
            namespace=namespace,
            patience=patience,
        )

    async def open_exec(
        self,
        pod: str,
        command: _Words,
        *,
        container: str | None = None,
        namespace: str | None = None,
        stdin: bool = True,
    ) -> ByteStream:
        """Join the input and output of a command that lives long: see `hawk.kube.exec.ByteStream`."""
        from hawk.kube.exec import open_stream

        return await open_stream(self, pod, command, container=container, namespace=namespace, stdin=stdin)
