"""What the engine itself adds on a cluster: until a runner's pod may start, until trouble is shown, until nothing is left."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.engine.jobs_fake import until
from tests.kubernetes.test_engine_jobs import Place, sandbox

from benchmarks.bars import Bar
from hawk.engine.kubernetes import manifests, names
from hawk.kube.api import Cluster

STAYS = ["sh", "-c", "trap 'exit 0' TERM; sleep 600 & wait"]
NOWHERE = "nowhere.invalid/none:1"
PODS = 8
"""Sandboxes of the job that is deleted."""


def measure(namespace: str, rounds: int) -> list[Bar]:
    """Args: namespace: An empty one, for this alone."""
    with tempfile.TemporaryDirectory() as folder, _standing_in():
        place = Place(Path(folder) / "home", namespace)
        try:
            shares, starts, ends = zip(*(_job(place, f"job-{n}") for n in range(rounds)), strict=True)
            shown = [_trouble(place, f"bad-{n}") for n in range(max(3, rounds // 3))]
        finally:
            for path in place.settings.root.iterdir():
                if path.is_dir():
                    place.engine.kill(path.name)
            place.engine.close()
    until_started = f"{rounds} jobs; the pod ran after {median(starts):.2f} s, most {max(starts):.2f} s"
    return [
        Bar("submit → runner pod started: the engine's share", max(shares), 1, "s", until_started),
        Bar("deleted → nothing of it left", max(ends), 60, "s", f"{rounds} jobs with {PODS} sandboxes each"),
        Bar(
            "trouble → shown in watch", max(shown), 5, "s", f"an image that is not there, {len(shown)} times"
        ),
    ]


@contextlib.contextmanager
def _standing_in() -> Iterator[None]:
    """A shell command in the runner's place: what a runner does is not the engine's."""
    before = manifests.COMMAND
    manifests.COMMAND = STAYS
    try:
        yield
    finally:
        manifests.COMMAND = before


def _job(place: Place, job_id: str) -> tuple[float, float, float]:
    """Seconds of the launch itself, until the pod ran, and until nothing was left after the deletion."""
    place.job(job_id)
    began = time.perf_counter()
    place.engine.launch(job_id, {"TOKEN": "t"})
    share = time.perf_counter() - began
    until(lambda: place.engine.runner_pod(job_id), 120)
    started = time.perf_counter() - began

    async def crowd(cluster: Cluster) -> None:
        owner = await cluster.get("Job", names.job_name(job_id, 1))
        for n in range(PODS):
            await cluster.create(sandbox(f"{job_id}-s{n}", job_id, owner))

    place.ask(crowd)
    began = time.perf_counter()
    place.engine.kill(job_id)
    until(lambda: not place.left(), 120)
    return share, started, time.perf_counter() - began


def _trouble(place: Place, job_id: str) -> float:
    """Seconds between a trouble in the API's own words and its reason in what `watch` shows."""
    run = place.job(job_id, image=NOWHERE)
    place.engine.launch(job_id, {})

    async def there(cluster: Cluster) -> bool:
        pods, _ = await cluster.list("Pod", labels=names.of_job(job_id))
        states = [s for pod in pods for s in (pod.get("status") or {}).get("containerStatuses") or []]
        waits = [(state.get("state") or {}).get("waiting") or {} for state in states]
        return any(wait.get("reason") in ("ErrImagePull", "ImagePullBackOff") for wait in waits)

    until(lambda: place.ask(there), 120)
    began = time.perf_counter()
    until(lambda: place.shown(run).trouble_reason, 60)
    took = time.perf_counter() - began
    place.engine.kill(job_id)
    return took
