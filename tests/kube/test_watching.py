"""The shared watch: it follows, and goes on whatever ends its stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hawk.kube.api import Cluster
from hawk.kube.watching import Watch
from tests.kube.fake import Fake, refuse
from tests.kube.test_api import pod


async def until(watch: Watch, what: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not what():
            await watch.change(0.2)


async def test_it_follows(kube: tuple[Fake, Cluster]) -> None:
    _fake, cluster = kube
    await cluster.create(pod("a", x="1"))
    told: list[tuple[str, str]] = []
    watch = await Watch(
        cluster,
        "Pod",
        labels="x=1",
        on_change=lambda change, item: told.append((change, item["metadata"]["name"])),
    ).start()
    assert watch.named("a") is not None
    await cluster.create(pod("b", x="1"))
    await cluster.create(pod("c", x="2"))
    await until(watch, lambda: (watch.named("b") or {}).get("status", {}).get("phase") == "Running")
    await cluster.delete("Pod", "a")
    await until(watch, lambda: watch.named("a") is None)
    assert watch.named("c") is None
    assert told[0] == ("ADDED", "a")
    assert told[-1] == ("DELETED", "a")
    assert watch.fresh_at is not None
    assert cluster.requests.sent["WATCH pods"] == 1
    await watch.close()


async def test_a_dropped_stream_goes_on_where_it_was(kube: tuple[Fake, Cluster]) -> None:
    fake, cluster = kube
    watch = await Watch(cluster, "Pod").start()
    await cluster.create(pod("a"))
    await until(watch, lambda: watch.named("a"))
    fake.drop_watches()
    await cluster.create(pod("b"))
    await until(watch, lambda: watch.named("b"))
    assert cluster.requests.sent["GET pods"] == 1
    await watch.close()


async def test_a_version_that_is_too_old_means_a_new_list(kube: tuple[Fake, Cluster]) -> None:
    fake, cluster = kube
    await cluster.create(pod("a"))
    watch = await Watch(cluster, "Pod").start()
    changes: list[tuple[str, str]] = []
    watch.listen(lambda change, item: changes.append((change, item["metadata"]["name"])))
    fake.oldest = 10**6
    fake.drop_watches()
    await cluster.delete("Pod", "a")
    await cluster.create(pod("b"))
    fake.oldest = 0
    await until(watch, lambda: watch.named("b") and not watch.named("a"))
    assert ("DELETED", "a") in changes
    assert watch.problem is None
    await watch.close()


async def test_an_api_that_is_away_is_said_and_outlived(kube: tuple[Fake, Cluster]) -> None:
    fake, cluster = kube
    watch = await Watch(cluster, "Pod").start()
    fake.answers = lambda method, *_: refuse(503, "ServiceUnavailable", "away") if method == "GET" else None
    fake.drop_watches()
    await until(watch, lambda: watch.problem)
    assert watch.problem is not None
    assert watch.problem.fields["reason"] == "busy"
    fake.answers = lambda *_: None
    await cluster.create(pod("a"))
    await until(watch, lambda: watch.named("a") and watch.problem is None)
    await watch.close()


async def test_events_without_their_history(kube: tuple[Fake, Cluster]) -> None:
    fake, cluster = kube
    made = await cluster.create(pod("a"))
    await fake.event(made, "Old", "before")
    watch = await Watch(cluster, "Event", fields="involvedObject.kind=Pod", history=False).start()
    assert watch.objects == {}
    await fake.event(made, "New", "after")
    await until(watch, lambda: watch.objects)
    assert [event["reason"] for event in watch.objects.values()] == ["New"]
    await watch.close()
