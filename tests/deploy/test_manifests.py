"""What `deploy/` says holds together: names, ports, probes, Secrets, settings, and how little each pod may."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hawk import __version__
from hawk.cli.deploy_secrets import NAMES, PROVIDER_KEYS, manifest
from hawk.config.settings import Settings
from hawk.kube import permissions
from hawk.server.gate import OPEN_PATHS
from tests.deploy.conftest import OVERLAYS, containers, of_kind, pod_specs, rendered

HERE = Path(__file__).parents[2]


@pytest.fixture(params=OVERLAYS)
def objects(request: pytest.FixtureRequest) -> tuple[dict[str, Any], ...]:
    return rendered(f"overlays/{request.param}")


def test_everything_is_in_the_namespace_and_named_once(objects: tuple[dict[str, Any], ...]) -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(names) == len(set(names))
    assert {one["metadata"].get("namespace") for one in objects if one["kind"] != "Namespace"} == {"hawk"}
    assert {one["kind"] for one in objects}.isdisjoint(
        {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "MutatingWebhookConfiguration"}
    )


def test_server_and_two_middlemen(objects: tuple[dict[str, Any], ...]) -> None:
    server, middleman = (
        of_kind(objects, "Deployment", f"hawk-{name}")[0] for name in ("server", "middleman")
    )
    assert (server["spec"]["replicas"], server["spec"]["strategy"]) == (1, {"type": "Recreate"})
    assert middleman["spec"]["replicas"] == 2
    budget = of_kind(objects, "PodDisruptionBudget")[0]
    assert budget["spec"]["minAvailable"] == 1
    labels = middleman["spec"]["template"]["metadata"]["labels"]
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_pods_are_restricted(objects: tuple[dict[str, Any], ...]) -> None:
    """Pod Security's `restricted`, and what is stricter: a read-only root, no token that is not needed."""
    for name, template in pod_specs(objects).items():
        pod, spec = template["spec"]["securityContext"], template["spec"]
        assert pod["runAsNonRoot"], name
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec.get("automountServiceAccountToken") is (name == "Deployment/hawk-server"), name
        assert spec["enableServiceLinks"] is False, name
        for container in containers(spec):
            own = container["securityContext"]
            assert own["capabilities"] == {"drop": ["ALL"]}, name
            assert own["allowPrivilegeEscalation"] is False, name
            assert own["readOnlyRootFilesystem"] is True, name
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name
            assert "memory" in container["resources"]["limits"], name


def test_probes_ask_paths_that_are_open_on_ports_that_are_listened_on(
    objects: tuple[dict[str, Any], ...],
) -> None:
    open_paths = {"server": OPEN_PATHS, "middleman": {"/health/live", "/health/ready"}}
    for name, paths in open_paths.items():
        (container,) = of_kind(objects, "Deployment", f"hawk-{name}")[0]["spec"]["template"]["spec"][
            "containers"
        ]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert str(ports["http"]) == container["command"][container["command"].index("--port") + 1]
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[kind]["httpGet"]
            assert asked["path"] in paths
            assert asked["port"] in ports
        assert (
            container["livenessProbe"]["httpGet"]["path"] == "/health/live"
        )  # a full disk is no reason to restart


def test_services_and_policies_select_pods_that_are_there(objects: tuple[dict[str, Any], ...]) -> None:
    pods = [template["metadata"]["labels"] for template in pod_specs(objects).values()]
    made = [
        {"app.kubernetes.io/name": "hawk", "app.kubernetes.io/component": name}
        for name in ("runner", "worker")
    ]
    services = [{"matchLabels": one["spec"]["selector"]} for one in of_kind(objects, "Service")]
    policies = [one["spec"]["podSelector"] for one in of_kind(objects, "NetworkPolicy")]
    for selector in (*services, *policies):
        assert any(selects(selector, labels) for labels in (*pods, *made)), selector
    for labels in (*pods, *made):  # and no pod of ours is without one
        assert any(selects(selector, labels) for selector in policies), labels


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    rules = selector.get("matchExpressions", ())
    assert {rule["operator"] for rule in rules} <= {"In"}
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(rule["key"]) in rule["values"] for rule in rules
    )


def test_addresses_in_settings_are_those_of_services(objects: tuple[dict[str, Any], ...]) -> None:
    services = {
        (one["metadata"]["name"], port["port"])
        for one in of_kind(objects, "Service")
        for port in one["spec"]["ports"]
    }
    (container,) = of_kind(objects, "Deployment", "hawk-server")[0]["spec"]["template"]["spec"]["containers"]
    said = {one["name"]: one.get("value") for one in container["env"]}
    for name in ("HAWK_KUBE_SERVER_URL", "HAWK_KUBE_MIDDLEMAN_URL"):
        match = re.fullmatch(r"http://([a-z-]+):(\d+)", said[name])
        assert match is not None
        assert (match[1], int(match[2])) in services
    images = {
        one["image"]
        for name, template in pod_specs(objects).items()
        for one in containers(template["spec"])
        if name != "StatefulSet/hawk-postgres"
    }
    assert images == {said["HAWK_KUBE_IMAGE"]}
    assert container["image"].endswith(f":{__version__}")


def test_secrets_that_are_mounted_are_those_that_are_made(objects: tuple[dict[str, Any], ...]) -> None:
    wanted: set[tuple[str, str | None]] = set()
    for template in pod_specs(objects).values():
        for volume in template["spec"].get("volumes", ()):
            if "secret" in volume and not volume["secret"].get("optional"):
                wanted.add((volume["secret"]["secretName"], None))
        for container in containers(template["spec"]):
            for one in container.get("env", ()):
                source = (one.get("valueFrom") or {}).get("secretKeyRef")
                if source:
                    wanted.add((source["name"], source["key"]))
    import json

    bundled = bool(of_kind(objects, "StatefulSet"))
    made = json.loads(manifest(None if bundled else "postgresql://me:secret@db/hawk"))
    has = {one["metadata"]["name"]: one["stringData"] for one in made["items"]}
    for name, key in wanted:
        assert key is None or has[name][key], (name, key)
        assert name in has
    assert {name: set(keys) for name, keys in NAMES.items()}.items() <= {
        name: set(values) & set(NAMES[name]) for name, values in has.items()
    }.items()
    assert len(has["hawk-signing-key"]["key"]) >= 32
    assert manifest(None) != manifest(None)


def test_only_the_middleman_sees_keys_of_providers(objects: tuple[dict[str, Any], ...]) -> None:
    sees = {
        name
        for name, template in pod_specs(objects).items()
        for volume in template["spec"].get("volumes", ())
        if (volume.get("secret") or {}).get("secretName") == PROVIDER_KEYS
    }
    assert sees == {"Deployment/hawk-middleman"}


def test_variables_of_the_pods_exist(objects: tuple[dict[str, Any], ...]) -> None:
    """A setting that nothing reads is a setting that does not work."""
    source = "\n".join(path.read_text() for path in (HERE / "src/hawk").rglob("*.py"))
    for name, template in pod_specs(objects).items():
        for container in containers(template["spec"]):
            for one in container.get("env", ()):
                variable = one["name"]
                if variable.startswith("HAWK_KUBE_"):
                    assert f'"{variable.removeprefix("HAWK_KUBE_")}"' in source, (name, variable)
                elif variable.startswith("HAWK_"):
                    assert f'"{variable}"' in source, (name, variable)


def test_roles_are_the_table(objects: tuple[dict[str, Any], ...]) -> None:
    table = {permissions.SERVER_ACCOUNT: permissions.SERVER, permissions.RUNNER_ACCOUNT: permissions.RUNNER}
    assert {one["metadata"]["name"] for one in of_kind(objects, "Role")} == set(table)
    for account, rules in table.items():
        (role,) = of_kind(objects, "Role", account)
        assert role["rules"] == permissions.role(rules)
        (binding,) = of_kind(objects, "RoleBinding", account)
        assert binding["roleRef"] == {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role",
            "name": account,
        }
        assert [(one["kind"], one["name"]) for one in binding["subjects"]] == [("ServiceAccount", account)]
        (own,) = of_kind(objects, "ServiceAccount", account)
        assert own["automountServiceAccountToken"] is False


def test_no_account_may_read_all_secrets_or_give_itself_more() -> None:
    for rules in (permissions.SERVER, permissions.RUNNER):
        for rule, verb in permissions.pairs(rules):
            assert verb not in ("*", "bind", "escalate", "impersonate")
            assert "*" not in rule.resource
            assert rule.plural not in ("roles", "rolebindings", "serviceaccounts", "nodes", "namespaces")
            assert not (rule.plural == "secrets" and verb in ("list", "watch", "update", "patch"))
    assert all(rule.plural != "secrets" for rule in permissions.RUNNER)


def test_the_schema_is_brought_to_the_version_before_the_server_starts(
    objects: tuple[dict[str, Any], ...],
) -> None:
    (server,) = of_kind(objects, "Deployment", "hawk-server")
    (first,) = server["spec"]["template"]["spec"]["initContainers"]
    assert first["command"] == ["hawk", "server", "migrate"]


def test_another_image_changes_nothing_that_can_not_be_changed(objects: tuple[dict[str, Any], ...]) -> None:
    """`kubectl apply` of an overlay with another tag has to be let in: templates of Jobs are never."""
    assert of_kind(objects, "Job") == []
    (deployment,) = of_kind(objects, "Deployment", "hawk-server")
    assert set(deployment["spec"]["selector"]["matchLabels"]) == {
        "app.kubernetes.io/name",
        "app.kubernetes.io/component",
    }


def test_the_engine_alone_needs_neither_server_nor_middleman() -> None:
    objects = rendered("engine")
    assert {one["kind"] for one in objects} == {"ServiceAccount", "Role", "RoleBinding", "NetworkPolicy"}
    assert {one["metadata"]["name"] for one in objects} == {"hawk-runner"}


def test_the_docs_explain_every_permission() -> None:
    text = (HERE / "docs/kubernetes-permissions.md").read_text()
    assert permissions.markdown(permissions.SERVER) in text, "run: python -m hawk.kube.manual"
    assert permissions.markdown(permissions.RUNNER) in text, "run: python -m hawk.kube.manual"


def test_the_docs_name_every_setting_of_the_cluster() -> None:
    from hawk.config import cluster

    text = (HERE / "docs/kubernetes.md").read_text()
    for name in set(re.findall(r"HAWK_KUBE_[A-Z_]+", Path(cluster.__file__).read_text())):
        assert f"`{name}`" in text, name
    assert "HAWK_ACCESS_TOKEN" in text
    assert Settings  # the rest is in the other pages
