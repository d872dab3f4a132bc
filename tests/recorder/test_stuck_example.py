"""The example of what gets stuck does so, its healthy attempts end all the same, and what is asked about it is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawk.core.recorder.stacks import own_frame, waits
from hawk.server.services.stackrecords import Stacks
from hawk.store.bundles import open_bundle
from hawk.store.traces import Traces
from tests.commandline import EXAMPLES
from tests.system import System, running, until

pytestmark = pytest.mark.slow

HEALTHY = {"healthy-1", "healthy-2", "healthy-3"}
STUCK = {"hung-tool", "same-tool", "approval", "never-set", "deadlock", "refused"}


@pytest.fixture(scope="module")
def stuck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[System, str]]:
    """The example, run until its healthy attempts had ended and its loop was blocked; and the job's id."""
    with running(tmp_path_factory.mktemp("stuck"), HAWK_WORKERS="2") as system:
        system.hawk("eval-set", str(EXAMPLES / "stuck.yaml"))
        job_id = (system.home / "last-job-id").read_text().strip()
        until("everything is stuck", lambda: settled(snapshot(system, job_id)), 120, period=0.25)
        yield system, job_id


def snapshot(system: System, job_id: str) -> dict[str, Any]:
    with system.client() as client:
        data: dict[str, Any] = json.loads(client.status_json(job_id))["data"]
    return data


def attempts(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    return [sample for task in snapshot["tasks"] for sample in task["samples"]]


def settled(snapshot: dict[str, Any]) -> bool:
    """Everything has got as far as it can."""
    samples = attempts(snapshot)
    done = sum(one["phase"] == "completed" for one in samples if one["id"] in HEALTHY)
    hung = [
        one for one in samples if one["id"] == "hung-tool" and (one["activity"] or {}).get("type") == "tool"
    ]
    retried = [one for one in samples if one["id"] == "refused" and one["http_retries"]]
    blocked = [one for one in samples if (one["activity"] or {}).get("type") == "blocked"]
    return (done, len(hung), len(retried), bool(blocked)) == (6, 2, 2, True)


def test_each_way_of_being_stuck_is_in_flight(stuck: tuple[System, str]) -> None:
    running = [one["id"] for one in attempts(snapshot(*stuck)) if one["phase"] == "running"]
    assert set(running) >= STUCK
    assert all(running.count(name) == 2 for name in STUCK)
    assert "blocks-loop" in running


def test_the_trace_names_the_command_that_hangs(stuck: tuple[System, str]) -> None:
    found = json.loads(stuck[0].hawk("trace", "--json").stdout)
    hung = [row for row in found["in_flight"] if row["detail"] == "shell(command='sleep 100000')"]
    assert sorted((row["sample_id"], row["epoch"]) for row in hung) == [("hung-tool", 1), ("hung-tool", 2)]
    assert all(row["alive"] and row["age_s"] > 0 for row in hung)


def test_the_stacks_say_what_each_attempt_waits_for(stuck: tuple[System, str]) -> None:
    found = msgspec.json.decode(stuck[0].hawk("stacktrace", "--json").stdout, type=Stacks)
    (record,) = [record for record in found.records if record.worker == 0]
    said = {
        who.sample: (chain.label, own.function.rpartition(".")[2] if (own := own_frame(chain.frames)) else "")
        for chain in waits(record)
        for who in chain.attempts
    }
    assert said["hung-tool"] == ("a command in a sandbox", "execute")
    assert said["approval"] == ("an approval", "approve")
    assert said["never-set"] == ("", "wait_for_news")
    assert said["deadlock"] == ("", "use_both_instruments")
    assert said["refused"][0] in ("the next try of a model call that failed", "a model's answer")


def test_the_logs_tell_of_retries(stuck: tuple[System, str]) -> None:
    shown = stuck[0].hawk("logs", "-n", "500", "--sample", "refused").stdout
    assert "Retrying request in" in shown
    assert "hung-tool" not in shown


def test_a_bundle_of_the_living_job_explains_it_and_quotes_nobody(
    stuck: tuple[System, str], tmp_path: Path
) -> None:
    path = tmp_path / "stuck.tar.zst"
    said = stuck[0].hawk("bundle", "-o", str(path)).stderr
    assert str(path) in said
    assert "before you share it" in said.lower()
    with open_bundle(path) as run:
        roles = {
            row["role"] for row in json.loads((run.path / "live/processes.json").read_bytes())["processes"]
        }
        assert {"supervisor", "worker 0", "worker 1"} <= roles
        assert b"wait_for_news" in (run.path / "live/stacks.json").read_bytes()
        with Traces(run) as traces:
            rows = traces.actions(most=100, lines=1, now=datetime.now(UTC)).in_flight
        hung = [row for row in rows if row.sample_id == "hung-tool"]
        assert [row.detail for row in hung if row.action == "Tool Call"] == ["shell", "shell"]
        assert {row.detail for row in hung if row.action == "Sandbox Exec"} == {"exec"}
        quoted = [
            file for file in run.path.rglob("*") if file.is_file() and b"sleep 100000" in file.read_bytes()
        ]
        assert quoted == []


def test_delete_ends_it(stuck: tuple[System, str]) -> None:
    """The last test: what it leaves is nothing, a worker whose loop is blocked included."""
    system, job_id = stuck
    assert len(system.workers(job_id)) == 2
    system.hawk("delete", "-y", job_id)
    assert not system.run_dir(job_id).path.exists()
    assert system.leftovers(job_id) == []
