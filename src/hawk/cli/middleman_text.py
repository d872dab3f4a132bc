"""What `hawk middleman` prints. Names of models, jobs and samples, and what providers say, come from outside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hawk.cli.text import clean, duration, parse_time, plural, shorten, table

if TYPE_CHECKING:
    from hawk.core.traffic.prices import Price
    from hawk.middleman.catalog import ModelInfo
    from hawk.middleman.keys import KeyInfo

LONGEST = 10
"""Open requests that are shown."""

JOBS_A_LANE = 3
"""Jobs of a lane that are named; the others are counted."""

WHY = {
    "concurrency": "as many are in flight as the provider bears",
    "requests_per_minute": "requests a minute are used up",
    "tokens_per_minute": "tokens a minute are used up",
    "retry_after": "the provider asked to wait",
    "fair_share": "other jobs are first",
    "back_off": "the provider refused, and is left alone for a moment",
    "learnt_rate": "faster than this the provider refuses",
    "next": "it is the next",
}
"""Why a request waits, in words; reasons that are not here are shown as they are."""


def report(document: Mapping[str, Any], *, columns: int | None) -> str:
    """The whole of `hawk middleman status`.

    Args:
        document: What `GET /admin/status` answered.
        columns: Width of the terminal; None: as wide as it takes.
    """
    parts = [_head(document), "", _lanes(document.get("lanes") or [], columns)]
    parts += list(_troubles(document.get("lanes") or []))
    jobs = document.get("jobs") or []
    if jobs:
        parts += ["", _jobs(jobs, columns)]
    waiting = [r for r in document.get("requests") or [] if r.get("phase") != "streaming"]
    if waiting:
        parts += ["", _requests(waiting[:LONGEST], columns)]
        if len(waiting) > LONGEST:
            parts.append(f"… and {len(waiting) - LONGEST} more")
    return "\n".join(parts)


def model_table(infos: Sequence[ModelInfo], *, columns: int | None) -> str:
    """Models, who may use them, and what they cost."""
    rows = [
        (
            info.name,
            ", ".join(info.groups) or "everybody",
            *_price_cells(info.price),
            "dead" if info.dead else "" if info.reachable else "no key",
        )
        for info in infos
    ]
    return table(["MODEL", "GROUPS", "IN", "OUT", "CACHED", "WRITTEN", "CONTEXT", ""], rows, columns=columns)


def price_table(prices: Mapping[str, Price], *, columns: int | None) -> str:
    """Prices in dollars per million tokens."""
    rows = [(name, *_price_cells(price)) for name, price in prices.items()]
    return table(["MODEL", "IN", "OUT", "CACHED", "WRITTEN", "CONTEXT"], rows, columns=columns)


def key_table(keys: Iterable[KeyInfo], *, columns: int | None) -> str:
    """Keys by their last characters."""
    rows = [
        (
            key.provider,
            key.account,
            f"…{key.tail}" if key.tail else "(short)",
            key.source if key.variable is None else f"{key.source} {key.variable}",
            (key.added_at or "")[:10],
        )
        for key in keys
    ]
    return table(["PROVIDER", "ACCOUNT", "KEY", "FROM", "ADDED"], rows, columns=columns)


def _head(document: Mapping[str, Any]) -> str:
    started = parse_time(document.get("started_at"))
    age = f", up {duration((datetime.now(UTC) - started).total_seconds())}" if started else ""
    ends = (
        "  It ends: requests on their way are finished, no new ones taken."
        if document.get("draining")
        else ""
    )
    shared = document.get("shared") or {}
    replicas = f"  One of {shared['replicas']} that share their limits." if shared else ""
    problem = f"  ! {shared['problem']}" if shared.get("problem") else ""
    who = f"(process {document.get('pid')}{age})"
    return clean(
        f"Middleman {document.get('version')} at {document.get('url')} {who}.{ends}{replicas}{problem}"
    )


def _lanes(lanes: Sequence[Mapping[str, Any]], columns: int | None) -> str:
    if not lanes:
        return "No request has come yet."
    rows = [
        (
            f"{lane['provider']}/{lane['model']}"
            + ("" if lane.get("account") in (None, "default") else f" ({lane['account']})"),
            f"{lane['in_flight']} of {lane['limit']}",
            str(lane["waiting"] or ""),
            _by_job(lane.get("by_job") or []),
            str(lane.get("status_429_last_minute") or ""),
            str(lane.get("errors_last_minute") or ""),
            _seconds(lane.get("latency_p50_s")),
            _seconds(lane.get("latency_p95_s")),
            _count(lane.get("requests_per_minute")),
            _count(lane.get("tokens_per_minute")),
            _dollars(lane.get("usd_per_minute")),
            "OPEN" if (lane.get("breaker") or {}).get("open") else "",
        )
        for lane in sorted(lanes, key=lambda one: (-one["waiting"], -one["in_flight"], str(one["model"])))
    ]
    headers = (
        "MODEL",
        "FLYING",
        "WAIT",
        "WAITING BY JOB",
        "429",
        "ERR",
        "P50",
        "P95",
        "REQ/M",
        "TOK/M",
        "$/M",
        "BREAKER",
    )
    said = [
        i for i in range(len(headers)) if i < 3 or any(row[i] for row in rows)
    ]  # models' names need the room
    return table([headers[i] for i in said], [[row[i] for i in said] for row in rows], columns=columns)


def _by_job(by_job: Sequence[Mapping[str, Any]]) -> str:
    waiting = sorted((j for j in by_job if j.get("waiting")), key=lambda j: -j["waiting"])
    named = ", ".join(f"{j['job'] or '–'} {j['waiting']}" for j in waiting[:JOBS_A_LANE])
    more = len(waiting) - JOBS_A_LANE
    return f"{named}, {plural(more, 'more job')}" if more > 0 else named


def _troubles(lanes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each model that is not asked at the moment."""
    for lane in lanes:
        name = f"{lane['provider']}/{lane['model']}"
        breaker = lane.get("breaker") or {}
        if breaker.get("open"):
            until = _until(breaker.get("retry_at"))
            yield clean(
                f"{name}: given up{until}; it said: {shorten(clean(breaker.get('said')) or 'nothing', 200)}"
            )
        elif lane.get("paused_until"):
            yield clean(
                f"{name}: paused{_until(lane['paused_until'])}: {lane.get('paused_why') or 'as it asked'}"
            )


def _jobs(jobs: Sequence[Mapping[str, Any]], columns: int | None) -> str:
    rows = []
    for job in jobs:
        budget = job.get("budget") or {}
        cost = _dollars(job.get("usd"))
        unpriced = job.get("unpriced")
        rows.append(
            (
                job["job"] or "–",
                str(job["requests"]),
                str(job["in_flight"]),
                str(job["waiting"] or ""),
                _of(f"{job['tokens']:,}", budget.get("tokens"), "{:,}"),
                _of(cost, budget.get("usd"), "${:g}")
                + (f" + {unpriced} without a price" if unpriced else ""),
                job.get("exhausted") or "",
            )
        )
    return table(["JOB", "REQUESTS", "FLYING", "WAIT", "TOKENS", "COST", ""], rows, columns=columns)


def _requests(requests: Sequence[Mapping[str, Any]], columns: int | None) -> str:
    rows = [
        (
            duration(request.get("age_s")),
            f"{request['provider']}/{request['model']}",
            request.get("job") or "–",
            " ".join(str(part) for part in (request.get("sample"), request.get("attempt")) if part),
            _phase(request),
        )
        for request in requests
    ]
    return table(["OPEN FOR", "MODEL", "JOB", "SAMPLE", "WHAT IT DOES"], rows, columns=columns)


def _phase(request: Mapping[str, Any]) -> str:
    again = f" (try {request['retry'] + 1})" if request.get("retry") else ""
    if request.get("phase") != "queued":
        words = {
            "connecting": "connects",
            "waiting": "waits for the first byte",
            "reading": "is being sent to us",
        }
        return f"{words.get(str(request.get('phase')), request.get('phase'))}{again}"
    reason = str(request.get("reason") or "")
    place = f", place {request['place']}" if request.get("place") else ""
    return f"queued{place}: {WHY.get(reason, reason) or 'unknown'}{_until(request.get('until'))}{again}"


def _until(text: str | None) -> str:
    """` for 12s`: what is left until a time; nothing when it is unknown or past."""
    when = parse_time(text)
    left = (when - datetime.now(UTC)).total_seconds() if when else 0
    return f" for {duration(left + 0.999)}" if left > 0 else ""


def _of(text: str, most: float | None, form: str) -> str:
    return text if most is None else f"{text} of {form.format(most)}"


def _price_cells(price: Price | None) -> tuple[str, str, str, str, str]:
    if price is None:
        return ("–",) * 5
    costs = (price.input, price.output, price.cache_read, price.cache_write)
    read = [f"{cost:g}" for cost in costs]
    return read[0], read[1], read[2], read[3], _count(price.context)


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value * 1000:.0f}ms" if value < 1 else f"{value:.1f}s" if value < 60 else duration(value)


def _count(value: float | None) -> str:
    if not value:
        return ""
    if value < 10_000:
        return f"{value:.0f}"
    return f"{value / 1000:.0f}k" if value < 1_000_000 else f"{value / 1e6:.1f}M"


def _dollars(value: float | None) -> str:
    if value is None:
        return ""
    return f"${value:.2f}" if value >= 1 or value == 0 else f"${value:.4f}"
