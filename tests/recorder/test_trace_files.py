"""Reading traces from disk: in pieces, torn, huge, of several workers, alive and dead."""

import json
import subprocess
import sys
import tracemalloc
from datetime import timedelta
from pathlib import Path

import pytest

from hawk.bridge.tracesegments import CURRENT, TraceFiles
from hawk.core.recorder.about import About
from hawk.core.recorder.trace import TraceActions
from hawk.store.rundir import RunDir, write_json
from hawk.store.traces import Traces
from tests.recorder.traces import START, enter, leave, line, worker_home, write_sidecar, write_trace


def numbered(first: int, last: int, **fields: object) -> list[bytes]:
    return [line(i, f"line {i}", **fields) for i in range(first, last)]


def actions(run: RunDir, *, lines: int = 10, about: str | None = None, age: float = 100) -> TraceActions:
    with Traces(run, about=About(about) if about else None) as traces:
        return traces.actions(most=100, lines=lines, now=START + timedelta(seconds=age))


def run_of(home: Path) -> RunDir:
    return RunDir(home.parents[1])


@pytest.mark.parametrize("packed", [True, False])
def test_pieces_are_one_file(tmp_path: Path, packed: bool) -> None:
    home = worker_home(tmp_path)
    parts = [numbered(0, 30), numbered(30, 60), numbered(60, 70)]
    whole = b"".join(map(b"".join, parts))
    write_trace(home, *parts, packed=packed)
    with TraceFiles(home) as files:
        assert (files.begin, files.end) == (0, len(whole))
        assert b"".join(files.blocks(0)) == whole
        for start in (0, 1, 3000, files.base - 1, files.base, files.end):
            assert b"".join(files.blocks(start)) == whole[start:]
        for count in (1, 9, 10, 11, 45, 70, 200):
            tail = files.tail(count)
            assert tail.lines == [text for part in parts for text in part][-count:]
            assert tail.truncated == (count < 70)


def test_a_torn_last_line_waits_until_it_is_whole(tmp_path: Path) -> None:
    home = worker_home(tmp_path)
    last = leave("a", 2)
    write_trace(home, [enter("a", 1)], torn=last[:25])
    assert [row.trace_id for row in actions(run_of(home)).in_flight] == ["a"]
    with Traces(run_of(home)) as traces:
        part = traces.tail(10)
        assert part.lines == [enter("a", 1)]
        assert traces.since(part.cursor).lines == []
    with (home / CURRENT).open("ab") as f:
        f.write(last[25:])
    with Traces(run_of(home)) as traces:
        assert traces.since(part.cursor).lines == [last]
    assert actions(run_of(home)).in_flight == []


def test_a_trace_without_sidecar_is_read_from_its_beginning(tmp_path: Path) -> None:
    home = worker_home(tmp_path)
    write_trace(home, [enter("old", 1), *numbered(2, 20)], [enter("b", 30), leave("b", 31), enter("c", 40)])
    before = sorted(path.name for path in home.iterdir())
    found = actions(run_of(home))
    assert [(row.trace_id, row.action) for row in found.in_flight] == [("old", "Model"), ("c", "Model")]
    assert sorted(path.name for path in home.iterdir()) == before


def test_with_a_sidecar_only_the_rest_is_read(tmp_path: Path) -> None:
    home = worker_home(tmp_path)
    lines = [enter("dead", 0), enter("a", 1), enter("b", 2), leave("a", 3), enter("c", 4)]
    write_trace(home, lines)
    at = len(lines[0]) + len(lines[1]) + len(lines[2])
    write_sidecar(home, at=at, began=len(lines[0]), enters=[lines[1], lines[2]])
    assert [row.trace_id for row in actions(run_of(home)).in_flight] == ["b", "c"]
    write_sidecar(home, at=10**9, enters=[])  # of another file
    assert [row.trace_id for row in actions(run_of(home)).in_flight] == ["dead", "b", "c"]


def test_the_longest_comes_first_and_whole_tasks_last(tmp_path: Path) -> None:
    home = worker_home(tmp_path)
    write_trace(
        home,
        [
            enter("t", 0, "Run Task"),
            enter("new", 9, sample_id=5, epoch=1, task="x"),
            enter("old", 2, "Tool Call"),
        ],
    )
    rows = actions(run_of(home)).in_flight
    assert [(row.trace_id, row.sample_id) for row in rows] == [("old", None), ("new", "5"), ("t", None)]


HOLDER = """
import sys, time
from pathlib import Path
from hawk.store.locks import hold
hold(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_ages_go_on_while_the_worker_lives_and_end_with_its_last_heartbeat(tmp_path: Path) -> None:
    home = worker_home(tmp_path)
    write_trace(home, [enter("a", 1)])
    lock = home / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        write_sidecar(home, at=0, pid=process.pid, enters=[])
        beat = (START + timedelta(days=400)).isoformat()  # later than the file's own time
        write_json(home / "heartbeat.json", {"at": beat, "pid": process.pid, "loop_lag": 1.0})
        [row] = actions(run_of(home), age=61).in_flight
        assert (row.age_s, row.alive) == (60.0, True)
        process.stdin.close()
        process.wait()
    found = actions(run_of(home), age=61)
    [row], [worker] = found.in_flight, found.workers
    assert (worker.alive, worker.last_seen, row.alive) == (False, beat, False)
    assert row.age_s == 400 * 86400 - 1


def test_the_lines_of_several_workers_are_merged_by_time(tmp_path: Path) -> None:
    one, two = worker_home(tmp_path, 0), worker_home(tmp_path, 1)
    write_trace(one, [line(1, "a"), b"no time\n", line(3, "c")])
    write_trace(two, [line(2, "b"), line(4, "d")])
    expected = [line(1, "a"), b"no time\n", line(2, "b"), line(3, "c"), line(4, "d")]
    with Traces(run_of(one)) as traces:
        assert traces.tail(10).lines == expected
        assert traces.tail(2).lines == expected[-2:]
        assert traces.tail(2).truncated
        assert b"".join(traces.everything()) == b"".join(expected)
        cursor = traces.tail(1).cursor
    with (two / CURRENT).open("ab") as f:
        f.write(line(5, "e"))
    with Traces(run_of(one)) as traces:
        assert traces.since(cursor).lines == [line(5, "e")]
        assert traces.since(0).lines == [*expected, line(5, "e")]
    with Traces(run_of(one), worker=1) as traces:
        assert traces.names == ["worker/1"]
        assert traces.tail(10).lines == [line(2, "b"), line(4, "d"), line(5, "e")]


def test_what_has_come_since_is_given_a_bounded_part_at_a_time(tmp_path: Path) -> None:
    home = worker_home(tmp_path)
    lines = [line(i, "x" * 1000) for i in range(300)]
    write_trace(home, lines[:100], lines[100:])
    got, cursor, asked = [], 0, 0
    with Traces(run_of(home)) as traces:
        while len(part := traces.since(cursor, most=1 << 16).lines):
            got += part
            cursor = traces.since(cursor, most=1 << 16).cursor
            asked += 1
    assert got == lines
    assert asked > 3


def test_a_sample_is_looked_for_all_the_way_back(tmp_path: Path) -> None:
    home = worker_home(tmp_path)
    ours = [enter("a", 1, sample_id="rare", epoch=2), line(2, "x", sample_id="rare", epoch=1)]
    write_trace(home, ours, numbered(3, 4000, sample_id="other", epoch=2), numbered(4000, 4010))
    with Traces(run_of(home), about=About("rare")) as traces:
        assert traces.tail(10).lines == ours
        assert b"".join(traces.everything()) == b"".join(ours)
    assert [row.trace_id for row in actions(run_of(home), about="rare/2").in_flight] == ["a"]
    assert actions(run_of(home), about="other").in_flight == []


def test_all_of_it_begins_with_what_is_in_flight_and_was_dropped(tmp_path: Path) -> None:
    home = worker_home(tmp_path)
    lost, kept = enter("lost", 1), enter("kept", 100)
    base = write_trace(home, [lost, *numbered(2, 100)], [kept, *numbered(101, 200)], numbered(200, 210))
    (home / f"trace-{0:015}.jsonl.zst").unlink()
    write_sidecar(home, at=base, base=base, enters=[lost, kept])
    with Traces(run_of(home)) as traces:
        found = b"".join(traces.everything())
        part = traces.since(5)
    assert found == b"".join([lost, kept, *numbered(101, 210)])
    assert part.truncated
    assert part.lines[0] == kept


def test_two_gibibytes_are_not_read(tmp_path: Path) -> None:
    home = worker_home(tmp_path)
    last = [*numbered(0, 500), enter("a", 600)]
    with (home / CURRENT).open("wb") as f:
        f.truncate(2 << 30)  # a hole: to read it would take seconds, and memory as a whole
        f.seek(0, 2)
        f.write(b"\n" + b"".join(last))
    size = (home / CURRENT).stat().st_size
    write_sidecar(home, at=size - len(last[-1]), enters=[])
    tracemalloc.start()
    try:
        found = actions(run_of(home), lines=100)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [row.trace_id for row in found.in_flight] == ["a"]
    assert [json.loads(bytes(text))["message"] for text in found.lines[:-1]] == [
        f"line {i}" for i in range(401, 500)
    ]
    assert found.truncated
    assert peak < 4 << 20


def test_damage_costs_what_is_damaged_and_no_more(tmp_path: Path) -> None:
    home = worker_home(tmp_path)
    write_trace(home, numbered(0, 9), numbered(9, 12))
    piece = next(home.glob("trace-*.zst"))
    piece.write_bytes(piece.read_bytes()[:-9] + b"123456789")
    (home / "trace.open.json").write_text('{"pid": ')
    with Traces(run_of(home)) as traces:
        assert traces.tail(100).lines[-3:] == numbered(9, 12)


def test_a_job_without_a_trace_has_none(tmp_path: Path) -> None:
    run = run_of(worker_home(tmp_path))
    with Traces(run) as traces:
        assert traces.names == []
    assert actions(run).workers == []
