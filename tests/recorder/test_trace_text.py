"""How a trace looks at a terminal."""

import re

import click

from hawk.cli import trace_text
from hawk.core.recorder.trace import ActionRow, TraceActions, TraceWorker
from tests.recorder.traces import enter, leave, line

HOSTILE = "\x1b]0;owned\x07\x1b[2J‮evil\r\nsecond"


def row(age: float = 61.0, *, worker: int = 0, alive: bool = True, sample: str | None = "s") -> ActionRow:
    return ActionRow(worker, "Model", "generate (m)", "t", sample, 1, "uuid", None, age, "id", alive)


def shown(rows: list[ActionRow], *workers: TraceWorker, total: int | None = None) -> str:
    found = TraceActions("2026-01-02T00:00:00Z", list(workers), rows, total or len(rows), [], False, "0")
    return click.unstyle(trace_text.in_flight(found, 100))


def test_age_comes_first_then_what_it_is_and_whose() -> None:
    lines = shown([row(), row(7322.0, sample=None)], TraceWorker(0, True)).splitlines()
    assert lines[0] == "In flight now:"
    assert re.split(r"  +", lines[2]) == ["1m 01s", "Model", "generate (m)", "t/s/1"]
    assert lines[3].split()[:2] == ["2h", "02m"]


def test_the_dead_are_apart_from_the_living_and_the_rest_is_counted() -> None:
    dead = TraceWorker(1, False, 4711, "2026-01-02T00:00:00+00:00", 3)
    text = shown([row(), row(5.0, worker=1, alive=False)], TraceWorker(0, True), dead, total=502)
    assert re.search(r"In flight when worker 1 died \(pid 4711\), last seen 2026-01-0\d .* \(0s ago\):", text)
    assert "… and 500 more; --all shows them" in text
    assert "Worker 1 could not write 3 lines" in text


def test_nothing_in_flight_is_said() -> None:
    assert shown([], TraceWorker(0, True)) == "Nothing is in flight (1 worker alive)."
    assert shown([], TraceWorker(0, False)).startswith("Nothing was in flight when the last worker ended")


def test_lines_are_one_line_each() -> None:
    assert trace_text.line(enter("a", 1, sample_id="s", epoch=2, task="t")).endswith(
        "enter   Model: what a does [t/s/2]"
    )
    failed = leave("a", 2, event="error", error="no\nroom", error_type="OSError")
    assert click.unstyle(trace_text.line(failed)).endswith(
        "error   Model: what a does 1.00s OSError: no room"
    )
    plain = line(3, "task=t sample=s epoch=1\nRetrying", sample_id="s", task="t", epoch=1, level="INFO")
    assert trace_text.line(plain).endswith("INFO    Retrying [t/s/1]")
    assert trace_text.line(b"torn {\x1b[31m") == "torn {"
    assert trace_text.line({"message": "decoded", "level": "INFO"}).endswith("INFO    decoded")


def test_no_escape_sequence_reaches_the_terminal() -> None:
    texts = [
        trace_text.line(enter("a", 1, HOSTILE, detail=HOSTILE, sample_id=HOSTILE, task=HOSTILE, epoch=1)),
        trace_text.line(line(1, HOSTILE, level=HOSTILE)),
        shown(
            [ActionRow(0, HOSTILE, HOSTILE, HOSTILE, HOSTILE, 1, None, None, 1.0, "x", True)],
            TraceWorker(0, True),
        ),
    ]
    for text in texts:
        assert "evil" in text
        assert not {"\x1b", "\x07", "\r", "‮"} & set(text)
    assert all("\n" not in text for text in texts[:2])
