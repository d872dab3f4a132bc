"""Recording and replaying through the real process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from hawk.middleman.cassette import lines
from hawk.middleman.tokens import Cassette
from tests.middleman.provider import Provider
from tests.middleman.provider_answers import JSON, chat
from tests.middleman.provider_faults import FAULTS, rate_limited
from tests.middleman.provider_raw import Answer, Headers, Received
from tests.middleman.raw_client import Reply
from tests.middleman.running import KEYS, Middleman
from tests.middleman.test_bytes import CHAT
from tests.system import until

IDENTITY: Headers = [("X-Hawk-Task", "t"), ("X-Hawk-Sample", "s"), ("X-Hawk-Attempt", "1")]


class Tape:
    """A cassette, and jobs that record onto it or replay from it."""

    def __init__(self, middleman: Middleman, path: Path) -> None:
        self.middleman, self.path, self.jobs = middleman, path, 0

    def job(self, mode: str, speed: float = 0.0) -> str:
        self.jobs += 1
        tape = Cassette(mode, str(self.path), speed)
        return self.middleman.token(f"{self.path.parent.name}-{self.jobs}", cassette=tape)

    def ask(self, token: str, model: str, identity: Headers = IDENTITY, **asked: Any) -> Reply:
        return self.middleman.ask(CHAT, {"model": model, **asked}, token=token, headers=identity)

    def recorded(self, count: int) -> None:
        until("it is written", lambda: self.path.exists() and len(list(lines(self.path))) == count)


@pytest.fixture
def tape(middleman: Middleman, tmp_path: Path) -> Tape:
    return Tape(middleman, tmp_path / "cassette.jsonl")


def test_everything_is_replayed_as_it_was_in_its_order(tape: Tape, provider: Provider, model: str) -> None:
    provider.drop_connections()  # one that was kept from before may be closed at any time: then it is asked again
    until("nobody is connected", lambda: provider.connected == 0)
    provider.on(
        rate_limited("0.01"),
        FAULTS["half_then_closed"](),
        FAULTS["closed_at_once"](),
        FAULTS["half_then_error"](),
    )
    recording = tape.job("record")
    live = [tape.ask(recording, model, stream=True) for _ in range(5)]
    tape.recorded(5)
    asked = len(provider.received)
    replaying = tape.job("replay")
    for i, before in enumerate(live):
        if i == 2:  # no answer was there to be recorded
            with pytest.raises(EOFError):
                tape.ask(replaying, model, stream=True)
            continue
        again = tape.ask(replaying, model, stream=True)
        assert (again.status, again.body, again.complete) == (before.status, before.body, before.complete), i
        assert not before.chunks or again.chunks == before.chunks
        assert again.header("content-type") == before.header("content-type")
        assert again.header("retry-after") == before.header("retry-after")
    miss = tape.ask(replaying, model, stream=True)
    assert (miss.status, miss.error_type) == (404, "hawk_replay_miss")
    assert "recorded 5 times" in miss.json()["error"]["message"]
    assert len(provider.received) == asked, "a replay asks nobody"


def test_a_miss_shows_what_differs(tape: Tape, provider: Provider, model: str) -> None:
    tape.ask(tape.job("record"), model, temperature=0)
    tape.recorded(1)
    miss = tape.ask(tape.job("replay"), model, temperature=1)
    assert (miss.status, miss.error_type, miss.header("x-should-retry")) == (404, "hawk_replay_miss", "false")
    assert b"sample s" in miss.body
    assert b'-  \\"temperature\\": 0' in miss.body
    assert b'+  \\"temperature\\": 1' in miss.body
    other = [("X-Hawk-Task", "t"), ("X-Hawk-Sample", "s"), ("X-Hawk-Attempt", "2")]
    assert tape.ask(tape.job("replay"), model, other, temperature=0).error_type == "hawk_replay_miss"


def test_pauses_are_kept_when_asked_for(tape: Tape, provider: Provider, model: str) -> None:
    provider.on(chat({"model": model, "stream": True}, ("a", "b", "c"), pause=0.15))
    tape.ask(tape.job("record"), model, stream=True)
    tape.recorded(1)
    began = time.monotonic()
    tape.ask(tape.job("replay", 1.0), model, stream=True)
    assert time.monotonic() - began > 0.6


def test_no_credential_is_recorded_even_if_the_provider_repeats_it(
    tape: Tape, provider: Provider, model: str
) -> None:
    def gossip(request: Received) -> Answer:
        return Answer([request.head, request.body], headers=[*JSON, ("Set-Cookie", "session=secret")])

    provider.on(gossip, gossip)
    token = tape.job("record")
    tape.ask(token, model, note=token)
    tape.middleman.ask(f"/gemini/v1beta/models/m:generateContent?key={token}", {}, token=token)
    tape.recorded(2)
    text = tape.path.read_text()
    for secret in (*KEYS.values(), token, "session=secret"):
        assert secret not in text


def test_a_cassette_that_can_not_be_written_costs_no_request(
    tape: Tape, provider: Provider, model: str
) -> None:
    tape.path = tape.path / "not" / "there"
    token = tape.job("record")
    assert [tape.ask(token, model).status for _ in range(3)] == [200, 200, 200]


def test_a_cassette_that_is_not_there_is_a_miss(tape: Tape, provider: Provider, model: str) -> None:
    miss = tape.ask(tape.job("replay"), model)
    assert (miss.status, miss.error_type) == (404, "hawk_replay_miss")
    assert str(tape.path) in miss.json()["error"]["message"]
