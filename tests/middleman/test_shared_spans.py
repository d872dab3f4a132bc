"""What several real middlemen behind one address tell of a job: its spans, its requests, through a real PostgreSQL server."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from hawk.core.snapshot import Snapshot
from hawk.middleman import shared_spans
from hawk.middleman.shared_peers import Asker, Peers
from hawk.middleman.shared_spans import SpanTable
from hawk.middleman.tokens import mint
from hawk.server.services.spans import SpanCollector, append, in_order
from hawk.store.rundir import JobSpec, RunDir, write_json
from tests.middleman.provider import Provider
from tests.middleman.provider_answers import chat, error
from tests.middleman.raw_client import Reply, ask
from tests.middleman.replicas import KEY, one_address, replicas
from tests.middleman.running import Middleman, settings
from tests.middleman.test_bytes import CHAT
from tests.store.databases import postgres
from tests.system import System, until

__all__ = ["postgres"]

pytestmark = pytest.mark.postgres

TASKS = Path(__file__).with_name("asking.py")
MOST = 2


@pytest.fixture(scope="module")
def both(
    running_provider: Provider, postgres: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Middleman]]:
    narrow = {
        "base_url": f"{running_provider.url}/v1",
        "limits": {"most": MOST, "start": MOST, "adaptive": False},
    }
    config = settings(running_provider.url, providers={"narrow": narrow})
    with replicas(tmp_path_factory.mktemp("both"), config, postgres) as found:
        yield found


@pytest.fixture
def collector(postgres: str, tmp_path: Path) -> Iterator[SpanCollector]:
    found = SpanCollector(postgres, tmp_path / "runs")
    yield found
    found._forget()


def token(job: str, user: str = "ada") -> str:
    return mint(KEY.encode(), job=job, user=user)


def a_run(root: Path, job: str) -> RunDir:
    run = RunDir(root / job)
    run.create()
    write_json(run.spec_file, JobSpec(job, "/"))
    return run


def ids(run: RunDir) -> list[str]:
    """Of all whole lines of a job's spans."""
    try:
        lines = (run.path / "spans/middleman.jsonl").read_bytes().splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            found.append(msgspec.json.decode(line)["id"])
        except msgspec.DecodeError:
            continue
    return found


def rows(database: str, job: str) -> list[bytes]:
    with psycopg.connect(database) as connection:
        found = connection.execute(
            "SELECT lines FROM hawk_middleman.spans WHERE job = %s ORDER BY seq", [job]
        )
        return [bytes(row) for (row,) in found.fetchall()]


def in_database(database: str, job: str, count: int) -> None:
    until("the spans are in the database", lambda: sum(r.count(b"\n") for r in rows(database, job)) == count)


def test_spans_of_all_replicas_come_once_into_the_run_directory_also_where_a_server_died_in_between(
    both: list[Middleman], postgres: str, collector: SpanCollector, tmp_path: Path
) -> None:
    job, bearer = "spans-1", token("spans-1")
    for replica in both * 3:
        assert ask(replica.url, CHAT, bearer, {"model": "m"}).status == 200
    in_database(postgres, job, 6)
    assert collector.look(), "jobs of another server's are left to that one"
    assert len(rows(postgres, job)) >= 2

    run = a_run(tmp_path / "runs", job)
    lines = in_order(rows(postgres, job))
    append(run.path, lines[:4], sure=False)  # and there it was killed, within a line
    with (run.path / "spans/middleman.jsonl").open("ab") as file:
        file.write(lines[4][:40])
    collector.look()
    assert Counter(ids(run)) == Counter(msgspec.json.decode(line)["id"] for line in lines)
    assert rows(postgres, job) == []

    assert ask(both[0].url, CHAT, bearer, {"model": "m"}).status == 200
    in_database(postgres, job, 1)
    collector.look()
    assert len(ids(run)) == 7


def test_lines_come_in_the_order_in_which_requests_ended() -> None:
    def line(name: str, at: str, seconds: float) -> bytes:
        return msgspec.json.encode({"id": name, "at": at, "seconds": seconds}) + b"\n"

    long = line("long", "2026-01-01T00:00:00+00:00", 9.0)
    short = line("short", "2026-01-01T00:00:05+00:00", 1.0)
    assert in_order([long + b"no span\n", short]) == [short, long]


def test_a_batch_counts_once_and_what_a_database_that_is_away_can_not_take_is_bounded(
    both: list[Middleman], postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = SpanTable(postgres, "tester")
    table.put({"batched": [b"1\n"]})
    again = SpanTable(postgres, "tester")  # sends its first batch again, not knowing whether it arrived
    again.put({"batched": [b"1\n"]})
    again.put({"batched": [b"2\n"]})
    assert rows(postgres, "batched") == [b"1\n", b"2\n"]

    monkeypatch.setattr(shared_spans, "WAITING", 100)
    away = SpanTable(postgres.replace("/postgres?", "/nowhere?"), "other")
    for i in range(10):
        away.put({"batched": [b"%d" % i + b"x" * 30 + b"\n"]})
    assert away.behind
    assert away.lost == 7
    away._url = postgres
    away.put({}, last=True)
    assert len(rows(postgres, "batched")) == 5
    assert not away.behind

    monkeypatch.setattr(shared_spans, "OF_JOB", 40)
    SpanTable(postgres, "third").put({"batched": [b"3\n"]})
    assert rows(postgres, "batched")[-1] == b"3\n"
    assert len(rows(postgres, "batched")) == 2, "the oldest have gone"
    for one in (table, again, away):
        one.close()


def test_a_job_is_told_of_its_requests_at_all_replicas(both: list[Middleman], provider: Provider) -> None:
    job, model = "everywhere", "narrow-of-all"
    slow = chat({"model": model})
    slow.delay = 60.0
    provider.on(slow, model=model, always=True)
    replies: list[Reply] = []
    threads = [
        threading.Thread(
            target=lambda url: replies.append(
                ask(url, "/narrow/v1/chat/completions", token(job), {"model": model})
            ),
            args=[both[i % 2].url],
            daemon=True,
        )
        for i in range(6)
    ]
    for thread in threads:
        thread.start()

    def status(replica: Middleman, path: str = "/job/status") -> dict[str, Any]:
        found: dict[str, Any] = ask(replica.url, path, token(job)).json()
        return found

    def everywhere(replica: Middleman) -> bool:
        found, account = status(replica), status(replica, "/job")
        lane = found["lanes"][0] if found["lanes"] else {"in_flight": 0, "waiting": 0}
        counts = [(d["in_flight"], d["waiting"]) for d in (lane, account)]
        return len(found["requests"]) == 6 and counts == [(MOST, 6 - MOST)] * 2

    until("each replica tells of all", lambda: all(everywhere(replica) for replica in both))
    found = status(both[0])
    (lane,) = found["lanes"]
    assert (lane["limit"], lane["most"]) == (MOST, MOST)
    assert lane["by_job"] == [
        {"job": job, "in_flight": MOST, "waiting": 4, "oldest_wait_s": lane["by_job"][0]["oldest_wait_s"], "mine": True}
    ]  # fmt: skip
    assert max(r["place"] for r in found["requests"] if r["place"] is not None) == 4
    assert (found["replicas"], found["missing"]) == (2, None)

    stranger = ask(both[0].url, "/job/status", token("strange", user="eve")).json()
    assert stranger["requests"] == [], "nobody sees another's requests"

    pid = both[1].process.pid  # type: ignore[union-attr]
    os.kill(pid, signal.SIGSTOP)
    try:
        silent = status(both[0])
        assert silent["missing"] is not None, "while it counts as living, what it has is missing"
        assert both[1].url in silent["missing"]
    finally:
        os.kill(pid, signal.SIGCONT)
    assert ask(both[0].url, "/job", token(job), method="DELETE").status == 200
    for thread in threads:
        thread.join(20)
    assert {reply.error_type for reply in replies} == {"hawk_token_revoked"}


def test_only_a_replica_is_told_what_replicas_tell_each_other(both: list[Middleman]) -> None:
    here, instance = "/job/status/here", str(both[0].status()["instance"])
    peers = Peers(KEY.encode(), "tester")
    good = peers.ticket(instance, Asker("everywhere", "ada"))
    assert ask(both[0].url, here, good).status == 200
    bad = [None, token("everywhere"), both[0].person(), good[:-4] + "AAAA"]
    bad.append(peers.ticket("another", Asker("everywhere", "ada")))
    bad.append(Peers(b"k" * 64, "tester").ticket(instance, Asker("everywhere", "ada")))
    assert [ask(both[0].url, here, each).status for each in bad] == [401] * len(bad)
    for path in ("/job/status", "/job", CHAT):
        assert ask(both[0].url, path, good).status == 401, "a ticket opens nothing else"


def evidence(run: RunDir) -> dict[str, Any]:
    """What the supervisor's diagnosis was made from last."""
    try:
        return msgspec.json.decode(run.evidence_file.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return {}


def open_calls(run: RunDir) -> int:
    return sum(len(model.get("open", ())) for model in evidence(run).get("models", ()))


def in_flight(status: Snapshot) -> int:
    return status.models.in_flight if status.models is not None else 0


def ended_calls(run: RunDir) -> list[tuple[int, int]]:
    """Of each kind of failure: how many, and their status."""
    models = evidence(run).get("models", ())
    return [(group["count"], group["status"]) for model in models for group in model.get("calls", ())]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_real_job_has_the_spans_and_the_account_that_it_would_have_with_a_middleman_of_its_own(
    both: list[Middleman], provider: Provider, postgres: str, tmp_path: Path
) -> None:
    job = "behind-two"
    model = "m-of-two"
    held = chat({"model": model})
    held.after = seen = threading.Event()
    for _ in range(4):
        provider.on(held, model=model)
    provider.on(error(503, "overloaded_error", "too much to do"), model=model)  # the newest rule is the first
    with one_address(both) as url:
        (tmp_path / "system").mkdir()
        system = System(
            tmp_path / "system",
            HAWK_MIDDLEMAN="1",
            HAWK_WORKERS="1",
            HAWK_MIDDLEMAN_DATABASE_URL=postgres,
            HAWK_JOB_MIDDLEMAN_URL=url,
            HAWK_JOB_MIDDLEMAN_TOKEN=token(job),
        )
        system.start()
        try:
            asked = {"samples": 2, "calls": 6}
            system.submit(
                job,
                config={
                    "tasks": [{"file": str(TASKS), "items": [{"name": "plain", "args": asked}]}],
                    "models": [{"package": "inspect-ai", "items": [{"name": f"openai/{model}", "args": {"responses_api": False}}]}],
                },
            )  # fmt: skip
            run = system.run_dir(job)
            until(
                "the diagnosis has the calls of both, those that are open and the one that failed",
                lambda: (open_calls(run), ended_calls(run)) == (4, [(1, 503)]),
            )
            until("so has the status", lambda: in_flight(system.status(job)) == 4)
            seen.set()
            end = system.finish(job)
            assert end.status == "complete"
            assert end.models is not None
            until("all spans are there", lambda: len(ids(run)) == end.models.requests)  # type: ignore[union-attr]
            spans = [
                msgspec.json.decode(x) for x in (run.path / "spans/middleman.jsonl").read_bytes().splitlines()
            ]
            assert len({span["id"] for span in spans}) == len(spans) == 2 * 2 * 6 + 1
            assert len({span["id"].split("-")[0] for span in spans}) == 2, "of both"
            assert {span["sample_uuid"] for span in spans} == {s.uuid for t in end.tasks for s in t.samples}
            uuid = end.tasks[0].samples[0].uuid
            shown = msgspec.json.decode(system.hawk("timeline", str(uuid), "--json").stdout)
            queued = [
                span["attributes"]["hawk.request"]
                for span in shown["spans"]
                if span["category"] == "provider"
            ]
            assert set(queued) == {span["id"] for span in spans if span["sample_uuid"] == uuid}
            assert rows(postgres, job) == []
        finally:
            system.stop()
