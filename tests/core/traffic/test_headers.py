"""Rate-limit headers, as providers send them and as they should not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawk.core.traffic.headers import Allowance, requests_left, retry_after, seconds, tokens_left
from hawk.core.traffic.lane import Lane, Limits, Outcome, Reason, Ticket


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("120ms", 0.12),
        ("1h2m3.5s", 3723.5),
        ("7.66s", 7.66),
        ("12", 12.0),
        ("", None),
        ("soon", None),
        ("1s x", None),
        ("-5", None),
        ("nan", None),
        ("inf", None),
        ("9" * 99 + "s", None),
    ],
)
def test_durations(text: str, value: float | None) -> None:
    assert seconds(text) == (None if value is None else pytest.approx(value))


def test_openai() -> None:
    headers = {
        "x-ratelimit-limit-requests": "500",
        "x-ratelimit-remaining-requests": "499",
        "x-ratelimit-reset-requests": "120ms",
        "x-ratelimit-limit-tokens": "30000",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "6m0s",
    }
    assert requests_left(headers) == Allowance(500, 499, 0.12)
    assert tokens_left(headers) == [Allowance(30000, 0, 360)]


def test_anthropic_times_are_read_against_the_answers_own_date() -> None:
    headers = {
        "date": "Mon, 30 Nov 2026 10:00:00 GMT",
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2026-11-30T10:00:12Z",
        "anthropic-ratelimit-input-tokens-limit": "1000",
        "anthropic-ratelimit-input-tokens-remaining": "10",
        "anthropic-ratelimit-input-tokens-reset": "2026-11-30T10:00:30Z",
    }
    assert requests_left(headers) == Allowance(50, 0, 12)
    assert tokens_left(headers) == [Allowance(1000, 10, 30)]


def test_retry_after() -> None:
    assert retry_after({"retry-after": "7"}) == 7
    assert retry_after({"retry-after": "7", "retry-after-ms": "7500"}) == 7.5
    assert retry_after({}, 3.0) == 3
    assert (
        retry_after({"retry-after": "Mon, 30 Nov 2026 10:00:09 GMT", "date": "Mon, 30 Nov 2026 10:00:00 GMT"})
        == 9
    )
    assert retry_after({"retry-after": "whenever"}) is None
    assert retry_after({"retry-after": "-4"}) is None


hostile = st.text(max_size=60) | st.sampled_from(
    ["1e400", "-1", "nan", "0", "١", "1" * 50, "6m0s", "2026-13-99T99:99:99Z"]
)
names = st.sampled_from(
    [
        "retry-after",
        "retry-after-ms",
        "date",
        "x-ratelimit-limit-requests",
        "x-ratelimit-remaining-requests",
        "x-ratelimit-reset-requests",
        "x-ratelimit-limit-tokens",
        "x-ratelimit-remaining-tokens",
        "x-ratelimit-reset-tokens",
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    ]
)


@given(st.lists(st.tuples(st.sampled_from([200, 429, 503, 0]), st.dictionaries(names, hostile)), max_size=8))
def test_no_header_stops_a_lane_for_good(answers: list[tuple[int, dict[str, str]]]) -> None:
    lane, now = Lane(Limits(), 0.0), 0.0
    for status, headers in answers:
        ticket = Ticket("a")
        if not lane.ask(ticket, now):
            wake = lane.wake_at(now)
            assert wake is not None
            assert now <= wake <= now + 3700
            now = wake
            if not lane.grant(now):
                lane.withdraw(ticket, now)
                continue
        now += 1.5
        lane.done(ticket, Outcome(status, 0.1, headers=headers), now)
    last, asked = Ticket("a"), now
    waits = not lane.ask(last, now)
    while waits:
        wake = lane.wake_at(now)
        assert wake is not None
        now = max(now + 0.01, wake)
        assert now <= asked + 2 * 3700
        waits = not lane.grant(now)


def test_a_lane_waits_for_tokens_that_the_provider_counts() -> None:
    lane = Lane(Limits(), 0.0)
    first, second = Ticket("a"), Ticket("a")
    lane.ask(first, 0.0)
    headers = {
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "60s",
    }
    lane.done(first, Outcome(200, 0.5, tokens=100), 1.0)
    lane.ask(Ticket("a"), 2.5)
    third = Ticket("a")
    lane.ask(third, 2.5)
    lane.done(third, Outcome(200, 0.5, tokens=100, headers=headers), 3.0)
    assert not lane.ask(second, 3.0)
    assert lane.why(second, 3.0).reason is Reason.TOKENS_PER_MINUTE
    assert lane.wake_at(3.0) == pytest.approx(9.0)
