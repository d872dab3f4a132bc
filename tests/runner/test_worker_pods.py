"""Workers with pods of their own: a job leaves what any job leaves, whatever of it is killed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hawk.link.rules import carried
from hawk.store.attempts import read_results
from hawk.store.locks import holder
from hawk.store.rundir import RunDir
from tests.link.podding import Pods, pods
from tests.link.test_pods import TOTAL, check_end, stacks_of
from tests.runner.workerpods import WorkerPods, cannot_mount, worker_pods
from tests.system import kill, safe, until

pytestmark = pytest.mark.slow

PODS = {"runner": {"workers": "pods"}}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pods, WorkerPods]]:
    if reason := cannot_mount():
        pytest.skip(f"NOT TESTED: {reason}")
    base = tmp_path_factory.mktemp("workers")
    with worker_pods(base / "kubelet") as kubelet, pods(base / "system") as system:
        yield system, kubelet


def test_a_job_whose_workers_have_pods_leaves_what_any_job_leaves(
    place: tuple[Pods, WorkerPods], tmp_path: Path
) -> None:
    system, kubelet = place
    job, gate = "pods-spread", tmp_path / "gate"
    system.submit(job, seconds=0.2, gate=gate, config=PODS)
    runner = kubelet.runner(system, job)
    until("it runs", lambda: system.lines(job, "begin"))
    status = until("it is seen to run", lambda: s if (s := system.status(job)).progress.running else None)
    assert len(status.workers) == 2
    assert len(kubelet.pods(job)) == 2
    stacks = until("its stacks are there", lambda: stacks_of(system, job))
    assert "in_steps" in stacks
    assert kubelet.cut(job) == 2
    gate.touch()
    assert system.ended(job) == 0
    check_end(system, job)
    assert kubelet.pods(job) == []
    results, _ = read_results(system.run_dir(job))
    assert {result.worker for result in results} == {0, 1}
    here = RunDir(runner.root / "runs" / job)
    for name, there in ((f"workers/{i}", kubelet.run_dir(i, job).worker(i)) for i in (0, 1)):
        written = {p.name for p in there.iterdir() if p.is_file() and carried(f"{name}/{p.name}")}
        assert {"output.jsonl", "exit.json", "heartbeat.json", "trace.jsonl", "tasks.jsonl"} <= written
        for file in written:
            assert (here.path / name / file).read_bytes() == (there / file).read_bytes(), file


def test_a_stop_reaches_workers_in_pods_and_nothing_is_left(
    place: tuple[Pods, WorkerPods], tmp_path: Path
) -> None:
    system, kubelet = place
    job = "pods-stopped"
    system.submit(job, gate=tmp_path / "never", config=PODS)
    kubelet.runner(system, job)
    until("all run", lambda: len(system.lines(job, "begin")) == TOTAL)
    system.hawk("stop", job, "--sample", system.uuid_of(job, "s1"))
    until(
        "it is acknowledged", lambda: [e for e in system.run_dir(job).journal() if e.state == "acknowledged"]
    )
    system.hawk("stop", job, "--error")
    assert system.ended(job) == 0
    assert system.finish(job).status == "failed"
    assert len(system.lines(job, "done")) < TOTAL
    assert kubelet.pods(job) == []


def test_whatever_of_it_is_killed_the_job_goes_on_and_repeats_nothing_that_was_finished(
    place: tuple[Pods, WorkerPods], tmp_path: Path
) -> None:
    system, kubelet = place
    job, gate = "pods-killed", tmp_path / "gate"
    system.submit(job, seconds=0.2, gate=gate, config={**PODS, "log_buffer": 1})
    runner = kubelet.runner(system, job)
    until("the first of each are safe", lambda: len(safe(system.run_dir(job))) == 4)
    before = system.completed(job)
    first, second = sorted(kubelet.pods(job))
    kubelet.kill(first, "OOMKilled")
    kubelet.evict(second)
    until("the others begin again", lambda: len(system.lines(job, "begin")) == TOTAL + 12)
    exits = {e.subject: e.reason for e in system.run_dir(job).journal() if e.state == "exited"}
    assert exits["0"].startswith("its pod ran out of memory (OOMKilled")
    assert exits["1"] == "its pod was deleted by somebody"
    third, fourth = sorted(kubelet.pods(job))
    kill(
        holder(system.run_dir(job).worker(0) / "lock")
    )  # what stands for it beside the supervisor, with no time to delete its pod
    until("its attempts begin again", lambda: len(system.lines(job, "begin")) == TOTAL + 18)
    pods = sorted(kubelet.pods(job))
    assert {first, second, third}.isdisjoint(pods)
    assert (len(pods), fourth in pods) == (2, True)
    runner.kill()
    kubelet.runner(system, job)
    until("its workers are found", lambda: sorted(states(system, job, "pod found")) == pods)
    gate.touch()
    assert system.ended(job) == 0
    assert len(system.lines(job, "begin")) == TOTAL + 18
    check_end(system, job, before)
    assert states(system, job, "stalled") == []
    assert kubelet.pods(job) == []
    runner.remove()


def states(system: Pods, job: str, state: str) -> list[str]:
    return [entry.reason for entry in system.run_dir(job).journal() if entry.state == state]
