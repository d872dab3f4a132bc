"""`deploy/` on a real cluster: every object is accepted, the accounts may exactly what the table says, pods are let in."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import Any

import pytest
import yaml

from hawk.cli import cluster_checks as look
from hawk.cli.doctor_checks import State
from hawk.config.cluster import load_cluster_settings
from hawk.kube.api import Cluster, connect
from hawk.kube.permissions import RUNNER, RUNNER_ACCOUNT, SERVER, SERVER_ACCOUNT, pairs
from tests.deploy.conftest import OVERLAYS
from tests.kubernetes.deployment import kubectl, moved


@pytest.mark.parametrize("directory", ["engine", *(f"overlays/{name}" for name in OVERLAYS)])
def test_the_cluster_takes_every_object(namespace: str, directory: str) -> None:
    text = yaml.safe_dump_all(moved(directory, namespace))
    said = kubectl("apply", "-n", namespace, "--dry-run=server", "-f", "-", stdin=text)
    assert said.count("(server dry run)") == text.count("\nkind: ") + text.startswith("kind: ")


@pytest.fixture
def accounts(namespace: str) -> Any:
    """Accounts, Roles and bindings of the overlay; taken away again."""
    objects = moved("overlays/single-node", namespace)
    wanted = [one for one in objects if one["kind"] in ("ServiceAccount", "Role", "RoleBinding")]
    kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.safe_dump_all(wanted))
    yield
    kubectl("delete", "-n", namespace, "--ignore-not-found", "-f", "-", stdin=yaml.safe_dump_all(wanted))


async def test_accounts_may_what_the_table_says_and_nothing_else(namespace: str, accounts: None) -> None:
    async with await connect(namespace=namespace) as cluster:
        for account, rules in ((SERVER_ACCOUNT, SERVER), (RUNNER_ACCOUNT, RUNNER)):
            found = await look.account_permissions(cluster, account, rules)
            assert [check for check in found if check.state is not State.OK] == []
            given = {(rule.group, rule.resource, verb) for rule, verb in pairs(rules)}
            more = [
                (group, resource, verb)
                for group, resource in EVERYTHING
                for verb in (
                    "create",
                    "delete",
                    "deletecollection",
                    "get",
                    "list",
                    "patch",
                    "update",
                    "watch",
                )
                if (group, resource, verb) not in given
            ]
            allowed = await asyncio.gather(*(_may(cluster, account, *one) for one in more))
            assert [one for one, yes in zip(more, allowed, strict=True) if yes] == []


EVERYTHING = (
    *(("", name) for name in ("pods", "pods/exec", "pods/log", "pods/ephemeralcontainers", "secrets")),
    *(
        ("", name)
        for name in ("configmaps", "services", "serviceaccounts", "serviceaccounts/token", "events")
    ),
    *(("", name) for name in ("persistentvolumeclaims", "resourcequotas", "nodes", "namespaces")),
    ("batch", "jobs"),
    ("batch", "cronjobs"),
    ("apps", "deployments"),
    ("networking.k8s.io", "networkpolicies"),
    ("coordination.k8s.io", "leases"),
    ("rbac.authorization.k8s.io", "roles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
)


async def _may(cluster: Cluster, account: str, group: str, resource: str, verb: str) -> bool:
    plural, _, subresource = resource.partition("/")
    attributes = {
        "namespace": cluster.namespace,
        "verb": verb,
        "group": group,
        "resource": plural,
        "subresource": subresource,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "LocalSubjectAccessReview",
        "metadata": {"namespace": cluster.namespace},
        "spec": {
            "user": f"system:serviceaccount:{cluster.namespace}:{account}",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": attributes,
        },
    }
    path = f"/apis/authorization.k8s.io/v1/namespaces/{cluster.namespace}/localsubjectaccessreviews"
    answer = await cluster.requests.send("POST", path, body=body, what="look up a permission")
    return bool((answer.get("status") or {}).get("allowed"))


async def test_pod_security_lets_runners_in_and_says_what_it_keeps_out(namespace: str) -> None:
    settings = load_cluster_settings({})
    async with await connect(namespace=namespace) as cluster:
        for level, root in (("restricted", State.WARN), ("baseline", State.OK)):
            label = {"pod-security.kubernetes.io/enforce": level}
            await cluster.patch("Namespace", namespace, {"metadata": {"labels": label}})
            runner, sandbox = await look.pods_allowed(cluster, settings)
            assert (runner.state, sandbox.state) == (State.OK, root), level
        await cluster.patch(
            "Namespace", namespace, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": None}}}
        )
        assert (await cluster.list("Pod"))[0] == []


def test_the_check_is_a_table_and_an_exit_code(namespace: str) -> None:
    """In a namespace without anything: all that is missing is named, and the end is 1."""
    done = subprocess.run(
        [sys.executable, "-m", "hawk.cli", "server", "deploy", "--check", "-n", namespace, "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "HAWK_KUBE_NAMESPACE": ""},
    )
    assert done.returncode == 1, done.stderr
    checks = {check["name"]: check["state"] for check in json.loads(done.stdout)["checks"]}
    assert checks["api"] == checks["namespace"] == checks["runner pods"] == "ok"
    assert checks["account hawk-server"] == checks["secret hawk-signing-key"] == "missing"


async def test_an_image_that_is_not_there_is_found_out(namespace: str) -> None:
    from hawk.cli import deploy_check

    settings = load_cluster_settings(
        {"HAWK_KUBE_IMAGE": "hawk-nobody-has-this:1", "HAWK_KUBE_PULL_POLICY": "Never"}
    )
    async with await connect(namespace=namespace) as cluster:
        (image,) = await look.image(cluster, settings)
        assert image.state is State.MISSING
        (trial,) = await deploy_check.trial_pod(cluster, settings)
        assert trial.state is State.MISSING
        assert "ErrImageNeverPull" in trial.detail
