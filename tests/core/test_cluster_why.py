"""What pods say went wrong, as the API describes them."""

from __future__ import annotations

from typing import Any

import pytest

from hawk.core.cluster_why import End, ending, waits_for
from hawk.kube import parsing


def pod(status: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", **meta}, "spec": {}, "status": status}


def container(**state: Any) -> dict[str, Any]:
    return {"phase": "Pending", "containerStatuses": [{"name": "main", "restartCount": 0, "state": state}]}


def event(
    reason: str, message: str, at: str = "2025-01-01T00:00:00Z", kind: str = "Warning"
) -> dict[str, Any]:
    return {"reason": reason, "message": message, "lastTimestamp": at, "type": kind}


@pytest.mark.parametrize(
    ("status", "events", "stage", "text"),
    [
        ({"phase": "Pending"}, [], "scheduling", "Scheduling: no node has been chosen yet"),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}
                ],
            },
            [],
            "scheduling",
            "Unschedulable: 0/1",
        ),
        (
            container(waiting={"reason": "ImagePullBackOff", "message": "Back-off"}),
            [event("Failed", "Failed to pull image: denied")],
            "image",
            "ImagePullBackOff (container main): Failed to pull image: denied",
        ),
        (
            container(
                waiting={
                    "reason": "ImagePullBackOff",
                    "message": 'Back-off pulling image "x:1": ErrImagePull: failed to pull and unpack image "r.test/x:1": '
                    'failed to resolve reference "r.test/x:1": pull access denied',
                }
            ),
            [],
            "image",
            "ImagePullBackOff (container main): r.test/x:1: pull access denied",
        ),
        (
            container(
                waiting={
                    "reason": "ErrImagePull",
                    "message": "rpc error: code = NotFound desc = x:1 not found",
                }
            ),
            [],
            "image",
            "ErrImagePull (container main): x:1 not found",
        ),
        (
            container(waiting={"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x:1"'}),
            [],
            "image",
            'ImagePullBackOff (container main): Back-off pulling image "x:1"',
        ),
        (
            container(waiting={"reason": "CreateContainerConfigError", "message": 'secret "x" not found'}),
            [],
            "starting",
            'CreateContainerConfigError (container main): secret "x" not found',
        ),
        (
            container(waiting={"reason": "ContainerCreating"}),
            [
                event("FailedMount", "older", "2024-01-01T00:00:00Z"),
                event("FailedCreatePodSandBox", "no \x1b[31mruntime"),
            ],
            "starting",
            "FailedCreatePodSandBox: no runtime",
        ),
        (
            container(waiting={"reason": "ContainerCreating"}),
            [event("Pulling", 'Pulling image "x"', kind="Normal")],
            "image",
            'Pulling: Pulling image "x"',
        ),
    ],
)
def test_why_a_pod_waits(status: dict[str, Any], events: list[dict[str, Any]], stage: str, text: str) -> None:
    seen = parsing.pod(pod(status))
    seen.events = parsing.newest(map(parsing.event, events))
    found = waits_for(seen)
    assert (found.stage, found.text) == (stage, text)
    assert found.wrong is (found.reason not in ("Scheduling", "Pulling"))


@pytest.mark.parametrize(
    ("status", "meta", "end", "words"),
    [
        (
            container(terminated={"reason": "OOMKilled", "exitCode": 137}),
            {},
            End.MEMORY,
            "ran out of memory (OOMKilled)",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
            {},
            End.DISRUPTED,
            "was evicted: low on memory",
        ),
        (
            {"phase": "Running"},
            {"deletionTimestamp": "2025-01-01T00:00:00Z"},
            End.VANISHED,
            "was deleted by somebody",
        ),
        (
            {
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
                ]
            },
            {},
            End.DISRUPTED,
            "was preempted by a pod of higher priority",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "name": "main",
                        "restartCount": 1,
                        "state": {"running": {}},
                        "lastState": {"terminated": {"reason": "Error", "exitCode": 1}},
                    }
                ]
            },
            {},
            End.EXIT,
            "exited with code 1",
        ),
        ({"phase": "Unknown"}, {}, End.DISRUPTED, "is lost: its node does not answer"),
    ],
)
def test_why_a_pod_is_over(status: dict[str, Any], meta: dict[str, Any], end: End, words: str) -> None:
    found = ending(parsing.pod(pod(status, **meta)))
    assert found is not None
    assert (found.end, found.words) == (end, words)


def test_of_several_containers_the_one_that_is_asked_for_counts() -> None:
    dead = {"name": "db", "restartCount": 0, "state": {"terminated": {"reason": "Error", "exitCode": 1}}}
    lives = {"name": "main", "restartCount": 0, "state": {"running": {}}}
    seen = parsing.pod(pod({"phase": "Running", "containerStatuses": [lives, dead]}))
    assert ending(seen, "main") is None
    assert ending(seen, "db") is not None


def test_a_pod_that_lives() -> None:
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    seen = parsing.pod(pod(status))
    assert ending(seen) is None
    assert seen.ready
    assert not parsing.pod(pod(status, deletionTimestamp="2025-01-01T00:00:00Z")).ready
