"""What timelines are read from: logs, realtime buffers, the files of others. Each may be odd, torn or not there."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hawk.bridge.evallog import LogUnreadable
from hawk.bridge.timeline import LogSamples, buffered, buffers, read_buffered
from hawk.core.timeline.records import Request, WorkerNote
from hawk.store import spans
from hawk.store.rundir import JournalEntry, RunDir

TIME = "2026-11-30T07:00:0{}+00:00"
MODEL = {
    "event": "model",
    "uuid": "m1",
    "timestamp": TIME.format(1),
    "completed": TIME.format(2),
    "model": "openai/m",
}


def log(path: Path, sample: str, *, sandbox: Any = None) -> LogSamples:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("_journal/start.json", json.dumps({"eval": {"sandbox": sandbox}}))
        archive.writestr("samples/s/1_epoch_2.json", sample)
    return LogSamples(path)


def test_a_log_with_numbers_that_are_none_and_fields_of_other_types(tmp_path: Path) -> None:
    odd = {**MODEL, "uuid": "m2", "retries": "many", "type": {"not": "text"}, "timestamp": "yesterday"}
    score = {"event": "score", "uuid": "x", "timestamp": TIME.format(3), "score": {"value": float("nan")}}
    text = json.dumps({"uuid": "u", "events": [MODEL, odd, score, 7], "completed_at": TIME.format(4)})
    assert "NaN" in text
    with log(tmp_path / "a.eval", text, sandbox={"type": "docker"}) as opened:
        record = opened.read("s/1", 2)
        assert (record.uuid, record.has_sandbox, record.completed_at) == ("u", True, TIME.format(4))
        assert [(row.event, row.uuid) for row in record.events] == [
            ("model", "m1"),
            ("model", "m2"),
            ("score", "x"),
        ]
        assert (record.events[1].retries, record.events[1].timestamp, record.events[1].model) == (
            None,
            None,
            "openai/m",
        )
        with pytest.raises(LogUnreadable):
            opened.read("s/1", 3)


def test_a_log_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.eval").write_bytes(b"PK torn")
    for name in ("a.eval", "missing.eval"):
        with pytest.raises(LogUnreadable):
            LogSamples(tmp_path / name)


def test_of_a_buffered_event_the_newest_row_counts_in_the_place_of_the_first(tmp_path: Path) -> None:
    db = tmp_path / "hash" / "a.eval.77.db"
    db.parent.mkdir()
    with closing(sqlite3.connect(db)) as connection:
        connection.execute("CREATE TABLE samples (id TEXT, epoch INTEGER, data TEXT)")
        connection.execute(
            "CREATE TABLE events (id INTEGER PRIMARY KEY, event_id TEXT, sample_id TEXT, sample_epoch INTEGER, data TEXT)"
        )
        connection.execute(
            "CREATE TABLE attachments (sample_id TEXT, sample_epoch INTEGER, hash TEXT, content TEXT)"
        )
        connection.execute("INSERT INTO attachments VALUES ('s', 1, 'h', ?)", ("echo " + "x" * 5000,))
        summary = {"id": "s", "epoch": 1, "uuid": "u", "started_at": TIME.format(0)}
        connection.execute("INSERT INTO samples VALUES ('s', 1, ?)", (json.dumps(summary),))
        pending = {**MODEL, "pending": True, "completed": None}
        command = {"event": "sandbox", "uuid": "c", "timestamp": TIME.format(3), "cmd": "attachment://h"}
        for key, row in (("m1", pending), ("c", command), ("m1", MODEL)):
            values = (key, json.dumps(row))
            connection.execute(
                "INSERT INTO events (event_id, sample_id, sample_epoch, data) VALUES (?, 's', 1, ?)", values
            )
        connection.commit()
    assert buffers(tmp_path, "a.eval") == [db]
    assert list(buffered(db)) == [("u", "s", 1)]
    record = read_buffered(db, "s", 1)
    assert record is not None
    assert [(row.event, row.pending) for row in record.events] == [("model", None), ("sandbox", None)]
    assert bytes(record.texts["h"]).startswith(b'"echo x')
    assert read_buffered(db, "s", 2) is None
    assert read_buffered(tmp_path / "gone.db", "s", 1) is None


def test_lines_of_one_attempt_are_found_among_torn_and_foreign_ones(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    (tmp_path / "spans").mkdir()
    ours = '{"id":"1","at":"x","sample_uuid":"abc"}'
    others = [
        '{"id":"2","at":"x","sample_uuid":"other","path":"abc"}',
        "not json abc",
        '{"id":"3","sample_uuid":"ab',
    ]
    (tmp_path / "spans" / "middleman.jsonl").write_text("\n".join([ours, *others]))
    (tmp_path / "spans" / "worker-0.jsonl").write_text("")
    note = '{"kind":"retry_wait","at":"x","seconds":2,"sample_uuid":"abc"}\n'
    (tmp_path / "spans" / "worker-3.jsonl").write_text(note)
    found = spans.noted_of(run, "abc")
    assert found == spans.Noted(
        [Request("1", "x", sample_uuid="abc")], [WorkerNote("retry_wait", "x", 2, "abc")]
    )
    assert spans.noted_by_uuid(run)["abc"] == found
    assert spans.noted_of(run, "../abc") == spans.Noted([], [])
    assert spans.noted_of(RunDir(tmp_path / "none"), "abc") == spans.Noted([], [])


def test_a_stall_ends_with_its_last_line(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    begun = {"stall": "loop_blocked", "worker": 1, "since": "a", "where": "x.py:1 f", "attempt": "t/s/1"}
    for data in (begun, {**begun, "until": "b"}, {"stall": "memory", "worker": 1}, {"stall": "loop_blocked"}):
        run.append_journal(JournalEntry("now", "worker", "1", "stalled", data=data))
    (found,) = spans.stalls(run)[1]
    assert (found.since, found.until, found.where, found.attempt) == ("a", "b", "x.py:1 f", "t/s/1")


def test_notes_that_cant_be_written_cost_nothing_but_themselves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from hawk.bridge.retries import NoteWriter

    note = WorkerNote("retry_wait", "x", 1.0, "abc")
    good = NoteWriter(tmp_path / "spans" / "worker-0.jsonl")
    good.add(note)
    good.close()
    assert spans.noted_of(RunDir(tmp_path), "abc").notes == [note]
    (tmp_path / "file").touch()
    bad = NoteWriter(tmp_path / "file" / "worker-0.jsonl")
    bad.add(note)
    bad.close()
    assert bad.lost == 1
    assert "can't be written" in caplog.text
