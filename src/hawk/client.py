"""Typed client of Hawk's API: a method an endpoint. How calls are made is `hawk.calls`.

Errors are `hawk.errors`: what the server sent is rebuilt as it was raised there, and a server that can't be
reached is `ServerUnavailableError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from hawk.calls import Caller, decode, segment, with_query
from hawk.core.plan import Plan
from hawk.core.snapshot import StatusResponse
from hawk.core.states import StopAction
from hawk.errors import HawkError, NotFoundError
from hawk.events import stream_error
from hawk.replies import (
    EvalItem,
    EvalSetItem,
    Fixed,
    JobState,
    JournalLine,
    LogEntry,
    LogPage,
    SampleItem,
    Stopped,
    Submitted,
)

if TYPE_CHECKING:
    from hawk.core.attempts.report import Comparison, Report
    from hawk.core.diagnosis.verdict import Diagnosis
    from hawk.core.recorder.trace import TraceActions
    from hawk.core.timeline.model import EvalSetTimeline, SampleTimeline

PAGE = 250
PART = 1 << 18


class TracePart(NamedTuple):
    """Lines of a trace, where to go on, and whether there are earlier ones."""

    lines: bytes
    cursor: str
    truncated: bool


class HawkClient(Caller):
    """A connection to one server. Not for use by several threads at once."""

    # --- eval sets

    def submit(self, body: Mapping[str, Any]) -> Submitted:
        """Start an eval set, resume one, or find it running already. `body` as `POST /eval_sets/` takes it."""
        return self.json("POST", "/eval_sets/", Submitted, body=body)

    def has_source(self, digest: str) -> bool:
        """Whether the server has an archive of yours; it keeps it then until a submit can name it."""
        try:
            return self.call("GET", f"/sources/{segment(digest)}").status == 200
        except NotFoundError:
            return False

    def send_source(self, digest: str, parts: Iterable[bytes], size: int) -> None:
        """Send an archive of files (`hawk.parcel.packing`), bit by bit.

        Raises:
            StorageError: The server has no room.
            ServerUnavailableError: The connection broke; it may be sent again.
        """
        self.upload(f"/sources/{segment(digest)}", parts, size, "application/octet-stream")

    def stop(self, eval_set_id: str, action: StopAction, sample_uuid: str | None = None) -> Stopped:
        body = {"sample_uuid": sample_uuid, "action": action}
        return self.json("POST", f"/eval_sets/{segment(eval_set_id)}/stop", Stopped, body=body)

    def delete(self, eval_set_id: str) -> None:
        self.call("DELETE", f"/eval_sets/{segment(eval_set_id)}")

    # --- monitoring

    def status(self, job_id: str) -> StatusResponse:
        """The snapshot of a job. Raises: NotFoundError for an unknown id."""
        return decode(self.status_json(job_id), StatusResponse)

    def status_json(self, job_id: str) -> bytes:
        """The same, as the bytes that the server sent."""
        return self.call("GET", f"/monitoring/jobs/{segment(job_id)}/eval-set-status").body

    def status_if_changed(self, job_id: str, etag: str | None) -> StatusResponse | None:
        """The snapshot, or None when it is still the one with this etag."""
        headers = {"If-None-Match": etag} if etag else {}
        answer = self.call("GET", f"/monitoring/jobs/{segment(job_id)}/eval-set-status", headers=headers)
        return None if answer.status == 304 else decode(answer.body, StatusResponse)

    def stream_status(self, job_id: str) -> Iterator[StatusResponse | None]:
        """Snapshots as they change, on a connection of their own; None for each sign of life between.

        Ends when the server ends the stream: after a terminal status, or because it goes down.

        Raises:
            ServerUnavailableError: The connection broke or fell silent.
        """
        for event in self.events(f"/monitoring/jobs/{segment(job_id)}/eval-set-status/stream"):
            if event.event == "status":
                yield decode(event.data, StatusResponse)
            elif event.event == "error":
                raise stream_error(self.url, event.data)
            else:
                yield None

    def job_state(self, job_id: str) -> JobState:
        return self.json("GET", f"/monitoring/jobs/{segment(job_id)}/job-status", JobState)

    def monitoring(self, job_id: str, since: str | None = None) -> dict[str, Any]:
        """Everything known about a job as plain data: processes or pods, metrics, logs, config."""
        path = f"/monitoring/jobs/{segment(job_id)}/status"
        return self.json("GET", path, dict[str, Any], query={"since": since})

    def logs(
        self, job_id: str, *, since: str | None = None, limit: int | None = None, newest_first: bool = False
    ) -> list[LogEntry]:
        """Lines of supervisor, workers and journal."""
        sort = "desc" if newest_first else "asc"
        return self.log_page(job_id, since=since, limit=limit, sort=sort).entries

    def log_page(self, job_id: str, **query: Any) -> LogPage:
        """Such lines, and where to go on.

        Args:
            job_id: Which job.
            **query: What `GET /monitoring/jobs/{id}/logs` takes.
        """
        return self.json("GET", f"/monitoring/jobs/{segment(job_id)}/logs", LogPage, query=query)

    def plan(self, job_id: str) -> Plan | None:
        """What the job will run; None until its tasks have been enumerated."""
        try:
            return self.json("GET", f"/monitoring/jobs/{segment(job_id)}/plan", Plan)
        except NotFoundError:
            return None

    def journal(self, job_id: str) -> list[JournalLine]:
        path = f"/monitoring/jobs/{segment(job_id)}/journal"
        return self.json("GET", path, dict[str, list[JournalLine]]).get("entries", [])

    def diagnosis(self, job_id: str) -> Diagnosis:
        """Why a job does not go on: verdicts, what is well, and what became of every rule."""
        from hawk.core.diagnosis.verdict import Diagnosis

        return decode(self.diagnosis_json(job_id), Diagnosis)

    def diagnosis_json(self, job_id: str) -> bytes:
        """The same, as the bytes that the server sent."""
        return self.call("GET", f"/monitoring/jobs/{segment(job_id)}/diagnosis").body

    def stacktrace(self, job_id: str, **query: Any) -> bytes:
        """What a job's workers wait for, as text or JSON.

        Args:
            job_id: Which job.
            **query: What `GET /monitoring/jobs/{id}/stacktrace` takes.
        """
        return self.call("GET", f"/monitoring/jobs/{segment(job_id)}/stacktrace", query=query).body

    def trace_actions(self, job_id: str, **query: Any) -> TraceActions:
        """What a job's workers have in flight, and the last lines of their trace.

        Args:
            job_id: Which job.
            **query: What `GET /monitoring/jobs/{id}/trace/actions` takes.
        """
        from hawk.core.recorder.trace import TraceActions

        return decode(self.trace_actions_json(job_id, **query), TraceActions)

    def trace_actions_json(self, job_id: str, **query: Any) -> bytes:
        """The same, as the bytes that the server sent."""
        return self.call("GET", f"/monitoring/jobs/{segment(job_id)}/trace/actions", query=query).body

    def trace(self, job_id: str, **query: Any) -> TracePart:
        """Lines of a job's trace, as they were written.

        Args:
            job_id: Which job.
            **query: What `GET /monitoring/jobs/{id}/trace` takes; `since_bytes`: where the last answer said to go on.

        Raises:
            ConflictError: Nothing has come since, and the job has ended.
        """
        answer = self.call("GET", f"/monitoring/jobs/{segment(job_id)}/trace", query=query)
        truncated = answer.headers.get("x-hawk-trace-truncated") == "true"
        return TracePart(answer.body, answer.headers.get("x-hawk-trace-size", "0"), truncated)

    def whole_trace(self, job_id: str, **query: Any) -> Iterator[bytes]:
        """All that is kept of a job's trace, as it comes, on a connection of its own.

        Raises:
            ServerUnavailableError: The connection broke: what came so far is not all.
        """
        path = with_query(f"/monitoring/jobs/{segment(job_id)}/trace", {**query, "full": "true"})
        with self.streamed(path, {}, self._timeout) as response:
            while part := response.part(PART):
                yield part

    def fix(self, job_id: str, body: Mapping[str, Any]) -> Fixed:
        """Plan or carry out the remedy of a verdict, or an action. `body` as `POST /monitoring/jobs/{id}/fix` takes it.

        Raises:
            ConflictError: The verdict of that number has another cause by now. Field: `verdicts`.
        """
        return self.json("POST", f"/monitoring/jobs/{segment(job_id)}/fix", Fixed, body=body)

    def fix_outcome(self, job_id: str, request_id: str) -> Fixed:
        """What came of an earlier request so far."""
        path = f"/monitoring/jobs/{segment(job_id)}/fix/{segment(request_id)}"
        return self.json("GET", path, Fixed)

    # --- results

    def eval_sets(self, *, limit: int, search: str | None = None) -> list[EvalSetItem]:
        return self.items("/meta/eval-sets", EvalSetItem, limit=limit, search=search)

    def evals(self, eval_set_id: str) -> list[EvalItem]:
        return self.items("/meta/evals", EvalItem, eval_set_id=eval_set_id)

    def samples(
        self, eval_set_id: str, *, limit: int | None = None, search: str | None = None
    ) -> Iterator[SampleItem]:
        """Samples of an eval set, fetched page by page as they are taken."""
        page, left = 1, limit
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            items = self.items(
                "/meta/samples", SampleItem, eval_set_id=eval_set_id, search=search, page=page, limit=size
            )
            yield from items
            if len(items) < size or size < PAGE:
                return
            page, left = page + 1, None if left is None else left - size

    def transcript(self, sample_uuid: str, *, raw: bool = False) -> bytes:
        """One sample as Markdown, or as Inspect's JSON."""
        path = f"/meta/samples/{segment(sample_uuid)}/transcript"
        return self.call("GET", path, query={"raw": "true" if raw else None}).body

    def timeline(self, sample_uuid: str) -> SampleTimeline:
        """Where the time of one attempt went. Raises: NotFoundError for an unknown uuid."""
        from hawk.core.timeline.model import SampleTimeline

        return decode(self.timeline_json(sample_uuid), SampleTimeline)

    def timeline_json(self, sample_uuid: str) -> bytes:
        """The same, as the bytes that the server sent."""
        return self.call("GET", f"/meta/samples/{segment(sample_uuid)}/timeline").body

    def eval_set_timeline(self, eval_set_id: str) -> EvalSetTimeline:
        """Where the time of a whole eval set went. Raises: NotFoundError for an unknown id."""
        from hawk.core.timeline.model import EvalSetTimeline

        return decode(self.eval_set_timeline_json(eval_set_id), EvalSetTimeline)

    def eval_set_timeline_json(self, eval_set_id: str) -> bytes:
        """The same, as the bytes that the server sent."""
        return self.call("GET", f"/meta/eval-sets/{segment(eval_set_id)}/timeline").body

    # --- attempts

    def report(self, eval_set_id: str) -> Report:
        """What came of the attempts so far. Raises: NotFoundError for an unknown id, or before there is a plan."""
        from hawk.core.attempts.report import Report

        return decode(self.report_json(eval_set_id), Report)

    def report_json(self, eval_set_id: str) -> bytes:
        """The same, as the bytes that the server sent."""
        return self.call("GET", f"/meta/eval-sets/{segment(eval_set_id)}/report").body

    def compare(self, a: str, b: str) -> Comparison:
        """What changed from one eval set to another, and whether that is more than noise."""
        from hawk.core.attempts.report import Comparison

        return decode(self.compare_json(a, b), Comparison)

    def compare_json(self, a: str, b: str) -> bytes:
        """The same, as the bytes that the server sent."""
        return self.call("GET", "/meta/compare", query={"a": a, "b": b}).body

    def export(self, eval_set_id: str) -> Iterator[bytes]:
        """Every result and workspace of an eval set: a tar file's bytes as they come, on a connection of their own.

        Raises:
            NotFoundError: At the first part, for an unknown id.
            ServerUnavailableError: The connection broke: what came so far is not all.
        """
        path = f"/meta/eval-sets/{segment(eval_set_id)}/attempts/export"
        with self.streamed(path, {}, self._timeout) as response:
            while part := response.part(PART):
                yield part

    def bundle(self, job_id: str, *, transcripts: bool = False) -> Iterator[bytes]:
        """What a maintainer needs to understand a job: a packed tar file's bytes as they come, as `export` gives them."""
        path = f"/monitoring/jobs/{segment(job_id)}/bundle{'?transcripts=true' if transcripts else ''}"
        with self.streamed(path, {}, self._timeout) as response:
            while part := response.part(PART):
                yield part

    # --- the server itself

    def connects(self) -> bool:
        """Whether something listens at the address, now; the connection is kept for the first call."""
        with suppress(OSError):
            self._connection = self._connection or self._connect(self._timeout)
        return self._connection is not None

    def alive(self) -> bool:
        """Whether a server answers, now."""
        try:
            return self.call("GET", "/health/live").status == 200
        except HawkError:
            return False

    def version(self) -> str:
        return str(self.json("GET", "/version", dict[str, Any]).get("version", "unknown"))

    def place(self) -> str | None:
        """Which disk the server sees (`hawk.config.place`); None for a server that does not say, and takes no files."""
        try:
            found = self.json("GET", "/version", dict[str, Any]).get("place")
        except NotFoundError:
            return None
        return found if isinstance(found, str) else None
