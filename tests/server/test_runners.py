"""The route of runners: who comes in, and what a runner of one job may do. A real server, a runner of the tests' own."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from hawk import __version__
from hawk.config.settings import Settings
from hawk.core.recorder.stacks import StackRecord
from hawk.core.states import StopAction
from hawk.link import rules
from hawk.link.frames import (
    PROTOCOL,
    Ack,
    Answer,
    Ask,
    Bye,
    File,
    Frame,
    Have,
    Header,
    Held,
    Hello,
    Known,
    Lines,
    LinkLost,
    Ready,
    Refused,
    Remove,
    Tail,
    Welcome,
)
from hawk.link.session import Connection
from hawk.link.streams import NotAdmittedError, dial
from hawk.link.tokens import link_key, mint
from hawk.store import stoprequests
from hawk.store.locks import holder
from hawk.store.rundir import RunDir
from tests.server.serving import Service
from tests.store.runs import make_run


@pytest.fixture
def run(settings: Settings) -> RunDir:
    return make_run(settings.root, "mine", generation=2)


class Runner:
    """What a pod says, word by word."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def say(self, header: Header, body: bytes = b"") -> None:
        await self.connection.send(Frame(header, body))

    async def hear(self, kind: type[Any]) -> Any:
        async with asyncio.timeout(60):
            while True:
                frame = await self.connection.read()
                if isinstance(frame.header, kind):
                    return frame.header

    async def lists(self) -> list[Known]:
        await self.say(Have([]))
        return list((await self.hear(Have)).files)


@asynccontextmanager
async def runner(service: Service, token: str, hello: dict[str, Any] | None = None) -> AsyncIterator[Runner]:
    stream = await dial(f"{service.url}/runners/mine/link", token)
    try:
        found = Runner(Connection(stream))
        fields = {"job": "mine", "generation": 2, "token": token, "spans": True, **(hello or {})}
        await found.say(Hello(PROTOCOL, __version__, **fields))  # type: ignore[arg-type]
        yield found
    finally:
        await stream.close()


@pytest.fixture
def token(settings: Settings) -> str:
    return mint(link_key(settings.home), "mine", 2)


def whole(seq: int, path: str, body: bytes) -> tuple[File, bytes]:
    digest = hashlib.blake2b(body, digest_size=16).hexdigest()
    return File(seq, path, len(body), 10**18, digest=digest), body


async def test_only_the_token_of_that_job_and_generation_opens_its_link_and_nothing_else(
    service: Service, settings: Settings, run: RunDir, token: str
) -> None:
    make_run(settings.root, "other", generation=2)
    key = link_key(settings.home)
    wrong = [mint(key, "other", 2), mint(key, "mine", 1), mint(key, "mine", 3), service.token, "", "ä"]
    for bad in wrong:
        with pytest.raises(NotAdmittedError) as refused:
            await dial(f"{service.url}/runners/mine/link", bad)
        assert refused.value.fields["status"] == 403
    for path in ("/runners/gone/link", "/runners/..%2fmine/link", "/runners/mine/link/x", "/eval_sets/"):
        with pytest.raises(NotAdmittedError):
            await dial(f"{service.url}{path}", token)
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        for path in ("/meta/jobs", "/monitoring/jobs/mine/eval-set-status", "/runners/mine/link"):
            async with session.get(f"{service.url}{path}") as answer:
                assert answer.status == 401, path
    assert "/runners" not in service.get("/openapi.json").text
    async with runner(service, token) as mine:
        await mine.hear(Welcome)


@pytest.mark.parametrize(
    ("hello", "said"),
    [
        ({"job": "other"}, "the link of 'mine'"),
        ({"token": "x"}, "its token is wrong"),
        ({"token": "x", "generation": 1}, "started again"),
    ],
)
async def test_who_greets_wrongly_is_told_why(
    service: Service, run: RunDir, token: str, hello: dict[str, Any], said: str
) -> None:
    async with runner(service, token, hello) as mine:
        refused = await mine.hear(Refused)
        assert refused.final
        assert said in refused.reason


async def test_a_runner_that_begins_gets_all_it_needs_and_then_only_what_is_new(
    service: Service, run: RunDir, token: str
) -> None:
    (run.path / "attempts/p/1").mkdir(parents=True)
    (run.path / "attempts/p/1/workspace.tar.zst").write_bytes(b"large")
    (run.path / rules.SOURCE).write_bytes(b"packed")
    async with runner(service, token, {"empty": True}) as mine:
        await mine.hear(Welcome)
        assert {k.path for k in await mine.lists()} >= {"job.json", "attempts/p/1/workspace.tar.zst"}
        got = set()
        while got != {"job.json", rules.SOURCE}:
            file = await mine.hear(File)
            got.add(file.path)
            await mine.say(Ack(file.seq))
        await mine.hear(Ready)
        asked = stoprequests.request(run, StopAction.SCORE, None)
        file = await mine.hear(File)
        assert file.path == f"stop/{asked.id}.json"
        await mine.say(Ack(file.seq))
        await mine.say(Remove(1, file.path))
        assert (await mine.hear(Ack)).seq == 1
        assert stoprequests.pending(run) == []


@asynccontextmanager
async def carrying(service: Service, token: str) -> AsyncIterator[Runner]:
    async with runner(service, token) as mine:
        await mine.hear(Welcome)
        await mine.lists()
        yield mine


async def test_what_a_runner_writes_is_there_when_it_is_acknowledged(
    service: Service, run: RunDir, token: str
) -> None:
    async with carrying(service, token) as mine:
        await mine.say(*whole(1, "snapshot.json", b"{}"))
        await mine.say(Tail(2, "workers/0/output.jsonl", 0, 5), b"one\n")
        await mine.say(Tail(3, "workers/0/output.jsonl", 4, 5), b"two\n")
        await mine.say(Lines(4, "journal.jsonl"), b'{"at":"","kind":"job","subject":"","state":""}\n')
        await mine.say(*whole(5, "spans/middleman.jsonl", b"{}\n"))
        await mine.say(*whole(6, "actions/watchdog1.json", b"{}"))
        while (await mine.hear(Ack)).seq < 6:
            pass
        assert (run.path / "workers/0/output.jsonl").read_text() == "one\ntwo\n"
        assert run.snapshot_file.read_text() == "{}"
        assert len(list(run.journal())) == 1


NOT_THEIRS: list[tuple[Any, bytes]] = [
    whole(1, "job.json", b"{}"),
    whole(1, "pods.json", b"{}"),
    whole(1, "history.json", b"[]"),
    whole(1, rules.SOURCE, b""),
    whole(1, "stop/0123456789abcdef.json", b"{}"),
    whole(1, "../other/job.json", b"{}"),
    whole(1, "supervisor.lock", b"1"),
    (Remove(1, "job.json"), b""),
    (Tail(1, "plan.json", 0, 1), b"x"),
    (Lines(1, "workers/0/output.jsonl"), b"x\n"),
    (Ready(), b""),
    (Hello(PROTOCOL, __version__, "mine", 2, "again"), b""),
]


async def test_what_is_not_a_runners_to_write_ends_its_link(
    service: Service, run: RunDir, token: str
) -> None:
    before = {p: p.read_bytes() for p in run.path.parent.rglob("*") if p.is_file()}
    for frame in NOT_THEIRS:
        async with carrying(service, token) as mine:
            await mine.say(*frame)
            with pytest.raises(LinkLost, match="ended the connection"):
                await mine.hear(Ack)
        now = {p: p.read_bytes() for p in run.path.parent.rglob("*") if p.is_file()}
        assert now == before, frame[0]


async def test_questions_are_answered_and_who_lives_is_known_until_the_good_bye(
    service: Service, run: RunDir, token: str
) -> None:
    links = service.context.links
    assert not links.connected("mine")
    assert await asyncio.to_thread(links.ask_stacks, "mine", True) is None
    async with carrying(service, token) as mine:
        await _until(lambda: links.connected("mine"))
        await mine.say(Held({"supervisor.lock": 17, "workers/0/lock": 23, "job.json": 1}))
        await _until(lambda: run.supervisor_pid() == 17)
        await _until(lambda: holder(run.path / "workers/0/lock") == 23)
        asking = asyncio.create_task(asyncio.to_thread(links.ask_stacks, "mine", True))
        asked = await mine.hear(Ask)
        assert (asked.what, asked.native) == ("stacks", True)
        record = StackRecord(worker=0, pid=1, at="2026-01-01T00:00:00+00:00", why="asked")
        data = msgspec.json.encode([record])
        await mine.say(Answer(asked.id, True, more=True), data[:10])
        await mine.say(Answer(asked.id, True), data[10:])
        assert [found.why for found in await asking] == ["asked"]
        await mine.say(Bye())
        await mine.hear(Bye)
        assert run.supervisor_pid() is None
    await _until(lambda: not links.connected("mine"))


async def test_a_newer_link_of_the_same_runner_takes_the_place_of_one_that_may_be_dead(
    service: Service, run: RunDir, token: str
) -> None:
    async with carrying(service, token) as old, carrying(service, token) as new:
        await new.say(*whole(1, "snapshot.json", b"{}"))
        assert (await new.hear(Ack)).seq == 1
        with pytest.raises(LinkLost, match="ended the connection"):
            await old.hear(Ack)


async def test_a_job_that_is_removed_loses_its_link(service: Service, run: RunDir, token: str) -> None:
    async with carrying(service, token) as mine:
        await mine.say(Held({"supervisor.lock": 17}))
        await _until(lambda: run.supervisor_pid() == 17)
        await asyncio.to_thread(service.context.links.drop, "mine")
        assert run.supervisor_pid() is None
        with pytest.raises(LinkLost, match="ended the connection"):
            await mine.hear(Ack)


async def _until(probe: Callable[[], object | Awaitable[object]]) -> None:
    async with asyncio.timeout(60):
        while not probe():
            await asyncio.sleep(0.02)


def test_no_key_of_links_is_in_the_run_directories(service: Service, settings: Settings, run: RunDir) -> None:
    key = link_key(settings.home)
    assert all(key not in p.read_bytes() for p in Path(settings.root).rglob("*") if p.is_file())
