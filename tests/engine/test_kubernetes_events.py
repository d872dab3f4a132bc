"""What a cluster said of a job's pods: kept once each, and shown beside the runner's lines."""

from __future__ import annotations

from typing import Any

import pytest

from hawk.config.cluster import load_cluster_settings
from hawk.config.settings import Settings
from hawk.core.cluster_said import About, Said
from hawk.core.loglevels import LogLevel
from hawk.core.recorder.about import About as OfSample
from hawk.engine.kubernetes import chronicle, hearing
from hawk.engine.kubernetes.chronicle import Chronicle
from hawk.engine.kubernetes.kubernetes import KubernetesEngine
from hawk.server.services.logs import LogReader, Wanted
from hawk.store.rundir import JobSpec, RunDir, write_json
from tests.engine.jobs_fake import Running, until

SANDBOX = {"app.kubernetes.io/name": "hawk", "app.kubernetes.io/component": "sandbox", "hawk/job": "a"}
ATTEMPT = {"hawk/task": "swe", "hawk/sample-id": "s1", "hawk/epoch": "2"}


@pytest.fixture
def run(settings: Settings) -> RunDir:
    found = RunDir(settings.root / "a")
    found.create()
    write_json(found.spec_file, JobSpec("a", "/srv/evals", {"tasks": []}, engine="kubernetes"))
    return found


def lines(run: RunDir, **wanted: Any) -> list[tuple[str | None, str]]:
    found = LogReader().read(run, newest_first=False, wanted=Wanted(**wanted))
    return [(entry.level, entry.message) for entry in found if entry.service == "cluster"]


def test_pods_are_followed_in_the_log_while_they_live_and_when_another_server_comes(
    cluster: Running, settings: Settings, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearing, "PATIENCE", 0.2)
    fake = cluster.fake
    engine = KubernetesEngine(settings, load_cluster_settings({}), access=cluster.access)
    engine.launch("a", {})
    runner = until(lambda: engine.runner_pod("a"))
    pod = fake.named("Pod", runner)
    box = cluster.do(fake.add("Pod", "box", SANDBOX, meta={"annotations": ATTEMPT}))
    other = cluster.do(fake.add("Pod", "theirs", {"app.kubernetes.io/name": "theirs"}))
    assert pod is not None
    unnamed = {"metadata": {**pod["metadata"], "uid": ""}}  # as the taint manager's are
    vanished = {"metadata": {"name": "hawk-a-quick", "uid": "u-q", "namespace": "test"}}
    for item, reason, message, kind in (
        (pod, "Scheduled", "assigned to node-1", "Normal"),
        (unnamed, "TaintManagerEviction", "Cancelling deletion", "Normal"),
        (other, "Scheduled", "of nobody here", "Normal"),
        (box, "Created", "Created container", "Normal"),
        (box, "FailedMount", 'volume "data" \x1b[31mnot found', "Warning"),
        (vanished, "FailedScheduling", "came and went", "Warning"),
    ):
        cluster.do(fake.event(item, reason, message, kind))
    cluster.do(fake.end_pod("box"))
    expected = {
        ("info", f"runner pod {runner}: Scheduled: assigned to node-1"),
        ("info", f"runner pod {runner}: TaintManagerEviction: Cancelling deletion"),
        ("warning", 'sandbox of s1/2, pod box: FailedMount: volume "data" not found'),
        ("warning", "pod hawk-a-quick: FailedScheduling: came and went"),
        (
            "error",
            "sandbox of s1/2, pod box: OOMKilled: it ran out of memory (OOMKilled), exit code 137",
        ),
    }
    until(lambda: len(lines(run)) >= len(expected))
    assert set(lines(run)) == expected
    assert len(lines(run)) == len(expected)
    assert [level for level, _ in lines(run, about=OfSample("s1/2"))] == ["warning", "error"]
    engine.close()
    cluster.do(fake.event(pod, "Killing", "Stopping container runner", "Normal"))
    again = KubernetesEngine(settings, load_cluster_settings({}), access=cluster.access)
    try:
        until(lambda: any("Killing" in text for _, text in lines(run)))
        assert len(lines(run)) == len(expected) + 1
    finally:
        again.close()


def said(uid: str, count: int = 1, level: LogLevel = LogLevel.WARNING) -> Said:
    return Said("2026-01-01T00:00:00Z", uid, About("r", "runner"), "BackOff", "again", level, count)


def counts(run: RunDir) -> list[int]:
    return [e.attributes["count"] for e in LogReader().read(run, newest_first=False)]


def test_what_is_said_again_and_again_is_written_ever_more_rarely(run: RunDir) -> None:
    one = Chronicle(run)
    for count in range(1, 40):
        one.add(said("e", count))
        one.write()
    assert counts(run) == [1, 2, 4, 8, 16, 32]
    another = Chronicle(run)
    another.add(said("e", 39))
    another.add(said("e", 32))
    assert another.write() == 0


def test_the_file_stays_bounded_and_a_torn_line_costs_no_other(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.events_file.write_bytes(b'{"at": "torn')
    one = Chronicle(run)
    one.add(said("a"))
    assert one.write(skew=3600) == 1
    (entry,) = LogReader().read(run)
    assert entry.timestamp.isoformat() == "2025-12-31T23:00:00+00:00"  # by our clock
    monkeypatch.setattr(chronicle, "MOST_NEWS", 10)
    one.add(said("b", level=LogLevel.INFO))
    one.add(said("c"))
    assert one.write() == 1
    monkeypatch.setattr(chronicle, "MOST", 10)
    one.add(said("d"))
    assert one.write() == 0
