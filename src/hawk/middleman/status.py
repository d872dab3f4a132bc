"""What a person sees of a middleman: lanes, jobs, open requests; and models, as the public client reads them."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

from hawk import __version__
from hawk.core.traffic.tickets import Waiting
from hawk.middleman.admission import Turnstile
from hawk.middleman.exchange import Exchange
from hawk.middleman.house import House
from hawk.middleman.liveness import last_byte
from hawk.middleman.merging import merged
from hawk.middleman.shared_database import Open
from hawk.middleman.shared_peers import Asker
from hawk.middleman.tokens import Principal

_OPEN = 200
"""Open requests that are listed, the oldest."""

OPEN_OF_JOB = 2000
"""The same in a job's own status."""

_PLACES = 50
"""Requests of a job whose place in the queue is told: to find one takes a look at the whole queue."""

ANOTHER = "another job"
"""What a job of somebody else is called."""

_THINKS = re.compile(
    r"(?:^|[/:_-])(?:o[134](?:-|$)|gpt-5|grok-[34]|gemini-(?:2\.5|[3-9])|qwq|r1(?:-|$)|deepseek-r)|thinking|reason|magistral",
    re.IGNORECASE,
)
"""Names of models that think before they answer, asked or not."""


def document(house: House) -> dict[str, Any]:
    """The whole of `GET /admin/status`."""
    now = house.loop.time()
    exchanges = sorted(house.exchanges, key=lambda x: x.arrived)
    return {
        "instance": house.instance,
        "version": __version__,
        "pid": os.getpid(),
        "url": house.url,
        "started_at": _iso(house.started_at),
        "draining": house.draining,
        "open": len(exchanges),
        "spans_lost": house.spans.lost,
        "shared": house.shared.document() if house.shared is not None else None,
        "lanes": [_lane(house, turnstile, now) for turnstile in house.turnstiles.values()],
        "jobs": [job(house, name) for name in house.jobs if name],
        "requests": [_request(house, exchange, now) for exchange in exchanges[:_OPEN]],
    }


def job(house: House, name: str) -> dict[str, Any]:
    """A job's account: what it spent, what it has on its way, at all replicas."""
    spend = house.ledger.spend(name)
    known = house.jobs.get(name)
    exchanges = house.exchanges.of(name)
    waiting = sum(x.admitted is None for x in exchanges)
    elsewhere = house.shared.open_elsewhere(name) if house.shared is not None else Open()
    return {
        "job": name,
        "requests": spend.requests,
        "tokens": spend.tokens,
        "usd": spend.usd if spend.requests > spend.unpriced else None,
        "unpriced": spend.unpriced,
        "in_flight": len(exchanges) - waiting + elsewhere.in_flight,
        "waiting": waiting + elsewhere.waiting,
        "budget": msgspec.to_builtins(known.budget) if known is not None else {"usd": None, "tokens": None},
        "exhausted": house.ledger.exhausted(name, known.budget) if known is not None else None,
    }


def of_job(house: House, asker: Asker) -> dict[str, Any]:
    """The whole of `GET /job/status`: the lanes that a job uses here, and its open requests, the oldest first.

    `by_job` has the names of all jobs (`name`) beside what they are called (`job`): for replicas only.
    """
    now = house.loop.time()
    name = asker.job
    exchanges = sorted(house.exchanges.of(name), key=lambda x: x.arrived)
    known = house.jobs.get(name)
    used = dict(known.lanes) if known is not None else {}
    places = 0
    requests = []
    for x in exchanges[:OPEN_OF_JOB]:
        queued = x.ticket is not None and x.admitted is None
        places += queued
        requests.append(_own_request(house, x, now, placed=queued and places <= _PLACES))
    lanes = [house.turnstiles[lane] for lane in used if lane in house.turnstiles]
    return {
        "job": name,
        "instance": house.instance,
        "draining": house.draining,
        "lanes": [_own_lane(house, turnstile, asker, now) for turnstile in lanes],
        "requests": requests,
        "left_out": max(0, len(exchanges) - OPEN_OF_JOB),
        "replicas": 1,
        "missing": None,
    }


async def of_job_everywhere(house: House, asker: Asker) -> dict[str, Any]:
    """The same of all replicas together. `missing` says why it is not whole."""
    found = of_job(house, asker)
    if house.shared is not None:
        others, silent = await house.shared.ask_others(asker)
        try:
            found = merged(found, others, silent, OPEN_OF_JOB)
        except (KeyError, TypeError):  # of another version, in the middle of an upgrade
            found["missing"] = "another replica answers what this one does not understand"
    for lane in found["lanes"]:
        for held in lane["by_job"]:
            del held["name"]
    return found


def models(house: House, principal: Principal | None) -> list[dict[str, Any]]:
    """Models that somebody may use (None: all). Prices are in dollars per million tokens."""
    found = []
    for info in house.catalog.models():
        if principal is not None and not house.may_use(principal, info.provider, info.model):
            continue
        price = info.price
        found.append(
            {
                "name": info.name.partition("/")[2],
                "inspect_name": info.name,
                "provider": info.provider,
                "lab": info.provider,
                "groups": list(info.groups),
                "public": not info.groups or "model-access-public" in info.groups,
                "reachable": info.reachable,
                "dead": info.dead,
                "is_chat": True,
                "are_details_secret": False,
                "is_zdr": False,
                "raw_cot": False,
                "context_length": price.context if price is not None else None,
                "output_limit": None,
                "input_cost_per_1m": price.input if price is not None else None,
                "output_cost_per_1m": price.output if price is not None else None,
                "cache_read_cost_per_1m": price.cache_read if price is not None else None,
                "cache_write_cost_per_1m": price.cache_write if price is not None else None,
            }
        )
    return found


def _lane(house: House, turnstile: Turnstile, now: float) -> dict[str, Any]:
    provider, account, model = turnstile.name
    state = turnstile.lane.state(now)
    breaker = turnstile.breaker.state(now)
    jobs = dict.fromkeys([*state.in_flight, *state.waiting])
    return {
        "provider": provider,
        "account": account,
        "model": model or None,
        "limit": state.limit,
        "most": state.most,
        "in_flight": sum(state.in_flight.values()),
        "waiting": sum(state.waiting.values()),
        "by_job": [
            {
                "job": name or None,
                "in_flight": state.in_flight.get(name, 0),
                "waiting": state.waiting.get(name, 0),
                "oldest_wait_s": round(now - state.oldest[name], 2) if name in state.oldest else None,
            }
            for name in jobs
        ],
        "paused_until": _at(house, state.paused_until),
        "paused_why": state.paused_why,
        "learnt_per_minute": state.learnt_per_minute,
        "requests_per_minute": state.requests_last_minute,
        "tokens_per_minute": state.tokens_last_minute,
        "usd_per_minute": turnstile.usd_last_minute(now),
        "status_429_last_minute": state.refused_last_minute,
        "errors_last_minute": state.errors_last_minute,
        "latency_p50_s": state.p50,
        "latency_p95_s": state.p95,
        "breaker": {
            "open": breaker.open,
            "since": _at(house, breaker.since),
            "retry_at": _at(house, breaker.retry_at),
            "said": breaker.said,
        },
    }


def _request(house: House, x: Exchange, now: float) -> dict[str, Any]:
    waiting = _waiting(x)
    return {
        **_observed(house, x, now, waiting),
        "job": x.job or None,
        "since": _iso(x.wall),
        "holders": waiting.holders if waiting is not None else None,
        "trace_id": x.trace_id,
    }


def _waiting(x: Exchange) -> Waiting | None:
    return x.lane.why(x.ticket) if x.lane is not None and x.ticket is not None else None


def _observed(house: House, x: Exchange, now: float, waiting: Waiting | None) -> dict[str, Any]:
    """What everybody is told of a request who may see it."""
    return {
        "id": x.id,
        "task": x.task_name,
        "sample": x.sample,
        "sample_uuid": x.sample_uuid,
        "attempt": x.attempt,
        "provider": x.provider,
        "account": x.account,
        "model": x.model,
        "phase": x.phase,
        "age_s": round(now - x.arrived, 2),
        "first_byte_s": round(x.first_byte - x.arrived, 3) if x.first_byte is not None else None,
        "bytes_out": x.bytes_out,
        "place": waiting.place if waiting is not None else None,
        "reason": waiting.reason if waiting is not None else None,
        "until": _at(house, waiting.until) if waiting is not None else None,
        "retry": x.retry,
    }


def _own_lane(house: House, turnstile: Turnstile, asker: Asker, now: float) -> dict[str, Any]:
    """A lane as one of the jobs in it sees it: others by name where they are the same person's."""
    found = _lane(house, turnstile, now)
    for held in found["by_job"]:
        held["name"], held["mine"] = held["job"], held["job"] == asker.job
        held["job"] = _called(house, held["name"], asker)
    sign = turnstile.sign
    found["url"] = _plain(turnstile.base_url)
    found["probe"] = {**sign._asdict(), "at": _iso(sign.at)} if sign is not None else None
    return found


def _called(house: House, name: str | None, asker: Asker) -> str:
    if name is None:
        return "a person"
    known = house.jobs.get(name)
    bearer = known.principal if known is not None else None
    return name if bearer is not None and bearer.user == asker.user else ANOTHER


def _own_request(house: House, x: Exchange, now: float, *, placed: bool) -> dict[str, Any]:
    asked = x.asked
    last = last_byte(x)
    due = min(x.due, x.total_due)
    return {
        **_observed(house, x, now, _waiting(x) if placed else None),
        "sent_s": round(now - x.sent, 2) if x.sent is not None else None,
        "quiet_s": round(now - last, 2) if last is not None else None,
        "stream": asked is not None and asked.streaming,
        "most_tokens": asked.most or None if asked is not None else None,
        "reasoning": (asked is not None and asked.reasoning) or _THINKS.search(x.model or "") is not None,
        "replayed": x.replayed,
        "deadline_s": round(due - now, 2) if due < float("inf") else None,
    }


def _plain(url: str) -> str:
    """A base URL without what somebody may have put before the host."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _at(house: House, when: float | None) -> str | None:
    """A time of the event loop's clock, for people."""
    return None if when is None else _iso(house.started_at + (when - house.loop_started))


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
