"""A lane: what is configured is kept exactly, waiting is fair and says why."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hawk.core.traffic.fair import FairQueue
from hawk.core.traffic.lane import Lane, Limits, Outcome, Reason, Ticket
from hawk.core.traffic.rates import Quota

GOOD = Outcome(200, 0.5)


def ask(lane: Lane, job: str, now: float = 0.0, **more: object) -> Ticket:
    ticket = Ticket(job, **more)  # type: ignore[arg-type]
    lane.ask(ticket, now)
    return ticket


def granted(*tickets: Ticket) -> list[bool]:
    return [ticket.granted_at is not None for ticket in tickets]


def test_places_go_to_the_job_with_the_fewest_in_flight() -> None:
    lane = Lane(Limits(most=4, start=4), 0.0)
    many = [ask(lane, "many") for _ in range(400)]
    few = [ask(lane, "few") for _ in range(4)]
    assert granted(*many[:5]) == [True] * 4 + [False]
    order = []
    running = many[:4]
    for step in range(8):
        lane.done(running.pop(0), GOOD, 1.0 + step)
        new = lane.grant(1.0 + step)
        running += new
        order += [ticket.job for ticket in new]
    assert order[:2] == ["few", "few"]
    assert all(ticket.granted_at is not None for ticket in few)


def test_a_job_alone_uses_everything() -> None:
    lane = Lane(Limits(most=50, start=50), 0.0)
    assert all(granted(*[ask(lane, "alone") for _ in range(50)]))


def test_a_retry_keeps_the_place_of_its_first_ask() -> None:
    lane = Lane(Limits(most=1, start=1), 0.0)
    first = ask(lane, "a", 0.0, key="one")
    others = [ask(lane, "a", 0.1 * n, key=f"other{n}") for n in range(1, 4)]
    lane.done(first, Outcome(500, 0.1), 1.0)
    again = ask(lane, "a", 1.5, key="one")
    assert lane.why(again, 1.5).place == 1
    assert lane.grant(1.5) == [again]
    lane.done(again, GOOD, 2.0)
    assert lane.grant(2.0) == [others[0]]
    lane.withdraw(others[2], 2.5)
    back = ask(lane, "a", 3.0, key="other3")
    new = ask(lane, "a", 3.0, key="one")
    lane.done(others[0], GOOD, 4.0)
    assert lane.grant(4.0) == [others[1]]
    lane.done(others[1], GOOD, 5.0)
    assert lane.grant(5.0) == [back]
    assert lane.why(new, 5.0).place == 1


def test_nobody_goes_before_retry_after_ends_and_then_not_all_at_once() -> None:
    lane = Lane(Limits(most=40, start=40), 0.0)
    running = [ask(lane, "a") for _ in range(40)]
    waiting = [ask(lane, "a") for _ in range(60)]
    lane.done(running[39], Outcome(429, 0.1, retry_after=5.0), 1.0)
    lane.done(running[38], Outcome(429, 0.1, headers={"retry-after-ms": "6500", "retry-after": "7"}), 1.0)
    for ticket in running[:38]:
        lane.done(ticket, GOOD, 2.0)
    assert lane.grant(7.99) == []
    why = lane.why(waiting[0], 2.0)
    assert (why.reason, why.until, why.place) == (Reason.RETRY_AFTER, 8.0, 1)
    assert lane.wake_at(2.0) == 8.0
    assert 1 <= len(lane.grant(8.0)) <= 3
    now, went = 8.0, 0
    while went < 20 and now < 30:
        wake = lane.wake_at(now)
        now = max(now + 0.001, wake if wake is not None else now)
        went += len(lane.grant(now))
    assert went >= 20


def test_an_absurd_retry_after_ends_after_an_hour() -> None:
    lane = Lane(Limits(), 0.0)
    lane.done(ask(lane, "a"), Outcome(429, 0.1, headers={"retry-after": "1e9"}), 0.0)
    waits = ask(lane, "a", 1.0)
    assert lane.grant(3599.0) == []
    assert lane.grant(3600.1) == [waits]


def test_one_round_trip_of_refusals_is_one_cut() -> None:
    lane = Lane(Limits(most=100, start=100), 0.0)
    running = [ask(lane, "a") for _ in range(100)]
    for ticket in running[80:]:
        lane.done(ticket, Outcome(529, 0.1), 0.5)
    assert 50 <= lane.state(0.5).limit <= 80


def test_the_limit_climbs_only_while_it_is_used() -> None:
    lane = Lane(Limits(most=100, start=8), 0.0)
    for step in range(200):
        lane.done(ask(lane, "a", step * 1.0), GOOD, step + 0.5)
    assert lane.state(200.0).limit == 8
    now, running = 300.0, [ask(lane, "a", 300.0) for _ in range(200)]
    for _ in range(10):
        now += 1.0
        for ticket in [one for one in running if one.granted_at is not None and one.share is not None]:
            lane.done(ticket, GOOD, now)
            lane.grant(now)
    assert lane.state(now).limit > 40
    assert lane.state(now).limit <= 100


def test_without_adapting_the_limit_is_the_ceiling() -> None:
    lane = Lane(Limits(most=30, adaptive=False), 0.0)
    running = [ask(lane, "a") for _ in range(40)]
    assert sum(granted(*running)) == 30
    lane.done(running[0], Outcome(429, 0.1, retry_after=1.0), 0.1)
    assert lane.state(0.1).limit == 30
    assert lane.grant(0.5) == []
    assert lane.grant(1.2) != []


def test_who_went_away_says_nothing_about_the_provider() -> None:
    lane = Lane(Limits(most=9, start=2), 0.0)
    for _ in range(50):
        lane.done(ask(lane, "a"), None, 1.0)
    state = lane.state(1.0)
    assert (state.limit, state.in_flight, state.p50) == (2, {}, None)
    ticket = ask(lane, "a", 2.0)
    lane.done(ticket, GOOD, 3.0)
    lane.done(ticket, GOOD, 3.0)
    assert lane.state(3.0).in_flight == {}


def test_why_names_the_reason_and_who_holds_the_places() -> None:
    lane = Lane(Limits(most=4, start=4), 0.0)
    for job in "aaab":
        ask(lane, job)
    mine, theirs = ask(lane, "a"), ask(lane, "b")
    assert lane.why(mine, 1.0).reason is Reason.FAIR_SHARE
    assert lane.why(theirs, 1.0).reason is Reason.CONCURRENCY
    assert lane.why(theirs, 1.0).holders == {"a": 3, "b": 1}
    assert (lane.why(theirs, 1.0).place, lane.why(mine, 1.0).place) == (1, 2)
    rated = Lane(Limits(requests_per_minute=6), 0.0)
    ask(rated, "a")
    waits = ask(rated, "c")
    assert (rated.why(waits, 0.0).reason, rated.why(waits, 0.0).until) == (Reason.REQUESTS_PER_MINUTE, 10.0)


def test_two_lanes_know_nothing_of_each_other() -> None:
    one, other = Lane(Limits(), 0.0), Lane(Limits(), 0.0)
    one.done(ask(one, "a"), Outcome(429, 0.1, retry_after=60.0), 0.1)
    assert granted(ask(one, "a", 0.2), ask(other, "a", 0.2)) == [False, True]


def test_limits_can_be_set_while_requests_wait() -> None:
    lane = Lane(Limits(most=2, start=2), 0.0)
    running = [ask(lane, "a") for _ in range(6)]
    lane.limits = Limits(most=4, start=2, adaptive=False)
    assert len(lane.grant(1.0)) == 2
    lane.limits = Limits(most=1)
    lane.done(running[0], GOOD, 2.0)
    assert lane.grant(2.0) == []
    lane.limits = Limits(most=50, start=2, adaptive=False, requests_per_minute=60)
    assert len(lane.grant(3.0)) == 1
    assert lane.wake_at(3.0) == pytest.approx(4.0)


def test_configured_requests_a_minute_are_kept_in_every_minute() -> None:
    lane = Lane(Limits(most=1000, start=1000, requests_per_minute=120), 0.0)
    tickets = [ask(lane, "a", 0.0) for _ in range(700)]
    now = 0.0
    while now < 300:
        wake = lane.wake_at(now)
        assert wake is not None
        now = max(wake, now + 1e-6)
        lane.grant(now)
    times = [ticket.granted_at for ticket in tickets if ticket.granted_at is not None]
    assert len(times) >= 0.98 * 600
    assert all(later - earlier >= 60.0 - 1e-3 for earlier, later in zip(times, times[120:], strict=False))


def test_configured_tokens_a_minute_are_settled_by_the_real_number() -> None:
    lane = Lane(Limits(most=100, start=100, tokens_per_minute=60_000), 0.0)
    rng, now, used = random.Random(1), 0.0, list[tuple[float, int]]()
    ask(lane, "a", tokens=1000)
    running = []
    for _ in range(2000):
        ask(lane, "a", now, tokens=1000)
    while now < 600:
        wake = lane.wake_at(now)
        now = max(now + 0.01, min(wake, now + 1.0) if wake is not None else now + 1.0)
        running += [(now + 2.0, ticket) for ticket in lane.grant(now)]
        while running and running[0][0] <= now:
            real = rng.choice([500, 2000, 4000])
            lane.done(running.pop(0)[1], Outcome(200, 1.0, tokens=real), now)
            used.append((now, real))
    total = sum(tokens for _, tokens in used)
    assert 0.95 * 600_000 <= total <= 1.02 * 600_000 + 10_000


def test_a_request_larger_than_the_bucket_goes_when_the_bucket_is_full() -> None:
    lane = Lane(Limits(tokens_per_minute=600), 0.0)
    ask(lane, "a", tokens=50)
    large = ask(lane, "a", tokens=5000)
    assert lane.why(large, 0.0).reason is Reason.TOKENS_PER_MINUTE
    until = lane.wake_at(0.0)
    assert until is not None
    assert until <= 61.0
    assert lane.grant(until) == [large]


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(1, 3)), min_size=1, max_size=60), st.integers(2, 90))
@settings(max_examples=60, deadline=None)
def test_a_quota_is_never_exceeded_in_any_minute(asks: list[tuple[float, int]], per_minute: int) -> None:
    quota, now, spent = Quota(per_minute, max(1.0, per_minute / 60), 0.0), 0.0, list[tuple[float, int]]()
    for pause, amount in asks:
        amount = min(amount, per_minute)
        now += pause
        while (ready := quota.ready_at(amount, now)) > now:
            now = ready
        quota.spend(amount, now)
        spent.append((now, amount))
    for begin, _ in spent:
        assert sum(amount for at, amount in spent if begin <= at < begin + 60.0) <= per_minute


moves = st.lists(
    st.tuples(st.sampled_from(["push", "pop", "end", "remove"]), st.sampled_from("abcd"), st.integers(0, 9))
)


@given(moves)
@settings(max_examples=150, deadline=None)
def test_the_queue_is_fair_and_every_place_is_what_it_says(steps: list[tuple[str, str, int]]) -> None:
    queue, waiting, flying = FairQueue(), list[Ticket](), list[Ticket]()
    for what, job, number in steps:
        if what == "push":
            ticket = Ticket(job, place=float(number))
            queue.push(ticket, queue.share(job))
            waiting.append(ticket)
        elif what == "pop" and waiting:
            flying.append(take(queue, waiting))
        elif what == "end" and flying:
            queue.ended(flying.pop(number % len(flying)).share)
        elif what == "remove" and waiting:
            gone = waiting.pop(number % len(waiting))
            assert queue.remove(gone)
            assert not queue.remove(gone)
        assert queue.waiting == len(waiting)
        assert sum(share.in_flight for share in queue.shares.values()) == len(flying)
    places = {id(ticket): queue.place(ticket) for ticket in waiting}
    for place in range(1, len(waiting) + 1):
        assert places[id(take(queue, waiting))] == place


def take(queue: FairQueue, waiting: list[Ticket]) -> Ticket:
    """Pop, with what must hold at each pop."""
    jobs = {ticket.job for ticket in waiting}
    ticket = queue.pop()
    share = queue.shares[ticket.job]
    assert share.in_flight == min(queue.shares[job].in_flight for job in jobs)
    assert ticket.place == min(one.place for one in waiting if one.job == ticket.job)
    waiting.remove(ticket)
    ticket.granted_at = 0.0
    queue.started(share)
    return ticket


def test_ten_thousand_waiting_are_all_served_and_forgotten() -> None:
    lane = Lane(Limits(most=64, start=64, adaptive=False), 0.0)
    tickets = [ask(lane, f"job{n % 300}", n * 1e-4, key=f"k{n}") for n in range(10_000)]
    for ticket in tickets[1::2]:
        lane.withdraw(ticket, 1.0)
    now, running = 2.0, [ticket for ticket in tickets if ticket.granted_at is not None]
    while running:
        now += 0.001
        lane.done(running.pop(), GOOD, now)
        running += lane.grant(now)
    assert all((ticket.granted_at is not None) == (n % 2 == 0 or n < 64) for n, ticket in enumerate(tickets))
    assert lane.state(now).waiting == {}
    assert len(lane._shares) <= 300
