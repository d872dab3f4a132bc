"""What the middleman lets others know of requests: a job's own status, what is wrong with answers, whether a provider lives."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from hawk.config.providers import PROVIDERS, Kind
from hawk.config.providers import Provider as Known
from hawk.core.traffic.breaker import BreakerSettings
from hawk.core.traffic.lane import Limits
from hawk.middleman import liveness
from hawk.middleman.admission import Turnstile
from hawk.middleman.body import read_body
from hawk.middleman.exchange import Exchange, Exchanges, Phase
from hawk.middleman.pool import Pool
from hawk.middleman.routes import Deadlines, Route
from hawk.middleman.tokens import mint, signing_key
from tests.middleman.provider import Provider
from tests.middleman.provider_answers import body, chat, messages
from tests.middleman.provider_faults import (
    black_hole,
    empty,
    empty_output,
    half_then_silence,
    malformed,
    unauthorized,
)
from tests.middleman.provider_raw import Answer
from tests.middleman.raw_client import ask
from tests.middleman.running import Middleman
from tests.middleman.test_bytes import CHAT
from tests.system import until


@contextmanager
def asking(
    middleman: Middleman, token: str, *requests: tuple[str, dict[str, Any], dict[str, str]]
) -> Iterator[None]:
    """Requests that are open meanwhile, and end with it."""

    def one(path: str, asked: dict[str, Any], headers: dict[str, str]) -> None:
        ask(middleman.url, path, token, asked, headers=list(headers.items()))

    threads = [threading.Thread(target=one, args=request, daemon=True) for request in requests]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ask(middleman.url, "/job", token, method="DELETE")
        for thread in threads:
            thread.join(10)


def test_a_job_sees_its_lanes_and_open_requests_and_nobody_elses(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    for fault, path in ((black_hole(), "/single"), (half_then_silence(), "/openai")):
        provider.on(fault, model=f"{model}{path.replace('/', '-')}", always=True)
    mine, other = middleman.token("status-1"), middleman.token("status-2")
    stranger = mint(signing_key(middleman.home), job="status-3", user="somebody else")
    who = {"x-hawk-sample-uuid": "u1", "x-hawk-task": "t", "x-hawk-sample": "s", "x-hawk-attempt": "2"}
    single, openai = f"{model}-single", f"{model}-openai"
    thinking = {"model": single, "reasoning_effort": "high", "max_completion_tokens": 77}
    path = "/single/v1/chat/completions"
    with asking(middleman, other, (path, {"model": single}, {})):
        until("it holds the place", lambda: middleman.lane(single).get("in_flight") == 1)
        with (
            asking(middleman, mine, (path, thinking, who), (CHAT, {"model": openai, "stream": True}, {})),
            asking(middleman, stranger, (path, {"model": single}, {})),
        ):

            def status(token: str) -> dict[str, Any]:
                found: dict[str, Any] = ask(middleman.url, "/job/status", token).json()
                return found

            def there() -> bool:
                phases = {r["phase"] for r in status(mine)["requests"]}
                return phases == {"queued", "streaming"} and middleman.lane(single).get("waiting") == 2

            until("both are where they get stuck", there)
            found = status(mine)
            assert {lane["model"] for lane in found["lanes"]} == {single, openai}
            lane = next(lane for lane in found["lanes"] if lane["model"] == single)
            held = {(h["job"], h["mine"]): (h["in_flight"], h["waiting"]) for h in lane["by_job"]}
            assert held == {
                ("status-1", True): (0, 1),
                ("status-2", False): (1, 0),
                ("another job", False): (0, 1),
            }
            assert lane["url"] == f"{provider.url}/v1"
            queued = next(r for r in found["requests"] if r["phase"] == "queued")
            assert (queued["sample_uuid"], queued["task"], queued["attempt"]) == ("u1", "t", "2")
            assert (queued["reasoning"], queued["most_tokens"], queued["stream"]) == (True, 77, False)
            assert queued["place"] in (1, 2)
            assert queued["sent_s"] is None
            streaming = next(r for r in found["requests"] if r["phase"] == "streaming")
            assert streaming["stream"]
            assert streaming["bytes_out"] > 0
            assert 0 <= streaming["quiet_s"] <= streaming["sent_s"]
            quiet = streaming["quiet_s"]
            until("its silence grows", lambda: _streaming(status(mine))["quiet_s"] > quiet)
            assert _streaming(status(mine))["deadline_s"] < 300
    assert ask(middleman.url, "/job/status", middleman.person()).error_type == "hawk_not_permitted"


def _streaming(status: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(r for r in status["requests"] if r["phase"] == "streaming")
    return found


def test_a_refusal_leaves_a_span_wherever_the_job_is_known(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    expired = mint(signing_key(middleman.home), job="refused", user="me", now=time.time() - 7200, lifetime=60)
    middleman.token("refused")
    asked = {"model": model}
    assert middleman.ask(CHAT, asked, token=expired).error_type == "hawk_token_expired"
    narrow = middleman.token("refused", models=("openai/none",))
    assert middleman.ask(CHAT, asked, token=narrow).error_type == "hawk_model_not_permitted"
    token = middleman.token("refused")
    assert middleman.ask("/keyless/v1/chat/completions", asked, token=token).error_type == "hawk_no_key"
    errors = ["hawk_token_expired", "hawk_model_not_permitted", "hawk_no_key", "hawk_token_revoked"]
    ask(middleman.url, "/job", token, method="DELETE")
    assert [span.get("error") for span in middleman.spans("refused")] == errors[
        :3
    ]  # at once: the job has ended
    assert middleman.ask(CHAT, asked, token=token).error_type == "hawk_token_revoked"
    until("all are noted", lambda: [s.get("error") for s in middleman.spans("refused")] == errors)
    assert all(span["said"] for span in middleman.spans("refused"))
    assert not provider.received


def test_what_is_wrong_with_an_answer_is_noted_and_nothing_where_nothing_is(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    filtered = chat({"model": model})
    filtered.parts = [
        part.replace(b'"stop"', b'"content_filter"') for part in filtered.parts if isinstance(part, bytes)
    ]
    declined = messages({"model": model, "stream": True})
    declined.parts = [
        p.replace(b'"end_turn"', b'"refusal"') if isinstance(p, bytes) else p for p in declined.parts
    ]
    page = Answer([b"<html>please log in</html>"], headers=[("Content-Type", "text/html")])
    events = Answer([b"this is no event\n\n"], headers=[("Content-Type", "text/event-stream")])
    tools = {"tools": [{"type": "function", "function": {"name": "weather", "parameters": {}}}]}
    claude = "/anthropic/v1/messages"
    cases: list[tuple[str, str, Answer | None, dict[str, Any]]] = [
        (CHAT, "malformed", malformed(), {}),
        (CHAT, "malformed", empty(), {}),
        (CHAT, "malformed", page, {}),
        (CHAT, "malformed", events, {"stream": True}),
        (CHAT, "malformed", body({"error": {"message": "overloaded"}}), {}),
        (CHAT, "empty", empty_output(), {}),
        (CHAT, "empty", chat({"model": model, "stream": True}, words=()), {"stream": True}),
        (CHAT, "refused", filtered, {}),
        (claude, "refused", declined, {"stream": True, "max_tokens": 5}),
        (CHAT, "", None, {}),
        (CHAT, "", None, {"stream": True}),
        (CHAT, "", None, tools),
        (claude, "", None, {"max_tokens": 5}),
        (claude, "", None, {"stream": True, "max_tokens": 5}),
        ("/openai/v1/responses", "", None, {"input": "x"}),
        ("/openai/v1/embeddings", "", None, {"input": "x"}),
        ("/gemini/v1beta/models/g:generateContent", "", None, {"contents": []}),
        (
            "/openai/v1/files/f/content",
            "",
            Answer([b"\x00\x01"], headers=[("Content-Type", "audio/mp3")]),
            {},
        ),
    ]
    token = middleman.token("noted")
    for path, _, answer, more in cases:
        if answer is not None:
            provider.on(answer)
        assert middleman.ask(path, {"model": model, **more}, token=token).status == 200
    until("all are noted", lambda: len(middleman.spans("noted")) == len(cases))
    spans = middleman.spans("noted")
    assert [(span["path"], span.get("note", "")) for span in spans] == [
        (path.partition("/v1")[1] + path.partition("/v1")[2], note) for path, note, _, _ in cases
    ]
    assert spans[2]["said"] == "<html>please log in</html>"
    assert not any(span.get("error") for span in spans)


def route(known: Known, url: str) -> Route:
    return Route(known, "a", "sk-1", url, Deadlines(), Limits(), BreakerSettings(), None)


def test_a_free_question_tells_whether_a_provider_lives(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "PATIENCE", 0.4)

    async def question(name: str, base: str) -> liveness.Sign:
        return await liveness.ask(route(PROVIDERS[name], base), Pool())

    bases = {
        "openai": f"{provider.url}/v1",
        "anthropic": provider.url,
        "gemini": provider.url,
        "groq": provider.url,
    }
    for name, base in bases.items():
        sign = asyncio.run(question(name, base))
        assert (sign.answered, sign.status) == (True, 200), name
    assert [r.path for r in provider.received] == [
        "/v1/models",
        "/v1/models",
        "/v1beta/models",
        "/openai/v1/models",
    ]
    provider.on(unauthorized())
    assert asyncio.run(question("openai", bases["openai"]))[1:4:2] == (True, 401)
    provider.on(black_hole())
    silent = asyncio.run(question("openai", bases["openai"]))
    assert (silent.answered, silent.status, silent.why) == (False, None, "no answer within 0.4 s")
    gone = asyncio.run(question("openai", "http://127.0.0.1:1/v1"))
    assert (gone.answered, "127.0.0.1:1" in gone.why) == (False, True)


def test_only_lanes_in_which_something_is_silent_are_asked_about(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "SILENT", 5.0)

    async def look() -> dict[str, bool]:
        loop = asyncio.get_running_loop()
        now = loop.time()
        exchanges = Exchanges()
        house = SimpleNamespace(exchanges=exchanges, loop=loop, forbidden=None)
        cases = {
            "silent": (Phase.WAITING, 6.0, False),
            "young": (Phase.WAITING, 2.0, False),
            "replayed": (Phase.WAITING, 60.0, True),
            "stalled": (Phase.STREAMING, 7.0, False),
            "coming": (Phase.STREAMING, 1.0, False),
        }
        lanes: dict[str, Turnstile] = {}
        for name, (phase, quiet, replayed) in cases.items():
            where = route(PROVIDERS["openai"], f"{provider.url}/v1")
            for number in range(3):
                x = Exchange(f"{name}{number}", now=now - 100, wall=0)
                x.phase, x.sent, x.route, x.replayed = (
                    phase,
                    now - (100 if phase is Phase.STREAMING else quiet),
                    where,
                    replayed,
                )
                x.due = now - quiet + where.deadlines.idle
                lanes[name] = x.lane = lanes.get(name) or Turnstile(("openai", "a", name), None, None, loop)  # type: ignore[arg-type]
                exchanges.add(x)
        looking = liveness.Liveness(house)  # type: ignore[arg-type]
        for _ in range(3):
            looking._look()
            await asyncio.gather(*looking._asking)
        return {name: lane.sign is not None for name, lane in lanes.items()}

    assert asyncio.run(look()) == {
        "silent": True,
        "young": False,
        "replayed": False,
        "stalled": True,
        "coming": False,
    }
    assert len(provider.received) == 2, "one question a lane, however many are silent"


@pytest.mark.parametrize(
    ("kind", "asked", "most", "reasoning"),
    [
        (Kind.OPENAI, b'{"model": "m", "reasoning_effort": "high", "max_tokens": 9}', 9, True),
        (Kind.OPENAI, b'{"model": "m", "reasoning": {"summary": null, "effort": "low"}}', 0, True),
        (Kind.OPENAI, b'{"model": "m", "reasoning": {"effort": "none"}, "max_output_tokens": 3}', 3, False),
        (Kind.OPENAI, b'{"model": "m", "reasoning_effort": null, "reasoning": 5, "stream": true}', 0, True),
        (Kind.ANTHROPIC, b'{"model": "m", "thinking": {"type": "enabled", "budget_tokens": 9}}', 0, True),
        (Kind.ANTHROPIC, b'{"model": "m", "thinking": {"type": "disabled"}}', 0, False),
        (
            Kind.GEMINI,
            b'{"generationConfig": {"maxOutputTokens": 7, "thinkingConfig": {"thinkingBudget": 8}}}',
            7,
            True,
        ),
        (Kind.GEMINI, b'{"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}', 0, False),
        (Kind.GEMINI, b'{"generationConfig": "nonsense"}', 0, False),
    ],
)
def test_what_is_asked_for_is_read_off_the_body(kind: Kind, asked: bytes, most: int, reasoning: bool) -> None:
    found = read_body(kind, "/v1beta/models/m:generateContent", asked)
    assert (found.most, found.reasoning) == (most, reasoning)
