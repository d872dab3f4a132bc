"""Prometheus metrics, made when they are asked for: the data path counts nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hawk.core.traffic.breaker import BreakerState
from hawk.core.traffic.lane import LaneState
from hawk.middleman.exchange import Phase
from hawk.middleman.house import House

CONTENT_TYPE = CONTENT_TYPE_LATEST

_LANE = ("provider", "account", "model")


class _Collector:
    def __init__(self, house: House) -> None:
        self._house = house

    def collect(self) -> Iterator[Metric]:
        yield from _lanes(self._house)
        yield from _jobs(self._house)
        yield from _requests(self._house)
        yield from _replicas(self._house)


def _lanes(house: House) -> Iterator[Metric]:
    now = house.loop.time()
    states = [(t.name, t.lane.state(now), t.breaker.state(now)) for t in house.turnstiles.values()]
    rows: tuple[tuple[str, str, Callable[[LaneState, BreakerState], float]], ...] = (
        ("limit", "Requests that may be in flight", lambda s, b: s.limit),
        ("in_flight", "Requests in flight", lambda s, b: sum(s.in_flight.values())),
        ("waiting", "Requests that wait for their turn", lambda s, b: sum(s.waiting.values())),
        ("refused_last_minute", "Answers with 429 in the last minute", lambda s, b: s.refused_last_minute),
        ("errors_last_minute", "Failures in the last minute", lambda s, b: s.errors_last_minute),
        ("first_byte_p95_seconds", "Seconds to the first byte", lambda s, b: s.p95 or 0.0),
        ("breaker_open", "Whether the provider is left alone", lambda s, b: float(b.open)),
    )
    for name, text, pick in rows:
        gauge = GaugeMetricFamily(f"hawk_middleman_{name}", text, labels=_LANE)
        for labels, state, breaker in states:
            gauge.add_metric(labels, pick(state, breaker))
        yield gauge


def _jobs(house: House) -> Iterator[Metric]:
    usd = CounterMetricFamily("hawk_middleman_job_usd", "Dollars that a job has spent", labels=("job",))
    tokens = CounterMetricFamily("hawk_middleman_job_tokens", "Tokens that a job has used", labels=("job",))
    requests = CounterMetricFamily("hawk_middleman_job_requests", "Requests of a job", labels=("job",))
    for job in house.ledger.jobs():
        spend = house.ledger.spend(job)
        usd.add_metric((job,), spend.usd)
        tokens.add_metric((job,), spend.tokens)
        requests.add_metric((job,), spend.requests)
    yield from (usd, tokens, requests)


def _requests(house: House) -> Iterator[Metric]:
    ended = CounterMetricFamily(
        "hawk_middleman_requests", "Requests that have ended", labels=("provider", "status", "error")
    )
    for (provider, status, error), count in house.ended.items():
        ended.add_metric((provider, str(status), error), count)
    yield ended
    phases = GaugeMetricFamily("hawk_middleman_open", "Open requests by what they do", labels=("phase",))
    for phase in Phase:
        phases.add_metric((phase,), sum(x.phase is phase for x in house.exchanges))
    yield phases


def _replicas(house: House) -> Iterator[Metric]:
    if house.shared is None:
        return
    shared = house.shared.document()
    for name, text, value in (
        ("replicas", "Replicas that are heard of", shared["replicas"]),
        ("shared_behind_seconds", "Seconds since the other replicas were heard of", shared["behind_s"]),
        ("shared_problem", "Whether the database is away", float(shared["problem"] is not None)),
    ):
        yield GaugeMetricFamily(f"hawk_middleman_{name}", text, value=value)


def render(house: House) -> bytes:
    """The text for a scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(house))
    return generate_latest(registry)
