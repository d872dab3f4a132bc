"""The middleman itself goes: reload, SIGTERM, kill -9, under load."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import openai
import pytest
import yaml

from hawk.core.traffic.ledger import Budget
from tests.middleman.provider import Provider
from tests.middleman.provider_answers import chat
from tests.middleman.raw_client import Reply, ask, request_bytes, wire
from tests.middleman.running import Middleman, settings
from tests.middleman.test_bytes import CHAT, body_of
from tests.system import until

ASKED = {"model": "m", "stream": True}


@contextmanager
def load(middleman: Middleman, workers: int = 8) -> Iterator[list[Reply | OSError | EOFError]]:
    """Streams one after the other by several clients, until the block ends."""
    ended = threading.Event()
    replies: list[Reply | OSError | EOFError] = []
    token, url = middleman.token("job-load"), middleman.url

    def work() -> None:
        while not ended.is_set():
            try:
                replies.append(ask(url, CHAT, token, ASKED))
            except (OSError, EOFError) as ex:
                replies.append(ex)
                time.sleep(0.02)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        yield replies
    finally:
        ended.set()
        for thread in threads:
            thread.join(30)


def more(replies: list[Reply | OSError | EOFError]) -> None:
    """Wait until some more have been served."""
    before = len(replies)
    until("more is served", lambda: len(replies) > before + 5)


def test_reload_under_load_drops_nothing(another: Callable[..., Middleman], provider: Provider) -> None:
    middleman = another()
    middleman.start()
    with load(middleman) as replies:
        for i in range(6):
            more(replies)
            if i % 2:
                middleman.configure({"providers": {"openai": {"base_url": 7}}})
                broken = ask(middleman.url, "/admin/reload", middleman.person(), {})
                assert 400 <= broken.status < 500
                assert b"middleman.yaml" in broken.body
            else:
                limits = {"limits": {"most": 4 + i, "start": 1}}
                middleman.configure(settings(provider.url, defaults=limits))
                assert middleman.admin("/admin/reload", {})["providers"] >= 4
                more(replies)
                assert middleman.lane("m")["most"] == 4 + i
    assert {reply.status if isinstance(reply, Reply) else repr(reply) for reply in replies} == {200}
    assert all(isinstance(reply, Reply) and reply.complete for reply in replies)


def test_sigterm_lets_streams_finish_and_turns_new_requests_away(
    another: Callable[..., Middleman], provider: Provider
) -> None:
    middleman = another()
    middleman.start()
    slow = chat(ASKED, tuple(f"word{i} " for i in range(12)), pause=0.1)
    provider.on(slow, always=True)
    streams: list[Reply] = []
    token = middleman.token()
    threads = [
        threading.Thread(target=lambda: streams.append(ask(middleman.url, CHAT, token, ASKED)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    until(
        "all stream",
        lambda: len([r for r in middleman.status()["requests"] if r["phase"] == "streaming"]) == 8,
    )
    with wire(middleman.url) as idle:  # a connection that was there before
        assert middleman.process is not None
        middleman.process.terminate()
        until("it drains", lambda: ask(middleman.url, "/health/ready", None).status == 503)
        refused = ask(middleman.url, CHAT, token, ASKED)
        assert (refused.status, refused.error_type) == (503, "hawk_draining")
        assert refused.header("retry-after")
        idle.send(request_bytes("POST", CHAT, [("x-api-key", token)], msgspec.json.encode(ASKED)))
        assert idle.reply().error_type == "hawk_draining"
        assert ask(middleman.url, "/health/live", None).status == 200
    for thread in threads:
        thread.join(20)
    assert [(r.status, r.complete, r.body) for r in streams] == [(200, True, body_of(slow))] * 8
    assert middleman.process.wait(10) == 0


def test_after_kill_9_the_next_one_takes_over_the_port_and_everything_it_promised(
    another: Callable[..., Middleman], provider: Provider
) -> None:
    middleman = another()
    middleman.start()
    port = middleman.port
    revoked, spent = middleman.token("job-stopped"), middleman.token("job-spent", budget=Budget(tokens=20))
    assert middleman.ask(CHAT, ASKED, token=revoked).status == 200
    middleman.admin("/admin/jobs/job-stopped/revoke", {})
    stream = {**ASKED, "stream_options": {"include_usage": True}}
    assert middleman.ask(CHAT, stream, token=spent).status == 200
    until("what it spent is noted", lambda: middleman.spans("job-spent"))
    sdk = openai.OpenAI(
        base_url=f"{middleman.url}/openai/v1", api_key=middleman.token("job-sdk"), max_retries=0, timeout=10
    )
    answer = chat({"model": "m"})
    answer.delay = 0.3
    provider.on(answer, always=True)
    said: list[str | None] = []

    def once() -> str | None:
        try:
            answer = sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        except (openai.APIConnectionError, openai.InternalServerError):
            return None
        return answer.choices[0].message.content

    def work() -> None:
        for _ in range(3):
            said.append(until("it is answered", once))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    until("they are under way", lambda: len(provider.received) >= 6)
    middleman.kill()
    until("the provider notices", lambda: provider.connected == 0)
    middleman.start(port)
    for thread in threads:
        thread.join(60)
    assert len(said) == 12
    assert None not in said
    assert middleman.ask(CHAT, ASKED, token=revoked).error_type == "hawk_token_revoked"
    assert middleman.ask(CHAT, ASKED, token=spent).error_type == "hawk_budget_exhausted"


def test_there_is_one_of_a_home(middleman: Middleman, provider: Provider) -> None:
    first = middleman.record()
    config = yaml.safe_load((middleman.home / "middleman.yaml").read_text())
    with pytest.raises(AssertionError, match="exited with 0"):
        Middleman(middleman.home, config).start()
    assert middleman.record() == first
    assert middleman.ask(CHAT, ASKED).status == 200


def test_a_wrong_configuration_is_told_with_file_and_line(another: Callable[..., Middleman]) -> None:
    middleman = another({"providers": {"openai": {"base_url": "ftp://x"}}})
    with pytest.raises(AssertionError) as told:
        middleman.start()
    assert "middleman.yaml" in str(told.value)
    assert "Traceback" not in str(told.value)
