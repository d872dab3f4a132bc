"""A job's status at several replicas as one: of the lanes and requests that each has, those of all. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]
Key = tuple[str, str, str | None]

_SUMS = (
    "in_flight", "waiting", "learnt_per_minute", "requests_per_minute", "tokens_per_minute", "usd_per_minute",
    "status_429_last_minute", "errors_last_minute",
)  # fmt: skip


def merged(own: Row, others: Sequence[Row], silent: Sequence[str], most: int) -> Row:
    """One document of the shape of `status.of_job`.

    Args:
        own: Of the replica that was asked.
        others: Of those that answered it.
        silent: Addresses of those that did not.
        most: Requests that are listed.
    """
    by_lane: dict[Key, list[Row]] = {}
    for document in (own, *others):
        for lane in document["lanes"]:
            by_lane.setdefault(_key(lane), []).append(lane)
    lanes = {key: _lane(rows) for key, rows in by_lane.items()}
    requests = [_placed(row, document, lanes) for document in (own, *others) for row in document["requests"]]
    requests.sort(key=lambda row: -row["age_s"])
    left_out = sum(document["left_out"] for document in (own, *others))
    return {
        **own,
        "draining": all(document["draining"] for document in (own, *others)),
        "lanes": list(lanes.values()),
        "requests": requests[:most],
        "left_out": left_out + max(0, len(requests) - most),
        "replicas": 1 + len(others) + len(silent),
        "missing": _missing(silent, 1 + len(others) + len(silent)),
    }


def _missing(silent: Sequence[str], count: int) -> str | None:
    if not silent:
        return None
    return f"{len(silent)} of {count} replicas can't be asked by another: {', '.join(sorted(silent))}"


def _key(row: Row) -> Key:
    return row["provider"], row["account"], row["model"]


def _lane(rows: Sequence[Row]) -> Row:
    """The limit that each has is its part of the common one; places and rates add up."""
    first = rows[0]
    most = max(row["most"] for row in rows)
    paused = max(rows, key=lambda row: row["paused_until"] or "")
    probes = [row["probe"] for row in rows if row["probe"] is not None]
    return {
        **first,
        **{name: _sum(row[name] for row in rows) for name in _SUMS},
        "limit": min(sum(row["limit"] for row in rows), most),
        "most": most,
        "by_job": _by_job(rows),
        "paused_until": paused["paused_until"],
        "paused_why": paused["paused_why"],
        "latency_p50_s": _mean(rows),
        "latency_p95_s": max((p for row in rows if (p := row["latency_p95_s"]) is not None), default=None),
        "breaker": _breaker([row["breaker"] for row in rows]),
        "url": next((row["url"] for row in rows if row["url"]), ""),
        "probe": max(probes, key=lambda probe: probe["at"], default=None),
    }


def _by_job(rows: Sequence[Row]) -> list[Row]:
    """Jobs by their names, which only replicas tell each other; shown as whoever asks may see them."""
    found: dict[str | None, Row] = {}
    for held in (held for row in rows for held in row["by_job"]):
        known = found.setdefault(held["name"], {**held, "in_flight": 0, "waiting": 0})
        known["in_flight"] += held["in_flight"]
        known["waiting"] += held["waiting"]
        known["oldest_wait_s"] = max(known["oldest_wait_s"] or 0.0, held["oldest_wait_s"] or 0.0) or None
    return list(found.values())


def _breaker(rows: Sequence[Row]) -> Row:
    """Each has its own; one that is open turns away the requests that come its way."""
    opened = [row for row in rows if row["open"]]
    if not opened:
        return rows[0]
    first = min(opened, key=lambda row: row["since"] or "")
    return {**first, "retry_at": min((row["retry_at"] for row in opened if row["retry_at"]), default=None)}


def _mean(rows: Sequence[Row]) -> float | None:
    """The median of all is near the mean of the medians, by how many requests each has had."""
    known = [(row["latency_p50_s"], max(row["requests_per_minute"], 1)) for row in rows]
    known = [(p50, weight) for p50, weight in known if p50 is not None]
    return sum(p50 * weight for p50, weight in known) / sum(w for _, w in known) if known else None


def _placed(row: Row, document: Row, lanes: Mapping[Key, Row]) -> Row:
    """A request with its place among all that wait, as far as that can be told: replicas let theirs through by turns."""
    if row["place"] is None:
        return row
    key = _key(row)
    here = next((lane["waiting"] for lane in document["lanes"] if _key(lane) == key), 0)
    everywhere = lanes[key]["waiting"] if key in lanes else here
    return {**row, "place": math.ceil(row["place"] * max(everywhere / here, 1.0)) if here else row["place"]}


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
