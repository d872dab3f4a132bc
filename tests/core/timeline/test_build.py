"""One attempt's records become one tree, in which every moment counts once."""

from __future__ import annotations

import pytest

from hawk.core.timeline.build import Sources, answer
from hawk.core.timeline.model import Category, call_id
from hawk.core.timeline.records import Blocked, EarlierTry, Ongoing, Request, WorkerNote
from tests.core.timeline.rows import (
    BEGIN,
    UUID,
    at,
    built,
    ended,
    event,
    named,
    parent,
    record,
    seconds,
    span,
    whole,
)


def test_a_finished_attempt_is_accounted_for_from_set_up_to_clean_up() -> None:
    found = built(record(whole(), over=10, has_sandbox=True))
    assert found.total_ms == pytest.approx(10_000)
    assert seconds(found) == {
        "setup": 1.1,  # with what leads from the set-up to the agent
        "model": 3.6,
        "tool": 2.8,
        "scoring": 0.5,
        "other": 1.5,  # the workspace, and what comes after the scorers
        "unattributed": 0.5,
    }
    assert named(found, "start the sandbox").attributes["hawk.inferred"] is True
    assert {gap.after + " → " + gap.before: round(gap.total_ms) for gap in found.totals.gaps} == {
        "tool bash → model openai/m": 300,
        "model openai/m → tool bash": 200,
    }
    assert all(span.end_ms is not None for span in found.spans)


def test_a_tools_span_and_its_event_are_one_in_whatever_order_they_come() -> None:
    forth = built(record(whole(), over=10))
    events = whole()
    events[6], events[7] = events[7], events[6]  # as the realtime buffer has them
    back = built(record(events, over=10))
    for found in (forth, back):
        tool = named(found, "bash")
        assert (tool.category, tool.duration_ms) == (Category.TOOL, pytest.approx(2800))
        assert parent(found, tool).name == "react"
        command = next(s for s in found.spans if s.attributes.get("hawk.detail") == "ls")
        assert parent(found, command) is tool


def test_what_is_in_flight_is_open_and_lasts_until_now() -> None:
    events = [*whole()[:6], event("tool", 4.2, span_id="r", id="c1", function="bash", pending=True)]
    found = built(record(events), now=100)
    tool = named(found, "bash")
    assert tool.end_ms is None
    assert tool.duration_ms == pytest.approx(95_800)
    assert {span.name for span in found.spans if span.end_ms is None} == {"t/s/1", "solvers", "react", "bash"}
    assert seconds(found)["tool"] == 95.8


def test_requests_lie_below_the_call_that_made_them_by_trace_or_by_time() -> None:
    traced = Request(
        "r1", at(2), status=200, seconds=1.0, queued=0.4, upstream_status=200, parent_id=call_id("one")
    )
    untraced = Request(
        "r2", at(7.4), status=200, seconds=0.5, upstream_status=200, provider="openai", model="m"
    )
    refused = Request("r3", at(1.2), status=429, seconds=0.2, queued=0.2, error="budget_exceeded")
    found = built(record(whole(), over=10), requests=[traced, untraced, refused])
    first, second = sorted((s for s in found.spans if s.name == "openai/m"), key=lambda s: s.start_ms)
    assert first.span_id == call_id("one")
    queue = named(found, "queue")
    assert (queue.parent_id, queue.category) == (first.span_id, Category.MIDDLEMAN)
    assert named(found, "openai m").parent_id == second.span_id
    assert named(found, "refused: budget_exceeded").category is Category.MIDDLEMAN
    times = seconds(found)
    assert (times["middleman"], times["provider"], times["model"]) == (0.6, 1.1, 1.9)


def test_back_off_between_calls_is_a_wait_and_ends_the_call_that_failed() -> None:
    events = [
        span("s", "solvers", "solvers", 0),
        event("model", 1, span_id="s", model="openai/m", error="RateLimitError", retries=2),
    ]
    note = WorkerNote(
        "retry_wait", at(3), 30.0, sample_uuid=UUID, model="m", attempt=1, error="RateLimitError", status=429
    )
    found = built(record(events), notes=[note], now=13)
    wait, call = named(found, "retry wait (429 RateLimitError)"), named(found, "openai/m")
    assert (wait.end_ms, wait.duration_ms) == (None, pytest.approx(10_000))
    assert call.end_ms == pytest.approx(BEGIN + 3000)
    assert seconds(found) == {"model": 12.0, "unattributed": 1.0}
    later = built(
        record([*events, event("model", 33.5, 34, span_id="s", model="openai/m")]), notes=[note], now=34
    )
    assert named(later, "retry wait").duration_ms == pytest.approx(30_000)


def test_a_failed_call_of_which_nothing_else_is_known_ends_with_what_came_next() -> None:
    events = [
        span("s", "solvers", "solvers", 0),
        event("model", 1, span_id="s", model="openai/m", error="broken"),
        event("tool", 6, 7, span_id="s", id="c", function="bash"),
    ]
    found = built(record(events, over=8))
    assert named(found, "openai/m").duration_ms == pytest.approx(5000)


def test_a_blocked_loop_explains_what_nothing_else_does() -> None:
    stall = Blocked(at(1), at(9), "solver.py:7 solve", "t/s/1")
    events = [span("s", "solvers", "slow", 0), event("model", 0.5, 4, span_id="s", model="m"), ended("s", 10)]
    found = built(record(events, over=10), stalls=[stall, Blocked(at(-50), at(-40))])
    blocked = named(found, "event loop blocked by this attempt")
    assert (blocked.category, blocked.attributes["hawk.detail"]) == (Category.HEARTBEAT, "solver.py:7 solve")
    assert seconds(found) == {"heartbeat": 5.0, "model": 3.5, "unattributed": 1.5}


def test_earlier_tries_are_told_apart() -> None:
    earlier = EarlierTry(
        "RuntimeError('boom')", [event("model", 2, 3, span_id="gone", model="m", error="boom")]
    )
    note = WorkerNote("try", at(0), 4.0, sample_uuid=UUID, attempt=1, error="boom")
    events = [span("i", "init", "init", 5), ended("i", 6), span("s", "solvers", "solvers", 6), ended("s", 9)]
    found = built(record(events, over=9, earlier=[earlier]), notes=[note])
    first = named(found, "try 1")
    assert (first.duration_ms, first.attributes["error"]) == (pytest.approx(4000), "RuntimeError('boom')")
    assert parent(found, named(found, "m")) is first
    assert named(found, "wait to be tried again").duration_ms == pytest.approx(1000)
    assert found.total_ms == pytest.approx(9000)


def test_a_person_is_waited_for() -> None:
    found = built(record(whole()[:6]), now=20, ongoing=Ongoing("approval", at(5), "bash"))
    waits = named(found, "waits for approval")
    assert (waits.end_ms, waits.duration_ms, parent(found, waits).name) == (
        None,
        pytest.approx(15_000),
        "react",
    )


def test_an_approval_lasts_from_the_call_to_the_decision() -> None:
    events = [
        span("s", "solvers", "solvers", 0),
        event("tool", 1, 9, span_id="s", id="c1", function="bash"),
        event("approval", 6, span_id="s", call={"id": "c1"}, approver="human", decision="approve"),
    ]
    approval = named(built(record(events, over=9)), "approval by human: approve")
    assert approval.duration_ms == pytest.approx(5000)


def test_nothing_known_is_an_empty_answer() -> None:
    found = built(record([]).__class__(UUID, None, None, []))
    assert (found.spans, found.total_ms) == ([], 0.0)


def test_an_answer_names_the_longest_and_keeps_names_harmless() -> None:
    events = [
        span("s", "solvers", "so\x1b[31mlvers\n", 0),
        event(
            "tool",
            1,
            3,
            span_id="s",
            id="c",
            function="a\x1b]0;owned\x07b" * 99,
            arguments={"x": "\x1b[2J" * 999},
        ),
        ended("s", 4),
    ]
    sources = Sources(record(events, over=4), [], [], [], BEGIN, "t/s/1")
    made = answer(built(sources.record), sources, "job", "eval")
    assert made.spans[0].span_id == call_id(UUID)
    longest = next(s for s in made.spans if s.span_id == made.longest[0])
    assert longest.category is Category.TOOL
    assert all(
        "\x1b" not in text and "\n" not in text and len(text) <= 200
        for s in made.spans
        for text in (s.name, str(s.attributes.get("hawk.detail", "")))
    )
    assert made.unattributed_ms == pytest.approx(2000)
