"""Signs that a model's provider held attempts up: what it refused for load, and what that cost."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
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
_OURS = re.compile(r"sandbox|bwrap|docker|container|\bpod\b|command|\bexec\b", re.IGNORECASE)

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
        refusals: Calls refused for load or too late, made again or the end of their attempt.
        hit: Attempts that met at least one.
        lost: Attempts that ended as infrastructure errors because of them.
        met: Pairs of which an attempt met one.
    """

    attempts: int = 0
    refusals: int = 0
    hit: int = 0
    lost: int = 0
    met: set[Pair] = set()

    @property
    def rate(self) -> float:
        """Refusals an attempt."""
        return self.refusals / self.attempts if self.attempts else 0.0


class Strain(msgspec.Struct, frozen=True):
    """A provider that refused far more in the second run than in the first.

    Attributes:
        share: This provider's part of all providers' growth in refusals.
        slower: How many times as long an attempt took: the median over pairs; None where no pair says.
        waited: Seconds of waiting that an attempt had more of, as a share of the first run's duration; None
            if unknown.
    """

    provider: str
    before: Load
    after: Load
    share: float = 0.0
    slower: float | None = None
    waited: float | None = None

    @property
    def lost_attempts(self) -> bool:
        """Whether more attempts were lost to it than in the first run."""
        return (
            self.after.lost * self.before.attempts - self.before.lost * self.after.attempts
            >= self.before.attempts
        )

    @property
    def cost_time(self) -> bool:
        """Whether refusals were many and attempts took longer."""
        longer = (self.slower or 0) >= _SLOWER or (self.waited or 0) >= _SLOWER - 1
        return self.after.rate >= _MANY and longer

    def __str__(self) -> str:
        a, b = self.before, self.after
        text = (
            f"{self.provider}: refused or late calls an attempt {short(a.rate)} in A, {short(b.rate)} in B; "
            f"attempts that met one {a.hit} of {a.attempts} in A, {b.hit} of {b.attempts} in B"
        )
        if a.lost or b.lost:
            text += f"; attempts lost to them {a.lost} in A, {b.lost} in B"
        if self.slower is not None:
            text += f"; B took {short(self.slower)} times as long (median of pairs)"
        return text


def short(number: float) -> str:
    """A number in two digits, or as many as it has before the point."""
    return f"{number:.2g}" if number < 10 else f"{number:.0f}"


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
        load.lost += lost
        if retried + lost > 0:
            load.hit += 1
            load.met.add(result.pair)
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
    if _LATE.search(text) and not _OURS.search(text) and error.kind != "TimeoutError":
        return True
    # An error that names nothing ("no model call was answered", a bare TimeoutError): its retries say why.
    return retried > 0 and result.model_calls == 0


def strained(a: Sequence[Result], b: Sequence[Result]) -> list[Strain]:
    """Providers whose refusals grew strongly from run A to run B, the one that grew most first.

    Strongly: to three times the rate or more, and either so that chance alone would not give as many attempts
    that met one (Fisher's exact test, attempts hit in B against A), or by five an attempt.
    """
    before, after = loads(a), loads(b)
    growth = {
        provider: max(0.0, new.refusals - before.get(provider, Load()).rate * new.attempts)
        for provider, new in after.items()
    }
    every = sum(growth.values())
    found = []
    for provider in sorted(before.keys() & after.keys(), key=lambda name: (-growth[name], name)):
        old, new = before[provider], after[provider]
        if not new.refusals or new.rate < _TIMES * old.rate:
            continue
        p = fisher(new.hit, new.attempts, old.hit, old.attempts)
        if p < SIGNIFICANT or new.rate - old.rate >= _MUCH:
            slower, waited = _slowdown(_of(a, provider), _of(b, provider))
            found.append(Strain(provider, old, new, growth[provider] / every, slower, waited))
    return found


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
