"""The engine on a real cluster, with shell commands in place of the runner: launch, every kind of end, nothing left."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from hawk.config.cluster import load_cluster_settings
from hawk.config.settings import load_settings
from hawk.core.cluster import PodsSeen
from hawk.core.cluster_status import with_pods
from hawk.core.cluster_why import End, how_ended
from hawk.core.snapshot import Snapshot
from hawk.core.states import JobStatus
from hawk.engine.kubernetes import manifests, names
from hawk.engine.kubernetes.kubernetes import KubernetesEngine
from hawk.errors import ClusterError
from hawk.kube.api import Cluster, connect
from hawk.server.services.logs import LogReader, Wanted
from hawk.server.services.registry import now
from hawk.store.rundir import JobSpec, RunDir, read_json, write_json
from tests.engine.jobs_fake import until
from tests.kubernetes.conftest import ENDING, IMAGE

T = TypeVar("T")

STAYS = "trap 'exit 0' TERM; sleep 600 & wait"
OURS = ("Job", "Pod", "Secret", "ConfigMap", "Service", "NetworkPolicy", "PersistentVolumeClaim")


class Place:
    """A server's engine and run root, in one namespace."""

    def __init__(self, home: Path, namespace: str) -> None:
        self.namespace = namespace
        self.settings = load_settings({"HAWK_HOME": str(home)})
        environ = {
            "HAWK_KUBE_NAMESPACE": namespace,
            "HAWK_KUBE_IMAGE": IMAGE,
            "HAWK_KUBE_PULL_POLICY": "IfNotPresent",
        }
        self.engine = KubernetesEngine(self.settings, load_cluster_settings(environ))

    def job(self, job_id: str, **runner: Any) -> RunDir:
        run = RunDir(self.settings.root / job_id)
        run.create()
        small = {"memory": "64Mi", "cpu": "50m", **runner}
        config = {"runner": {k: v for k, v in small.items() if v is not None}, "middleman": {"off": True}}
        write_json(run.spec_file, JobSpec(job_id, "/srv/evals", config, engine="kubernetes"))
        return run

    def seen(self, run: RunDir) -> PodsSeen | None:
        return read_json(run.pods_file, PodsSeen)

    def shown(self, run: RunDir) -> Snapshot:
        """As `watch` shows it."""
        seen = self.seen(run)
        snapshot = Snapshot(run.job_id, JobStatus.PENDING)
        return snapshot if seen is None else with_pods(snapshot, seen, now())

    def ask(self, work: Callable[[Cluster], Awaitable[T]]) -> T:
        async def asked() -> T:
            async with await connect(namespace=self.namespace) as cluster:
                return await work(cluster)

        return asyncio.run(asked())

    def left(self) -> list[str]:
        async def listed(cluster: Cluster) -> list[str]:
            found = []
            for kind in OURS:
                items, _ = await cluster.list(kind, labels=names.OURS)
                found += [f"{kind} {item['metadata']['name']}" for item in items]
            return found

        return self.ask(listed)


@pytest.fixture
def place(namespace: str, tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path / "home", namespace)
    try:
        yield found
    finally:
        for path in found.settings.root.iterdir():
            if path.is_dir():
                found.engine.kill(path.name)
        found.engine.close()
        assert found.left() == []


def logged(run: RunDir) -> list[str]:
    """What `hawk logs` shows of the cluster."""
    wanted = Wanted(services=frozenset({"cluster"}))
    entries = LogReader().read(run, newest_first=False, limit=1000, wanted=wanted)
    return [f"{entry.timestamp} {entry.message}" for entry in entries]


@pytest.fixture
def does(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says what runners do."""
    return lambda script: monkeypatch.setattr(manifests, "COMMAND", ["sh", "-c", script])


def sandbox(name: str, job_id: str, owner: dict[str, Any] | None = None) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, "labels": names.labels(job_id, "sandbox")}
    if owner is not None:
        meta["ownerReferences"] = [manifests.owner_reference(owner)]
    container = {
        "name": "default",
        "image": IMAGE,
        "command": ["sleep", "600"],
        "imagePullPolicy": "IfNotPresent",
    }
    return {
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }


def owner_of(place: Place, job_id: str) -> dict[str, Any]:
    found = place.ask(lambda cluster: cluster.get("Job", names.job_name(job_id, 1)))
    assert found is not None
    return found


def test_launch_and_kill(place: Place, does: Callable[[str], None]) -> None:
    does(f"id -u; ls -l /hawk/job; touch /usr/x; {STAYS}")
    run = place.job("a")
    began = time.monotonic()
    place.engine.launch("a", {"TOKEN": "t"})
    assert time.monotonic() - began < 5
    pod = until(lambda: place.engine.runner_pod("a"), 60)
    said = until(
        lambda: s if "/usr/x" in (s := place.ask(lambda cluster: cluster.logs(pod, "runner"))) else None
    )
    assert said.startswith("10001\n")
    assert "secrets.json" in said
    assert "Read-only file system" in said
    assert place.engine.liveness("a").alive
    until(lambda: (s := place.seen(run)) is not None and s.runner is not None and s.runner.phase == "Running")
    (row,) = place.engine.report("a")["processes"]
    assert (row["name"], row["state"], row["node"] is not None) == (pod, "Running", True)
    began = time.monotonic()
    place.engine.kill("a")
    assert place.left() == []
    assert time.monotonic() - began < ENDING


def test_a_middleman_beside_the_runner_is_the_only_one_with_keys(
    place: Place, does: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    does(STAYS)
    monkeypatch.setattr(manifests, "SIDECAR", ["sh", "-c", f"cat /hawk/keys/job-keys; echo; {STAYS}"])
    run = place.job("a")
    spec = run.read_spec()
    spec.config = {"runner": spec.config["runner"], "models": [{"items": [{"name": "openai/gpt-4o"}]}]}
    write_json(run.spec_file, spec)
    place.engine.launch("a", {"OPENAI_API_KEY": "sk-1"})
    pod = until(lambda: place.engine.runner_pod("a"), 60)
    until(lambda: "sk-1" in place.ask(lambda cluster: cluster.logs(pod, "middleman")))

    async def look(cluster: Cluster) -> str:
        done = await cluster.exec(
            pod, ["sh", "-c", "ls /hawk; cat /hawk/job/*; env"], container="runner", timeout=20
        )
        return done.stdout.decode()

    said = place.ask(look)
    assert "start.json" not in said.split()
    assert "keys" not in said.split()
    assert "sk-1" not in said


def test_no_use_is_final_at_once(place: Place, does: Callable[[str], None]) -> None:
    does("echo wrong version >&2; exit 64")
    place.job("a")
    place.engine.launch("a", {})
    until(lambda: not place.engine.liveness("a").alive, 60)
    found = place.engine.liveness("a")
    assert (found.final, found.detail) == (True, "its runner exited with code 64: wrong version")


def test_out_of_memory_is_said_and_tried_again(place: Place, does: Callable[[str], None]) -> None:
    does("tail /dev/zero")
    run = place.job("a", memory="32Mi")
    place.engine.launch("a", {})
    shown = until(lambda: s if (s := place.shown(run)).trouble_reason else None, 60)
    assert (shown.trouble_reason, shown.status) == ("OOMKilled", JobStatus.PENDING)
    assert shown.reason == "its runner ran out of memory (OOMKilled, limit 32Mi); it is started again"
    assert place.engine.liveness("a").alive
    for said in ("Job hawk-a-g1: SuccessfulCreate: ", ": Scheduled: Successfully assigned ", ": OOMKilled: "):
        until(lambda said=said: any(said in line for line in logged(run)))  # type: ignore[misc]
    at = [
        next(i for i, line in enumerate(logged(run)) if word in line) for word in ("Scheduled", "OOMKilled")
    ]
    assert at == sorted(at)
    assert len(logged(run)) == len(set(logged(run)))  # nothing twice, by its time and words


def test_no_room_is_said_in_seconds(place: Place, does: Callable[[str], None]) -> None:
    does(STAYS)
    run = place.job("a", memory="900Gi")
    place.engine.launch("a", {})
    began = time.monotonic()
    shown = until(lambda: s if (s := place.shown(run)).reason else None, 30)
    assert time.monotonic() - began < 5
    assert shown.status is JobStatus.PENDING
    assert "Insufficient memory" in (shown.reason or "")
    until(lambda: any("FailedScheduling" in line and "Insufficient memory" in line for line in logged(run)))


def test_a_missing_image_is_said_in_seconds(place: Place, does: Callable[[str], None]) -> None:
    does(STAYS)
    run = place.job("a", image="hawk.test/none:1")
    place.engine.launch("a", {})
    shown = until(lambda: s if (s := place.shown(run)).trouble_reason else None, 60)
    assert shown.trouble_reason in ("ErrImagePull", "ImagePullBackOff")
    assert shown.status is JobStatus.STUCK
    until(lambda: "hawk.test/none:1" in (place.shown(run).reason or ""))


def test_a_quota_is_said_in_seconds(place: Place, does: Callable[[str], None]) -> None:
    does(STAYS)
    quota = {"kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": {"hard": {"pods": "0"}}}
    place.ask(lambda cluster: cluster.create(quota))
    try:
        run = place.job("a")
        place.engine.launch("a", {})
        shown = until(lambda: s if (s := place.shown(run)).reason else None, 30)
        assert "exceeded quota: team" in (shown.reason or "")
    finally:
        place.ask(lambda cluster: cluster.delete("ResourceQuota", "team"))


def test_a_deadline_ends_it_for_good(place: Place, does: Callable[[str], None]) -> None:
    does(STAYS)
    place.job("a", deadline=3)
    place.engine.launch("a", {})
    until(lambda: not place.engine.liveness("a").alive, 90)
    found = place.engine.liveness("a")
    assert (found.final, found.detail) == (
        True,
        "its Job ran longer than its deadline of 3 s (DeadlineExceeded)",
    )


def test_an_eviction_is_not_held_against_it(place: Place, does: Callable[[str], None]) -> None:
    does(STAYS.replace("exit 0", "exit 143"))
    run = place.job("a")
    place.engine.launch("a", {})
    pod = until(lambda: place.engine.runner_pod("a"), 60)

    async def evict(cluster: Cluster) -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        path = f"/api/v1/namespaces/{place.namespace}/pods/{pod}/eviction"
        await cluster.requests.send("POST", path, body=body, what="evict")

    place.ask(evict)
    until(lambda: (name := place.engine.runner_pod("a")) is not None and name != pod, 90)
    assert place.engine.liveness("a").tries == 0
    seen = place.seen(run)
    assert seen is not None
    ends = [how_ended(p) for p in (*seen.gone, *seen.pods) if p.name == pod]
    assert [end.end for end in ends if end is not None] == [End.DISRUPTED]


def test_the_servers_own_rights_suffice(
    place: Place, does: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the account of `deploy/base`, and nothing more."""
    does(STAYS)
    manifests_of = yaml.safe_load_all(
        (Path(__file__).parents[2] / "deploy/base/server-account.yaml").read_text()
    )

    async def account(cluster: Cluster) -> str:
        for manifest in manifests_of:
            await cluster.create(manifest, exist_ok=True)
        answer = await cluster.requests.send(
            "POST",
            f"/api/v1/namespaces/{place.namespace}/serviceaccounts/hawk-server/token",
            body={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
            what="ask for a token",
        )
        return str(answer["status"]["token"])

    config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    for user in config["users"]:
        user["user"] = {"token": place.ask(account)}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    with monkeypatch.context() as there:
        there.setenv("KUBECONFIG", str(file))
        least = Place(tmp_path / "least", place.namespace)
    try:
        run = least.job("b")
        least.engine.launch("b", {"TOKEN": "t"})
        until(lambda: least.engine.runner_pod("b"), 60)
        until(lambda: least.engine.leading and least.seen(run) is not None)
        least.engine.sweep()
        least.engine.kill("b")
        assert place.left() == []
    finally:
        least.engine.close()


def test_two_servers_start_one_runner(place: Place, does: Callable[[str], None]) -> None:
    does(STAYS)
    place.job("a")
    other = Place(place.settings.home, place.namespace)
    try:
        threads = [threading.Thread(target=p.engine.launch, args=["a", {}]) for p in (place, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pods = [until(lambda p=p: p.engine.runner_pod("a"), 60) for p in (place, other)]  # type: ignore[misc]
        assert pods[0] == pods[1]
        assert len([name for name in place.left() if name.startswith("Pod")]) == 1
    finally:
        other.engine.close()


def test_a_delete_catches_sandboxes_that_are_being_created(place: Place, does: Callable[[str], None]) -> None:
    does(STAYS)
    place.job("a")
    place.engine.launch("a", {})
    until(lambda: place.engine.runner_pod("a"), 60)
    owner = owner_of(place, "a")
    stop = threading.Event()

    made: list[str] = []

    async def create(cluster: Cluster) -> None:
        while not stop.is_set() and len(made) < 60:
            await cluster.create(sandbox(f"box-{len(made)}", "a", owner))
            made.append(f"box-{len(made)}")
            await asyncio.sleep(0.05)

    thread = threading.Thread(target=lambda: place.ask(create))
    thread.start()
    until(lambda: len(made) > 2, 30)
    before = len(made)
    began = time.monotonic()
    killer = threading.Thread(target=place.engine.kill, args=["a"])
    killer.start()
    until(lambda: len(made) >= before + 3, 30)  # some more while it goes on
    stop.set()
    thread.join()
    killer.join()
    until(lambda: place.left() == [], ENDING)
    assert time.monotonic() - began < ENDING


def test_when_its_job_is_gone_the_cluster_removes_the_rest(place: Place, does: Callable[[str], None]) -> None:
    does(STAYS)
    place.job("a")
    place.engine.launch("a", {})
    until(lambda: place.engine.runner_pod("a"), 60)
    owner = owner_of(place, "a")
    place.ask(lambda cluster: cluster.create(sandbox("box", "a", owner)))
    place.ask(lambda cluster: cluster.delete("Job", owner["metadata"]["name"]))
    until(lambda: not place.engine.liveness("a").alive, 30)
    assert place.engine.liveness("a").detail == "its Job was deleted from the cluster"
    until(lambda: place.left() == [], ENDING)


def test_a_job_that_has_failed_goes_by_itself(
    place: Place, does: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    does("sleep 2; exit 64")
    monkeypatch.setattr(manifests, "KEPT", 3)
    place.job("a")
    place.engine.launch("a", {})
    owner = owner_of(place, "a")
    place.ask(lambda cluster: cluster.create(sandbox("box", "a", owner)))
    until(lambda: not place.engine.liveness("a").alive, 60)
    until(lambda: place.left() == [], ENDING)
    assert place.engine.liveness("a").final  # it is still known how it ended


def test_a_namespace_that_is_being_deleted(
    namespace: str, tmp_path: Path, does: Callable[[str], None]
) -> None:
    does(STAYS)
    doomed = f"{namespace}-x"

    async def make() -> None:
        async with await connect(namespace=doomed) as cluster:
            await cluster.create({"kind": "Namespace", "metadata": {"name": doomed}})
            while await cluster.get("ServiceAccount", "default") is None:
                await asyncio.sleep(0.1)

    asyncio.run(make())
    place = Place(tmp_path / "home", doomed)
    try:
        place.job("a")
        place.engine.launch("a", {})
        until(lambda: place.engine.runner_pod("a"), 60)
        place.ask(lambda cluster: cluster.delete("Namespace", doomed))
        place.job("b")
        with pytest.raises(ClusterError) as caught:
            place.engine.launch("b", {})
        assert caught.value.fields["reason"] == "terminating"
        until(lambda: not place.engine.liveness("a").alive, 90)
        place.engine.kill("a")
    finally:
        place.engine.close()
