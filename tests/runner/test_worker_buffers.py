"""The rows of running attempts of a worker in another pod, mirrored where the supervisor reads them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from hawk.bridge.buffer import rows
from hawk.runner.workpods.buffers import BATCH, MOST, Buffers, Mirror
from hawk.runner.workpods.messages import Rows

TABLES = """
CREATE TABLE samples (id TEXT, epoch INTEGER, data TEXT, more TEXT, PRIMARY KEY (id, epoch));
CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT, sample_id TEXT, sample_epoch INTEGER, data TEXT);
"""


class Sides:
    """A buffer in a pod, and its mirror."""

    def __init__(self, base: Path) -> None:
        self.there, self.here = (
            base / "pod" / "x1" / "log.eval.7.db",
            base / "mirror" / "x1" / "log.eval.7.db",
        )
        self.there.parent.mkdir(parents=True)
        self.write(TABLES)
        self.buffers, self.mirror = Buffers(base / "pod"), Mirror(base / "mirror")

    def write(self, script: str) -> None:
        connection = sqlite3.connect(self.there)
        connection.executescript(script)
        connection.close()

    def carry(self) -> list[Rows]:
        news = list(self.buffers.news())
        for one in news:
            self.mirror.apply(one)
        return news

    def same(self) -> None:
        for query in ("SELECT id, epoch, data FROM samples ORDER BY id", "SELECT * FROM events ORDER BY id"):
            assert rows(self.here, query) == rows(self.there, query)


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    return Sides(tmp_path)


def test_a_mirror_follows_attempts_and_their_events(sides: Sides) -> None:
    sides.write("INSERT INTO samples VALUES ('a', 1, '{}', ''), ('b', 1, '{}', '')")
    events = ", ".join(f"('e{n}', 'a', 1, 'x{n}')" for n in range(BATCH + 5))
    sides.write(f"INSERT INTO events (event_id, sample_id, sample_epoch, data) VALUES {events}")
    sides.carry()
    sides.same()
    sides.write("UPDATE samples SET data = '{\"done\": true}' WHERE id = 'a'")
    sides.write("INSERT INTO events (event_id, sample_id, sample_epoch, data) VALUES ('new', 'b', 1, 'y')")
    news = sides.carry()
    sides.same()
    assert [(len(n.events), len(n.samples)) for n in news] == [(1, 0), (0, 1)], "only what is new"
    sides.write("DELETE FROM samples WHERE id = 'a'; DELETE FROM events WHERE sample_id = 'a'")
    sides.carry()
    sides.same()
    assert sides.carry() == []


def test_a_buffer_that_ends_is_ended_here_too(sides: Sides) -> None:
    sides.write("INSERT INTO samples VALUES ('a', 1, '{}', '')")
    sides.carry()
    assert sides.here.exists()
    sides.there.unlink()
    sides.carry()
    assert not sides.here.exists()


def test_rows_come_in_pieces_and_one_that_is_far_too_large_is_left_out(sides: Sides) -> None:
    half, whole = MOST * 2 // 3, MOST + 1
    for number, size in enumerate((half, half, whole)):
        sides.write(f"INSERT INTO samples VALUES ('s{number}', 1, printf('%.*c', {size}, 'x'), '')")
    news = sides.carry()
    assert [[row[0] for row in one.samples] for one in news] == [["s0"], ["s1"]]


@pytest.mark.parametrize("name", ["../x.db", "/etc/x.db", "x1/../../y.db", "x1/log", "x.db", "x1/a/b.db"])
def test_a_name_that_leads_elsewhere_is_not_taken(tmp_path: Path, name: str) -> None:
    Mirror(tmp_path / "mirror").apply(Rows(name, samples=[("a", 1, "{}")]))
    assert list(tmp_path.rglob("*.db")) == []
