"""The cluster itself fails under a job: a node does not answer, the API is away. Jobs run on, and it is said why nothing is heard.

HAWK_TEST_FAULT is a program that does it to a cluster that nobody else uses, told `node-off`, `node-on`, `api-off` or
`api-on`: it stops, or starts again, the kubelet of the node or the API server.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from hawk.core.states import JobStatus
from tests.engine.jobs_fake import until
from tests.kubernetes.test_engine_jobs import STAYS, Place, does, logged, place

__all__ = ["does", "place"]

FAULT = os.environ.get("HAWK_TEST_FAULT", "")
NOTICED = 120.0
"""Seconds: a node is called not ready after forty or fifty."""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not FAULT, reason="HAWK_TEST_FAULT names no program")]


@contextmanager
def fault(what: str) -> Iterator[None]:
    subprocess.run([FAULT, f"{what}-off"], check=True, timeout=120)
    try:
        yield
    finally:
        subprocess.run([FAULT, f"{what}-on"], check=True, timeout=300)


def test_a_node_that_does_not_answer_is_named_and_its_runner_goes_on(
    place: Place, does: Callable[[str], None]
) -> None:
    does(STAYS)
    run = place.job("a")
    place.engine.launch("a", {})
    pod = until(lambda: place.engine.runner_pod("a"), 60)
    seen = until(lambda: place.seen(run))
    assert seen.runner is not None
    node = seen.runner.node
    assert node is not None
    with fault("node"):
        shown = until(lambda: s if (s := place.shown(run)).status is JobStatus.STUCK else None, NOTICED)
        assert shown.reason == f"its runner is out of reach (NodeNotReady): its node {node} does not answer"
        until(lambda: any("NodeNotReady" in line for line in logged(run)), 30)
        assert place.engine.liveness("a").alive
    until(lambda: place.shown(run).status is not JobStatus.STUCK, NOTICED)
    assert place.engine.runner_pod("a") == pod


def test_an_api_that_is_away_costs_no_job_anything(place: Place, does: Callable[[str], None]) -> None:
    does(STAYS)
    run = place.job("a")
    place.engine.launch("a", {})
    pod = until(lambda: place.engine.runner_pod("a"), 60)
    until(lambda: any("Started" in line for line in logged(run)), 30)
    before = logged(run)
    with fault("api"):
        until(lambda: place.engine.liveness("a").problem, 60)
        assert place.engine.liveness("a").alive
        until(lambda: (s := place.seen(run)) is not None and s.problem is not None, 30)
    until(lambda: place.engine.liveness("a").problem is None, NOTICED)
    assert place.engine.runner_pod("a") == pod
    assert logged(run)[: len(before)] == before
    assert len(logged(run)) == len(set(logged(run)))
