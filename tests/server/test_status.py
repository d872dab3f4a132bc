import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import msgspec
import pytest

from hawk.client import HawkClient
from hawk.core import zstd
from hawk.core.snapshot import StatusResponse
from hawk.core.states import JobStatus, SamplePhase
from hawk.errors import NotFoundError
from tests.bridge.conftest import Evaluation
from tests.server.fakes import FakeEngine
from tests.server.serving import Service, until
from tests.store.databases import BOTH
from tests.store.runs import snapshot_of

RUNNING, DONE = SamplePhase.RUNNING, SamplePhase.COMPLETED
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class Watcher:
    """Reads a stream in a thread; `statuses` grows, `ended` is set at its end."""

    def __init__(self, service: Service, job_id: str, accept: str = "gzip, zstd") -> None:
        self.payloads: list[bytes] = []
        self.raw, self.text = b"", b""
        self.encoding: str | None = None
        self.ended = threading.Event()
        self._address = f"{service.url}/monitoring/jobs/{job_id}/eval-set-status/stream"
        self._headers = {"authorization": f"Bearer {service.token}", "accept-encoding": accept}
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def statuses(self) -> list[str]:
        return [json.loads(payload)["data"]["status"] for payload in self.payloads]

    def _read(self) -> None:
        try:
            with httpx.stream(
                "GET", self._address, headers=self._headers, timeout=60, trust_env=False
            ) as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                self.encoding = answer.headers.get("content-encoding")
                unpacker = zstd.Unpacker()
                for chunk in answer.iter_raw():
                    self.raw += chunk
                    self.text += unpacker.feed(chunk) if self.encoding == "zstd" else chunk
                    *lines, _ = self.text.split(b"\n")
                    self.payloads = [line[6:] for line in lines if line.startswith(b"data: ")]
        finally:
            self.ended.set()


@contextmanager
def counted(service: Service, job_id: str) -> Iterator[list[int]]:
    """How often the status of a job is encoded."""
    from hawk.server.services import feeds

    calls: list[int] = []
    original = feeds._encode

    def counting(key, snapshot):  # type: ignore[no-untyped-def]
        if snapshot.job_id == job_id:
            calls.append(1)
        return original(key, snapshot)

    feeds._encode = counting
    try:
        yield calls
    finally:
        feeds._encode = original


def test_the_status_has_an_etag_and_is_304_while_it_stays(service: Service, engine: FakeEngine) -> None:
    service.submit("a")
    engine.write(snapshot_of("a", RUNNING, DONE))
    service.until_status("a", "running")
    path = "/monitoring/jobs/a/eval-set-status"
    first = service.get(path)
    decoded = msgspec.json.decode(first.content, type=StatusResponse)
    assert decoded.etag == first.headers["etag"]
    assert decoded.data.progress.total == 2
    again = service.get(path, headers={"if-none-match": f'"other", {decoded.etag}'})
    assert (again.status_code, again.content) == (304, b"")
    engine.write(snapshot_of("a", DONE, DONE))
    until(lambda: service.get(path, headers={"if-none-match": decoded.etag}).status_code == 200)


def test_idle_time_alone_is_no_change(service: Service, engine: FakeEngine) -> None:
    service.submit("a")
    etags = set()
    for idle in (1.0, 2.0):
        snapshot = snapshot_of("a", RUNNING)
        snapshot.tasks[0].samples[0].idle_seconds = idle
        engine.write(snapshot)
        until(
            lambda idle=idle: (
                service.status("a")["tasks"]
                and service.status("a")["tasks"][0]["samples"][0]["idle_seconds"] == idle
            )
        )
        etags.add(service.get("/monitoring/jobs/a/eval-set-status").headers["etag"])
    assert len(etags) == 1


def test_a_stream_shows_each_change_and_ends_with_the_job(service: Service, engine: FakeEngine) -> None:
    service.submit("a")
    watcher = Watcher(service, "a")
    until(lambda: watcher.statuses == ["pending"])
    engine.write(snapshot_of("a", RUNNING))
    until(lambda: watcher.statuses[-1] == "running")
    engine.end(snapshot_of("a", DONE, status=JobStatus.COMPLETE))
    assert watcher.ended.wait(20)
    assert watcher.statuses[-1] == "complete"
    late = Watcher(service, "a")
    assert late.ended.wait(20)
    assert late.statuses == ["complete"]


def test_a_packed_stream_holds_the_same_events(service: Service, engine: FakeEngine) -> None:
    service.submit("a")
    plain, packed = Watcher(service, "a"), Watcher(service, "a", "zstd")
    until(lambda: plain.payloads and packed.payloads)
    for done in range(1, 3):
        engine.write(snapshot_of("a", *[DONE] * done, RUNNING))
        until(lambda done=done: len(plain.payloads) == len(packed.payloads) == done + 1)
    engine.end(snapshot_of("a", DONE, status=JobStatus.COMPLETE))
    assert plain.ended.wait(20)
    assert packed.ended.wait(20)
    assert (plain.encoding, packed.encoding) == (None, "zstd")
    etags = [[json.loads(payload)["etag"] for payload in watcher.payloads] for watcher in (plain, packed)]
    assert etags[0] == etags[1]
    assert packed.statuses[-1] == "complete"
    assert packed.text.endswith(b"\n\n")
    assert packed.raw.count(ZSTD_MAGIC) == packed.text.count(b"event: ")


def test_hawks_own_client_follows_the_packed_stream(service: Service, engine: FakeEngine) -> None:
    service.submit("a")
    engine.write(snapshot_of("a", *[RUNNING] * 500))
    service.until_status("a", "running")
    seen = []
    with HawkClient(service.url, service.token) as client:
        for status in client.stream_status("a"):
            assert status is not None
            seen.append(status.data.status)
            if seen == [JobStatus.RUNNING]:
                engine.end(snapshot_of("a", *[DONE] * 500, status=JobStatus.COMPLETE))
    assert (seen[0], seen[-1]) == (JobStatus.RUNNING, JobStatus.COMPLETE)


@pytest.mark.parametrize("accept", ["zstd", "identity"])
def test_a_silent_stream_pings(service: Service, monkeypatch: pytest.MonkeyPatch, accept: str) -> None:
    monkeypatch.setattr("hawk.server.services.feeds.PING", 0.05)
    service.submit("a")
    watcher = Watcher(service, "a", accept)
    until(lambda: watcher.text.count(b": ping\n\n") >= 3)
    service.client.delete("/eval_sets/a")
    assert watcher.ended.wait(20)
    assert watcher.statuses[-1] == "deleted"


@pytest.mark.parametrize("accept", ["zstd", "identity"])
def test_a_stream_of_a_job_that_is_gone_says_so(
    service: Service, monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    service.submit("a")
    watcher = Watcher(service, "a", accept)
    until(lambda: watcher.payloads)

    def gone(_: object) -> None:
        raise NotFoundError("No eval set 'a'.")

    monkeypatch.setattr("hawk.server.services.feeds.Status.current", gone)
    assert watcher.ended.wait(20)
    assert watcher.text.rpartition(b"event: ")[2].startswith(b"error\ndata: {")
    assert json.loads(watcher.payloads[-1])["status"] == 404


def test_a_status_is_packed_once_and_only_for_who_wants_it(
    service: Service, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    pack = zstd.pack

    def counting(data: bytes) -> bytes:
        calls.append(threading.current_thread().name)
        return pack(data)

    monkeypatch.setattr(zstd, "pack", counting)
    service.submit("a")
    engine.write(snapshot_of("a", RUNNING))
    service.until_status("a", "running")
    plain = Watcher(service, "a")
    until(lambda: plain.payloads)
    assert calls == []
    watchers = [Watcher(service, "a", "zstd") for _ in range(20)]
    until(lambda: all(watcher.payloads for watcher in watchers))
    calls.clear()
    engine.write(snapshot_of("a", DONE, RUNNING))
    until(lambda: all(len(watcher.payloads) >= 2 for watcher in watchers))
    assert 1 <= len(calls) <= 2
    assert all(name.startswith("hawk-feed") for name in calls)
    assert len({watcher.raw[watcher.raw.rindex(ZSTD_MAGIC) :] for watcher in watchers}) == 1
    engine.end(snapshot_of("a", DONE, DONE, status=JobStatus.COMPLETE))
    assert all(watcher.ended.wait(20) for watcher in [plain, *watchers])


def test_watchers_share_one_builder(service: Service, engine: FakeEngine) -> None:
    service.submit("a")
    engine.write(snapshot_of("a", RUNNING))
    service.until_status("a", "running")
    watchers = [Watcher(service, "a") for _ in range(20)]
    until(lambda: all(watcher.payloads for watcher in watchers))
    with counted(service, "a") as built:
        engine.write(snapshot_of("a", DONE, RUNNING))
        until(lambda: all(len(watcher.payloads) >= 2 for watcher in watchers))
    assert len(built) <= 2
    assert len({watcher.payloads[-1] for watcher in watchers}) == 1
    engine.end(snapshot_of("a", DONE, DONE, status=JobStatus.COMPLETE))
    assert all(watcher.ended.wait(20) for watcher in watchers)


def test_a_finished_job_says_importing_until_its_results_are_listed(
    service: Service, engine: FakeEngine, finished: Evaluation
) -> None:
    service.submit("a")
    run = engine.run("a")
    watcher = Watcher(service, "a")
    (run.logs / finished.log.name).write_bytes(finished.log.read_bytes())
    engine.end(snapshot_of("a", DONE, status=JobStatus.COMPLETE))
    assert watcher.ended.wait(30)
    assert "importing" in watcher.statuses or watcher.statuses[-1] == "complete"
    assert service.get("/meta/samples?eval_set_id=a").json()["total"] == 10
    details = service.get("/monitoring/jobs/a/job-status").json()["details"]
    assert details["warehouse_sample_count"] == 10
    assert details["import_summary"]["success"] == 1


@pytest.mark.parametrize("database_url", BOTH, indirect=True)
def test_attempts_in_flight_are_listed_as_provisional(
    service: Service, engine: FakeEngine, finished: Evaluation
) -> None:
    service.submit("a")
    run = engine.run("a")
    (run.logs / finished.log.name).write_bytes(finished.log.read_bytes())
    engine.write(snapshot_of("a", RUNNING, SamplePhase.WAITING, SamplePhase.SCORING))
    until(lambda: service.get("/meta/samples?eval_set_id=a").json()["total"] == 12)
    page = service.get("/meta/samples?eval_set_id=a&limit=5").json()
    assert [item["is_provisional"] for item in page["items"]] == [True, True, False, False, False]
    rest = service.get("/meta/samples?eval_set_id=a&limit=5&page=3").json()
    assert (len(rest["items"]), rest["has_more"]) == (2, False)
    uuids = [
        item["uuid"]
        for number in (1, 2, 3)
        for item in service.get(f"/meta/samples?eval_set_id=a&limit=5&page={number}").json()["items"]
    ]
    assert len(set(uuids)) == 12
    assert service.get("/meta/samples/a-uuid-0").json()["is_provisional"] is True
    assert service.get("/meta/samples/a-uuid-0/transcript").status_code == 409
    assert service.get("/meta/samples/a-uuid-0/scores").json() == []
    assert service.get("/meta/samples?eval_set_id=a&search=s2").json()["items"][0]["id"] == "s2"


def test_one_finished_attempt_can_be_read(service: Service, engine: FakeEngine, finished: Evaluation) -> None:
    service.submit("a")
    (engine.run("a").logs / finished.log.name).write_bytes(finished.log.read_bytes())
    until(lambda: service.get("/meta/samples?eval_set_id=a").json()["total"] == 10)
    item = service.get("/meta/samples?search=s1").json()["items"][0]
    found = service.get(f"/meta/samples/{item['uuid']}").json()
    assert (found["id"], found["filename"], found["eval_set_id"]) == ("s1", finished.log.name, "a")
    [score] = service.get(f"/meta/samples/{item['uuid']}/scores").json()
    assert (score["value"], score["answer"], score["explanation"]) == (0.0, "wrong", "said wrong")
    markdown = service.get(f"/meta/samples/{item['uuid']}/transcript")
    assert markdown.headers["content-type"].startswith("text/markdown")
    assert markdown.text.startswith("# tiny")
    assert service.get(f"/meta/samples/{item['uuid']}/transcript?raw=true").json()["id"] == "s1"
    assert service.get("/meta/samples/nobody").status_code == 404
    assert service.get("/meta/samples?eval_set_id=nobody").status_code == 404


def test_a_torn_log_is_named_in_the_status_and_stops_nothing(service: Service, engine: FakeEngine) -> None:
    service.submit("a")
    (engine.run("a").logs / "2026-01-01T00-00-00_t_x.eval").write_bytes(b"torn")
    engine.write(snapshot_of("a", RUNNING))
    until(lambda: "import" in service.status("a")["errors"])
    assert service.status("a")["status"] == "running"
    engine.end(snapshot_of("a", DONE, status=JobStatus.COMPLETE))
    service.until_status("a", "complete")


def test_a_damaged_snapshot_keeps_the_last_good_one(service: Service, engine: FakeEngine) -> None:
    service.submit("a")
    engine.write(snapshot_of("a", RUNNING))
    service.until_status("a", "running")
    engine.run("a").snapshot_file.write_bytes(b"{")
    data = until(lambda: data if (data := service.status("a"))["errors"] else None)
    assert "damaged" in data["errors"]["snapshot"]
    assert data["progress"]["total"] == 1


@pytest.mark.parametrize("path", ["logs", "status"])
def test_since_is_utc_where_it_says_no_zone_and_never_a_number(service: Service, path: str) -> None:
    service.submit("a")
    answers = {
        since: service.get(f"/monitoring/jobs/a/{path}", params={"since": since, "limit": 1})
        for since in ("2026-01-01T00:00:00", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00")
    }
    assert {answer.status_code for answer in answers.values()} == {200}
    if path == "status":
        assert answers["2026-01-01T00:00:00"].json()["data"]["since"] == "2026-01-01T00:00:00Z"
    for number in ("1767225600", "0.5", "-1"):
        assert service.get(f"/monitoring/jobs/a/{path}", params={"since": number}).status_code == 422


def test_the_report_holds_what_the_public_client_reads(service: Service, engine: FakeEngine) -> None:
    service.submit("a", source="name: x\n")
    engine.write(snapshot_of("a", RUNNING))
    data = service.get("/monitoring/jobs/a/status?since=2026-01-01T00:00:00%2B00:00").json()["data"]
    assert (data["job_id"], data["provider"], data["user_config"]) == ("a", "fake", "name: x\n")
    assert data["since"].startswith("2026-01-01")
    assert data["logs"]["entries"][0]["service"] == "journal"
    assert data["processes"] == {"engine": "fake", "processes": []}
    assert service.get("/monitoring/jobs/a/plan").status_code == 404
    assert service.get("/monitoring/jobs/a/journal").json()["entries"][0]["state"] == "submitted"


@pytest.mark.parametrize("accept", ["zstd", "identity"])
def test_watchers_of_a_huge_job_get_fewer_updates_and_always_the_last(
    service: Service, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    monkeypatch.setattr("hawk.server.services.feeds.STREAMED", 1.0)  # one frame then takes minutes
    service.submit("a")
    watcher = Watcher(service, "a", accept)
    until(lambda: watcher.payloads)
    for done in range(1, 4):
        engine.write(snapshot_of("a", *[DONE] * done, RUNNING))
        until(lambda done=done: service.status("a")["progress"]["completed"] == done)
    assert len(watcher.payloads) == 1
    engine.end(snapshot_of("a", DONE, status=JobStatus.COMPLETE))
    assert watcher.ended.wait(20)
    assert watcher.statuses == ["pending", "complete"]
