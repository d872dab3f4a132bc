"""Jobs whose runner is a "pod": a process that has nothing but its Secret, and a server that has nothing but the link."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hawk.engine.kubernetes.manifests import GRACE
from hawk.link import rules
from hawk.store.attempts import read_results
from hawk.store.rundir import RunDir
from tests.link.podding import Cutter, Pods, pods
from tests.system import kill, repeated, safe, until

pytestmark = pytest.mark.slow

TOTAL = 16  # 2 tasks x 4 samples x 2 runs
ATTEMPTS = sorted(f"{t}/s{s}/{e}" for t in ("left", "right") for s in range(4) for e in (1, 2))


@pytest.fixture(scope="module")
def dialled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    with pods(tmp_path_factory.mktemp("dialled")) as up:
        yield up


def check_end(system: Pods, job: str, completed_before: list[str] | None = None) -> None:
    end = system.finish(job, 30)
    assert (end.status, end.reason) == ("complete", None)
    assert (end.progress.total, end.progress.completed) == (TOTAL, TOTAL)
    begun_twice = repeated(system.lines(job, "begin"))
    assert not set(begun_twice) & set(completed_before or ())
    assert sorted(set(system.lines(job, "done"))) == ATTEMPTS
    results, problems = read_results(system.run_dir(job))
    assert (len(results), problems) == (TOTAL, [])
    with system.client() as client:
        until("its samples are indexed", lambda: len(list(client.samples(job))) == TOTAL)


def files(run: RunDir) -> set[str]:
    """Names of what a job has written, without what is each job's own."""
    found = set()
    for path in run.path.rglob("*"):
        name = str(path.relative_to(run.path))
        if path.is_file() and rules.carried(name) and name != rules.SOURCE and "stacks/2" not in name:
            found.add(f"logs/{path.name.split('_')[1]}" if name.startswith("logs/") else name)
    return found


@pytest.mark.parametrize("attach", [False, True], ids=["the pod dials", "the server attaches"])
def test_a_pods_job_leaves_what_a_job_of_this_machine_leaves(tmp_path: Path, attach: bool) -> None:
    with pods(tmp_path, attach=attach) as system:
        gate = tmp_path / "gate"
        system.submit("away", gate=gate)
        pod = system.pod("away")
        until("it runs", lambda: system.lines("away", "begin"))
        status = until(
            "it is seen to run", lambda: s if (s := system.status("away")).progress.running else None
        )
        assert status.status == "running"
        stacks = until("its stacks are there", lambda: stacks_of(system, "away"))
        assert "in_steps" in stacks
        until("its trace is there, of workers that live", lambda: _trace(system, "away"))
        gate.touch()
        assert system.supervisor("away") is not None
        assert system.ended("away") == 0
        check_end(system, "away")
        assert system.leftovers("away") == []
        here = RunDir(pod.root / "runs" / "away")
        assert here.read_spec().base_dir != system.run_dir("away").read_spec().base_dir == str(system.source)
        same = {"journal.jsonl", "snapshot.json", "plan.json", "evidence.json", "supervisor.log"}
        for name in {n for n in files(here) if n.startswith(("attempts", "workers", "spans"))} | same:
            assert (system.run_dir("away").path / name).read_bytes() == (here.path / name).read_bytes(), name
        for log in here.logs.glob("*.eval"):
            assert (system.run_dir("away").logs / log.name).read_bytes() == log.read_bytes()
    with _local(tmp_path / "local") as local:
        super(Pods, local).submit("here")
        local.finish("here")
        assert files(local.run_dir("here")) == files(system.run_dir("away"))


def stacks_of(system: Pods, job: str) -> str:
    done = system.hawk("stacktrace", job, check=False)
    return done.stdout if done.returncode == 0 and "as it was" not in done.stdout else ""


def _trace(system: Pods, job: str) -> bool:
    trace = system.hawk("trace", job).stdout
    return "counted" in trace and "died" not in trace


@contextlib.contextmanager
def _local(base: Path) -> Iterator[Pods]:
    system = Pods(base)
    super(Pods, system).start()
    try:
        yield system
    finally:
        system.stop()


def test_stops_reach_the_pod_and_are_acknowledged(dialled: Pods, tmp_path: Path) -> None:
    system, job = dialled, "stopped"
    system.submit(job, gate=tmp_path / "never")
    system.pod(job)
    until("all run", lambda: len(system.lines(job, "begin")) == TOTAL)
    uuid = system.uuid_of(job, "s1")
    system.hawk("stop", job, "--sample", uuid)
    journal = system.run_dir(job).journal
    acknowledged = until("one stop is known", lambda: [e for e in journal() if e.state == "acknowledged"])
    assert len(acknowledged) == 1
    until("its request is gone", lambda: not list(system.run_dir(job).stop_requests.iterdir()))
    system.hawk("stop", job)
    assert system.ended(job) == 0
    assert system.finish(job).status == "complete"
    assert len([e for e in journal() if e.state == "acknowledged"]) == 2
    assert len(system.lines(job, "done")) < TOTAL


def test_a_lost_pod_is_followed_by_one_that_repeats_nothing_that_was_finished(dialled: Pods) -> None:
    system, job = dialled, "lost"
    system.submit(job, seconds=1.0)
    first = system.pod(job)
    until("some are done", lambda: len(system.completed(job)) >= 3)
    before = system.completed(job)
    until("the server has what is finished", lambda: set(before) <= safe(system.run_dir(job)).keys())
    first.remove()
    system.kill_server()
    system.start()
    kept = {r.uuid for r in read_results(system.run_dir(job))[0]}
    assert len(kept) >= 3
    system.pod(job)
    assert system.ended(job) == 0
    check_end(system, job, before)
    assert kept <= {r.uuid for r in read_results(system.run_dir(job))[0]}
    lines = list(system.run_dir(job).journal_file.read_bytes().splitlines())
    assert repeated([line.decode() for line in lines]) == []


def test_a_server_that_comes_back_gets_what_it_missed(dialled: Pods) -> None:
    system, job = dialled, "missed"
    system.submit(job, seconds=1.2)
    system.pod(job)
    until("it runs", lambda: system.lines(job, "begin"))
    system.kill_server()
    until("some are done meanwhile", lambda: len(system.lines(job, "done")) >= 4)
    system.start()
    until("they are known", lambda: len(system.completed(job)) >= 4)
    system.kill_server()
    until("all are done meanwhile", lambda: len(system.lines(job, "done")) == TOTAL)
    system.start()
    assert system.ended(job) == 0
    check_end(system, job, ATTEMPTS)


def test_a_link_that_is_cut_every_second_carries_everything(tmp_path: Path) -> None:
    with pods(tmp_path) as system:
        cutter = Cutter(system.port)
        system.environ["HAWK_TEST_URL"] = f"http://127.0.0.1:{cutter.port}"
        system.kill_server()
        system.start()
        system.submit("cut")
        over = threading.Event()

        def cut() -> None:
            while not over.wait(1.0):
                cutter.cut()

        thread = threading.Thread(target=cut)
        thread.start()
        try:
            pod = system.pod("cut")
            assert system.ended("cut") == 0
        finally:
            over.set()
            thread.join()
            cutter.close()
        check_end(system, "cut", ATTEMPTS)
        assert cutter.cuts >= 6
        here = RunDir(pod.root / "runs" / "cut")
        assert system.run_dir("cut").journal_file.read_bytes() == here.journal_file.read_bytes()


def test_an_evicted_pod_says_what_it_has_and_ends_in_time(dialled: Pods) -> None:
    system, job = dialled, "evicted"
    system.submit(job, seconds=1.5)
    pod = system.pod(job)
    until("it runs", lambda: len(system.lines(job, "begin")) == TOTAL)
    began = time.monotonic()
    assert pod.terminate() == 70
    assert time.monotonic() - began < GRACE
    assert (pod.root / "runs" / job / "snapshot.json").read_bytes() == system.run_dir(
        job
    ).snapshot_file.read_bytes()
    system.pod(job)
    assert system.ended(job) == 0
    check_end(system, job)


def test_a_supervisor_that_dies_ends_the_pod_which_is_to_come_again(dialled: Pods) -> None:
    system, job = dialled, "died"
    system.submit(job)
    pod = system.pod(job)
    until("it runs", lambda: system.lines(job, "begin"))
    kill(RunDir(pod.root / "runs" / job).supervisor_pid())
    assert pod.process.wait(60) == 70
    assert b"supervisor ended with" in pod.log.read_bytes()
    system.pod(job)
    assert system.ended(job) == 0
    check_end(system, job)


def test_a_pod_that_is_not_wanted_ends_for_good(dialled: Pods) -> None:
    system, job = dialled, "unwanted"
    system.submit(job)
    secret = system.pods / job / "job" / "start.json"
    start = msgspec.json.decode(until("it is launched", lambda: secret.exists() and secret.read_bytes()))
    for wrong, said in (
        ({**start, "version": "0.0.0"}, b"0.0.0"),
        ({**start, "job": "another"}, b"does not want this runner"),
        ({}, b"does not say which job"),
    ):
        secret.write_bytes(msgspec.json.encode(wrong))
        pod = system.pod(job)
        assert (pod.process.wait(90), said in pod.log.read_bytes()) == (64, True), pod.log.read_text()
        pod.remove()
    secret.write_bytes(msgspec.json.encode(start))
    system.pod(job)
    assert system.ended(job) == 0
    check_end(system, job)
