"""Signs that a model's provider held attempts up: what it refused for load, and what that cost."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import fmean, median

import msgspec

from hawk.core.attempts.results import Outcome, Pair, Result
from hawk.core.attempts.rows import began
from hawk.core.attempts.spans import seconds
from hawk.core.attempts.statistics import SIGNIFICANT, fisher

_REFUSED = re.compile(
    r"(?<!\d)(?:429|503|529)(?!\d)|rate.?limit|overloaded|too many requests|throttl|quota", re.IGNORECASE
)
_LATE = re.compile(r"time[-_ ]?out|timed[-_ ]?out", re.IGNORECASE)
_OURS = re.compile(r"sandbox|bwrap|docker|container|\bpod\b|command|exec", re.IGNORECASE)

_TIMES = 3.0  # a rate that grows less is an ordinary day
_MUCH = 5.0  # refusals an attempt beyond the other run's: no test is needed to see them
_MANY = 0.5  # refusals an attempt from which on they can have cost time
_SLOWER = 1.1
_READ = 2000  # characters of an error's message that are looked at


def provider_of(model: str) -> str:
    """The first part of a model's name: "openai" of "openai/gpt-5"."""
    return model.partition("/")[0]


class Load(msgspec.Struct):
    """What a provider did to one run.

    Attributes:
        attempts: That began.
        refusals: Calls made again because they were refused for load or came too late, and attempts lost to that.
        hit: Attempts that met at least one.
        lost: Attempts that ended as infrastructure errors because of them.
    """

    attempts: int = 0
    refusals: int = 0
    hit: int = 0
    lost: int = 0

    @property
    def rate(self) -> float:
        """Refusals an attempt."""
        return self.refusals / self.attempts if self.attempts else 0.0


class Strain(msgspec.Struct, frozen=True):
    """A provider that refused far more in the second run than in the first.

    Attributes:
        slower: How many times as long an attempt took: the median over pairs; None where no pair says.
        waited: Seconds of waiting that an attempt had more of, as a share of the first run's duration; None if unknown.
    """

    provider: str
    before: Load
    after: Load
    slower: float | None = None
    waited: float | None = None

    @property
    def excess(self) -> float:
        """Refusals beyond those of the first run, at its rate."""
        return self.after.refusals - self.before.rate * self.after.attempts

    @property
    def lost_attempts(self) -> bool:
        """Whether more attempts were lost to it than in the first run."""
        share = self.before.lost / self.before.attempts
        return self.after.lost - share * self.after.attempts >= 1

    @property
    def cost_time(self) -> bool:
        """Whether refusals were many and attempts took longer."""
        longer = (self.slower or 0) >= _SLOWER or (self.waited or 0) >= _SLOWER - 1
        return self.after.rate >= _MANY and longer

    def __str__(self) -> str:
        text = (
            f"{self.provider}: {self.before.rate:.2g} refused or late calls an attempt in A, {self.after.rate:.2g} in B; "
            f"they met {self.before.hit} of {self.before.attempts} attempts in A, {self.after.hit} of {self.after.attempts} in B"
        )
        if self.before.lost or self.after.lost:
            text += f"; {self.before.lost} attempts were lost to them in A, {self.after.lost} in B"
        if self.slower is not None:
            text += f"; B took {self.slower:.2g} times as long (median of pairs)"
        return text


def loads(results: Iterable[Result]) -> dict[str, Load]:
    """What each provider did to the attempts that began."""
    found: dict[str, Load] = defaultdict(Load)
    for result in results:
        if not began(result) and result.outcome is not Outcome.INFRA_ERROR:
            continue
        load = found[provider_of(result.pair.model)]
        retried = sum(times for kind, times in result.provider_retries.items() if _slow_down(kind))
        lost = _lost_to_it(result, retried)
        load.attempts += 1
        load.refusals += retried + lost
        load.hit += retried + lost > 0
        load.lost += lost
    return dict(found)


def _slow_down(kind: str) -> bool:
    return bool(_REFUSED.search(kind) or _LATE.search(kind))


def _lost_to_it(result: Result, retried: int) -> bool:
    error = result.error
    # A scorer's judge may be another provider's model, and a sandbox that is late to start is nobody's model.
    if result.outcome is not Outcome.INFRA_ERROR or error is None or error.phase != "agent":
        return False
    text = f"{error.kind} {error.message[:_READ]}"
    if _REFUSED.search(text):
        return True
    if result.sandbox is not None and result.sandbox.lost:
        return False
    if _LATE.search(text):
        return not _OURS.search(text)
    return retried > 0 and result.model_calls == 0


def strained(a: Mapping[object, Result], b: Mapping[object, Result]) -> list[Strain]:
    """Providers whose refusals grew strongly from run A to run B, the worst first.

    Strongly: to three times the rate or more, and either so that chance alone would not give as many attempts that
    met one (Fisher's exact test, attempts hit in B against A), or by five an attempt.
    """
    before, after = loads(a.values()), loads(b.values())
    found = []
    for provider in sorted(before.keys() & after.keys()):
        old, new = before[provider], after[provider]
        if not new.refusals or new.rate < _TIMES * old.rate:
            continue
        p = fisher(new.hit, new.attempts, old.hit, old.attempts)
        if p < SIGNIFICANT or new.rate - old.rate >= _MUCH:
            slower, waited = _slowdown(_of(a.values(), provider), _of(b.values(), provider))
            found.append(Strain(provider, old, new, slower, waited))
    return sorted(found, key=lambda strain: (-strain.excess, strain.provider))


def share_of_excess(strain: Strain, a: Mapping[object, Result], b: Mapping[object, Result]) -> float:
    """The part of all providers' growth in refusals that is this one's."""
    before, after = loads(a.values()), loads(b.values())
    growth = (Strain(name, before.get(name, Load()), load).excess for name, load in after.items())
    total = sum(excess for excess in growth if excess > 0)
    return strain.excess / total if total else 0.0


def _of(results: Iterable[Result], provider: str) -> list[Result]:
    return [result for result in results if provider_of(result.pair.model) == provider]


def _slowdown(a: list[Result], b: list[Result]) -> tuple[float | None, float | None]:
    old, new = _durations(a), _durations(b)
    ratios = [new[pair] / old[pair] for pair in old.keys() & new.keys() if old[pair] > 0]
    waits = [_waits(a), _waits(b)]
    waited = None
    if old and waits[0] is not None and waits[1] is not None and (usual := fmean(old.values())) > 0:
        waited = (waits[1] - waits[0]) / usual
    return (median(ratios) if ratios else None), waited


def _durations(results: Iterable[Result]) -> dict[Pair, float]:
    """Mean seconds of the attempts with a result, by pair."""
    found: dict[Pair, list[float]] = defaultdict(list)
    for result in results:
        if result.outcome.produced and (duration := seconds(result.duration)) is not None:
            found[result.pair].append(duration)
    return {pair: fmean(durations) for pair, durations in found.items()}


def _waits(results: Iterable[Result]) -> float | None:
    waits = [
        max(0.0, duration - working)
        for result in results
        if (duration := seconds(result.duration)) is not None
        and (working := seconds(result.working)) is not None
    ]
    return fmean(waits) if waits else None
