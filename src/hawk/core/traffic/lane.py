"""Who may send now, for one (account, model): shared by all jobs, fair between them, no more than the provider takes.

Pure: the clock is passed in, in seconds that never go back. A ticket is asked for, granted at once or by a later
`grant`, and ends with `done`; `wake_at` says when `grant` is worth a call though nothing happened.
"""

from __future__ import annotations

from collections import deque

from hawk.core.quantiles import quantile
from hawk.core.traffic.adaptive import Concurrency
from hawk.core.traffic.announced import Announced
from hawk.core.traffic.fair import FairQueue, Share
from hawk.core.traffic.headers import requests_left, retry_after, tokens_left
from hawk.core.traffic.meter import Meter
from hawk.core.traffic.rates import MINUTE, Pace, Quota, Window
from hawk.core.traffic.refusals import Cause, Refusals
from hawk.core.traffic.tickets import LaneState, Limits, Outcome, Reason, Ticket, Waiting

__all__ = ["Lane", "LaneState", "Limits", "Outcome", "Reason", "Ticket", "Waiting"]

_REFUSED = frozenset({429, 503, 529})
_KEYS_KEPT = 20_000
_LATENCIES_KEPT = 512
_VERDICT = 0.3
"""A request that was not refused after so many seconds was let through: refusals come at once."""
_LONG_WAIT = 3.0
_FULL_BUCKET = 6.0
"""Tokens may come in bursts of this part of a minute."""

_SMOOTH = 0.8
_SMOOTH_FOR = 120.0
_MOST_GAP = 0.25
"""For two minutes after a refusal starts are spread over half the time that a request takes, since requests that
began together end together, and a small bucket refuses what comes in bursts."""

_Block = tuple[Reason, float | None]


class Lane:
    """The limit, the rates and the queue of one (account, model)."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._queue = FairQueue()
        self._shares = self._queue.shares
        self._control = Concurrency(limits)
        self._pace = Pace()
        self._announced = Announced()
        self._refusals = Refusals()
        self._in_flight = 0
        self._meter = Meter(now)
        self._serial = 0
        self._rejected = 0
        self._refused_lately, self._errors_lately = Window(), Window()
        self._latencies: deque[float] = deque(maxlen=_LATENCIES_KEPT)
        self._mean_tokens = 0.0
        self._duration = 0.0
        self._smooth_until = float("-inf")
        self._firsts: dict[str, float] = {}
        self._paused_until = self._spread_until = self._not_before = float("-inf")
        self._paused_why = Reason.RETRY_AFTER
        self._gap = 0.0
        self._probe = False
        self._requests_quota: Quota | None = None
        self._tokens_quota: Quota | None = None
        self._plain = True
        """No rate and no pause is to be looked at: the limit alone decides."""
        self._set_limits(limits, now, None)

    @property
    def limits(self) -> Limits:
        """What is configured; may be set at any time, queued and running requests stay."""
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        if limits != self._limits:
            self._set_limits(limits, self._last, self._limits)

    def _set_limits(self, limits: Limits, now: float, old: Limits | None) -> None:
        self._limits = limits
        self._last = now
        self._control.configure(limits)
        if old is None or old.requests_per_minute != limits.requests_per_minute:
            rate = limits.requests_per_minute
            self._requests_quota = Quota(rate, max(1.0, rate / MINUTE), now) if rate else None
        if old is None or old.tokens_per_minute != limits.tokens_per_minute:
            rate = limits.tokens_per_minute
            self._tokens_quota = Quota(rate, rate / _FULL_BUCKET, now) if rate else None
        if not limits.adaptive:
            self._pace.forget()
        self._look_for_rates(now)

    def ask(self, ticket: Ticket, now: float) -> bool:
        """True: go. False: queued; a later `grant` returns it."""
        ticket.asked_at = ticket.place = now
        if ticket.key:
            ticket.place = self._firsts.get(ticket.key, now)
        share = self._shares.get(ticket.job)
        if share is None:
            share = self._queue.share(ticket.job)
        if (
            not self._queue.waiting
            and self._in_flight + 1 <= self._control.limit
            and (self._plain or self._blocked(ticket, now) is None)
        ):
            self._go(ticket, share, now)
            return True
        self._queue.push(ticket, share)
        return False

    def withdraw(self, ticket: Ticket, now: float) -> None:
        """It gave up while it was queued; one that was granted ends with `done` instead."""
        if self._queue.remove(ticket):
            self._remember(ticket)

    def grant(self, now: float) -> list[Ticket]:
        """Queued tickets that go now; call it after `done` and `withdraw`, and at `wake_at`."""
        granted: list[Ticket] = []
        while self._queue.waiting and self._in_flight + 1 <= self._control.limit:
            if not self._plain and self._blocked(self._queue.peek(), now) is not None:
                break
            ticket = self._queue.pop()
            self._go(ticket, ticket.share, now)
            granted.append(ticket)
        return granted

    def wake_at(self, now: float) -> float | None:
        """When the next queued ticket may go though no request ends; None: not before one ends."""
        if not self._queue.waiting or self._in_flight + 1 > self._control.limit:
            return None
        blocked = self._blocked(self._queue.peek(), now)
        return now if blocked is None else blocked[1]

    def done(self, ticket: Ticket, outcome: Outcome | None, now: float) -> None:
        """A granted request ended; None: its client went away, which says nothing about the provider."""
        share = ticket.share
        if share is None or ticket.granted_at is None:
            return
        ticket.share = None
        used = self._in_flight + 1 > self._control.limit
        self._in_flight = left = self._in_flight - 1
        meter = self._meter
        cell = meter.cell if now < meter.ends else meter.turn(now, left)
        if left < cell.low:
            cell.low = left
        self._queue.ended(share)
        if outcome is None:
            self._remember(ticket)
            return
        status = outcome.status
        if outcome.headers:
            self._read_headers(ticket, outcome, now)
        if outcome.tokens or self._tokens_quota is not None:
            self._settle(ticket, outcome, now)
        if 200 <= status < 300:
            self._good(ticket, outcome, used, now)
        elif status in _REFUSED:
            self._refused(ticket, outcome, now)
            self._remember(ticket)
        elif status >= 500 or status == 0:
            self._errors_lately.add(now)
            self._remember(ticket)

    def why(self, ticket: Ticket, now: float) -> Waiting:
        """Why a queued ticket waits."""
        holders = {share.job: share.in_flight for share in self._shares.values() if share.in_flight}
        if ticket.share is None or ticket.granted_at is not None:
            return Waiting(Reason.NEXT, 0, None, holders)
        place = self._queue.place(ticket)
        reason, until = self._blocked(ticket, now) or (Reason.NEXT, now)
        if self._in_flight + 1 > self._control.limit and reason is not Reason.RETRY_AFTER:
            active = sum(1 for share in self._shares.values() if share.in_flight or share.waiting)
            held: int = ticket.share.in_flight
            over = active > 1 and held * active >= self._control.limit
            reason, until = (Reason.FAIR_SHARE if over else Reason.CONCURRENCY), None
        elif reason is Reason.LEARNT_RATE and until is not None:
            until += (place - 1) / self._pace.rate
        return Waiting(reason, place, until, holders)

    def state(self, now: float) -> LaneState:
        """What people see of it."""
        shares = list(self._shares.values())
        waiting = {share.job: share.waiting for share in shares if share.waiting}
        ordered = sorted(self._latencies)
        learnt = self._pace.rate * MINUTE if self._pace.rate != float("inf") else self._announced.per_minute()
        paused = now < self._paused_until
        return LaneState(
            limit=int(self._control.limit),
            most=self._limits.most,
            in_flight={share.job: share.in_flight for share in shares if share.in_flight},
            waiting=waiting,
            oldest={job: self._shares[job].first().place for job in waiting},
            paused_until=self._paused_until if paused else None,
            paused_why=self._paused_why if paused else None,
            learnt_per_minute=learnt,
            requests_last_minute=round(self._meter.sent(now)),
            tokens_last_minute=round(self._meter.tokens(now)),
            refused_last_minute=round(self._refused_lately.total(now)),
            errors_last_minute=round(self._errors_lately.total(now)),
            p50=quantile(ordered, 0.5) if ordered else None,
            p95=quantile(ordered, 0.95) if ordered else None,
        )

    def _go(self, ticket: Ticket, share: Share, now: float) -> None:
        self._in_flight = level = self._in_flight + 1
        self._serial += 1
        ticket.share = share
        ticket.granted_at = now
        ticket.level = level
        meter = self._meter
        ticket.cell = cell = meter.cell if now < meter.ends else meter.turn(now, level)
        cell.sent += 1
        ticket.serial = self._serial
        ticket.edge = level + 2 > self._control.limit
        if share.waiting:
            self._queue.started(share)
        else:
            share.in_flight += 1
        if not self._plain:
            self._count(ticket, now)

    def _count(self, ticket: Ticket, now: float) -> None:
        """Count a request that goes at each rate."""
        if self._requests_quota is not None:
            self._requests_quota.spend(1.0, now)
        if self._tokens_quota is not None:
            ticket.booked = self._estimate(ticket)
            self._tokens_quota.spend(ticket.booked, now)
        if self._pace.rate != float("inf"):
            self._pace.granted(now)
        self._announced.spend()
        if self._probe:
            self._probe = False
            self._not_before = now + _VERDICT
        elif now < self._spread_until:
            self._not_before = now + self._gap
        elif now < self._smooth_until:
            gap = min(_SMOOTH * self._duration / self._control.limit, _MOST_GAP)
            self._not_before = max(self._not_before, now - gap) + gap
        elif now >= self._not_before:
            self._look_for_rates(now)

    def _look_for_rates(self, now: float) -> None:
        self._last = now
        self._plain = (
            self._requests_quota is None
            and self._tokens_quota is None
            and self._pace.rate == float("inf")
            and self._announced.limit is None
            and now >= max(self._paused_until, self._spread_until, self._smooth_until, self._not_before)
            and not self._probe
        )

    def _blocked(self, ticket: Ticket, now: float) -> _Block | None:
        """What holds this ticket back and until when, beside the places in flight; None: nothing."""
        if now < self._paused_until:
            return self._paused_why, self._paused_until
        if now < self._not_before:
            return Reason.BACK_OFF, self._not_before
        pace = self._pace
        pace.raise_slowly(now)
        if now < pace.next_at:
            pace.bound = True
            return Reason.LEARNT_RATE, pace.next_at
        if self._requests_quota is not None and (at := self._requests_quota.ready_at(1.0, now)) > now:
            return Reason.REQUESTS_PER_MINUTE, at
        if (at := self._announced.ready_at(now)) > now:
            return Reason.REQUESTS_PER_MINUTE, at
        if (
            self._tokens_quota is not None
            and (at := self._tokens_quota.ready_at(self._estimate(ticket), now)) > now
        ):
            return Reason.TOKENS_PER_MINUTE, at
        return None

    def _estimate(self, ticket: Ticket) -> float:
        return float(ticket.tokens or self._mean_tokens)

    def _settle(self, ticket: Ticket, outcome: Outcome, now: float) -> None:
        if outcome.tokens:
            self._meter.cell.tokens += outcome.tokens
            self._mean_tokens += (outcome.tokens - self._mean_tokens) * (0.05 if self._mean_tokens else 1.0)
        if self._tokens_quota is not None:
            # A refused request used nothing; of one that ended without a count, the estimate stands.
            real = 0.0 if outcome.status in _REFUSED else float(outcome.tokens) or ticket.booked
            self._tokens_quota.settle(real - ticket.booked, now)

    def _good(self, ticket: Ticket, outcome: Outcome, used: bool, now: float) -> None:
        granted_at = ticket.granted_at
        assert granted_at is not None
        self._latencies.append(outcome.seconds)
        self._duration += (now - granted_at - self._duration) * 0.1
        level = ticket.cell.lasting(ticket.level)
        self._control.good(level, outcome.seconds, granted_at, used, now)
        refusals = self._refusals
        if refusals.watching():
            refusals.passed(level, granted_at)
        if refusals.row and granted_at >= refusals.cut_at:
            if granted_at - refusals.since > _LONG_WAIT:
                self._pace.mark_full(granted_at, ticket.serial - 1 - self._rejected)
            refusals.row = 0
        if ticket.key and self._firsts:
            self._firsts.pop(ticket.key, None)

    def _read_headers(self, ticket: Ticket, outcome: Outcome, now: float) -> None:
        if now < self._announced.next_look and outcome.status != 429:
            return
        self._announced.next_look = now + 1.0
        if not self._limits.adaptive:
            return
        left = requests_left(outcome.headers)
        assert ticket.granted_at is not None
        if left is not None:
            self._announced.observe(left, ticket.serial, self._serial, ticket.granted_at, now)
            self._plain = False
        for tokens in tokens_left(outcome.headers):
            need = min(self._mean_tokens, tokens.limit)
            if tokens.remaining < need and tokens.reset:
                short = (need - tokens.remaining) / (tokens.limit - tokens.remaining)
                self._pause(now + tokens.reset * short, Reason.TOKENS_PER_MINUTE, now)

    def _refused(self, ticket: Ticket, outcome: Outcome, now: float) -> None:
        assert ticket.granted_at is not None
        refusals, control = self._refusals, self._control
        self._rejected += 1
        self._meter.take_back(ticket.cell)
        self._smooth_until = now + _SMOOTH_FOR
        (self._refused_lately if outcome.status == 429 else self._errors_lately).add(now)
        wait = retry_after(outcome.headers, outcome.retry_after)
        if wait is not None:
            self._pause(now + wait, Reason.RETRY_AFTER, now)
        if ticket.granted_at < refusals.cut_at:
            return
        passed = ticket.serial - self._rejected
        again = refusals.refused(now, passed)
        if wait is None or again:
            back_off = refusals.back_off(now, self._meter.oldest_leaves(now) + 0.05)
            self._pause(now + back_off, Reason.BACK_OFF, now)
        if not self._limits.adaptive:
            return
        if not again:
            edge = ticket.edge or self._pace.rate == float("inf")
            refusals.judge(outcome.status, ticket.level, edge, control.proven(), now)
        cause = refusals.cause
        many = again or (wait or 0.0) > _LONG_WAIT or self._pace.rate * _VERDICT > 3.0
        self._probe = many and (again or cause is not Cause.CONCURRENCY)
        if cause is not Cause.RATE:
            control.refused(
                ticket.level, cause is Cause.CONCURRENCY and not again, again, now, refusals.apart
            )
        if cause is Cause.CONCURRENCY and not again:
            if not edge:
                self._pace.forget()
        elif cause is Cause.RATE or (refusals.row > 2 and outcome.status == 429):
            self._learn_rate(passed, again, now)

    def _learn_rate(self, passed: int, again: bool, now: float) -> None:
        minute = self._meter.sent(now)
        # While paused nothing is let through, which is part of the time that the provider counts over.
        age = max(now, self._paused_until) - (self._meter.oldest_leaves(now) - MINUTE)
        if again:
            self._pace.still_refused(now, minute, age)
            if now - self._refusals.since > _LONG_WAIT:
                self._pace.known()
        else:
            self._pace.refused(now, passed, minute, age)
            if self._paused_until - now > _LONG_WAIT:
                self._pace.known()
            self._control.bounded_by_rate(now)

    def _pause(self, until: float, why: Reason, now: float) -> None:
        self._plain = False
        if until <= self._paused_until:
            return
        self._paused_until, self._paused_why = until, why
        spread = min(0.1 * (until - now), 1.0)
        self._spread_until = until + spread
        self._gap = spread / max(self._control.limit, 1.0)

    def _remember(self, ticket: Ticket) -> None:
        """Keep the place of a request that may be tried again."""
        if ticket.key:
            self._firsts[ticket.key] = ticket.place
            if len(self._firsts) > _KEYS_KEPT:
                del self._firsts[next(iter(self._firsts))]
