"""Two real middlemen that share a real PostgreSQL server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from hawk.core.traffic.ledger import Budget
from hawk.errors import ServerUnavailableError
from hawk.middleman.shared import Sharing
from tests.middleman.provider import Limit, Provider
from tests.middleman.provider_answers import chat, error
from tests.middleman.raw_client import Reply, ask
from tests.middleman.running import Middleman, settings
from tests.middleman.test_bytes import CHAT
from tests.store.databases import postgres
from tests.system import until

__all__ = ["postgres"]

pytestmark = pytest.mark.postgres

KEY = "0123456789abcdef" * 4
MOST = 8


class Database:
    """A PostgreSQL server of our own, which may be stopped."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.url: str = server.get_uri()

    def stop(self) -> None:
        """Without saying goodbye to anyone."""
        from pgserver._commands import pg_ctl

        pg_ctl(["-w", "-m", "immediate", "stop"], pgdata=self._server.pgdata, user=self._server.system_user)

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def dump(self) -> str:
        """Every row."""
        with psycopg.connect(self.url) as connection:
            tables = ("replicas", "leases", "limits", "pauses", "jobs", "revoked", "keys")
            return "\n".join(
                str(connection.execute(f"SELECT * FROM hawk_middleman.{t}").fetchall()) for t in tables
            )


@pytest.fixture(scope="module")
def database(postgres: str) -> Database:
    import pgserver

    directory = parse_qs(urlsplit(postgres).query)["host"][0]
    return Database(pgserver.get_server(directory))  # the one that runs there


def configuration(url: str) -> dict[str, Any]:
    fixed = {"limits": {"most": MOST, "adaptive": False}}
    adaptive = {"base_url": f"{url}/v1", "limits": {"most": 100, "start": 4, "adaptive": True}}
    needs = {"base_url": f"{url}/v1", "needs_key": True}
    return settings(url, defaults=fixed, providers={"adaptive": adaptive, "brought": needs})


Make = Callable[..., Middleman]


@pytest.fixture(scope="module")
def make(
    running_provider: Provider, database: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Make]:
    made: list[Middleman] = []

    def make(key: str = KEY, url: str | None = None) -> Middleman:
        home = tmp_path_factory.mktemp("replica") / "home"
        found = Middleman(
            home, configuration(running_provider.url), HAWK_MIDDLEMAN_DATABASE_URL=url or database.url
        )
        (home / "middleman.key").write_text(key)
        made.append(found)
        return found

    yield make
    for found in made:
        if found.process is not None:
            assert found.process.poll() is not None or found.stop() == 0
        assert found.leaks() == []


@pytest.fixture(scope="module")
def both(make: Make) -> tuple[Middleman, Middleman]:
    """Two that know of each other."""
    a, b = make(), make()
    starting = threading.Thread(target=a.start)
    starting.start()
    b.start()
    starting.join()
    together(a, b)
    return a, b


def together(*replicas: Middleman) -> None:
    until("they know of each other", lambda: all(shared(r)["replicas"] == len(replicas) for r in replicas))


def shared(replica: Middleman) -> dict[str, Any]:
    found: dict[str, Any] = replica.status()["shared"]
    return found


def slow(model: str, seconds: float, words: tuple[str, ...] = ("word",)) -> Any:
    answer = chat({"model": model}, words)
    answer.delay = seconds
    return answer


@contextmanager
def load(
    replica: Middleman, model: str, clients: int, job: str = "job-1", path: str = CHAT
) -> Iterator[list[Reply]]:
    """Requests one after the other by several clients, until the block ends; all that they got."""
    token, ended = replica.token(job), threading.Event()
    replies: list[Reply] = []
    failed: list[Exception] = []
    url = replica.url

    def work() -> None:
        while not ended.is_set():
            try:
                replies.append(ask(url, path, token, {"model": model}))
            except (OSError, EOFError) as ex:
                failed.append(ex)
                return

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield replies
    finally:
        ended.set()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    assert failed == []


def limits(model: str, *replicas: Middleman) -> list[int]:
    return [replica.lane(model).get("limit", 0) for replica in replicas]


def test_together_they_never_pass_the_ceiling_and_use_all_of_it(
    both: tuple[Middleman, Middleman], provider: Provider, model: str
) -> None:
    a, b = both
    provider.limit = Limit(in_flight=MOST)
    provider.on(slow(model, 0.05), always=True)
    with load(a, model, 12) as first:
        until("one alone has nearly all", lambda: limits(model, a) == [MOST - 1])
        with load(b, model, 12) as second:
            until("they have the same", lambda: limits(model, a, b) == [MOST // 2] * 2)
            until("much was asked", lambda: len(second) > 150)
        until("one alone has nearly all again", lambda: limits(model, a) == [MOST - 1])
    assert {reply.status for reply in first + second} == {200}
    assert provider.limit.refused == 0
    assert provider.limit.most_open == MOST


def test_a_job_with_few_requests_on_one_is_not_starved_by_many_on_the_other(
    both: tuple[Middleman, Middleman], provider: Provider, model: str
) -> None:
    a, b = both
    provider.on(slow(model, 0.05), always=True)
    with load(a, model, 24, "job-large"), load(b, model, 3, "job-small"):
        until("each of the few has a place", lambda: limits(model, a, b) == [MOST - 3, 3])


def test_a_budget_that_both_use_up_stops_both(
    both: tuple[Middleman, Middleman], provider: Provider, model: str
) -> None:
    """Rounds of requests on both; what each costs is told before the next one."""
    provider.on(slow(model, 0.05), always=True)
    cost = 12 + 1  # tokens of one answer
    tokens = [replica.token("job-budget", budget=Budget(tokens=20 * cost)) for replica in both]
    rounds: list[list[Reply]] = []
    while not rounds or any(reply.status == 200 for reply in rounds[-1]):
        replies: list[Reply] = []
        threads = [
            threading.Thread(
                target=lambda r, t, said: said.append(ask(r.url, CHAT, t, {"model": model})),
                args=(replica, token, replies),
            )
            for replica, token in zip(both, tokens, strict=True)
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        rounds.append(replies)
        time.sleep(0.15)
    allowed = [reply for replies in rounds for reply in replies if reply.status == 200]
    assert 20 <= len(allowed) < 20 + 6
    assert {reply.error_type for reply in rounds[-1]} == {"hawk_budget_exhausted"}
    for replica, token in zip(both, tokens, strict=True):
        account = ask(replica.url, "/job", token).json()
        assert (account["requests"], account["tokens"]) == (len(allowed), len(allowed) * cost)


def test_revoked_on_one_is_over_on_the_other_at_once(
    both: tuple[Middleman, Middleman], provider: Provider, model: str
) -> None:
    a, b = both
    token = b.token("job-revoked")
    provider.on(chat({"model": model, "stream": True}, ("word ",) * 200, pause=0.05), model=model)
    cut: list[tuple[float, Reply]] = []

    def stream() -> None:
        reply = ask(b.url, CHAT, token, {"model": model, "stream": True})
        cut.append((time.monotonic(), reply))

    thread = threading.Thread(target=stream)
    thread.start()
    until("it streams", lambda: [r for r in b.status()["requests"] if r["phase"] == "streaming"])
    at = time.monotonic()
    a.admin("/admin/jobs/job-revoked/revoke", {})
    thread.join(10)
    ended, reply = cut[0]
    assert not reply.complete
    assert ended - at < 2.0  # the stream has 10 s to go; how fast it is, the benchmark says
    assert ask(b.url, CHAT, token, {"model": model}).error_type == "hawk_token_revoked"


def test_keys_that_a_job_brought_are_good_on_both_and_nobody_can_read_them(
    both: tuple[Middleman, Middleman], database: Database, provider: Provider, model: str
) -> None:
    a, b = both
    token, secret = a.token("job-keys"), "sk-of-the-job-55d1"
    path, body = "/brought/v1/chat/completions", {"model": model}
    assert ask(b.url, path, token, body).error_type == "hawk_no_key"
    assert ask(a.url, "/job/keys", token, {"BROUGHT_API_KEY": secret}, method="PUT").status == 200
    until("the other has it, too", lambda: ask(b.url, path, token, body).status == 200)
    assert dict(provider.received[-1].headers)["authorization"] == f"Bearer {secret}"
    rows = database.dump()
    assert "job-keys" in rows
    assert secret not in rows
    b.admin("/admin/jobs/job-keys/revoke", {})
    until("the row is gone", lambda: "eyJ" not in database.dump())


def test_a_pause_that_the_provider_asks_one_for_is_kept_by_the_other(
    both: tuple[Middleman, Middleman], provider: Provider, model: str
) -> None:
    a, b = both
    assert b.ask(CHAT, {"model": model}).status == 200
    provider.on(error(429, "rate_limit_error", "later", [("Retry-After", "20")]), model=model)
    assert a.ask(CHAT, {"model": model}).status == 429
    until("the other pauses", lambda: b.lane(model)["paused_why"] == "retry_after")


def test_an_adaptive_limit_is_learnt_together(
    both: tuple[Middleman, Middleman], provider: Provider, model: str
) -> None:
    """With four requests at a time a replica alone would never climb much above four."""
    a, b = both
    provider.on(slow(model, 0.15), always=True)
    path = "/adaptive/v1/chat/completions"
    with load(a, model, 24, path=path):
        until("one has found what the provider bears", lambda: limits(model, a)[0] >= 12)
    with load(b, model, 4, path=path):
        until("the other knows, too", lambda: limits(model, b)[0] >= 10, timeout=20)


def test_replicas_with_other_signing_keys_are_refused(both: tuple[Middleman, Middleman], make: Make) -> None:
    stranger = make(key="f" * 64)
    with pytest.raises(AssertionError, match="exited with 2") as told:
        stranger.start()
    assert "has another signing key" in str(told.value)
    assert "HAWK_MIDDLEMAN_KEY_FILE" in str(told.value)
    together(*both)


async def test_a_database_that_is_not_there_is_told_at_the_start() -> None:
    with pytest.raises(ServerUnavailableError) as told:
        await Sharing("postgresql://nobody:sesame@127.0.0.1:1/hawk", KEY.encode()).start()
    assert "--database-url" in str(told.value.remedy)
    assert "sesame" not in told.value.render()


def test_the_database_goes_and_comes_back_under_load(
    both: tuple[Middleman, Middleman], database: Database, provider: Provider, model: str
) -> None:
    a, b = both
    provider.limit = Limit(in_flight=MOST)
    provider.on(slow(model, 0.05), always=True)
    job = f"job-{model}"
    with load(a, model, 12, job) as first, load(b, model, 12, job) as second:
        until("they have the same", lambda: limits(model, a, b) == [MOST // 2] * 2)
        database.stop()
        try:
            until("both say so", lambda: all(shared(r)["problem"] for r in both))
            assert "the database is away" in shared(a)["problem"].lower()
            held = limits(model, a, b)  # one that was being handed over when the database went is nobody's
            assert min(held) >= 1
            assert sum(held) <= MOST
            before = len(first), len(second)
            until("they go on", lambda: len(first) > before[0] + 15 and len(second) > before[1] + 15)
            assert limits(model, a, b) == held
            provider.limit.in_flight = MOST + 1
            assert a.ask(CHAT, {"model": "unknown-so-far"}, token=a.token(job)).status == 200
            provider.limit.in_flight = MOST
        finally:
            database.start()
        until("they are together again", lambda: not any(shared(r)["problem"] for r in both))
        together(a, b)
        before = len(first), len(second)
        until("they go on", lambda: len(first) > before[0] + 15 and len(second) > before[1] + 15)
    replies = first + second
    assert {reply.status for reply in replies} == {200}
    assert provider.limit.refused == 0
    until(
        "what was spent is known to both",
        lambda: [ask(r.url, "/job", r.token(job)).json()["requests"] for r in both] == [len(replies) + 1] * 2,
    )


def test_one_is_killed_and_the_other_takes_its_share(
    both: tuple[Middleman, Middleman], provider: Provider, model: str
) -> None:
    """The last of these tests: it ends one of them."""
    a, b = both
    provider.on(slow(model, 0.05), always=True)
    with load(a, model, 12):
        token = b.token()
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                try:
                    ask(b.url, CHAT, token, {"model": model})
                except (OSError, EOFError):
                    return

        threads = [threading.Thread(target=work) for _ in range(12)]
        for thread in threads:
            thread.start()
        until("they have the same", lambda: limits(model, a, b) == [MOST // 2] * 2)
        b.kill()
        stop.set()
        until("all is its own", lambda: limits(model, a) == [MOST], timeout=10)
        assert shared(a)["replicas"] == 1
    for thread in threads:
        thread.join(10)
