"""Requests: what is tried again, what is said when it is refused, tokens that expire."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from hawk.errors import ClusterError
from hawk.kube import api, objects
from hawk.kube.access import Access
from hawk.kube.api import Cluster
from tests.kube.fake import Fake, refuse


def pod(name: str = "a", **labels: str) -> dict[str, object]:
    return {
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "main"}]},
    }


async def test_objects(kube: tuple[Fake, Cluster]) -> None:
    fake, cluster = kube
    assert await cluster.get("Pod", "a") is None
    made = await cluster.create(pod(x="1"))
    with pytest.raises(ClusterError) as caught:
        await cluster.create(pod())
    assert caught.value.fields["reason"] == "exists"
    assert (await cluster.create(pod(), exist_ok=True))["metadata"]["uid"] == made["metadata"]["uid"]
    await cluster.create(pod("dry"), dry_run=True)
    await cluster.patch("Pod", "a", {"metadata": {"labels": {"x": "2"}}})
    items, version = await cluster.list("Pod", labels="x=2")
    assert [i["metadata"]["name"] for i in items] == ["a"]
    assert items[0]["apiVersion"] == "v1"
    assert version
    assert await cluster.delete("Pod", "a") is True
    assert await cluster.delete("Pod", "a") is False
    await cluster.create(pod("b", x="3"))
    await cluster.delete_all("Pod", labels="x=3")
    assert fake.of("Pod") == {}
    assert await cluster.may("create", "pods", subresource="exec") is True
    assert await cluster.version() == "v1.34.0"
    assert await cluster.logs("a", "main") == "a line\n"


async def test_a_long_list_comes_in_pages(
    kube: tuple[Fake, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, cluster = kube
    monkeypatch.setattr(objects, "_PAGE", "2")
    for name in "abcde":
        await cluster.create(pod(name))
    items, _ = await cluster.list("Pod")
    assert [i["metadata"]["name"] for i in items] == list("abcde")


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_busy_api_is_asked_again(kube: tuple[Fake, Cluster], status: int) -> None:
    fake, cluster = kube
    left = [2]

    def answers(method: str, path: str, request: web.Request) -> web.StreamResponse | None:
        left[0] -= 1
        return refuse(status, "Busy", "slow down", Retry_After="0") if left[0] >= 0 else None

    fake.answers = answers
    assert (await cluster.create(pod()))["metadata"]["name"] == "a"
    assert cluster.requests.sent["POST pods"] == 3


async def test_patience_ends(kube: tuple[Fake, Cluster]) -> None:
    fake, cluster = kube
    fake.answers = lambda *_: refuse(429, "TooManyRequests", "slow down", Retry_After="1")
    with pytest.raises(ClusterError) as caught:
        await cluster.get("Pod", "a", patience=1.5)
    assert caught.value.fields == {"status": 429, "reason": "busy", "said": "slow down"}


async def test_a_creation_whose_answer_was_lost_is_found(kube: tuple[Fake, Cluster]) -> None:
    fake, cluster = kube
    lost = []

    def answers(method: str, path: str, request: web.Request) -> web.StreamResponse | None:
        if method == "POST" and not lost:
            lost.append(request)
            request.transport.abort()  # type: ignore[union-attr]
        return None

    fake.answers = answers
    assert (await cluster.create(pod()))["metadata"]["name"] == "a"
    assert len(fake.of("Pod")) == 1


@pytest.mark.parametrize(
    ("status", "reason", "message", "expected"),
    [
        (403, "Forbidden", 'pods is forbidden: User "x" cannot create resource "pods"', "forbidden"),
        (403, "Forbidden", 'pods "a" is forbidden: exceeded quota: q, requested: pods=1', "quota"),
        (403, "Forbidden", "unable to create: because it is being terminated", "terminating"),
        (422, "Invalid", "spec.containers: Required value", "invalid"),
        (401, "Unauthorized", "Unauthorized", "unauthorized"),
    ],
)
async def test_what_a_refusal_says(
    kube: tuple[Fake, Cluster], status: int, reason: str, message: str, expected: str
) -> None:
    fake, cluster = kube
    fake.answers = lambda *_: refuse(status, reason, message)
    with pytest.raises(ClusterError) as caught:
        await cluster.create(pod())
    assert caught.value.fields["reason"] == expected
    assert message in caught.value.message
    assert "create Pod a in namespace test" in caught.value.message


async def test_an_api_that_is_away(kube: tuple[Fake, Cluster]) -> None:
    _, cluster = kube
    cluster.requests.access.host = "http://127.0.0.1:9"
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1:9 could not be reached") as caught:
        await cluster.get("Pod", "a", patience=0.5)
    assert caught.value.fields["reason"] == "unreachable"
    assert caught.value.remedy


def kubeconfig(path: Path, server: str, user: dict[str, object]) -> str:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "test"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


async def test_a_token_that_expired_is_read_again(
    kube: tuple[Fake, Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, _ = kube
    token = tmp_path / "token"
    token.write_text("old")
    fake.tokens = {"old"}
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path / "config", fake.url, {"tokenFile": str(token)}))
    monkeypatch.delenv("HAWK_KUBE_NAMESPACE", raising=False)
    async with await api.connect() as cluster:
        assert cluster.namespace == "test"
        await cluster.create(pod())
        fake.tokens = {"new"}
        token.write_text("new")
        assert await cluster.get("Pod", "a") is not None
        done = await cluster.list("Pod")
        assert done[0]


async def test_a_program_that_gives_tokens(
    kube: tuple[Fake, Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, _ = kube
    fake.tokens = {"t1"}
    program = tmp_path / "plugin"
    answer = (
        '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t1"}}'
    )
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program)}}
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path / "config", fake.url, user))
    async with await api.connect(namespace="test") as cluster:
        assert await cluster.get("Pod", "none") is None


async def test_without_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    with pytest.raises(ClusterError) as caught:
        await api.connect()
    assert caught.value.fields["reason"] == "no-config"


def test_connecting_loads_no_generated_models() -> None:
    code = (
        "import sys; from hawk.kube import access, api, exec, watching; access.load_loaders();"
        "print(len([m for m in sys.modules if m.startswith('kubernetes_asyncio')]));"
        "import kubernetes_asyncio.client as c; print(c.V1Pod.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "V1Pod"]


def test_without_the_package() -> None:
    code = (
        "import sys; sys.modules['kubernetes_asyncio'] = None\n"
        "from hawk.kube import access\nfrom hawk.errors import ClusterError\n"
        "try: access.load_loaders()\nexcept ClusterError as ex: print(ex.render())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "hawk-evals[kubernetes]" in done.stdout


async def test_an_address_where_nobody_listens_is_said_without_what_no_person_reads() -> None:
    async with Cluster(Access("https://127.0.0.1:1", "test")) as cluster:
        with pytest.raises(ClusterError) as caught:
            await cluster.get("Pod", "a", patience=0.1)
    assert "Cannot connect to host 127.0.0.1:1" in caught.value.message
    assert "ssl" not in caught.value.message.lower()
