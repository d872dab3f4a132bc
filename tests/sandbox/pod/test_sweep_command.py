"""`hawk sandbox sweep --pods`: what it says, what it removes, and what it leaves alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hawk.cli import cli
from hawk.errors import UsageError
from hawk.sandbox.pod import names
from tests.kube.fake import Fake
from tests.kube.test_api import kubeconfig

OURS = {"app.kubernetes.io/name": "hawk", "app.kubernetes.io/component": "sandbox"}
JOB = {"kind": "Job", "name": "j", "uid": "u"}


@pytest.fixture(autouse=True)
def environ(kube: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAWK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path / "config", kube.url, {}))
    monkeypatch.setenv("HAWK_KUBE_NAMESPACE", "test")


async def swept(*words: str) -> Any:
    done = await asyncio.to_thread(CliRunner().invoke, cli, ["sandbox", "sweep", *words])
    assert done.exit_code == 0, done.output
    return done.output


async def add(kube: Fake, kind: str, name: str, process: str = "", **meta: Any) -> None:
    whole = {
        "name": name,
        "namespace": "test",
        "uid": f"uid-{name}",
        "labels": OURS,
        "creationTimestamp": "2025-01-01T00:00:00Z",
        "annotations": {names.PROCESS: process},
        **meta,
    }
    await kube.put("ADDED", kind, {"kind": kind, "metadata": whole, "spec": {}, "status": {}})


async def test_what_is_abandoned_goes_and_the_rest_is_named(kube: Fake) -> None:
    dead = f"{names.this_host()}/4194305/1"
    await add(kube, "Pod", "dead", dead)
    await add(kube, "NetworkPolicy", "dead-too", dead)
    await add(kube, "Pod", "elsewhere", "another-host/1/1")
    await add(kube, "Pod", "owned", "in-a-pod/1/1", ownerReferences=[JOB])
    await add(kube, "Secret", "keys", labels={**OURS, "hawk/job": "gone"})
    await add(kube, "Job", "j", labels={**OURS, "hawk/job": "lives"})
    await add(kube, "Secret", "in-use", labels={**OURS, "hawk/job": "lives"})
    await add(kube, "Pod", "theirs", labels={"app.kubernetes.io/name": "theirs"})

    said = await swept("--pods", "--dry-run")
    assert "Would remove Pod dead of 20" in said
    assert "Would remove NetworkPolicy dead-too" in said
    assert "Kept Pod elsewhere of 2025-01-01" in said
    assert "it may be" not in said
    assert "may be of a process of another-host." in said
    assert "of Job j, with which the cluster removes it." in said
    assert kube.named("Pod", "dead") is not None

    found = json.loads(await swept("--pods", "--json"))
    assert {o["name"] for o in found["objects"] if o["abandoned"]} == {"dead", "dead-too"}
    assert found["namespace"] == "test"
    assert kube.named("Pod", "dead") is None

    said = await swept("--pods", "--older-than", "30d")
    assert "Removed Pod elsewhere" in said
    assert "Removed Secret keys" in said
    left = {name for items in kube.objects.values() for _, name in items}
    assert left == {"owned", "j", "in-use", "theirs"}
    for kind, name in (("Pod", "owned"), ("Job", "j"), ("Secret", "in-use"), ("Pod", "theirs")):
        item = kube.named(kind, name)
        assert item is not None
        await kube.remove(kind, item)
    assert "Nothing was left behind" in await swept("--pods")


async def test_an_age_without_pods_is_refused() -> None:
    done = await asyncio.to_thread(CliRunner().invoke, cli, ["sandbox", "sweep", "--older-than", "1d"])
    assert isinstance(done.exception, UsageError)
    assert done.exception.remedy == "Give --pods as well."
