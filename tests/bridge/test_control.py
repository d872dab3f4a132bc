"""The control socket of a real evaluation, and sockets that misbehave."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hawk.bridge.control import ControlBusy, ControlError, ControlGone, ControlRefused, ControlSocket
from hawk.bridge.evallog import read_header
from tests.bridge.conftest import Evaluation, until

pytestmark = pytest.mark.timeout(400)  # real evaluations start slowly on a loaded machine


def _answers(control: ControlSocket) -> bool:
    try:
        control.tasks()
    except ControlBusy:
        return False
    return True


@pytest.fixture
def control(live: Evaluation) -> ControlSocket:
    control = ControlSocket(live.data_home)
    until(lambda: _answers(control))
    return control


def test_task_row_tells_what_the_log_says_and_counts_attempts(
    live: Evaluation, control: ControlSocket
) -> None:
    (row,) = control.tasks()
    header = read_header(live.log)
    assert (row.task_id, row.eval_id, row.run_id) == (header.task_id, header.eval_id, header.run_id)
    assert (row.task, row.model, row.log_location) == ("tiny", "scripted/m", str(live.log))
    assert (row.status, row.completed_at, row.epochs) == ("running", None, 2)
    counts = row.samples
    assert (counts.total, counts.completed, counts.in_flight, counts.queued) == (8, 6, 2, 0)
    assert (counts.errored, counts.cancelled) == (0, 0)
    assert row.total_tokens > 0
    assert row.started_at is not None


def test_sample_row_tells_what_an_attempt_waits_for(live: Evaluation, control: ControlSocket) -> None:
    eval_id = control.tasks()[0].eval_id
    rows = control.samples(eval_id)
    assert {row.key: row.status for row in rows} == {("s3", 1): "running", ("s3", 2): "running"}
    activity = rows[0].activity
    assert activity is not None
    assert (activity.type, activity.detail) == ("tool", "work")
    assert activity.started_at is not None
    assert activity.calls
    assert activity.calls[0].function == "work"
    assert rows[0].last_activity_at is not None
    assert rows[0].total_tokens == 15
    everyone = control.samples(eval_id, status=())
    assert sorted(row.status for row in everyone) == ["completed"] * 6 + ["running"] * 2


def test_unknown_ids_are_refused_by_name(control: ControlSocket) -> None:
    with pytest.raises(ControlRefused, match=r"task nothing not found") as caught:
        control.drain("nothing")
    assert caught.value.fields["status"] == 404
    eval_id = control.tasks()[0].eval_id
    with pytest.raises(ControlRefused, match="not found"):
        control.cancel_sample(eval_id, "a/b?c", 1, "score")
    with pytest.raises(ControlRefused, match="action must be"):
        control.cancel_task(control.tasks()[0].task_id, "explode")


def test_limits_can_be_changed_while_it_runs(control: ControlSocket) -> None:
    task_id = control.tasks()[0].task_id
    assert control.patch_config(task_id, max_samples=7)
    assert control.patch_config(max_retries=3)
    with pytest.raises(ControlRefused, match="no_such_knob"):
        control.patch_config(task_id, no_such_knob=1)


def test_what_was_set_is_told_and_unknown_names_are_refused(control: ControlSocket) -> None:
    control.patch_config(attempt_timeout=77)
    assert control.config()["retry"]["attempt_timeout"] == 77
    model = control.tasks()[0].model
    assert control.pause(model, now=True)["paused"] is True
    assert control.pause(now=True)["changed"] is True
    assert set(control.tasks()[0].paused or ()) == {"process", "model"}
    assert control.resume()["changed"] is True
    assert control.resume(model)["changed"] is True
    assert not control.tasks()[0].paused
    with pytest.raises(ControlRefused) as caught:
        control.pause("openai/none")
    assert caught.value.fields["status"] == 404
    eval_id = control.tasks()[0].eval_id
    assert control.requeue(eval_id, "s3", 1)["changed"] is False  # it runs
    with pytest.raises(ControlRefused, match="completed successfully"):
        control.requeue(eval_id, "s1", 1)
    with pytest.raises(ControlRefused, match="not found"):
        control.cancel_tool_call(eval_id, "nobody", 1)


def test_blocked_event_loop_is_busy_within_the_deadline(live: Evaluation, control: ControlSocket) -> None:
    block = live.signal("block")
    try:
        until(lambda: not _answers(control))
        started = time.monotonic()
        with pytest.raises(ControlBusy, match="within 1 s"):
            control.tasks()
        assert 0.9 <= time.monotonic() - started < 20
    finally:
        block.unlink()
    assert until(lambda: _answers(control))


def test_one_attempt_is_cancelled_and_the_rest_drained(short_root: Path) -> None:
    root = short_root / "s"
    root.mkdir()
    evaluation = Evaluation(root, "pass,gate,gate", 1)
    evaluation.start()
    try:
        control = ControlSocket(evaluation.data_home)

        def in_tool() -> bool:
            try:
                tasks = control.tasks()
                rows = control.samples(tasks[0].eval_id) if tasks else []
            except ControlError:
                return False
            return [r.activity.type for r in rows if r.activity] == ["tool", "tool"]

        until(in_tool)
        task = control.tasks()[0]
        assert control.cancel_sample(task.eval_id, "s1", 1, "score")["ok"] is True
        until(lambda: control.tasks()[0].samples.completed == 2)
        assert control.drain(task.task_id)["ok"] is True
        assert control.tasks()[0].resolving == "drain"
        evaluation.signal("gate")
        evaluation.wait()
        assert read_header(evaluation.log).status == "success"
        with pytest.raises(ControlGone):
            control.tasks()
    finally:
        evaluation.kill()


def test_killed_process_is_gone(crashed: Evaluation) -> None:
    control = ControlSocket(crashed.data_home)
    assert control.find() is None
    with pytest.raises(ControlGone):
        control.tasks()


@pytest.fixture
def announced(short_root: Path) -> Iterator[Callable[[str], tuple[ControlSocket, socket.socket]]]:
    """Makes a listening socket that is announced as this process's control socket."""
    opened: list[socket.socket] = []

    def announce(name: str) -> tuple[ControlSocket, socket.socket]:
        directory = short_root / name / "inspect_ai" / "control"
        directory.mkdir(parents=True)
        path = directory / "1.sock"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(1)
        opened.append(listener)
        entry = {"pid": os.getpid(), "socket_path": str(path), "started_at": 1.0}
        (directory / "1.json").write_text(json.dumps(entry))
        (directory / "2.json").write_text("{torn")
        return ControlSocket(short_root / name), listener

    yield announce
    for listener in opened:
        listener.close()


def test_answer_that_trickles_is_busy_within_one_deadline(
    announced: Callable[[str], tuple[ControlSocket, socket.socket]],
) -> None:
    control, listener = announced("t")

    def trickle() -> None:
        connection, _ = listener.accept()
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        try:
            for _ in range(300):
                connection.sendall(b" ")
                time.sleep(0.1)
        except OSError:
            connection.close()

    thread = threading.Thread(target=trickle)
    thread.start()
    started = time.monotonic()
    with pytest.raises(ControlBusy):
        control.tasks()
    assert time.monotonic() - started < 20  # all of it takes thirty
    thread.join()


def test_full_backlog_is_busy(announced: Callable[[str], tuple[ControlSocket, socket.socket]]) -> None:
    control, listener = announced("b")
    waiting = []
    try:
        while True:
            client = socket.socket(socket.AF_UNIX)
            client.setblocking(False)
            waiting.append(client)
            client.connect(listener.getsockname())
    except BlockingIOError:
        pass
    with pytest.raises(ControlBusy):
        control.tasks()
    for client in waiting:
        client.close()


def test_closed_listener_is_gone_and_nonsense_is_refused(
    announced: Callable[[str], tuple[ControlSocket, socket.socket]],
) -> None:
    control, listener = announced("n")

    def answer(data: bytes) -> None:
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.sendall(data)
        connection.close()

    for data, expected in [
        (b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}', ControlRefused),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops", ControlRefused),
        (b"", ControlGone),
        (b"SSH-2.0\r\n", ControlGone),
    ]:
        thread = threading.Thread(target=answer, args=(data,))
        thread.start()
        with pytest.raises(expected):
            control.tasks()
        thread.join()
    listener.close()
    with pytest.raises(ControlGone):
        control.tasks()
