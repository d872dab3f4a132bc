"""The table of permissions is what the code uses: no verb is missing, none is given that nothing needs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hawk.kube import trial
from hawk.kube.kinds import KINDS
from hawk.kube.permissions import RUNNER, SERVER, Rule, pairs
from hawk.sandbox.pod.options import RUNNER_IMAGE

SOURCE = Path(__file__).parents[2] / "src" / "hawk"

VERBS = {
    "get": ("get",),
    "list": ("list",),
    "create": ("create",),
    "delete": ("delete",),
    "delete_all": ("deletecollection",),
    "patch": ("patch",),
    "replace": ("update",),
    "Watch": ("list", "watch"),
    "logs": ("get",),
    "exec": ("create", "get"),
    "open_exec": ("create", "get"),
}
"""Method of `hawk.kube.api.Cluster`, or `Watch` of one, to the verbs that its requests are."""

SUBRESOURCES = {"logs": "log", "exec": "exec", "open_exec": "exec"}

TOLERATED = {
    # `hawk delete` looks for what no version of ours makes, or what goes with its Job, and takes a refusal for an answer.
    ("", "secrets", "list"),
    ("", "configmaps", "list"),
    ("", "configmaps", "delete"),
    ("", "persistentvolumeclaims", "list"),
    ("", "persistentvolumeclaims", "delete"),
}

NOT_AN_OBJECT_OF_OURS = {"Job"}
"""Kinds that the runner's manifests name without making them: their owner."""


def used(folder: str) -> set[tuple[str, str, str]]:
    """(group, resource, verb) of every call to a cluster in a folder."""
    found: set[tuple[str, str, str]] = set()
    for path in sorted((SOURCE / folder).glob("*.py")):
        tree = ast.parse(path.read_text())
        kinds = _many_kinds(tree)
        for method, call in _calls(tree):
            for kind in _kinds_of(call, method, kinds, folder):
                group, plural = KINDS[kind].group, KINDS[kind].plural
                resource = f"{plural}/{SUBRESOURCES[method]}" if method in SUBRESOURCES else plural
                found |= {(group, resource, verb) for verb in VERBS[method]}
                if method == "create":  # after an answer that was lost, or `exist_ok`: what is there?
                    found.add((group, resource, "get"))
    return found


def _calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Method and call; what is given to `Watch` after the cluster is what a method would be given."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "Watch":
            yield "Watch", ast.Call(node.func, node.args[1:], node.keywords)
        elif (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in VERBS
            and ast.unparse(node.func.value).split(".")[-1].strip("_") == "cluster"
        ):
            yield node.func.attr, node


def _kinds_of(call: ast.Call, method: str, many: set[str], folder: str) -> set[str]:
    if method in SUBRESOURCES:
        return {"Pod"}
    if method in ("create", "replace"):
        made = _made_in(folder) if method == "create" else {"Lease"}
        return made
    first = call.args[0]
    if isinstance(first, ast.Constant):
        return {str(first.value)}
    if method == "delete_all":  # of the kinds that a job may have, only pods are so many
        return {"Pod"}
    return many


def _many_kinds(tree: ast.Module) -> set[str]:
    """Of a module's table of kinds, over which it loops."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in KINDS:
            found.add(str(node.value))
    return found


def _made_in(folder: str) -> set[str]:
    """Kinds of a folder's manifests: `"kind": "Pod"` in a dict, or the first argument of what makes one."""
    found: set[str] = set()
    for path in (SOURCE / folder).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict):
                found |= {
                    str(value.value)
                    for key, value in zip(node.keys, node.values, strict=True)
                    if isinstance(key, ast.Constant)
                    and key.value == "kind"
                    and isinstance(value, ast.Constant)
                    and value.value in KINDS
                }
    return found - (NOT_AN_OBJECT_OF_OURS if folder.startswith("sandbox") else set())


@pytest.mark.parametrize(("folder", "rules"), [("engine/kubernetes", SERVER), ("sandbox/pod", RUNNER)])
def test_the_table_is_what_the_code_uses(folder: str, rules: tuple[Rule, ...]) -> None:
    needed = used(folder)
    assert len(needed) > 8  # it is really read
    given = {(rule.group, rule.resource, verb) for rule, verb in pairs(rules)}
    optional = {(rule.group, rule.resource, verb) for rule, verb in pairs(rules) if rule.optional}
    assert needed - given - TOLERATED == set(), "the code uses what the table does not give"
    assert given - needed - optional == set(), "the table gives what the code does not use"


def test_pods_of_workers_need_no_more_than_sandboxes() -> None:
    needed = used("runner/workpods") - {
        ("batch", "jobs", "create"),
        ("batch", "jobs", "get"),
    }  # an owner's kind
    assert {("", "pods", "create"), ("", "pods/exec", "create"), ("", "pods", "delete")} <= needed
    assert needed <= {(rule.group, rule.resource, verb) for rule, verb in pairs(RUNNER)}


def test_the_pod_that_is_tried_is_like_those_that_are_made() -> None:
    from hawk.engine.kubernetes import manifests
    from hawk.sandbox.pod.options import CAPABILITIES

    (container,) = trial.runner("x")["spec"]["containers"]
    assert container["resources"] == manifests.resources({})
    assert trial.runner("x")["spec"]["securityContext"]["runAsUser"] == manifests.USER
    (root,) = trial.root_sandbox("x")["spec"]["containers"]
    assert set(root["securityContext"]["capabilities"]["add"]) <= set(CAPABILITIES)


def test_the_example_needs_no_image_but_the_runners() -> None:
    example = yaml.safe_load((SOURCE.parents[1] / "examples/kubernetes.yaml").read_text())
    assert example["sandbox"]["config"]["image"] == RUNNER_IMAGE
    assert "image" not in example["runner"]
