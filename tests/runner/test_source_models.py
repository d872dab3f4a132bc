"""What the supervisor reads of models: spans as they grow, pauses of workers, the middleman's own word, providers directly."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawk.config.settings import load_settings
from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.diagnose import diagnose
from hawk.core.diagnosis.evidence import Attempt, Evidence, Model
from hawk.core.snapshot import ModelUse, Snapshot
from hawk.core.states import ActivityType
from hawk.core.timeline.records import WorkerNote
from hawk.middleman.spans import Span
from hawk.runner.models import ModelAccess
from hawk.runner.sources import directly
from hawk.runner.sources.context import Context
from hawk.runner.sources.models import ModelReader
from hawk.store.rundir import JobSpec, RunDir
from tests.middleman.provider import Provider
from tests.middleman.provider_faults import half_then_silence, server_error
from tests.middleman.raw_client import ask
from tests.middleman.running import Middleman, settings
from tests.system import until

NAME = "openai-api/local/x"


class Job:
    """A run directory with files of spans, and what is read of it."""

    def __init__(
        self, path: Path, *, config: dict[str, Any] | None = None, access: ModelAccess | None = None
    ) -> None:
        self.run_dir = RunDir(path / "job-1")
        self.spans = self.run_dir.path / "spans"
        self.spans.mkdir(parents=True, exist_ok=True)
        self.spec = JobSpec("job-1", str(path), config=config or {"models": [{"items": [{"name": NAME}]}]})
        self.settings = load_settings({"HAWK_HOME": str(path)})
        self.access = access
        self.reader = ModelReader()
        self.attempts = [self.attempt(n) for n in range(3)]
        self.start = datetime.now(UTC) - timedelta(seconds=100)

    @staticmethod
    def attempt(number: int, activity: ActivityType = ActivityType.RETRY_WAIT) -> Attempt:
        return Attempt(
            "t", f"s{number}", 1, f"t/s{number}/1", uuid=f"u{number}", model=NAME, activity=activity
        )

    def at(self, second: float) -> str:
        return (self.start + timedelta(seconds=second)).isoformat()

    def span(self, second: float, uuid: str = "u0", **more: Any) -> None:
        given: dict[str, Any] = {
            "status": 200,
            "seconds": 1.0,
            "upstream_status": more.get("status", 200),
            **more,
        }
        span = Span(
            "r",
            self.at(second),
            "local",
            "x",
            "/v1/chat/completions",
            sample_uuid=uuid,
            account="default",
            **given,
        )
        self.write("middleman.jsonl", span)

    def pause(
        self, second: float, seconds: float, attempt: int, uuid: str = "u0", worker: int = 0, **more: Any
    ) -> None:
        note = WorkerNote("retry_wait", self.at(second), seconds, uuid, "s", 1, "t", "x", attempt, **more)
        self.write(f"worker-{worker}.jsonl", note)

    def write(self, name: str, row: msgspec.Struct) -> None:
        with (self.spans / name).open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")

    def look(self) -> Evidence:
        evidence = Evidence("job-1", datetime.now(UTC).isoformat(), attempts=self.attempts)
        for attempt in self.attempts:
            attempt.retrying = None
        by_uuid = {a.uuid: a for a in self.attempts if a.uuid}
        context = Context(
            self.run_dir, self.spec, self.settings, datetime.now(UTC), Snapshot("job-1"), models=self.access,
            attempts=by_uuid,
        )  # fmt: skip
        self.reader.fill(evidence, context)
        return evidence

    def model(self) -> Model:
        return next(m for m in self.look().models if m.model == "x")


def test_streaks_are_of_the_model_and_of_each_attempt(tmp_path: Path) -> None:
    job = Job(tmp_path)
    assert job.look().models == []
    for second in range(5):
        job.span(second, f"u{second % 2}", seconds=2.0 + second)
    job.span(16, status=429, said="Rate limit reached")
    job.span(17, "u1", status=500, error="hawk_internal")
    job.span(18, status=429, said="Rate limit reached again")
    job.span(19, "u2", status=0, upstream_status=None, client_gone=True, seconds=30.0)
    found = job.model()
    assert (found.name, found.recent, found.failing) == ("openai-api/local/x", "SSSSSFFF", 3)
    assert found.ok_seconds == [2.0, 3.0, 4.0, 5.0, 6.0]
    groups = {group.kind: group for group in found.calls}
    assert (groups["rate_limited"].streak, groups["rate_limited"].again) == (2, 1)
    assert (groups["rate_limited"].uuids, groups["rate_limited"].said) == (["u0"], "Rate limit reached again")
    assert (groups["internal"].streak, groups["internal"].uuids) == (1, ["u1"])
    assert (groups["client_gone"].seconds, groups["client_gone"].streak) == ([30.0], 1)
    job.span(20, "u1")
    answered = job.model()
    assert (answered.failing, answered.recent[-1]) == (0, "S")
    assert {group.kind: group.streak for group in answered.calls} == {
        "rate_limited": 0,
        "internal": 0,
        "client_gone": 0,
    }


def test_a_line_that_another_middleman_wrote_too_late_does_not_undo_a_success(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.span(3, "u0")
    job.span(1, "u0", status=503)
    job.look()
    assert job.reader._spans is not None
    assert job.reader._spans.last["u0"].failures == 0


def test_what_a_replica_does_not_tell_is_missing_and_the_rest_is_used(tmp_path: Path) -> None:
    class Half(ModelAccess):
        def status(self) -> dict[str, Any]:
            lost = "1 of 2 replicas can't be asked by another: http://10.0.0.2:8080"
            row = {"id": "r", "sample_uuid": "u0", "provider": "local", "account": "default", "model": "x"}
            rest = ("sent_s", "quiet_s", "most_tokens", "place", "until", "deadline_s")
            more = {
                "task": "t",
                "sample": "s0",
                "attempt": "1",
                "phase": "waiting",
                "age_s": 3.0,
                "bytes_out": 0,
            }
            flags = {"stream": False, "reasoning": False, "replayed": False, "retry": 0}
            return {
                "lanes": [],
                "requests": [{**row, **more, **flags, **dict.fromkeys(rest)}],
                "missing": lost,
            }

    job = Job(tmp_path)
    job.access = Half(job.run_dir, job.spec, {}, job.settings)
    found = job.look()
    assert "10.0.0.2" in found.missing[Source.MIDDLEMAN]
    assert [request.uuid for request in found.models[0].open] == ["u0"]


def test_pauses_are_joined_with_what_the_provider_said(tmp_path: Path) -> None:
    job = Job(tmp_path)
    for second, number, pause in ((10, 1, 3.0), (20, 2, 6.0), (40, 3, 120.0)):
        job.span(second - 1, status=503, said="Overloaded")
        job.pause(second, pause, number, status=503, error="InternalServerError")
    job.pause(30, 5.0, 1, "u1", worker=1, status=429, error="RateLimitError")
    found = job.look()
    first, other, third = (attempt.retrying for attempt in found.attempts)
    assert first is not None
    assert (first.count, first.waited, first.kind, first.said) == (3, 129.0, "overloaded", "Overloaded")
    assert (first.model, first.until) == (
        "local/x",
        (job.start + timedelta(seconds=160)).isoformat(timespec="milliseconds"),
    )
    assert other is not None
    assert (other.kind, other.status) == ("rate_limited", 429)
    assert third is None
    job.span(165, seconds=0.1)  # the next try was answered
    job.attempts[1].outcomes = "FS"
    job.attempts[1].activity = ActivityType.MODEL
    assert [attempt.retrying for attempt in job.look().attempts] == [None, None, None]


def test_without_a_middleman_the_pauses_alone_tell(tmp_path: Path) -> None:
    job = Job(tmp_path)
    for number in range(1, 5):
        job.pause(10 + 30.5 * number, 0.5, number, error="APITimeoutError")
    found = job.model()
    group = next(group for group in found.calls if group.kind == "client_timeout")
    assert (group.streak, group.uuids, group.seconds) == (4, ["u0"], [30.0, 30.0, 30.0])
    said = diagnose(job.look(), datetime.now(UTC))
    assert (said[0].cause, said[0].subject) == ("client_timeout_too_short", NAME)


def test_torn_lost_and_odd_lines_cost_nothing(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.span(1)
    with (job.spans / "middleman.jsonl").open("ab") as file:
        file.write(
            b'{"nonsense": 1}\n\xff\xfe\n{"id": "r", "at": "never", "provider": "x", "status": 1, "seconds": 1}\n'
        )
        file.write(b'{"id": "torn')
    (job.spans / "worker-0.jsonl").write_bytes(b"[]\n{}\n")
    assert job.model().recent == "S"
    (job.spans / "middleman.jsonl").unlink()
    job.span(2, status=500)
    assert job.model().recent == "SF", "a file that is begun again is read from its beginning"


@pytest.fixture
def silence() -> Iterator[str]:
    """An address that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"


def test_a_provider_is_asked_directly(silence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directly, "PATIENCE", 0.3)
    assert not directly.once(silence).answered
    assert not directly.once("http://127.0.0.1:1").answered
    assert not directly.once("http://").answered
    with Provider() as provider:
        asked = directly.Directly()
        until("it has answered", lambda: asked.ask(f"{provider.url}/v1"))
        assert asked.ask(f"{provider.url}/v1")
        assert [r.path for r in provider.received] == ["/v1/models"]
        assert "authorization" not in {name.lower() for name, _ in provider.received[0].headers}


def test_the_middlemans_own_word(tmp_path: Path) -> None:
    """The real one: open requests with their attempts, lanes, and what is said when the token is revoked or it is gone."""
    with Provider() as provider:
        middleman = Middleman(tmp_path / "home", settings(provider.url))
        middleman.start()
        try:
            _with_middleman(tmp_path, middleman, provider)
        finally:
            middleman.stop()


def _with_middleman(tmp_path: Path, middleman: Middleman, provider: Provider) -> None:
    spec = JobSpec("job-1", str(tmp_path), config={"models": [{"items": [{"name": NAME}]}]})
    home = load_settings({"HAWK_HOME": str(middleman.home)})
    access = ModelAccess(RunDir(home.root / "job-1"), spec, {}, home)
    job = Job(home.root, access=access)
    provider.on(half_then_silence(), model="x", always=True)
    access.open()
    asked = {"model": "x", "stream": True, "reasoning_effort": "high", "max_tokens": 50}
    headers = [("x-hawk-sample-uuid", "u1")]
    path = "/local/v1/chat/completions"
    thread = threading.Thread(
        target=lambda: ask(middleman.url, path, access._token, asked, headers=headers), daemon=True
    )
    thread.start()
    try:
        until(
            "the answer has begun",
            lambda: any(r.phase == "answering" for m in job.look().models for r in m.open),
        )
        found = job.model()
        assert (found.name, found.url) == (NAME, f"{provider.url}/v1")
        assert found.lane is not None
        assert [(h.job, h.in_flight, h.mine) for h in found.lane.by_job] == [("job-1", 1, True)]
        request = found.open[0]
        assert (request.uuid, request.name, request.stream, request.reasoning) == ("u1", "t/s1/1", True, True)
        assert request.most_tokens == 50
        assert request.bytes > 0
        provider.reset()
        provider.on(server_error(), model="x", always=True)
        ask(middleman.url, path, access._token, {"model": "x"}, headers=headers)
        until("it is noted", lambda: job.model().failing == 1)
        assert isinstance(until("there was a look", lambda: access.use), ModelUse)
        ask(middleman.url, "/admin/jobs/job-1/revoke", middleman.person(), method="POST")
        until("the runner is told", lambda: "revoked" in (job.look().job.models_problem or ""))
        assert diagnose(job.look(), datetime.now(UTC))[0].cause == "token_revoked"
    finally:
        access.close()
        thread.join(10)
