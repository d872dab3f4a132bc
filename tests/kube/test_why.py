"""What objects say went wrong."""

from __future__ import annotations

from typing import Any

import pytest

from hawk.kube import why


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
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}
                ]
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
    found = why.waiting(pod(status), events)
    assert (found.stage, found.text) == (stage, text)


@pytest.mark.parametrize(
    ("status", "meta", "text"),
    [
        (
            container(terminated={"reason": "OOMKilled", "exitCode": 137}),
            {},
            "OOMKilled, exit code 137 (container main)",
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, {}, "Evicted: low on memory"),
        ({"phase": "Running"}, {"deletionTimestamp": "now"}, "Deleted: somebody deleted the pod"),
        (
            {
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
                ]
            },
            {},
            "PreemptionByScheduler",
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
            "Error, exit code 1 (container main): the container was started again",
        ),
    ],
)
def test_why_a_pod_is_over(status: dict[str, Any], meta: dict[str, Any], text: str) -> None:
    found = why.ended(pod(status, **meta))
    assert found is not None
    assert found.text == text


def test_a_pod_that_lives() -> None:
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    assert why.ended(pod(status)) is None
    assert why.ready(pod(status))
    assert not why.ready(pod(status, deletionTimestamp="now"))


def test_a_job_that_is_over() -> None:
    conditions = [
        {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "reached"}
    ]
    found = why.job_ended({"status": {"conditions": conditions}})
    assert found is not None
    assert (found.reason, found.wrong) == ("BackoffLimitExceeded", True)
    assert why.job_ended({"status": {}}) is None
