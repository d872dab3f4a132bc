import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hawk.server.services.logs import LogReader
from hawk.store.rundir import JournalEntry, RunDir
from tests.store.runs import make_run

START = datetime(2026, 1, 2, tzinfo=UTC)


def run_with_output(tmp_path: Path, *lines: str) -> RunDir:
    run = make_run(tmp_path, "a")
    run.worker(0).mkdir(parents=True)
    append(run, *lines)
    return run


def append(run: RunDir, *lines: str) -> None:
    with (run.worker(0) / "output.jsonl").open("a") as f:
        f.writelines(line + "\n" for line in lines)


def line(seconds: float, message: str, level: str = "INFO", **more: object) -> str:
    at = (START + timedelta(seconds=seconds)).isoformat()
    return json.dumps({"timestamp": at, "message": message, "level": level, **more})


def follow(reader: LogReader, run: RunDir, since: datetime, limit: int = 100) -> list[tuple[datetime, str]]:
    entries = reader.read(run, since=since, limit=limit, newest_first=False)
    return [(entry.timestamp, entry.message) for entry in entries]


def test_sources_are_merged_by_time(tmp_path: Path) -> None:
    run = run_with_output(tmp_path, line(1, "one", extra=5), line(3, "three", "error"))
    run.append_journal(JournalEntry((START + timedelta(seconds=2)).isoformat(), "job", "a", "running", "why"))
    run.supervisor_log.write_text("2026-01-02 00:00:04,000 WARNING four\n")
    entries = LogReader().read(run)
    assert [(e.service, e.message, e.level) for e in entries] == [
        ("supervisor", "WARNING four", "warning"),
        ("worker/0", "three", "error"),
        ("journal", "job a running: why", "info"),
        ("worker/0", "one", "info"),
    ]
    assert entries[-1].attributes == {"extra": 5}
    assert [e.message for e in LogReader().read(run, limit=2, newest_first=False)] == [
        "one",
        "job a running: why",
    ]


def test_following_shows_every_line_once(tmp_path: Path) -> None:
    run = run_with_output(tmp_path, line(1, "a"), "no stamp", "nor this", line(1, "same moment"))
    reader = LogReader()
    shown = [message for _, message in follow(reader, run, START)]
    last = follow(reader, run, START)[-1][0]
    assert shown == ["a", "no stamp", "nor this", "same moment"]
    assert follow(reader, run, last) == []
    append(run, line(1, "late"), "more", line(9, "end"))
    assert [message for _, message in follow(reader, run, last)] == ["late", "more", "end"]


def test_lines_without_any_time_keep_the_one_they_were_first_seen_with(tmp_path: Path) -> None:
    run = run_with_output(tmp_path, "first", "second")
    reader = LogReader()
    before = follow(reader, run, START)
    append(run, "third")
    after = follow(reader, run, before[-1][0])
    assert [message for _, message in after] == ["third"]
    assert follow(reader, run, START)[:2] == before


def test_a_limit_keeps_the_oldest_when_following_and_the_newest_otherwise(tmp_path: Path) -> None:
    run = run_with_output(tmp_path, *(line(i, str(i)) for i in range(50)))
    reader = LogReader()
    assert [m for _, m in follow(reader, run, START + timedelta(seconds=9), limit=3)] == ["10", "11", "12"]
    assert [e.message for e in reader.read(run, limit=3)] == ["49", "48", "47"]
    assert [e.message for e in reader.read(run, limit=2, newest_first=False, from_start=True)] == ["0", "1"]


def test_only_the_end_of_a_huge_file_is_read(tmp_path: Path) -> None:
    run = run_with_output(tmp_path)
    path = run.worker(0) / "output.jsonl"
    with path.open("wb") as f:
        f.truncate(3 * 2**30)  # a hole: reading it whole would take seconds and gigabytes
    append(run, "", line(1, "the end"))
    begun = datetime.now(UTC)
    assert LogReader().read(run, limit=1)[0].message == "the end"
    assert datetime.now(UTC) - begun < timedelta(seconds=2)


def test_escape_sequences_and_binary_do_not_get_through(tmp_path: Path) -> None:
    run = run_with_output(tmp_path, line(1, "\x1b[31mred\x1b[0m\x07"), "\x1b]0;title\x07plain")
    (run.worker(0) / "output.jsonl").open("ab").write(b"\xff\xfe torn {")
    messages = [entry.message for entry in LogReader().read(run)]
    assert "red" in messages
    assert "plain" in messages
    assert not any("\x1b" in message for message in messages)


def test_a_job_without_logs_has_none(tmp_path: Path) -> None:
    assert LogReader().read(make_run(tmp_path, "a")) == []
