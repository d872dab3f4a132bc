"""Talks to a running evaluation over its control socket: HTTP on a Unix socket, served by the eval's own event loop.

So an answer proves that the loop turns, and silence is evidence too. Every call has one deadline over all of it:
connecting, sending and the whole answer, however slowly it trickles.

- `ControlGone`: there is nobody: no socket, or nothing listens on it.
- `ControlBusy`: there is somebody, who does not answer in time: the event loop is blocked or overloaded.
- `ControlRefused`: answered, with no: an unknown id, or a state that does not allow it.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from hawk.core.states import StopAction
from hawk.errors import HawkError

T = TypeVar("T")

DEADLINE = 1.0


class ControlError(HawkError):
    """A call over the control socket failed. Field: `socket`."""


class ControlGone(ControlError):  # noqa: N818 - what was observed, not a fault of ours
    """Nothing listens."""


class ControlBusy(ControlError):  # noqa: N818
    """No answer within the deadline."""


class ControlRefused(ControlError):  # noqa: N818
    """The evaluation said no. Fields: `status` (HTTP), `reason`."""


class SampleCounts(msgspec.Struct):
    """Attempts of one task. `completed` includes neither errored nor cancelled ones."""

    total: int = 0
    completed: int = 0
    errored: int = 0
    cancelled: int = 0
    in_flight: int = 0
    queued: int = 0


class TaskRow(msgspec.Struct):
    """One task in the process. Times are seconds since the epoch.

    Attributes:
        status: running or completed; over exactly when `completed_at` is set.
        paused: What pauses it, if anything does.
        resolving: drain, score or error while such a request is being carried out.
        attempts: Tries of the task itself, not of its samples.
    """

    task_id: str
    eval_id: str
    task: str = ""
    run_id: str | None = None
    model: str | None = None
    solver: str | None = None
    log_location: str | None = None
    status: str = "running"
    started_at: float | None = None
    completed_at: float | None = None
    paused: list[str] | None = None
    resolving: str | None = None
    attempts: int = 1
    epochs: int = 1
    samples: SampleCounts = msgspec.field(default_factory=SampleCounts)
    total_tokens: int = 0
    tokens_per_second: float | None = None
    total_messages: int = 0
    http_retries: int = 0


class ToolCallRow(msgspec.Struct):
    """A tool call in flight."""

    id: str
    function: str = ""
    started_at: float | None = None
    cancel_requested: bool | None = None


class ActivityRow(msgspec.Struct):
    """What an attempt in flight waits for.

    Attributes:
        type: tool, model, retry_wait, approval or question.
        count: Operations of that type in flight; for retry_wait the number of the failed try.
        detail: Model name or tool function.
        retries: Retries inside the pending model call, made by the provider's library.
        deadline: When a retry_wait is over.
        tokens: Streamed so far.
    """

    type: str
    count: int = 1
    started_at: float | None = None
    detail: str = ""
    retries: int | None = None
    deadline: float | None = None
    calls: list[ToolCallRow] | None = None
    tokens: int | None = None
    last_progress_at: float | None = None


class SampleRow(msgspec.Struct):
    """One attempt in the process. Times are seconds since the epoch.

    Attributes:
        status: pending, queued (also while its sandbox is being made), running, completed, error or cancelled.
        last_activity_at: Of a running one: now minus this is its idle time.
        interrupt: The resolution that was requested and is not carried out yet.
    """

    sample_id: str | int
    epoch: int
    status: str
    started_at: float | None = None
    completed_at: float | None = None
    total_time: float | None = None
    total_tokens: int | None = None
    message_count: int | None = None
    turn_count: int | None = None
    last_activity_at: float | None = None
    activity: ActivityRow | None = None
    events: int | None = None
    error: str | None = None
    retries: int | None = None
    limit: str | None = None
    interrupt: str | None = None

    @property
    def key(self) -> tuple[str, int]:
        return str(self.sample_id), self.epoch

    @property
    def begun(self) -> bool:
        """It is in flight, or about to be: its sandbox is being made. One that only waits has no count of events."""
        return self.status == "running" or (self.status == "queued" and self.events is not None)


class _Listing(msgspec.Struct):
    samples: list[SampleRow]


class ControlSocket:
    """The control surface of the one evaluation process that uses a data directory.

    Args:
        data_home: The process's XDG_DATA_HOME. Short: socket paths are limited to about 100 bytes.
        deadline: Seconds one call may take.
    """

    def __init__(self, data_home: Path, deadline: float = DEADLINE) -> None:
        self._directory = data_home / "inspect_ai" / "control"
        self._deadline = deadline

    def find(self) -> Path | None:
        """The socket of the newest living process that announced one."""
        newest: tuple[float, Path] | None = None
        for file in self._directory.glob("*.json"):
            try:
                entry = msgspec.json.decode(file.read_bytes(), type=_Discovery)
            except (OSError, msgspec.DecodeError):
                continue
            if _alive(entry.pid) and (newest is None or entry.started_at > newest[0]):
                newest = entry.started_at, Path(entry.socket_path)
        return newest[1] if newest else None

    def tasks(self) -> list[TaskRow]:
        """Every task of the process, finished ones too.

        Raises:
            ControlBusy: No answer in time.
            ControlGone: Nothing listens.
        """
        return self._call("GET", "/tasks", list[TaskRow])

    def samples(self, eval_id: str, status: Iterable[str] = ("running", "queued")) -> list[SampleRow]:
        """Attempts of one eval, running ones first. All that were selected can be many: name states.

        Args:
            eval_id: From a task row.
            status: The states wanted; none: all of them.

        Raises:
            ControlBusy: No answer in time.
            ControlGone: Nothing listens.
            ControlRefused: No such eval.
        """
        path = f"/evals/{_segment(eval_id)}/samples"
        return self._call("GET", path, _Listing, status=",".join(status) or None, all=True).samples

    def drain(self, task_id: str) -> dict[str, Any]:
        """Start no further attempts; those in flight run to their end."""
        return self._call("POST", f"/tasks/{_segment(task_id)}/drain", dict[str, Any])

    def cancel_task(self, task_id: str, action: StopAction | str) -> dict[str, Any]:
        """End a task: `score` or `error` its attempts in flight, or `cancel` it outright."""
        return self._call("POST", f"/tasks/{_segment(task_id)}/cancel", dict[str, Any], action=str(action))

    def cancel_sample(
        self, eval_id: str, sample_id: str, epoch: int, action: StopAction | str
    ) -> dict[str, Any]:
        """End one attempt: `score` or `error` it, or `cancel` it without a score."""
        path = f"/evals/{_segment(eval_id)}/sample/cancel"
        return self._call("POST", path, dict[str, Any], sample_id=sample_id, epoch=epoch, action=str(action))

    def cancel_tool_call(
        self, eval_id: str, sample_id: str, epoch: int, tool_call_id: str | None = None
    ) -> dict[str, Any]:
        """Time a tool call out: the model sees it fail and the attempt goes on."""
        path = f"/evals/{_segment(eval_id)}/sample/cancel-tool-call"
        return self._call(
            "POST", path, dict[str, Any], sample_id=sample_id, epoch=epoch, tool_call_id=tool_call_id
        )

    def requeue(self, eval_id: str, sample_id: str, epoch: int) -> dict[str, Any]:
        """Run an attempt again that errored or was canceled, in the live run.

        `changed` is false while it still runs, or when it is queued already. Its task must have other attempts that
        have not ended: one that has none left takes nothing more (`ControlRefused`).
        """
        path = f"/evals/{_segment(eval_id)}/sample/requeue"
        return self._call("POST", path, dict[str, Any], sample_id=sample_id, epoch=epoch)

    def pause(self, model: str | None = None, *, now: bool = False) -> dict[str, Any]:
        """Start no further attempts, of one model or at all, until they are resumed.

        Args:
            now: Hold model calls too: those of attempts in flight wait before their next one.
        """
        path = "/models/pause" if model else "/pause"
        return self._call("POST", path, dict[str, Any], model=model, now=now or None)

    def resume(self, model: str | None = None) -> dict[str, Any]:
        """Take a pause back: that of one model, or that of the process."""
        return self._call("POST", "/models/resume" if model else "/resume", dict[str, Any], model=model)

    def config(self) -> dict[str, Any]:
        """What `patch_config` can change of the process, as it is now."""
        return self._call("GET", "/config", dict[str, Any])

    def patch_config(self, task_id: str | None = None, **knobs: int | str | None) -> dict[str, Any]:
        """Change limits and concurrency while it runs: of one task, or of the process.

        Args:
            task_id: The task, or None for what the whole process shares.
            **knobs: Such as `max_samples`, `max_connections`, `max_retries`, `time_limit`; a number or "clear".
        """
        path = f"/tasks/{_segment(task_id)}/config" if task_id else "/config"
        return self._call("PATCH", path, dict[str, Any], **knobs)

    def _call(self, method: str, path: str, type_: type[T], **query: str | int | bool | None) -> T:
        found = self.find()
        if found is None:
            raise ControlGone("No running evaluation has announced a control socket.", socket=None)
        where = str(found)
        given = {k: str(v).lower() if v is True else v for k, v in query.items() if v is not None}
        connection = _Connection(where, time.monotonic() + self._deadline)
        try:
            connection.request(method, f"{path}?{urlencode(given)}" if given else path)
            response = connection.getresponse()
            status, body = response.status, response.read()
        except (TimeoutError, BlockingIOError) as ex:
            raise ControlBusy(f"No answer within {self._deadline:g} s from {where}.", socket=where) from ex
        except (OSError, http.client.HTTPException) as ex:
            raise ControlGone(f"Nothing listens on {where} ({ex}).", socket=where) from ex
        finally:
            connection.close()
        if status != 200:
            reason = _reason(body)
            raise ControlRefused(f"{method} {path}: {reason}", socket=where, status=status, reason=reason)
        try:
            return msgspec.json.decode(body, type=type_)
        except msgspec.DecodeError as ex:
            raise ControlRefused(f"{method} {path}: unexpected answer ({ex})", socket=where) from ex


class _Discovery(msgspec.Struct):
    pid: int
    socket_path: str
    started_at: float = 0.0


class _Socket(socket.socket):
    """A socket on which every operation together may last until one moment."""

    due: float = 0.0

    def _arm(self) -> None:
        left = self.due - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.settimeout(left)

    def connect(self, address: Any) -> None:
        self._arm()
        super().connect(address)

    def sendall(self, data: Any, flags: int = 0) -> None:
        self._arm()
        super().sendall(data, flags)

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        self._arm()
        return super().recv_into(*args, **kwargs)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, due: float) -> None:
        super().__init__("localhost")
        self._path = path
        self._due = due

    def connect(self) -> None:
        sock = _Socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.due = self._due
        self.sock = sock
        sock.connect(self._path)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _segment(text: str) -> str:
    return quote(text, safe="")


def _reason(body: bytes) -> str:
    try:
        document = json.loads(body)
    except ValueError:
        return body[:200].decode("utf-8", "replace")
    if isinstance(document, dict):
        return str(document.get("error") or document.get("detail") or document)
    return str(document)
