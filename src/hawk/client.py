"""Typed client of Hawk's API, on the standard library alone: importing an HTTP package costs more than the calls.

One connection is kept open between calls. Errors are `hawk.errors`: what the server sent is rebuilt as it
was raised there, and a server that can't be reached is `ServerUnavailableError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from hawk import __version__
from hawk.core.plan import Plan
from hawk.core.snapshot import StatusResponse
from hawk.core.states import StopAction
from hawk.errors import AuthError, HawkError, NotFoundError, ServerUnavailableError, from_envelope
from hawk.events import ServerEvent, parse_events, stream_error
from hawk.replies import (
    EvalItem,
    EvalSetItem,
    JobState,
    JournalLine,
    LogEntry,
    LogPage,
    SampleItem,
    Stopped,
    Submitted,
)
from hawk.transport import BrokenAnswerError, Connection, Response, stream_encoding

if TYPE_CHECKING:
    from hawk.core.attempts.report import Comparison, Report
    from hawk.core.recorder.trace import TraceActions
    from hawk.core.timeline.model import EvalSetTimeline, SampleTimeline

T = TypeVar("T")

CONNECT_TIMEOUT = 10.0
TIMEOUT = 60.0
STREAM_SILENCE = 45.0  # the server pings every 15 s: three missed pings are a dead connection
PAGE = 250
PART = 1 << 18


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class TracePart(NamedTuple):
    """Lines of a trace, where to go on, and whether there are earlier ones."""

    lines: bytes
    cursor: str
    truncated: bool


class HawkClient:
    """A connection to one server. Not for use by several threads at once.

    Args:
        url: Base address, a path prefix included.
        token: Bearer token, or None for the few open endpoints.
        timeout: Seconds that connecting and each read may take.
    """

    def __init__(self, url: str, token: str | None, *, timeout: float = TIMEOUT) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise HawkError(
                f"{url!r} is not the address of a server.", remedy="Set HAWK_API_URL to http(s)://host:port."
            )
        if token is not None and not (token.isascii() and token.isprintable()):
            raise AuthError(
                "The access token holds characters that no token has.",
                remedy="Set HAWK_ACCESS_TOKEN to one line of plain text.",
            )
        self.url = url.rstrip("/")
        self.server_version: str | None = None
        self._tls = parts.scheme == "https"
        self._host, self._port, self._prefix = parts.hostname, parts.port, parts.path.rstrip("/")
        self._token = token
        self._timeout = timeout
        self._connection: Connection | None = None

    def __enter__(self) -> HawkClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, ex: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- eval sets

    def submit(self, body: Mapping[str, Any]) -> Submitted:
        """Start an eval set, resume one, or find it running already. `body` as `POST /eval_sets/` takes it."""
        return self._json("POST", "/eval_sets/", Submitted, body=body)

    def stop(self, eval_set_id: str, action: StopAction, sample_uuid: str | None = None) -> Stopped:
        body = {"sample_uuid": sample_uuid, "action": action}
        return self._json("POST", f"/eval_sets/{_segment(eval_set_id)}/stop", Stopped, body=body)

    def delete(self, eval_set_id: str) -> None:
        self.call("DELETE", f"/eval_sets/{_segment(eval_set_id)}")

    # --- monitoring

    def status(self, job_id: str) -> StatusResponse:
        """The snapshot of a job. Raises: NotFoundError for an unknown id."""
        return decode(self.status_json(job_id), StatusResponse)

    def status_json(self, job_id: str) -> bytes:
        """The same, as the bytes that the server sent."""
        return self.call("GET", f"/monitoring/jobs/{_segment(job_id)}/eval-set-status").body

    def status_if_changed(self, job_id: str, etag: str | None) -> StatusResponse | None:
        """The snapshot, or None when it is still the one with this etag."""
        headers = {"If-None-Match": etag} if etag else {}
        answer = self.call("GET", f"/monitoring/jobs/{_segment(job_id)}/eval-set-status", headers=headers)
        return None if answer.status == 304 else decode(answer.body, StatusResponse)

    def stream_status(self, job_id: str) -> Iterator[StatusResponse | None]:
        """Snapshots as they change, on a connection of their own; None for each sign of life between.

        Ends when the server ends the stream: after a terminal status, or because it goes down.

        Raises:
            ServerUnavailableError: The connection broke or fell silent.
        """
        for event in self.events(f"/monitoring/jobs/{_segment(job_id)}/eval-set-status/stream"):
            if event.event == "status":
                yield decode(event.data, StatusResponse)
            elif event.event == "error":
                raise stream_error(self.url, event.data)
            else:
                yield None

    def job_state(self, job_id: str) -> JobState:
        return self._json("GET", f"/monitoring/jobs/{_segment(job_id)}/job-status", JobState)

    def monitoring(self, job_id: str, since: str | None = None) -> dict[str, Any]:
        """Everything known about a job as plain data: processes or pods, metrics, logs, config."""
        path = f"/monitoring/jobs/{_segment(job_id)}/status"
        return self._json("GET", path, dict[str, Any], query={"since": since})

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
        return self._json("GET", f"/monitoring/jobs/{_segment(job_id)}/logs", LogPage, query=query)

    def plan(self, job_id: str) -> Plan | None:
        """What the job will run; None until its tasks have been enumerated."""
        try:
            return self._json("GET", f"/monitoring/jobs/{_segment(job_id)}/plan", Plan)
        except NotFoundError:
            return None

    def journal(self, job_id: str) -> list[JournalLine]:
        path = f"/monitoring/jobs/{_segment(job_id)}/journal"
        return self._json("GET", path, dict[str, list[JournalLine]]).get("entries", [])

    def stacktrace(self, job_id: str, **query: Any) -> bytes:
        """What a job's workers wait for, as text or JSON.

        Args:
            job_id: Which job.
            **query: What `GET /monitoring/jobs/{id}/stacktrace` takes.
        """
        return self.call("GET", f"/monitoring/jobs/{_segment(job_id)}/stacktrace", query=query).body

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
        return self.call("GET", f"/monitoring/jobs/{_segment(job_id)}/trace/actions", query=query).body

    def trace(self, job_id: str, **query: Any) -> TracePart:
        """Lines of a job's trace, as they were written.

        Args:
            job_id: Which job.
            **query: What `GET /monitoring/jobs/{id}/trace` takes; `since_bytes`: where the last answer said to go on.

        Raises:
            ConflictError: Nothing has come since, and the job has ended.
        """
        answer = self.call("GET", f"/monitoring/jobs/{_segment(job_id)}/trace", query=query)
        truncated = answer.headers.get("x-hawk-trace-truncated") == "true"
        return TracePart(answer.body, answer.headers.get("x-hawk-trace-size", "0"), truncated)

    def whole_trace(self, job_id: str, **query: Any) -> Iterator[bytes]:
        """All that is kept of a job's trace, as it comes, on a connection of its own.

        Raises:
            ServerUnavailableError: The connection broke: what came so far is not all.
        """
        path = _with_query(f"/monitoring/jobs/{_segment(job_id)}/trace", {**query, "full": "true"})
        with self._streamed(path, {}, self._timeout) as response:
            while part := response.part(PART):
                yield part

    # --- results

    def eval_sets(self, *, limit: int, search: str | None = None) -> list[EvalSetItem]:
        return self._items("/meta/eval-sets", EvalSetItem, limit=limit, search=search)

    def evals(self, eval_set_id: str) -> list[EvalItem]:
        return self._items("/meta/evals", EvalItem, eval_set_id=eval_set_id)

    def samples(
        self, eval_set_id: str, *, limit: int | None = None, search: str | None = None
    ) -> Iterator[SampleItem]:
        """Samples of an eval set, fetched page by page as they are taken."""
        page, left = 1, limit
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            items = self._items(
                "/meta/samples", SampleItem, eval_set_id=eval_set_id, search=search, page=page, limit=size
            )
            yield from items
            if len(items) < size or size < PAGE:
                return
            page, left = page + 1, None if left is None else left - size

    def transcript(self, sample_uuid: str, *, raw: bool = False) -> bytes:
        """One sample as Markdown, or as Inspect's JSON."""
        path = f"/meta/samples/{_segment(sample_uuid)}/transcript"
        return self.call("GET", path, query={"raw": "true" if raw else None}).body

    def timeline(self, sample_uuid: str) -> SampleTimeline:
        """Where the time of one attempt went. Raises: NotFoundError for an unknown uuid."""
        from hawk.core.timeline.model import SampleTimeline

        return decode(self.timeline_json(sample_uuid), SampleTimeline)

    def timeline_json(self, sample_uuid: str) -> bytes:
        """The same, as the bytes that the server sent."""
        return self.call("GET", f"/meta/samples/{_segment(sample_uuid)}/timeline").body

    def eval_set_timeline(self, eval_set_id: str) -> EvalSetTimeline:
        """Where the time of a whole eval set went. Raises: NotFoundError for an unknown id."""
        from hawk.core.timeline.model import EvalSetTimeline

        return decode(self.eval_set_timeline_json(eval_set_id), EvalSetTimeline)

    def eval_set_timeline_json(self, eval_set_id: str) -> bytes:
        """The same, as the bytes that the server sent."""
        return self.call("GET", f"/meta/eval-sets/{_segment(eval_set_id)}/timeline").body

    # --- attempts

    def report(self, eval_set_id: str) -> Report:
        """What came of the attempts so far. Raises: NotFoundError for an unknown id, or before there is a plan."""
        from hawk.core.attempts.report import Report

        return decode(self.report_json(eval_set_id), Report)

    def report_json(self, eval_set_id: str) -> bytes:
        """The same, as the bytes that the server sent."""
        return self.call("GET", f"/meta/eval-sets/{_segment(eval_set_id)}/report").body

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
        path = f"/meta/eval-sets/{_segment(eval_set_id)}/attempts/export"
        with self._streamed(path, {}, self._timeout) as response:
            while part := response.part(PART):
                yield part

    def bundle(self, job_id: str, *, transcripts: bool = False) -> Iterator[bytes]:
        """What a maintainer needs to understand a job: a packed tar file's bytes as they come, as `export` gives them."""
        path = f"/monitoring/jobs/{_segment(job_id)}/bundle{'?transcripts=true' if transcripts else ''}"
        with self._streamed(path, {}, self._timeout) as response:
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
        return str(self._json("GET", "/version", dict[str, Any]).get("version", "unknown"))

    # --- transport

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request. What may be repeated without harm is tried again when a kept connection had gone.

        Raises:
            HawkError: What the server answered, as the class it was raised with.
            ServerUnavailableError: No connection, or no answer in time.
        """
        data = None if body is None else msgspec.json.encode(body)
        reused = self._connection is not None and method != "POST"
        if method == "POST":
            self.close()
        try:
            answer = self._exchange(method, _with_query(path, query), data, headers)
        except OSError as ex:
            if not reused or isinstance(ex, TimeoutError):
                raise self._unavailable(ex) from ex
            answer = self._again(method, _with_query(path, query), data, headers)
        if answer.status >= 400:
            raise _error(answer)
        return answer

    def events(self, path: str) -> Iterator[ServerEvent]:
        """Server-sent events of a path, on a connection of their own, until the server ends the stream."""
        accept = {"Accept": "text/event-stream", "Accept-Encoding": stream_encoding()}
        # A server that is killed does not get to end its streams.
        with self._streamed(path, accept, STREAM_SILENCE) as response, suppress(BrokenAnswerError):
            yield from parse_events(response)

    @contextmanager
    def _streamed(self, path: str, headers: Mapping[str, str], timeout: float) -> Iterator[Response]:
        """An answer that is read as it comes, on a connection of its own."""
        self.close()
        connection = None
        try:
            connection = self._connect(timeout)
            response = connection.request("GET", self._prefix + path, self._headers(headers))
            if response.status >= 400:
                raise _error(Answer(response.status, response.headers, response.read()))
            yield response
        except OSError as ex:
            raise self._unavailable(ex) from ex
        finally:
            if connection is not None:
                connection.close()

    def _json(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
    ) -> T:
        return decode(self.call(method, path, query=query, body=body).body, kind)

    def _items(self, path: str, kind: type[T], **query: Any) -> list[T]:
        page = self._json("GET", path, dict[str, Any], query=query)
        return _convert(page.get("items", []), list[kind])  # type: ignore[valid-type]

    def _again(
        self, method: str, target: str, data: bytes | None, headers: Mapping[str, str] | None
    ) -> Answer:
        try:
            return self._exchange(method, target, data, headers)
        except OSError as ex:
            raise self._unavailable(ex) from ex

    def _exchange(
        self, method: str, target: str, data: bytes | None, headers: Mapping[str, str] | None
    ) -> Answer:
        connection = self._connection = self._connection or self._connect(self._timeout)
        sent = self._headers(headers or {})
        if data is not None:
            sent["Content-Type"] = "application/json"
        try:
            response = connection.request(method, self._prefix + target, sent, data)
            body = response.read()
        except BaseException:
            self.close()  # half an answer may be left in it: an interrupt must not poison the next call
            raise
        if not response.keeps_connection:
            self.close()
        self.server_version = response.headers.get("x-hawk-server-version") or self.server_version
        return Answer(response.status, response.headers, body)

    def _connect(self, timeout: float) -> Connection:
        connection = Connection(self._host, self._port, tls=self._tls, timeout=min(timeout, CONNECT_TIMEOUT))
        connection.settimeout(timeout)
        return connection

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        headers = {"X-Hawk-Client-Version": __version__, "User-Agent": f"hawk/{__version__}", **more}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def _unavailable(self, ex: Exception) -> ServerUnavailableError:
        why = "no answer in time" if isinstance(ex, TimeoutError) else str(ex) or type(ex).__name__
        return ServerUnavailableError(
            f"The server at {self.url} does not answer: {why}.",
            remedy="hawk doctor shows whether it runs; HAWK_API_URL says where it is looked for.",
            url=self.url,
        )


def decode(body: bytes, kind: type[T]) -> T:
    """Decode an answer. Raises: HawkError when the server speaks another language."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as ex:
        raise _foreign(ex) from ex


def _convert(value: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, type=kind)
    except msgspec.ValidationError as ex:
        raise _foreign(ex) from ex


def _foreign(ex: Exception) -> HawkError:
    return HawkError(
        f"The server's answer is not understood: {ex}.",
        remedy=f"Compare versions with 'hawk version': this command is {__version__}.",
    )


def _segment(value: str) -> str:
    """An id as one URL segment: `../` can't leave its place."""
    return quote(value, safe="").replace(".", "%2E") if value.strip(".") == "" else quote(value, safe="")


def _with_query(path: str, query: Mapping[str, Any] | None) -> str:
    given = {key: value for key, value in (query or {}).items() if value is not None}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def _error(answer: Answer) -> HawkError:
    body: dict[str, Any] = {}
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        decoded = msgspec.json.decode(answer.body)
        body = decoded if isinstance(decoded, dict) else {}
    return from_envelope(body, answer.status)
