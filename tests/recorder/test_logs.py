"""Which log lines are shown, and that following them survives every restart."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from hawk.core.recorder.about import About, Attempt
from hawk.server.services.logs import LogReader, Logs, Wanted
from hawk.store.rundir import JournalEntry, RunDir
from tests.store.runs import make_run

START = datetime(2026, 1, 2, tzinfo=UTC)


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def inspects(seconds: float, message: str, level: str = "INFO") -> str:
    """A line as Inspect's JSON logger writes it."""
    fields = {"ts": at(seconds), "level": level, "logger": "x", "msg": message, "module": "m.py", "line": 1}
    return json.dumps(fields)


def append(run: RunDir, worker: int | str, *lines: str) -> None:
    home = run.path / "workers" / str(worker)
    home.mkdir(parents=True, exist_ok=True)
    with (home / "output.jsonl").open("a") as f:
        f.writelines(line + "\n" for line in lines)


def job(root: Path) -> RunDir:
    run = make_run(root, "a")
    append(run, 0, inspects(1, "sample=one epoch=1\nquiet", "HTTP"), inspects(2, "loud", "WARNING"))
    append(run, 1, inspects(3, "[uuid t/one/2 m] -> m retry 1"), "Traceback (most recent call last):")
    append(run, 1, '  File "x.py", line 1', "ValueError: bad", "afterwards")
    append(run, "enumerate", "enumerated")
    run.supervisor_log.write_text("2026-01-02 00:00:05,000 INFO started\n")
    run.append_journal(
        JournalEntry(at(6), "attempt", "t/one/1", "running", data={"uuid": "uuid-1"}),
        JournalEntry(at(7), "attempt", "t/one/2", "errored", "why"),
        JournalEntry(at(8), "worker", "0", "exited", "killed by SIGKILL"),
    )
    return run


def messages(found: Logs) -> list[str]:
    return [entry.message.split("\n")[-1] for entry in found.entries]


def test_a_level_shows_what_is_as_grave_and_whole_tracebacks(tmp_path: Path) -> None:
    run, reader = job(tmp_path), LogReader()
    errors = reader.page(run, wanted=Wanted(level="error"))
    assert messages(errors)[::-1] == [
        "Traceback (most recent call last):",
        '  File "x.py", line 1',
        "ValueError: bad",
        "attempt t/one/2 errored: why",
    ]
    assert {entry.level for entry in errors.entries} == {"error"}
    warnings = messages(reader.page(run, wanted=Wanted(level="warning")))
    assert "loud" in warnings
    assert "worker 0 exited: killed by SIGKILL" in warnings
    assert "quiet" not in messages(reader.page(run, wanted=Wanted(level="info")))
    assert "afterwards" in messages(reader.page(run, wanted=Wanted(level="info")))


def test_lines_of_some_writers_only(tmp_path: Path) -> None:
    run, reader = job(tmp_path), LogReader()

    def services(*names: str) -> set[str]:
        return {e.service for e in reader.page(run, wanted=Wanted(frozenset(names))).entries}

    assert services("1") == {"worker/1"}
    assert services("supervisor", "journal") == {"supervisor", "journal"}
    assert services("enumerate") == {"worker/enumerate"}
    assert services("5") == set()


def test_lines_that_name_a_sample(tmp_path: Path) -> None:
    run, reader = job(tmp_path), LogReader()

    def about(name: str) -> list[str]:
        attempts = [Attempt("t", "one", 1, "uuid-1"), Attempt("t", "one", 2, "uuid-2")]
        return messages(reader.page(run, wanted=Wanted(about=About(name, attempts))))[::-1]

    assert about("one/1") == about("uuid-1") == ["quiet", "attempt t/one/1 running"]
    assert about("uuid-2") == ["[uuid t/one/2 m] -> m retry 1", "attempt t/one/2 errored: why"]
    assert len(about("one")) == 4
    assert about("on") == []


def test_enough_lines_are_found_although_few_are_wanted(tmp_path: Path) -> None:
    run = make_run(tmp_path, "a")
    append(run, 0, *(inspects(i, f"rare {i}", "ERROR") for i in range(3)))
    append(run, 0, *(inspects(10 + i, "x" * 200) for i in range(5000)))
    found = LogReader().page(run, limit=2, wanted=Wanted(level="error"))
    assert messages(found) == ["rare 2", "rare 1"]
    head = LogReader().page(run, limit=1, newest_first=False, wanted=Wanted(level="error"))
    assert messages(head) == ["rare 0"]


def test_following_by_cursor_shows_each_line_once_though_the_server_starts_again(tmp_path: Path) -> None:
    run = make_run(tmp_path, "a")
    append(run, 0, "no time at all", inspects(1, "one"))
    page = LogReader().page(run)
    shown = messages(page)[::-1]
    for step in range(3):
        append(run, 0, f"plain {step}", inspects(0, f"older than what was shown {step}"))
        append(run, step + 1, f"worker {step + 1} is new")
        page = LogReader().after(run, page.cursor or "")  # a reader that remembers nothing
        shown += messages(page)
        assert LogReader().after(run, page.cursor or "").entries == []
    assert sorted(shown) == sorted(
        ["no time at all", "one"]
        + [f"plain {i}" for i in range(3)]
        + [f"older than what was shown {i}" for i in range(3)]
        + [f"worker {i + 1} is new" for i in range(3)]
    )


def test_a_line_that_is_being_written_comes_when_it_is_whole(tmp_path: Path) -> None:
    run = make_run(tmp_path, "a")
    append(run, 0, "first")
    cursor = LogReader().page(run).cursor or ""
    output = run.worker(0) / "output.jsonl"
    with output.open("a") as f:
        f.write("half a li")
    page = LogReader().after(run, cursor)
    assert page.entries == []
    with output.open("a") as f:
        f.write("ne\n")
    assert messages(LogReader().after(run, page.cursor or "")) == ["half a line"]


def test_much_that_was_written_comes_in_parts(tmp_path: Path) -> None:
    run = make_run(tmp_path, "a")
    append(run, 0, *(f"{i} {'x' * 1000}" for i in range(3000)))
    cursor, got, more = "worker/0:0", 0, True
    while more:
        page = LogReader().after(run, cursor)
        got, cursor, more = got + len(page.entries), page.cursor or "", page.more
        assert len(page.entries) < 1200
    assert got == 3000


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40))
def test_any_cursor_is_survived(cursor: str) -> None:
    run = RunDir(Path("/nonexistent"))
    assert LogReader().after(run, cursor).entries == []
