"""The buffer reader on a buffer that a real evaluation fills, and on one written by Inspect's own class."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hawk.bridge.buffer import BufferReader, find
from hawk.bridge.evallog import read_header
from tests.bridge.conftest import Evaluation

pytestmark = pytest.mark.timeout(400)  # real evaluations start slowly on a loaded machine

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_buffer_is_found_where_inspect_put_it(live: Evaluation) -> None:
    from inspect_ai.log._recorders.buffer import SampleBufferDatabase

    db = find(live.data_home, live.log)
    samples = live.data_home / "inspect_ai" / "samplebuffer"
    theirs = SampleBufferDatabase(str(live.log), create=False, read_only=True, db_dir=samples)
    assert db == theirs.db_path
    assert find(live.data_home, live.log.with_name("other.eval")) is None
    assert find(live.root / "nowhere", live.log) is None


def test_attempts_in_flight_and_attempts_not_yet_logged_are_told_apart(crashed: Evaluation) -> None:
    reader = _reader(crashed)
    held = {s.key: s for s in reader.running()}
    assert {key: s.completed for key, s in held.items()} == {
        ("s2", 1): True,
        ("s2", 2): True,
        ("s3", 1): False,
        ("s3", 2): False,
    }
    assert held["s2", 1].scores == {"graded": 1.0}
    assert held["s2", 1].total_tokens == 30
    assert all(s.uuid and s.started_at for s in held.values())


def test_last_event_of_an_attempt_in_a_tool_is_pending_and_names_the_call(live: Evaluation) -> None:
    reader = _reader(live)
    assert ("s3", 1) in reader.new_events()
    assert reader.new_events() == set()
    *before, last = reader.last_events("s3", 1)
    assert (last.type, last.pending, last.duration_seconds) == ("tool", True, None)
    assert last.description == "work(kind=gate, note=…)"
    assert before[-1].type == "model"
    assert before[-1].description == "scripted/m"
    assert not any(event.pending for event in before)
    assert all(event.duration_seconds is not None for event in before)
    assert reader.outcomes("s3", 1) == "S"


def test_buffer_of_a_killed_process_still_reads(crashed: Evaluation) -> None:
    reader = _reader(crashed)
    reader.new_events()
    assert reader.last_events("s3", 2)[-1].pending
    ended = reader.last_events("s2", 1)
    assert [(e.type, e.description) for e in ended[-2:]] == [("score", "scoring"), ("score", "score graded")]
    assert not any(e.pending for e in ended)


def test_buffer_is_gone_once_the_evaluation_ended(finished: Evaluation) -> None:
    assert read_header(finished.log).status == "success"
    assert find(finished.data_home, finished.log) is None


def _reader(evaluation: Evaluation) -> BufferReader:
    db = find(evaluation.data_home, evaluation.log)
    assert db is not None
    return BufferReader(db)


class Writer:
    """A buffer filled by Inspect's own class, event by event."""

    def __init__(self, tmp_path: Path) -> None:
        from inspect_ai.log._recorders.buffer import SampleBufferDatabase

        home = tmp_path / "d"
        self.log = tmp_path / "x.eval"
        self.data_home = home
        self.db = SampleBufferDatabase(str(self.log), db_dir=home / "inspect_ai" / "samplebuffer")
        self.seconds = 0

    def start(self, id_: str) -> None:
        from inspect_ai.log import EvalSampleSummary

        self.db.start_sample(EvalSampleSummary(id=id_, epoch=1, input="i", target="t", uuid=f"u{id_}"))

    def add(self, id_: str, kind: str, **fields: Any) -> Any:
        """Log an event and return it; give it again with changed fields for its next state."""
        from inspect_ai import event as events

        self.seconds += 1
        fields.setdefault("timestamp", START + timedelta(seconds=self.seconds))
        if kind == "model":
            from inspect_ai.model import GenerateConfig, ModelOutput

            fields = {
                "model": "m/x",
                "input": [],
                "tools": [],
                "tool_choice": "auto",
                "config": GenerateConfig(),
                "output": ModelOutput(),
                **fields,
            }
        made = {
            "model": events.ModelEvent,
            "tool": events.ToolEvent,
            "sandbox": events.SandboxEvent,
            "info": events.InfoEvent,
            "error": events.ErrorEvent,
            "sample_limit": events.SampleLimitEvent,
            "score": events.ScoreEvent,
        }[kind](**fields)
        self.log_event(id_, made)
        return made

    def log_event(self, id_: str, event: Any) -> None:
        from inspect_ai.log._recorders.types import SampleEvent

        self.db.log_events([SampleEvent(id=id_, epoch=1, event=event)])

    def reader(self) -> BufferReader:
        db = find(self.data_home, self.log)
        assert db is not None
        return BufferReader(db)


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


def test_newest_row_of_an_event_decides_whether_it_is_pending(writer: Writer) -> None:
    writer.start("a")
    call = writer.add("a", "model", pending=True)
    reader = writer.reader()
    reader.new_events()
    assert [e.pending for e in reader.last_events("a", 1)] == [True]
    assert reader.outcomes("a", 1) == ""
    writer.log_event("a", call.model_copy(update={"pending": None, "working_time": 2.5, "retries": 3}))
    writer.add("a", "info", data="between\nlines")
    assert reader.new_events() == {("a", 1)}
    model, info = reader.last_events("a", 1)
    assert (model.pending, model.duration_seconds, model.description) == (False, 2.5, "m/x retry 3")
    assert (info.description, info.duration_seconds) == ("between", None)
    assert reader.outcomes("a", 1) == "S"


def test_outcomes_tell_failures_from_successes_newest_last(writer: Writer) -> None:
    writer.start("a")
    for error in ["429", "429", None, "500", "500"]:
        writer.add("a", "model", error=error)
    reader = writer.reader()
    reader.new_events()
    assert reader.outcomes("a", 1) == "FFSFF"
    assert reader.last_events("a", 1)[-1].description == "m/x error"
    for _ in range(40):
        writer.add("a", "model")
    reader.new_events()
    assert reader.outcomes("a", 1) == "S" * 20


def test_events_are_told_in_one_harmless_line(writer: Writer) -> None:
    from inspect_ai._util.error import EvalError
    from inspect_ai.scorer import Score
    from inspect_ai.tool import ToolCallError

    writer.start("a")
    at = START
    failed = ToolCallError(type="timeout", message="slow")
    writer.add("a", "tool", id="1", function="bash\x1b[31m", arguments={"cmd": "ls\n-la"}, error=failed)
    writer.add("a", "sandbox", action="exec", cmd="x" * 300, completed=at + timedelta(seconds=60))
    writer.add("a", "sample_limit", type="token", message="too many\ntokens")
    writer.add(
        "a", "error", error=EvalError(message="\x1b]0;title\x07broke", traceback="", traceback_ansi="")
    )
    writer.add("a", "score", score=Score(value=float("nan")), scorer="exact")
    reader = writer.reader()
    reader.new_events()
    told = [e.description for e in reader.last_events("a", 1)]
    assert told == [
        "bash(cmd=ls -la) error",
        f"exec: {'x' * 119}…",
        "token limit: too many tokens",
        "broke",
        "score exact",
    ]
    durations = [e.duration_seconds for e in reader.last_events("a", 1)]
    assert durations[0] == 1.0
    assert durations[1] == 58.0


def test_memory_is_bounded_for_each_attempt_and_freed_when_it_left(writer: Writer) -> None:
    writer.start("a")
    writer.start("b")
    writer.add("a", "tool", id="1", function="wait", arguments={}, pending=True)
    for number in range(200):
        writer.add("a", "info", data=number)
    reader = writer.reader()
    reader.new_events()
    shown = reader.last_events("a", 1, 1000)
    assert len(shown) < 50
    assert (shown[0].type, shown[0].pending) == ("tool", True)
    assert shown[-1].description == "199"
    assert {s.key for s in reader.running()} == {("a", 1), ("b", 1)}
    writer.db.remove_samples([("a", 1)])
    assert {s.key for s in reader.running()} == {("b", 1)}
    assert reader.last_events("a", 1) == []


def test_locked_buffer_keeps_what_was_known_and_is_read_later(writer: Writer) -> None:
    writer.start("a")
    reader = writer.reader()
    assert len(reader.running()) == 1
    db = find(writer.data_home, writer.log)
    assert db is not None
    asyncio.run(writer.db.aclose())
    with sqlite3.connect(db) as other:
        other.execute("PRAGMA journal_mode=DELETE")
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        assert len(reader.running()) == 1
        assert reader.new_events() == set()
        other.execute('INSERT INTO samples (id, epoch, data) VALUES (\'b\', 1, \'{"id": "b", "epoch": 1}\')')
    other.close()
    assert {s.id for s in reader.running()} == {"a", "b"}


def test_vanished_or_foreign_buffer_is_empty_and_never_created(writer: Writer, tmp_path: Path) -> None:
    writer.start("a")
    writer.add("a", "info", data="x")
    reader = writer.reader()
    reader.new_events()
    assert reader.running()
    writer.db.cleanup()
    gc.collect()
    assert reader.running() == []
    assert reader.new_events() == set()
    assert find(writer.data_home, writer.log) is None
    (tmp_path / "junk.db").write_bytes(b"not a database" * 100)
    junk = BufferReader(tmp_path / "junk.db")
    assert (junk.running(), junk.new_events()) == ([], set())
    missing = BufferReader(tmp_path / "missing.db")
    assert (missing.running(), missing.new_events()) == ([], set())
    assert not (tmp_path / "missing.db").exists()
