"""A registry that lets nobody in: its own words, and where credentials belong."""

from __future__ import annotations

import pytest

from hawk.core.cluster_status import with_pods
from hawk.core.diagnosis.causes import Severity
from hawk.core.snapshot import Snapshot
from hawk.core.states import JobStatus
from tests.core.cluster_documents import NOW, job, pulling, seen
from tests.core.test_cluster_diagnosis import causes, queued


@pytest.mark.parametrize(
    "said",
    [
        "failed to authorize: failed to fetch anonymous token: unexpected status: 401 Unauthorized",
        "pull access denied, repository does not exist or may require authorization: authorization failed",
        "unexpected status from HEAD request to https://registry.example/v2/evals/manifests/v9: 403 Forbidden",
        "toomanyrequests: You have reached your pull rate limit",
    ],
)
def test_a_registry_that_refuses_is_quoted_with_where_credentials_belong(said: str) -> None:
    pods = seen(pulling("ErrImagePull", said), job=job())
    shown = with_pods(Snapshot("j", JobStatus.PENDING), pods, NOW)
    assert (shown.status, shown.trouble_reason) == (JobStatus.STUCK, "ErrImagePull")
    assert said in (shown.reason or "")
    found = causes(queued(), pods)["sandbox.image_pull"]
    assert (found.severity, found.scope) == (Severity.STUCK, "job")
    assert said in found.what
    assert "runner.pull_secrets" in (found.remedy or "")
