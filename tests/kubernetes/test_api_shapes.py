"""Our requests against `kmock`, an API server that others wrote: it runs everywhere, without a cluster.

It knows no controllers, so that nothing runs in it; `tests.kube.fake` runs commands, and the rest here a real cluster.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from hawk.errors import ClusterError
from hawk.kube.access import Access
from hawk.kube.api import Cluster
from hawk.kube.kinds import KINDS
from hawk.kube.watching import Watch
from tests.kube.test_watching import until

kmock = pytest.importorskip("kmock")

OURS = [kind for kind in KINDS if kind != "Namespace"]  # of which it can make none
_uids = itertools.count(1)


@pytest_asyncio.fixture
async def pair() -> AsyncIterator[tuple[Any, Cluster]]:
    """The server, which knows every kind of ours, and a client."""
    async with kmock.KubernetesEmulator() as emulator, kmock.Server(emulator):
        for name, kind in KINDS.items():
            emulator.resources[f"{kind.api_version}/{kind.plural}"] = {
                "kind": name,
                "namespaced": kind.namespaced,
                "verbs": {"get", "list", "watch", "create", "delete", "patch", "update"},
            }
        async with Cluster(Access(host=str(emulator.url).rstrip("/"), namespace="ours")) as cluster:
            yield emulator, cluster


def thing(kind: str, name: str = "a", **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels, "uid": str(next(_uids)), "resourceVersion": "1"}
    return {"kind": kind, "metadata": metadata}


@pytest.mark.parametrize("kind", OURS)
async def test_every_kind_is_made_read_changed_and_deleted_where_it_lives(
    pair: tuple[Any, Cluster], kind: str
) -> None:
    emulator, cluster = pair
    assert await cluster.get(kind, "a") is None
    made = await cluster.create(thing(kind, x="1"))
    assert (made["kind"], made["apiVersion"]) == (kind, KINDS[kind].api_version)
    await cluster.patch(kind, "a", {"metadata": {"labels": {"x": "2"}}})
    found = await cluster.get(kind, "a")
    assert found is not None
    assert found["metadata"]["labels"] == {"x": "2"}
    items, _ = await cluster.list(kind)
    assert [item["metadata"]["name"] for item in items] == ["a"]
    namespaces = {request.namespace for request in emulator if request.name == "a"}
    assert namespaces == ({"ours"} if KINDS[kind].namespaced else {None})
    assert await cluster.delete(kind, "a") is True
    assert await cluster.delete(kind, "a") is False


async def test_a_name_that_is_taken_is_a_conflict(pair: tuple[Any, Cluster]) -> None:
    _, cluster = pair
    await cluster.create(thing("Pod"))
    with pytest.raises(ClusterError) as caught:
        await cluster.create(thing("Pod"))
    assert caught.value.fields["status"] == 409


async def test_a_watch_begins_with_what_is_there_and_follows(pair: tuple[Any, Cluster]) -> None:
    emulator, cluster = pair
    first = await cluster.create(thing("Pod", "a"))
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "7"}}
    changes = ("ADDED", thing("Pod", "b")), ("DELETED", first), ("BOOKMARK", bookmark)
    emulator[kmock.action("watch")][:1] << tuple({"type": kind, "object": item} for kind, item in changes)
    watch = await Watch(cluster, "Pod").start()
    assert watch.named("a") is not None
    await until(watch, lambda: len(emulator[kmock.action("watch")]) == 2)
    assert [item["metadata"]["name"] for item in watch.objects.values()] == [
        "b",
        "a",
    ]  # it is still in the server
    assert emulator[kmock.action("watch")][1].params["resourceVersion"] == "7"
    assert watch.problem is None
    await watch.close()


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_what_passes_is_asked_again(pair: tuple[Any, Cluster], status: int) -> None:
    emulator, cluster = pair
    await cluster.create(thing("Pod"))
    emulator["get /api/v1/namespaces/ours/pods/a"][:1] << status
    assert await cluster.get("Pod", "a") is not None
    assert [request.name for request in emulator["get"]] == ["a", "a"]


async def test_a_watch_that_is_too_old_lists_again(pair: tuple[Any, Cluster]) -> None:
    emulator, cluster = pair
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    emulator[kmock.action("watch")][:1] << ({"type": "ERROR", "object": gone},)
    await cluster.create(thing("Pod", "a"))
    watch = await Watch(cluster, "Pod").start()
    await cluster.create(thing("Pod", "b"))
    await until(watch, lambda: watch.named("b"))
    assert len(emulator[kmock.action("list")]) == 2
    await watch.close()
