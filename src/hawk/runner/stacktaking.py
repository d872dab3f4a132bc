"""Takes a worker's stacks from outside: what it says itself, what py-spy sees, and what it wrote before.

Three sources, because each can fail: the worker is silent while C code holds its interpreter, a machine may forbid
to look into processes, and a dead worker has nothing but its last record.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import psutil

from hawk import pyspy
from hawk.core.recorder.stacks import StackRecord, Thread
from hawk.runner.heartbeat import RECORDER_SOCKET, STACKS_SOCKET, read_heartbeat
from hawk.runner.processes import Worker
from hawk.runner.workpods.messages import Question
from hawk.store import stacks
from hawk.store.sockets import asked

PATIENCE = 2.0
"""Seconds a worker's recorder may take to answer: it needs some milliseconds, and its turn at the interpreter."""

FROM_A_POD = 15.0
"""The same of a worker in another pod, where py-spy looks too."""

_DECODER = msgspec.json.Decoder(StackRecord)


def take(worker: Worker, why: str, *, native: bool = False) -> StackRecord:
    """All that can be said about where a worker stands now. `missing` says what is not in it, and why."""
    if worker.remote:
        return _from_its_pod(worker, why, native)
    answer = ask(worker.data_home / RECORDER_SOCKET, why)
    record = _from_before(worker, why, answer) if isinstance(answer, str) else answer
    seen = pyspy.dump(worker.pid, native=native)
    if not isinstance(seen, str):
        record.threads, record.threads_by, record.native = (
            _joined(seen, record.threads, worker),
            "py-spy",
            native,
        )
    elif isinstance(answer, str):
        record.threads, record.missing["threads"] = [], seen
    else:
        record.missing["native frames" if native else "which thread holds the interpreter"] = seen
    _look_at_process(worker.pid, record)
    return record


def _from_its_pod(worker: Worker, why: str, native: bool) -> StackRecord:
    """As it is seen beside the worker, in its own pod."""
    question = msgspec.json.encode(Question(why, native)) + b"\n"
    try:
        return _DECODER.decode(asked(worker.data_home / STACKS_SOCKET, question, FROM_A_POD))
    except TimeoutError:
        said = f"its pod does not answer within {FROM_A_POD:.0f} s"
    except (OSError, msgspec.DecodeError) as ex:
        said = f"its pod can't be reached: {ex}"
    record = _from_before(worker, why, said)
    record.missing["threads"], record.live = said, True
    return record


def ask(address: Path, why: str) -> StackRecord | str:
    """What the recorder at a socket answers, or in one line why there is no answer."""
    try:
        return _DECODER.decode(asked(address, why.encode() + b"\n", PATIENCE))
    except TimeoutError:
        return f"the worker does not answer within {PATIENCE:.0f} s: something holds its interpreter, or stops it"
    except OSError as ex:
        return f"the worker's recorder can't be reached: {ex.strerror or ex}"
    except msgspec.DecodeError:
        return "the worker's answer broke off"


def _from_before(worker: Worker, why: str, reason: str) -> StackRecord:
    """The chains that the worker wrote last, for one that does not answer."""
    before = stacks.last_record(worker.home)
    record = StackRecord(at=datetime.now(UTC).isoformat(), worker=worker.index, pid=worker.pid, why=why)
    record.missing["await chains"] = reason
    if before is not None and worker.wrote(before.pid):
        record.chains, record.tasks = before.chains, before.tasks
        record.chains_at = before.chains_at or before.at
        record.threads = [thread for thread in before.threads if thread.loop]
        beat = read_heartbeat(worker.home)
        if beat is not None:
            silent = datetime.now(UTC) - datetime.fromisoformat(beat.at)
            record.loop_lag = round(beat.loop_lag + silent.total_seconds(), 1)
    return record


def _joined(seen: list[Thread], own: list[Thread], worker: Worker) -> list[Thread]:
    """What py-spy saw, with what only the worker knows of its threads."""
    known = {thread.id: thread for thread in own}
    loops = [thread.id for thread in own if thread.loop] or [worker.pid]
    for thread in seen:
        thread.loop = thread.id in loops
        if thread.id in known:
            thread.attempt = known[thread.id].attempt
    return sorted(seen, key=lambda thread: (not thread.loop, thread.name))


def _look_at_process(pid: int, record: StackRecord) -> None:
    try:
        state = psutil.Process(pid).status()
    except psutil.Error:
        record.live = False
        return
    if state in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
        record.missing["progress"] = "the process is stopped by a signal (SIGSTOP): SIGCONT lets it go on"
    record.live = state != psutil.STATUS_ZOMBIE
