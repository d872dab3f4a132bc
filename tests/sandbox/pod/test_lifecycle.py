"""Pods of an attempt: made, waited for, lost and removed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from inspect_ai.util import SandboxEnvironment, SandboxUnavailableError

from hawk.errors import ClusterError
from hawk.kube.leftovers import remove_found
from hawk.sandbox.pod import names
from hawk.sandbox.pod import site as sites
from hawk.sandbox.pod.group import PodError
from hawk.sandbox.pod.options import PodConfig
from hawk.sandbox.pod.provider import PodSandbox
from hawk.sandbox.pod.sweep import look, sweep_dead
from hawk.sandbox.registry import registry
from tests.kube.fake import Fake, Object, refuse
from tests.sandbox.pod.conftest import Make


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(registry, "attempt", lambda: "sample/é 1/2@eval")
    return "sample/é 1/2@eval"


async def lone_pod(fake: Fake) -> Object:
    async with asyncio.timeout(100):
        while not fake.of("Pod"):
            await asyncio.sleep(0.01)
    (pod,) = fake.of("Pod").values()
    return pod


async def test_a_pod_an_attempt_and_few_requests(
    kube: Fake, make: Make, attempt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "hawk-j-g1", "controller": False}
    monkeypatch.setenv("HAWK_JOB_ID", "j")
    monkeypatch.setenv("HAWK_KUBE_OWNER", json.dumps(reference))
    monkeypatch.setenv("HAWK_KUBE_OWNER_UID", "u-1")
    async with make() as environments:
        sandbox = environments["default"]
        assert (await sandbox.exec(["echo", "hello"])).stdout == "hello\n"
        pod = await lone_pod(kube)
        meta, spec = pod["metadata"], pod["spec"]
        assert meta["ownerReferences"] == [{**reference, "uid": "u-1"}]
        assert meta["labels"]["hawk/job"] == "j"
        assert meta["labels"]["hawk/attempt"] == "2"
        assert meta["annotations"]["hawk/sample-id"] == "sample/é 1"
        assert spec["automountServiceAccountToken"] is False
        assert spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] is False
        assert registry.facts()[attempt].label == meta["name"]
        assert registry.waits() == {}
        (policy,) = kube.of("NetworkPolicy").values()
        assert policy["spec"]["egress"] == policy["spec"]["ingress"] == []
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= meta["labels"].items()
        before = len(kube.asked)
    after = [method for method, _ in kube.asked[before:]]
    assert after == ["DELETE"]  # the policy goes with its owner
    await sites.close()
    kube.objects.pop("NetworkPolicy")
    own = [
        path
        for method, path in kube.asked
        if meta["name"] in path or (method == "POST" and path.endswith("/pods"))
    ]
    assert len([path for path in own if "exec" not in path]) == 2


@pytest.mark.parametrize(
    ("reason", "message", "grace"),
    [
        ("ErrImageNeverPull", "Container image is not present with pull policy of Never", 600),
        ("ImagePullBackOff", "Back-off pulling image", 1),
    ],
)
async def test_an_image_that_is_not_there(
    kube: Fake, make: Make, attempt: str, reason: str, message: str, grace: int
) -> None:
    async def scenario(pod: Object) -> None:
        # In this order: what is said of the image is waited for no longer than the state allows.
        await kube.event(pod, "Failed", 'Failed to pull image "x": not found in the registry, says the event')
        await kube.status(pod, "Pending", waiting={"reason": reason, "message": message})

    kube.scenario = scenario
    said: set[str] = set()
    task = asyncio.ensure_future(
        contextlib.AsyncExitStack().enter_async_context(make(image="x", image_grace=grace))
    )
    while not task.done():
        said |= set(registry.waits().values())
        await asyncio.sleep(0.02)
    with pytest.raises(PodError, match="image x can't be had") as caught:
        await task
    assert "says the event" in caught.value.message
    assert caught.value.fields["why"] == reason
    assert grace > 1 or any(reason in text for text in said)


async def test_a_pod_that_fits_nowhere_waits_and_says_so(kube: Fake, make: Make, attempt: str) -> None:
    async def scenario(pod: Object) -> None:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient cpu.",
        }
        pod["status"] = {"phase": "Pending", "conditions": [condition]}
        await kube.put("MODIFIED", "Pod", pod)
        while "Insufficient cpu" not in "".join(registry.waits().values()):
            await asyncio.sleep(0.01)
        await kube.run_pod(pod)

    kube.scenario = scenario
    async with make() as environments:
        assert (await environments["default"].exec(["true"])).success


async def test_a_pod_that_does_not_start_in_time(kube: Fake, make: Make) -> None:
    async def scenario(pod: Object) -> None:
        await kube.event(pod, "FailedMount", "the volume is not there")

    kube.scenario = scenario
    with pytest.raises(PodError, match=r"not ready after 4 s: FailedMount: the volume is not there"):
        async with make(start_timeout=4):
            pass


async def test_a_quota_is_waited_for(
    kube: Fake, make: Make, attempt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hawk.sandbox.pod.group._QUOTA_PAUSE", 0.1)
    full = [True]

    def answers(method: str, path: str, _: Any) -> Any:
        if method == "POST" and path.endswith("/pods") and full[0]:
            return refuse(403, "Forbidden", 'pods "x" is forbidden: exceeded quota: q, used: pods=1')
        return None

    async def free() -> None:
        while "exceeded quota" not in "".join(registry.waits().values()):
            await asyncio.sleep(0.01)
        full[0] = False

    kube.answers = answers
    freeing = asyncio.ensure_future(free())
    async with make():
        await freeing


async def test_what_may_not_be_created_is_said(kube: Fake, make: Make) -> None:
    kube.answers = lambda method, path, _: (
        refuse(403, "Forbidden", "cannot create resource pods")
        if (method, path[-5:]) == ("POST", "/pods")
        else None
    )
    with pytest.raises(ClusterError, match="cannot create resource pods"):
        async with make():
            pass


@pytest.mark.parametrize(
    ("how", "expected", "troubles"),
    [
        ("oom", "it ran out of memory", {"oom_killed": 1}),
        ("evicted", "it was evicted: The node was low on memory", {}),
        ("deleted", "it was deleted by somebody", {}),
    ],
)
async def test_a_pod_that_ends_under_a_command(
    kube: Fake, make: Make, attempt: str, how: str, expected: str, troubles: dict[str, int]
) -> None:
    ended: list[Any] = []
    registry_ended, registry.ended = registry.ended, lambda *facts: ended.append(facts)
    try:
        async with make() as environments:
            pod = await lone_pod(kube)
            name = pod["metadata"]["name"]
            running = asyncio.ensure_future(environments["default"].exec(["sleep", "300"]))
            while not kube.running.get(name):
                await asyncio.sleep(0.01)
            if how == "oom":
                await kube.end_pod(name)
            elif how == "evicted":
                pod["status"] |= {
                    "phase": "Failed",
                    "reason": "Evicted",
                    "message": "The node was low on memory",
                }
                await kube.put("MODIFIED", "Pod", pod)
            else:
                await kube.remove("Pod", pod)
            with pytest.raises(SandboxUnavailableError, match=expected):
                await running
            with pytest.raises(SandboxUnavailableError, match=expected):
                await environments["default"].read_file("x")
        (((_, facts),)) = ended
        assert facts.troubles == troubles
        assert expected in facts.lost
    finally:
        registry.ended = registry_ended


async def test_services_in_one_pod(kube: Fake, make: Make) -> None:
    service = {"image": "db", "ready": "pg_isready", "environment": {"A": "b"}}
    async with make(services={"db": service}) as environments:
        assert list(environments) == ["default", "db"]
        pod = await lone_pod(kube)
        main, db = pod["spec"]["containers"]
        assert (main["name"], db["name"], db["env"]) == ("default", "db", [{"name": "A", "value": "b"}])
        assert "command" not in db
        assert db["readinessProbe"]["exec"]["command"] == ["/bin/sh", "-c", "pg_isready"]
        assert pod["spec"]["hostAliases"] == [{"ip": "127.0.0.1", "hostnames": ["default", "db"]}]
        assert (await environments["db"].exec(["echo", "x"])).stdout == "x\n"


async def test_services_with_pods_of_their_own(
    kube: Fake, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make(services={"db": {"image": "db", "separate": True, "command": "true"}}) as environments:
        assert set(environments) == {"default", "db"}
        pods = {pod["metadata"]["labels"]["hawk/service"]: pod for pod in kube.of("Pod").values()}
        assert pods["db"]["spec"]["hostname"] == "db"
        (service,) = kube.of("Service").values()
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["selector"].items() <= pods["db"]["metadata"]["labels"].items()
        assert pods["db"]["spec"]["subdomain"] == service["metadata"]["name"]
        assert len(kube.of("NetworkPolicy")) == 2


async def test_pods_kept_warm(kube: Fake, make: Make, attempt: str) -> None:
    config = PodConfig(warm=1)
    await PodSandbox.task_init("task", config)
    try:
        site = await sites.current()
        pool = site.pools[config]
        while not pool.ready:
            await asyncio.sleep(0.01)
        name = pool.ready[0].tracked[0].name
        assert kube.named("Pod", name)["metadata"]["labels"]["hawk/warm"] == "true"  # type: ignore[index]
        environments = await PodSandbox.sample_init("task", config, {})
        assert environments["default"].as_type(PodSandbox).box.tracked.name == name
        while "hawk/warm" in kube.named("Pod", name)["metadata"]["labels"]:  # type: ignore[index]
            await asyncio.sleep(0.01)
        assert kube.named("Pod", name)["metadata"]["labels"]["hawk/attempt"] == "2"  # type: ignore[index]
        while not pool.ready:  # another in its place
            await asyncio.sleep(0.01)
        await PodSandbox.sample_cleanup("task", config, environments, False)
    finally:
        await PodSandbox.task_cleanup("task", config, True)


async def test_a_warm_pod_that_died_is_not_given_out(kube: Fake) -> None:
    config = PodConfig(warm=1)
    await PodSandbox.task_init("task", config)
    try:
        pool = (await sites.current()).pools[config]
        while not pool.ready:
            await asyncio.sleep(0.01)
        tracked = pool.ready[0].tracked[0]
        await kube.end_pod(tracked.name, code=1, reason="Error")
        while tracked.ended() is None:
            await asyncio.sleep(0.01)
        environments = await PodSandbox.sample_init("task", config, {})
        assert environments["default"].as_type(PodSandbox).box.tracked is not tracked
        await PodSandbox.sample_cleanup("task", config, environments, False)
    finally:
        await PodSandbox.task_cleanup("task", config, True)


async def test_a_canceled_start_leaves_nothing(kube: Fake, make: Make) -> None:
    async def never(pod: Object) -> None: ...

    kube.scenario = never
    task = asyncio.ensure_future(contextlib.AsyncExitStack().enter_async_context(make()))
    await lone_pod(kube)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert kube.of("Pod") == {}


async def test_a_start_that_is_canceled_while_its_pod_is_created(kube: Fake, make: Make) -> None:
    """The cluster answers after the attempt has gone: what it made is deleted all the same."""
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(request: Any) -> Any:
        if request.method == "POST" and request.path.endswith("/pods"):
            asked.set()
            await goes_on.wait()

    kube.before = slow
    task = asyncio.ensure_future(contextlib.AsyncExitStack().enter_async_context(make()))
    await asked.wait()
    task.cancel()
    await asyncio.sleep(0)
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert kube.of("Pod") == {}
    assert ("DELETE", "/api/v1/namespaces/test/pods") in [(m, p.rpartition("/")[0]) for m, p in kube.asked]


async def test_the_sweep_takes_what_dead_processes_left(kube: Fake, make: Make) -> None:
    async with make():
        site = await sites.current()
        (mine,) = kube.of("Pod").values()
        others = {"dead": f"{names.this_host()}/4194305/1", "elsewhere": "another-host/1/1"}
        for name, process in others.items():
            meta = {
                "name": name,
                "labels": mine["metadata"]["labels"],
                "annotations": {names.PROCESS: process},
            }
            await site.cluster.create({"kind": "Pod", "metadata": meta, "spec": mine["spec"]})
        owned = {**meta, "name": "owned", "ownerReferences": [{"kind": "Job", "name": "j", "uid": "u"}]}
        await site.cluster.create({"kind": "Pod", "metadata": owned, "spec": mine["spec"]})
        found = {one.name: one for one in await look(site.cluster) if one.kind == "Pod"}
        assert [name for name, one in found.items() if one.abandoned] == ["dead"]
        assert "another-host" in found["elsewhere"].why
        assert "Job j" in found["owned"].why
        assert [one.name for one in await sweep_dead(site.cluster)] == ["dead"]
        assert kube.named("Pod", "dead") is None
        assert kube.named("Pod", "elsewhere") is not None
        old = [one for one in await look(site.cluster, older_than=3600) if one.abandoned]
        assert await remove_found(site.cluster, old) == []
        assert [name for _, name in kube.of("Pod")] == [mine["metadata"]["name"], "owned"]
        await site.cluster.delete("Pod", "owned")


async def test_many_at_once(kube: Fake, make: Make) -> None:
    async with make():
        config = PodConfig()

        async def one() -> None:
            environments: dict[str, SandboxEnvironment] = await PodSandbox.sample_init("task", config, {})
            assert (await environments["default"].exec(["true"])).success
            await PodSandbox.sample_cleanup("task", config, environments, False)

        await asyncio.gather(*(one() for _ in range(30)))
        assert len(kube.of("Pod")) == 1
