"""`hawk timeline`, of attempts that have ended, that hang, and whose worker was killed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from hawk.client import HawkClient
from hawk.core.timeline.model import SampleTimeline, Span, trace_id
from hawk.errors import NotFoundError
from tests.system import System, kill, running, until

TASKS = Path(__file__).with_name("timeline_task.py")
JOB = "timed"


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A job of four attempts, three of which have ended and one hangs."""
    base = tmp_path_factory.mktemp("timeline")
    with running(base) as system:
        items = [{"name": "timed", "args": {"ledger": str(base / "erred")}}]
        config = {
            "tasks": [{"file": str(TASKS), "items": items}],
            "models": [{"file": str(TASKS), "items": [{"name": "timed/m"}]}],
        }
        with system.client() as client:
            client.submit({"eval_set_config": config, "eval_set_id": JOB, "base_dir": str(TASKS.parent)})
        until("three attempts have ended", lambda: _states(system).count("completed") == 3, 90)
        until("the other hangs", lambda: _open_tool(system), 30)
        yield system


def _states(system: System) -> list[str]:
    return [str(sample.phase) for task in system.status(JOB).tasks for sample in task.samples]


def _uuid(system: System, sample_id: str) -> str:
    with system.client() as client:
        return next((item.uuid for item in client.samples(JOB) if item.id == sample_id), "")


def _open_tool(system: System) -> bool:
    uuid = _uuid(system, "hangs")
    return bool(uuid) and any(
        span.name == "work" and span.end_ms is None for span in timeline(system, uuid).spans
    )


def timeline(system: System, uuid: str) -> SampleTimeline:
    with system.client() as client:
        return client.timeline(uuid)


def named(of: SampleTimeline, name: str) -> list[Span]:
    return [span for span in of.spans if span.name.startswith(name)]


def times(of: SampleTimeline) -> dict[str, float]:
    return {str(row.category): row.total_ms for row in of.categories}


def test_a_finished_attempt_is_accounted_for(system: System) -> None:
    found = timeline(system, _uuid(system, "plain"))
    assert (found.task, found.sample_id, found.epoch, found.phase) == ("timed", "plain", 1, "completed")
    assert (found.eval_set_id, found.truncated, found.open) == (JOB, False, 0)
    assert len(named(found, "work")) == 3
    assert times(found)["model"] >= 4 * 300
    assert times(found)["tool"] >= 3 * 200
    assert times(found)["scoring"] > 0
    assert found.unattributed_ms < 0.5 * found.total_ms  # how much less depends on the machine
    whole = sum(times(found).values()) + found.unattributed_ms
    assert whole == pytest.approx(found.total_ms, abs=1)
    ids = {span.span_id for span in found.spans}
    assert all(span.parent_id in ids for span in found.spans if span.parent_id is not None)


def test_back_off_and_earlier_tries_are_shown(system: System) -> None:
    backed_off = timeline(system, _uuid(system, "backs-off"))
    (wait,) = named(backed_off, "retry wait (OverloadedError)")
    assert wait.duration_ms >= 3000
    failed = next(
        s for s in backed_off.spans if s.category == "model" and "come back" in str(s.attributes.get("error"))
    )
    assert failed.end_ms is not None
    assert failed.end_ms <= wait.start_ms + 100
    assert failed.parent_id == wait.parent_id
    erred = timeline(system, _uuid(system, "errs"))
    (first,) = named(erred, "try 1")
    assert first.duration_ms >= 500
    assert "the first try breaks" in first.attributes["error"]


def test_what_hangs_is_open_and_named_first(system: System) -> None:
    listed = json.loads(system.hawk("list", "samples", JOB, "--json").stdout)
    uuid = next(row["uuid"] for row in listed if row["id"] == "hangs")
    said = system.hawk("timeline", uuid).stdout
    in_flight = said.partition("In flight\n")[2].partition("\n\n")[0]
    assert "tool work" in in_flight
    assert '"how"' in in_flight
    assert "▶" in said
    assert all(len(line) <= 110 for line in said.splitlines())
    found = json.loads(system.hawk("timeline", uuid, "--json").stdout)
    open_ = [span for span in found["spans"] if span["end_ms"] is None]
    assert found["open"] == len(open_) > 0
    assert all(span["duration_ms"] > 0 for span in open_)
    assert found["phase"] == "running"


def test_an_eval_sets_totals(system: System) -> None:
    said = system.hawk("timeline").stdout
    assert f"{JOB}: 4 attempts" in said
    assert "Longest tool calls" in said
    found = json.loads(system.hawk("timeline", "--json").stdout)
    assert (found["samples"], found["truncated"]) == (4, False)
    assert found["longest_tool_calls"][0] == {
        "sample_uuid": _uuid(system, "hangs"),
        "tool_name": "work",
        "duration_ms": found["longest_tool_calls"][0]["duration_ms"],
        "failed": False,
    }
    with system.client() as client:
        samples = json.loads(client.call("GET", f"/meta/eval-sets/{JOB}/timeline-samples").body)
    assert {row["sample_id"] for row in samples["samples"]} == {"plain", "backs-off", "errs", "hangs"}


def test_what_is_not_there_is_said(system: System) -> None:
    with system.client() as client:
        for path in ("/meta/samples/nobody/timeline", "/meta/eval-sets/nobody/timeline"):
            with pytest.raises(NotFoundError):
                client.call("GET", path)
    assert system.hawk("timeline", "nobody", check=False).returncode == 2
    assert system.hawk("timeline", "null", check=False).returncode == 2
    assert system.hawk("timeline", "--otlp", "x", check=False).returncode == 2


def test_spans_are_exported_to_a_file_or_a_collector(system: System, tmp_path: Path) -> None:
    uuid = _uuid(system, "plain")
    system.hawk("timeline", uuid, "--otlp", str(tmp_path / "spans.json"))
    (line,) = (tmp_path / "spans.json").read_text().splitlines()
    spans = json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert {span["traceId"] for span in spans} == {trace_id(uuid)}
    with collector() as (url, taken):
        system.hawk("timeline", uuid, "--otlp", url)
        assert taken == [("/v1/traces", json.loads(line))]
        refused = system.hawk("timeline", uuid, "--otlp", f"{url}/full", check=False)
        assert (refused.returncode, "no room" in refused.stderr) == (1, True)
    gone = system.hawk("timeline", uuid, "--otlp", url, check=False)
    assert (gone.returncode, "Connection refused" in gone.stderr) == (1, True)
    assert (
        system.hawk("timeline", uuid, "--otlp", str(tmp_path / "no" / "where"), check=False).returncode == 1
    )


def test_after_the_worker_was_killed_the_timeline_ends_with_it(system: System) -> None:
    uuid = _uuid(system, "hangs")
    system.kill_server()
    kill(system.supervisor(JOB))
    for pid in system.workers(JOB):
        kill(pid)
    died = datetime.now(UTC)
    until("the worker is dead", lambda: not system.workers(JOB))
    system.start()
    found = timeline(system, uuid)
    (tool,) = (span for span in named(found, "work") if span.end_ms is None)
    assert tool.duration_ms > 1000
    assert datetime.fromisoformat(found.as_of) <= died
    assert timeline(system, uuid).as_of == found.as_of


class collector:  # noqa: N801 - used like a function
    """A receiver of OTLP over HTTP: what it was sent, by path. `/full` refuses, as a collector without room does."""

    def __enter__(self) -> tuple[str, list[tuple[str, Any]]]:
        taken: list[tuple[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                full = self.path == "/full"
                if not full:
                    taken.append((self.path, json.loads(body)))
                answer = b"no room" if full else b"{}"
                self.send_response(503 if full else 200)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_port}", taken

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def test_the_public_names_are_those_of_the_reference(system: System) -> None:
    with system.client() as client:
        body = json.loads(_raw(client, _uuid(system, "plain")))
    assert {"sample_uuid", "eval_set_id", "eval_id", "spans", "truncated"} <= body.keys()
    fields = {
        "span_id",
        "parent_id",
        "name",
        "category",
        "kind",
        "start_ms",
        "end_ms",
        "duration_ms",
        "attributes",
    }
    assert all(fields == span.keys() for span in body["spans"])


def _raw(client: HawkClient, uuid: str) -> bytes:
    return client.timeline_json(uuid)
