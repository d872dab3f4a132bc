"""What Hawk may do in a namespace, and why: the one table that Roles, checks and documentation are held to. Pure.

Two accounts: the server's (or a person's, whose own machine runs the server), which starts and watches runners; and the
runner's, which makes sandboxes and pods of workers. Runners that make no pods have no account at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

SERVER_ACCOUNT = "hawk-server"
RUNNER_ACCOUNT = "hawk-runner"


class Rule(NamedTuple):
    """Verbs on one resource of a namespace.

    Attributes:
        group: API group; empty for the core.
        resource: In the plural, with a subresource after a slash: `pods/exec`.
        why: What it is for.
        optional: Only some clusters ask for it, or Hawk knows less without it.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    optional: bool = False

    @property
    def plural(self) -> str:
        return self.resource.partition("/")[0]

    @property
    def subresource(self) -> str:
        return self.resource.partition("/")[2]


SERVER: tuple[Rule, ...] = (
    Rule(
        "batch",
        "jobs",
        ("create", "delete", "get", "list", "patch", "watch"),
        "One Job an eval set: made suspended, let go when its Secrets are there, watched, deleted.",
    ),
    Rule(
        "batch",
        "jobs/finalizers",
        ("update",),
        "A Secret that its Job owns holds up the Job's deletion; some clusters (OpenShift) ask for this then.",
        optional=True,
    ),
    Rule(
        "",
        "secrets",
        ("create", "delete", "get"),
        "Two Secrets a job, of known names: how it starts, and its middleman's keys. Nothing is listed: others' stay unread.",
    ),
    Rule(
        "",
        "pods",
        ("delete", "deletecollection", "list", "watch"),
        "What becomes of runners and sandboxes is watched; `hawk delete` removes them at once.",
    ),
    Rule(
        "",
        "pods/exec",
        ("create", "get"),
        "The link to runners, where they can't dial the server (`HAWK_KUBE_SERVER_URL` unset). `get` is what older "
        "clusters call a WebSocket.",
    ),
    Rule(
        "",
        "events",
        ("list", "watch"),
        "Why a pod does not start, in the scheduler's and the kubelet's own words.",
    ),
    Rule(
        "",
        "services",
        ("delete", "list"),
        "What a dead runner's sandboxes leave goes with `hawk delete`, without waiting for the cluster.",
    ),
    Rule("networking.k8s.io", "networkpolicies", ("delete", "list"), "As with services."),
    Rule(
        "coordination.k8s.io",
        "leases",
        ("create", "get", "update"),
        "Of two servers that share their run directories, one starts jobs.",
    ),
)
"""The server, or whoever submits from a machine of their own."""

RUNNER: tuple[Rule, ...] = (
    Rule(
        "",
        "pods",
        ("create", "delete", "get", "list", "patch", "watch"),
        "One pod an attempt: made, watched, deleted. One that was made ahead is claimed by a label. And one for each worker of "
        "an eval set that says `workers: pods`.",
    ),
    Rule(
        "",
        "pods/exec",
        ("create", "get"),
        "Commands and files of sandboxes; the link to workers that have pods. `get` is what older clusters call a WebSocket.",
    ),
    Rule(
        "",
        "services",
        ("create", "delete", "get", "list"),
        "A name for each service of a sandbox that has several pods.",
    ),
    Rule(
        "networking.k8s.io",
        "networkpolicies",
        ("create", "delete", "get", "list"),
        "Each sandbox reaches nothing, or what its config allows.",
    ),
    Rule(
        "",
        "events",
        ("list", "watch"),
        "Why a sandbox or a worker does not start: said in seconds, not after a time-out.",
    ),
)
"""Runners whose sandboxes or workers are pods; others have no account."""


def pairs(rules: tuple[Rule, ...]) -> Iterator[tuple[Rule, str]]:
    """Each rule with each of its verbs."""
    for rule in rules:
        for verb in rule.verbs:
            yield rule, verb


def role(rules: tuple[Rule, ...]) -> list[dict[str, Any]]:
    """The rules as a Role has them."""
    return [
        {"apiGroups": [rule.group], "resources": [rule.resource], "verbs": list(rule.verbs)} for rule in rules
    ]


def markdown(rules: tuple[Rule, ...]) -> str:
    """The rules as a table for docs/kubernetes-permissions.md."""
    rows = [
        f"| `{rule.resource}`{f' ({rule.group})' if rule.group else ''} | {', '.join(rule.verbs)} | "
        f"{rule.why}{' Can be left out.' if rule.optional else ''} |"
        for rule in rules
    ]
    return "\n".join(["| resource | verbs | for |", "|---|---|---|", *rows])
