"""Two directories and a connection between them: what one side writes, the other has, whatever happens on the way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawk.errors import HawkError
from hawk.link import rules
from hawk.link.apply import Applier
from hawk.link.outbox import Memory, Outbox
from hawk.link.session import Connection, Session, exchange_lists
from hawk.link.streams import SocketStream


class Sides:
    """A writer's tree, a reader's copy, and sessions between them, one after another."""

    def __init__(self, base: Path) -> None:
        self.ours, self.theirs = base / "ours", base / "theirs"
        self.ours.mkdir(parents=True)
        self.theirs.mkdir()
        self.memory = Memory()
        self.bytes = 0
        self.closing = False

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[Session]:
        a, b = socket.socketpair()
        left, right = [Connection(_Counted(self, *await asyncio.open_connection(sock=s))) for s in (a, b)]
        theirs, _ = await asyncio.gather(
            exchange_lists(left, self.ours, None, lambda _: True),
            exchange_lists(right, self.theirs, None, lambda _: True),
        )
        ours, other = Session(left, period=0.01), Session(right)
        ours.outbox = Outbox(self.ours, lambda _: True, lambda _: True, theirs, self.memory)
        ours.outbox.closing = self.closing
        other.applier = Applier(self.theirs, lambda _: True)
        tasks = [asyncio.create_task(ours.run()), asyncio.create_task(other.run())]
        try:
            yield ours
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            wrong = [
                r
                for r in results
                if isinstance(r, HawkError) and "ended" not in str(r) and "broke" not in str(r)
            ]
            assert wrong == []

    async def settle(self) -> None:
        async with self.connected() as session, asyncio.timeout(60):
            await session.drained()

    def write(self, path: str, data: bytes, *, add: bool = False) -> None:
        file = self.ours / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if add:
            with file.open("ab") as out:
                out.write(data)
            return
        draft = file.with_name(f".{file.name}.abcdefgh")
        draft.write_bytes(data)
        draft.replace(file)

    def same(self) -> None:
        assert _content(self.theirs) == {k: v for k, v in _content(self.ours).items() if rules.carried(k)}


class _Counted(SocketStream):
    def __init__(self, sides: Sides, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self._sides = sides

    async def write(self, data: bytes) -> None:
        self._sides.bytes += len(data)
        await super().write(data)


def _content(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    return Sides(tmp_path)


async def test_everything_arrives_with_its_time_and_nothing_that_only_this_machine_needs(
    sides: Sides,
) -> None:
    sides.write("plan.json", b"{}")
    sides.write("logs/a.eval", os.urandom(3_000_000))
    sides.write("logs/.buffer/a/manifest.json", b"[]")
    sides.write("logs/.buffer/a/.keep", b"")
    sides.write("workers/0/output.jsonl", b"{}\n" * 200_000)
    for left_behind in (
        "supervisor.lock",
        "workers/0/lock",
        "workers/0/data/x",
        "buffer/a.db",
        ".plan.json.abcdefgh",
    ):
        sides.write(left_behind, b"1")
    (sides.ours / "link.json").symlink_to("/etc/passwd")
    await sides.settle()
    assert sorted(_content(sides.theirs)) == [
        "logs/.buffer/a/.keep",
        "logs/.buffer/a/manifest.json",
        "logs/a.eval",
        "plan.json",
        "workers/0/output.jsonl",
    ]
    for name in ("plan.json", "logs/a.eval", "workers/0/output.jsonl"):
        assert (sides.theirs / name).stat().st_mtime_ns == (sides.ours / name).stat().st_mtime_ns
    before = sides.bytes
    await sides.settle()
    assert sides.bytes - before < 5_000  # nothing is sent twice


async def test_a_large_log_that_grows_is_sent_from_its_first_difference(sides: Sides) -> None:
    beginning = os.urandom(6_000_000)
    sides.write("logs/a.eval", beginning + b"directory")
    await sides.settle()
    before = sides.bytes
    sides.write("logs/a.eval", beginning + os.urandom(100_000) + b"directory, longer")
    await sides.settle()
    sides.same()
    assert sides.bytes - before < 1_500_000


async def test_what_is_removed_goes_and_what_the_other_side_never_got_from_us_stays(sides: Sides) -> None:
    (sides.theirs / "attempts/p/1").mkdir(parents=True)
    (sides.theirs / "attempts/p/1/workspace.tar.zst").write_bytes(b"evidence of an earlier pod")
    sides.write("logs/.buffer/a/segment.1.zip", b"1")
    sides.write("logs/b.eval", b"2")
    await sides.settle()
    (sides.ours / "logs/.buffer/a/segment.1.zip").unlink()
    (sides.ours / "logs/.buffer/a").rmdir()
    (sides.ours / "logs/b.eval").unlink()
    await sides.settle()
    assert sorted(_content(sides.theirs)) == ["attempts/p/1/workspace.tar.zst"]
    assert not (sides.theirs / "logs/.buffer/a").exists()


async def test_a_file_that_grows_and_is_cut_or_replaced_is_what_it_is(sides: Sides) -> None:
    sides.write("workers/0/trace.jsonl", b"first\n" * 1000)
    async with sides.connected() as session:
        await session.drained()
        sides.write("workers/0/trace.jsonl", b"second\n", add=True)
        await session.drained()
        sides.same()
        (sides.ours / "workers/0/trace.jsonl").rename(sides.ours / "workers/0/trace-000000000000000.jsonl")
        sides.write("workers/0/trace.jsonl", b"third\n", add=True)
        await session.drained()
        sides.same()
        sides.write("workers/0/trace.jsonl", b"fourth\n", add=True)
        await session.drained()
    sides.same()


async def test_the_journal_takes_lines_of_both_sides_and_repeats_none(sides: Sides) -> None:
    sides.write("journal.jsonl", b'{"at":"1"}\n{"at":"2"}\n')
    await sides.settle()
    with (sides.theirs / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"at":"server"}\n{"torn')
    sides.write("journal.jsonl", b'{"at":"3"}\n{"at":"4', add=True)
    await sides.settle()
    assert (sides.theirs / "journal.jsonl").read_bytes().splitlines() == [
        b'{"at":"1"}',
        b'{"at":"2"}',
        b'{"at":"server"}',
        b'{"torn',
        b'{"at":"3"}',
    ]
    sides.write("journal.jsonl", b'"}\n', add=True)
    await sides.settle()
    assert (sides.theirs / "journal.jsonl").read_bytes().endswith(b'{"at":"3"}\n{"at":"4"}\n')


async def test_a_snapshot_that_says_the_end_waits_for_everything_else(sides: Sides) -> None:
    sides.write("snapshot.json", b'{"status":"running"}')
    async with sides.connected() as session:
        await session.drained()
        sides.write("snapshot.json", b'{"status":"complete"}')
        sides.write("logs/a.eval", os.urandom(2_000_000))
        await session.drained()
        assert (sides.theirs / "snapshot.json").read_bytes() == b'{"status":"running"}'
        assert (sides.theirs / "logs/a.eval").exists()
        assert session.outbox is not None
        session.outbox.closing = True
        await session.drained()
    sides.same()


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_is_written_arrives_through_a_link_that_is_cut_again_and_again(
    sides: Sides, seed: int
) -> None:
    chance = random.Random(seed)
    sides.closing = True
    whole = [
        "snapshot.json",
        "logs/a.eval",
        "logs/b.eval",
        "workers/0/heartbeat.json",
        "attempts/p/1/result.json",
    ]
    grow = ["workers/0/output.jsonl", "journal.jsonl", "workers/0/trace.jsonl", "supervisor.log"]

    async def write() -> None:
        for n in range(60):
            kind = chance.random()
            if kind < 0.45:
                size = chance.choice([0, 10, 1000, 300_000, 1_500_000])
                sides.write(chance.choice(whole), (f"{n}".encode() + b"x" * 50) * (size // 50))
            elif kind < 0.9:
                line = f"{n} {'y' * chance.choice([1, 2000, 400_000])}\n".encode()
                sides.write(chance.choice(grow), line, add=True)
            elif kind < 0.95:
                (sides.ours / chance.choice(whole)).unlink(missing_ok=True)
            else:
                (sides.ours / "workers/0/trace.jsonl").unlink(missing_ok=True)
            await asyncio.sleep(chance.random() * 0.02)

    writing = asyncio.create_task(write())
    while not writing.done():
        async with sides.connected():
            await asyncio.sleep(chance.random() * 0.2)
    await writing
    await sides.settle()
    await sides.settle()
    sides.same()
