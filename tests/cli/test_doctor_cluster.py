"""What `hawk server deploy --check` and `hawk doctor --engine kubernetes` say of a namespace, well and unwell."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from hawk.cli import cluster_checks as look
from hawk.cli import deploy_check, doctor_cluster
from hawk.cli.doctor_checks import Check, State
from hawk.config.cluster import ClusterSettings, load_cluster_settings
from hawk.kube.api import Cluster
from hawk.kube.kinds import KINDS
from hawk.kube.permissions import RUNNER, SERVER, pairs
from tests.cli.conftest import Run
from tests.kube.fake import Fake, fake_cluster

FORBIDDEN = {
    "kind": "Status",
    "reason": "Forbidden",
    "message": 'pods is forbidden: User "u" cannot create resource "pods" in API group ""',
}


class Namespace:
    """A fake namespace and what it answers.

    Attributes:
        refused: (verb, resource) that nobody may.
        answers: Path's beginning to (status, body), before the fake's own answer.
        dry_run: Answer to pods that are only tried; None: let in.
    """

    def __init__(self, fake: Fake, cluster: Cluster) -> None:
        self.fake, self.cluster = fake, cluster
        self.refused: set[tuple[str, str]] = set()
        self.answers: dict[str, tuple[int, Any]] = {"/version": (200, {"gitVersion": "v1.32.1"})}
        self.pods: tuple[int, Any] | None = None
        self.asked: list[dict[str, Any]] = []
        fake.before = self._read
        fake.answers = self._answer
        self._bodies: dict[int, dict[str, Any]] = {}

    async def _read(self, request: web.Request) -> None:
        self._bodies[id(request)] = json.loads(await request.read() or b"{}")

    def _answer(self, method: str, path: str, request: web.Request) -> web.StreamResponse | None:
        body = self._bodies.pop(id(request))
        if path.endswith("accessreviews"):
            asked = body["spec"]["resourceAttributes"]
            self.asked.append(asked)
            resource = "/".join(part for part in (asked["resource"], asked["subresource"]) if part)
            allowed = (asked["verb"], resource) not in self.refused
            return web.json_response({"status": {"allowed": allowed}}, status=201)
        if "dryRun" in request.query:
            status, answer = self.pods or (201, body)
            return web.json_response(answer, status=status)
        for beginning, (status, answer) in self.answers.items():
            if path.startswith(beginning):
                return web.json_response(answer, status=status)
        return None

    async def add(self, kind: str, name: str, **more: Any) -> None:
        namespace = "test" if KINDS[kind].namespaced else ""
        item = {"kind": kind, "metadata": {"name": name, "namespace": namespace, "uid": name}, **more}
        await self.fake.put("ADDED", kind, item)


@pytest_asyncio.fixture
async def there() -> AsyncIterator[Namespace]:
    async with fake_cluster() as (fake, cluster):
        yield Namespace(fake, cluster)


def settings(**environ: str) -> ClusterSettings:
    return load_cluster_settings({f"HAWK_KUBE_{name}": value for name, value in environ.items()})


def one(checks: list[Check]) -> Check:
    (check,) = checks
    return check


async def test_the_api_must_answer_and_be_new_enough(there: Namespace) -> None:
    assert (await look.api(there.cluster)).state is State.OK
    there.answers["/version"] = (200, {"gitVersion": "v1.28.9"})
    old = await look.api(there.cluster)
    assert (old.state, old.remedy) == (State.MISSING, "Hawk needs Kubernetes 1.29 or newer.")
    there.answers["/version"] = (401, {"kind": "Status", "reason": "Unauthorized", "message": "no"})
    assert (await look.api(there.cluster)).state is State.MISSING


async def test_each_verb_is_asked_for_and_a_refused_one_is_named(there: Namespace) -> None:
    there.refused = {("create", "jobs"), ("update", "jobs/finalizers")}
    found = await look.own_permissions(there.cluster, SERVER)
    asked = {(one["verb"], one["resource"], one["subresource"], one["group"]) for one in there.asked}
    assert asked == {(verb, rule.plural, rule.subresource, rule.group) for rule, verb in pairs(SERVER)}
    states = {check.name: check.state for check in found}
    assert len(found) == len(SERVER)
    assert states["you: jobs"] is State.MISSING
    assert states["you: jobs/finalizers"] is State.WARN  # not every cluster asks for it
    (jobs,) = [check for check in found if check.name == "you: jobs"]
    assert "create on jobs in group batch" in (jobs.remedy or "")


async def test_who_may_nothing_is_told_how_to_get_all_at_once(there: Namespace) -> None:
    assert one(await doctor_cluster._mine(there.cluster)).state is State.OK
    there.refused = {("create", "jobs")}
    *_, last = await doctor_cluster._mine(there.cluster)
    assert last.state is State.MISSING
    for part in ("-n test -f deploy/base/server-account.yaml", "--role=hawk-server"):
        assert part in (last.remedy or "")
    file = Path(__file__).parents[2] / "deploy/base/server-account.yaml"
    assert "kind: Role, name: hawk-server" in file.read_text()
    assert (Path(__file__).parents[2] / doctor_cluster.MANUAL).exists()


async def test_an_accounts_permissions_are_asked_for_by_its_name(there: Namespace) -> None:
    missing = one(await look.account_permissions(there.cluster, "hawk-runner", RUNNER))
    assert (missing.state, missing.detail) == (State.MISSING, "There is no such ServiceAccount.")
    await there.add("ServiceAccount", "hawk-runner")
    found = await look.account_permissions(there.cluster, "hawk-runner", RUNNER)
    assert {check.state for check in found} == {State.OK}
    assert {asked["namespace"] for asked in there.asked} == {"test"}


POD_SECURITY = {
    "kind": "Status",
    "reason": "Forbidden",
    "message": 'pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true',
}


async def test_what_pod_security_does_not_let_in_is_said(there: Namespace) -> None:
    assert {c.state for c in await look.pods_allowed(there.cluster, settings())} == {State.OK}
    there.pods = (403, POD_SECURITY)
    runner, root = await look.pods_allowed(there.cluster, settings())
    assert (runner.state, root.state) == (State.MISSING, State.WARN)
    assert runner.detail == "not let in: Pod Security enforces restricted"
    there.pods = (403, FORBIDDEN)  # the server makes Jobs, no pods
    assert {c.state for c in await look.pods_allowed(there.cluster, settings())} == {State.OK}
    assert there.fake.of("Pod") == {}


@pytest.mark.parametrize(
    ("hard", "used", "state"),
    [
        ({"pods": "10"}, {"pods": "9"}, State.OK),
        ({"pods": "10"}, {"pods": "10"}, State.MISSING),
        ({"requests.cpu": "2"}, {"requests.cpu": "1600m"}, State.MISSING),
        ({"limits.memory": "8Gi"}, {"limits.memory": "4Gi"}, State.OK),
        ({"limits.memory": "8G"}, {"limits.memory": "4Gi"}, State.MISSING),
        ({"count/configmaps": "1"}, {"count/configmaps": "1"}, State.OK),
    ],
)
async def test_a_quota_must_have_room_for_a_runner(
    there: Namespace, hard: dict[str, str], used: dict[str, str], state: State
) -> None:
    await there.add("ResourceQuota", "q", status={"hard": hard, "used": used})
    assert one(await look.quota(there.cluster)).state is state


def test_quantities_are_read_as_kubernetes_writes_them() -> None:
    given = {"500m": 0.5, "2": 2, "1Ki": 1024, "4Gi": 4 * 1024**3, "1k": 1000, "1M": 1e6, "0": 0}
    assert {text: look.amount(text) for text in given} == given
    assert look.amount("nonsense") == float("inf")


async def test_an_image_without_a_registry_must_be_on_the_nodes(there: Namespace) -> None:
    local, remote = settings(IMAGE="hawk-runner:9"), settings(IMAGE="registry.example.org/hawk:9")
    images = [{"names": ["docker.io/library/hawk-runner:9"]}]
    await there.add("Node", "n1", status={"images": []})
    assert one(await look.image(there.cluster, local)).state is State.MISSING
    assert one(await look.image(there.cluster, remote)).state is State.OK
    await there.add("Node", "n2", status={"images": images})
    assert one(await look.image(there.cluster, local)).state is State.WARN
    await there.add("Node", "n1", status={"images": images})
    found = one(await look.image(there.cluster, local))
    assert (found.state, found.detail.endswith("on 2 of 2 nodes")) == (State.OK, True)
    never = settings(IMAGE="registry.example.org/hawk:9", PULL_POLICY="Never")
    assert one(await look.image(there.cluster, never)).state is State.MISSING
    secret = settings(IMAGE="registry.example.org/hawk:9", PULL_SECRETS="pull")
    assert "no Secret pull" in one(await look.image(there.cluster, secret)).detail
    there.answers["/api/v1/nodes"] = (403, {"kind": "Status", "reason": "Forbidden", "message": "no"})
    assert one(await look.image(there.cluster, local)).state is State.OK  # not seen is not missing


async def test_a_network_plugin_is_known_by_its_name(there: Namespace) -> None:
    daemons = "/apis/apps/v1/daemonsets"
    for body, state in (
        ({"items": [{"metadata": {"name": "calico-node"}}]}, State.OK),
        ({"items": [{"metadata": {"name": "kube-flannel-ds"}}]}, State.WARN),
    ):
        there.answers[daemons] = (200, body)
        assert one(await look.network(there.cluster)).state is state
    there.answers[daemons] = (403, {"kind": "Status", "reason": "Forbidden", "message": "no"})
    assert "may not see" in one(await look.network(there.cluster)).detail


async def test_secrets_must_be_there_with_what_is_read_from_them(there: Namespace) -> None:
    found = {check.name: check.state for check in await deploy_check.secrets(there.cluster)}
    assert found["secret hawk-database"] is State.MISSING
    assert found["secret hawk-provider-keys"] is State.WARN
    await there.add("Secret", "hawk-database", data={"password": "eA=="})
    (database,) = [c for c in await deploy_check.secrets(there.cluster) if c.name == "secret hawk-database"]
    assert (database.state, database.detail) == (State.MISSING, "without url")
    await there.add("Secret", "hawk-database", data={"url": "eA=="})
    await there.add("Secret", "hawk-provider-keys", data={"OPENAI_API_KEY": "eA=="})
    found = {check.name: check.state for check in await deploy_check.secrets(there.cluster)}
    assert {found["secret hawk-database"], found["secret hawk-provider-keys"]} == {State.OK}


async def test_a_volume_needs_a_class_or_is_there(there: Namespace) -> None:
    classes = "/apis/storage.k8s.io/v1/storageclasses"
    there.answers[classes] = (200, {"items": [{"metadata": {"name": "slow"}}]})
    assert one(await deploy_check.storage(there.cluster)).state is State.MISSING
    notes = {"storageclass.kubernetes.io/is-default-class": "true"}
    there.answers[classes] = (200, {"items": [{"metadata": {"name": "slow", "annotations": notes}}]})
    assert one(await deploy_check.storage(there.cluster)).state is State.OK
    await there.add("PersistentVolumeClaim", "hawk-server", spec={"storageClassName": "gone"})
    assert one(await deploy_check.storage(there.cluster)).state is State.MISSING
    await there.add("PersistentVolumeClaim", "hawk-server", status={"phase": "Bound"})
    assert one(await deploy_check.storage(there.cluster)).detail == "hawk-server is bound"


async def test_what_is_not_said_here_is_as_the_deployed_server_has_it(there: Namespace) -> None:
    assert await deploy_check.deployed(there.cluster) == {}
    env = [
        {"name": "HAWK_KUBE_IMAGE", "value": "registry.example.org/hawk-runner:2"},
        {"name": "HAWK_KUBE_PULL_SECRETS", "value": "pull"},
        {"name": "HAWK_ACCESS_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hawk-server", "key": "token"}}},
    ]
    pod = {"spec": {"containers": [{"name": "server", "env": env}]}}
    await there.add("Deployment", "hawk-server", spec={"template": pod})
    found = await deploy_check.deployed(there.cluster)
    assert found == {one["name"]: one["value"] for one in env[:2]}
    there.answers["/apis/apps/v1/namespaces/test/deployments"] = (403, FORBIDDEN)
    assert await deploy_check.deployed(there.cluster) == {}


def test_what_is_to_be_done_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("secret a", "secret b")
    deploy_check.show([Check(name, State.MISSING, "not there", "make them") for name in names])
    assert "secret a, secret b\n  → make them" in capsys.readouterr().out


async def test_a_trial_pod_is_removed_whatever_becomes_of_it(there: Namespace) -> None:
    async def fails(pod: dict[str, Any]) -> None:
        await there.fake.status(
            pod, "Pending", waiting={"reason": "ErrImagePull", "message": "not found: \x1b[31mregistry"}
        )

    there.fake.scenario = fails
    found = one(await deploy_check.trial_pod(there.cluster, settings()))
    assert found.state is State.MISSING
    assert "ErrImagePull not found" in found.detail
    assert "\x1b" not in found.detail
    assert not [p for p in there.fake.of("Pod").values() if not p["metadata"].get("deletionTimestamp")]


async def test_one_look_that_fails_is_one_finding(there: Namespace) -> None:
    async def breaks() -> list[Check]:
        return await look.quota(there.cluster)

    there.answers["/api/v1/namespaces/test/resourcequotas"] = (
        403,
        {"kind": "Status", "reason": "Forbidden", "message": "no"},
    )
    found = await look.gather([look.named("quota", breaks), look.named("ok", _well)])
    assert [(check.name, check.state) for check in found] == [("quota", State.WARN), ("ok", State.OK)]


async def _well() -> list[Check]:
    return [Check("ok", State.OK, "")]


def test_link_and_middleman_follow_the_settings() -> None:
    assert "through the cluster's API" in doctor_cluster.link(settings()).detail
    assert "dial http://hawk:8080" in doctor_cluster.link(settings(SERVER_URL="http://hawk:8080/")).detail
    assert "one in each runner pod" in doctor_cluster.middleman(settings()).detail


@pytest.fixture
def nobody(tmp_path: Path) -> Callable[[str], Path]:
    """A kubeconfig for an address where nobody listens."""

    def write(address: str) -> Path:
        path = tmp_path / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "evals"}}],
            "clusters": [{"name": "c", "cluster": {"server": address}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        path.write_text(json.dumps(config))
        return path

    return write


def test_without_a_cluster_both_say_so_and_end_with_1(
    run: Run, env: dict[str, str], tmp_path: Path, nobody: Callable[[str], Path]
) -> None:
    env = {
        **{k: v for k, v in env.items() if not k.startswith(("HAWK_KUBE", "KUBE"))},
        "KUBECONFIG": "/nowhere",
    }
    for args in (("doctor", "--engine", "kubernetes"), ("server", "deploy", "--check")):
        done = run(*args, env=env)
        assert done.returncode == 1, args
        assert "/nowhere is not there" in done.stdout + done.stderr
    wrong = run("doctor", "--engine", "kubernetes", "--json", env={**env, "HAWK_KUBE_PULL_POLICY": "Often"})
    assert json.loads(wrong.stdout)["checks"][0]["state"] == "missing"


@pytest.mark.parametrize(
    ("change", "environ", "name", "says", "remedy"),
    [
        ({}, {"KUBECONFIG": "/nowhere"}, "kubeconfig", "/nowhere is not there", "Set KUBECONFIG"),
        (None, {}, "kubeconfig", "is no kubeconfig", "Set KUBECONFIG"),
        ({}, {"HAWK_KUBE_CONTEXT": "prod"}, "kubeconfig", "no context prod: it has c", "HAWK_KUBE_CONTEXT"),
        ({"current-context": ""}, {}, "kubeconfig", "no current context: it has c", "HAWK_KUBE_CONTEXT"),
        (
            {"users": [{"name": "u", "user": {"exec": {"apiVersion": "v1", "command": "no-such-plugin"}}}]},
            {},
            "kubeconfig",
            "the program no-such-plugin, which it signs in with, is not here",
            "Set KUBECONFIG",
        ),
        ({}, {}, "api", "https://127.0.0.1:1 could not be reached to read its version", "kubectl version"),
    ],
)
def test_a_cluster_that_can_not_be_asked_is_said_with_what_to_do(
    nobody: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    change: dict[str, Any] | None,
    environ: dict[str, str],
    name: str,
    says: str,
    remedy: str,
) -> None:
    path = nobody("https://127.0.0.1:1")
    path.write_text("" if change is None else json.dumps({**json.loads(path.read_text()), **change}))
    for variable in ("HAWK_KUBE_CONTEXT", "HAWK_KUBE_NAMESPACE", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in {"KUBECONFIG": str(path), **environ}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(look, "PATIENCE", 0.1)
    found = doctor_cluster.run_checks()[-1]
    assert (found.name, found.state) == (name, State.MISSING)
    assert says in found.detail
    assert remedy in (found.remedy or "")
    assert "object at 0x" not in found.detail
    assert capfd.readouterr().err == ""


def test_secrets_are_made_afresh_and_for_one_database(run: Run, env: dict[str, str], tmp_path: Path) -> None:
    made = [
        json.loads(run("server", "deploy", "--secrets", "--bundled-database", env=env).stdout) for _ in (1, 2)
    ]
    values = [json.dumps(item["stringData"]) for one in made for item in one["items"]]
    assert len(set(values)) == len(values) == 6
    url = tmp_path / "url"
    url.write_text("mysql://db/hawk\n")
    wrong = run("server", "deploy", "--secrets", "--database-url", str(url), env=env)
    assert wrong.returncode == 2
    assert "must begin with postgresql://" in wrong.stderr
    both = run("server", "deploy", "--secrets", env=env)
    assert both.returncode == 2
    assert run("server", "deploy", env=env).returncode == 2


def test_migrate_makes_the_schema_once_and_again(run: Run, env: dict[str, str], tmp_path: Path) -> None:
    database = tmp_path / "index.db"
    env = {**env, "HAWK_DATABASE_URL": f"sqlite:///{database}"}
    for _ in (1, 2):
        done = run("server", "migrate", env=env)
        assert done.returncode == 0, done.stderr
        assert "has the schema of Hawk" in done.stdout
    assert database.stat().st_size > 0
