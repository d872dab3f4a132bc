"""Whether the pairs that were lost lie together: at one provider, model, agent, task or time."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hawk.core.attempts.report import Concentration
from hawk.core.attempts.results import Pair
from hawk.core.attempts.statistics import SIGNIFICANT, fisher
from hawk.core.attempts.throttling import provider_of

QUARTERS = ("first quarter", "second quarter", "third quarter", "last quarter")
"""Names of the parts of B's pairs by when they started; pairs that started together share one."""


class Fate(NamedTuple):
    """A pair decided in both runs: whether it passed before and after."""

    pair: Pair
    before: bool
    after: bool

    @property
    def lost(self) -> bool:
        return self.before and not self.after

    @property
    def gained(self) -> bool:
        return self.after and not self.before


def concentration(fates: Sequence[Fate], starts: Mapping[Pair, float]) -> list[Concentration]:
    """Whether losses are more frequent at a provider, model, agent, time, or a task that lost a pair.

    Counted among pairs that passed in A: no other can be lost. Where nothing can lie together, because fewer
    than two were lost or all pairs are in one place, `p` is None.

    Args:
        starts: When each pair began in B, in seconds; a pair that is not there has no quarter.
    """
    able = [fate for fate in fates if fate.before]
    lost = sum(fate.lost for fate in able)
    quarters = _quarters([fate.pair for fate in able], starts)
    rows = []
    for kind in ("provider", "model", "agent", "task", "time"):
        groups: dict[str, list[Fate]] = defaultdict(list)
        for fate in able:
            if (name := _place(kind, fate.pair, quarters)) is not None:
                groups[name].append(fate)
        placed, placed_lost = sum(map(len, groups.values())), sum(f.lost for g in groups.values() for f in g)
        names: Iterable[str] = QUARTERS if kind == "time" else sorted(groups)
        for name in names:
            here = len(groups.get(name, ()))
            hits = sum(fate.lost for fate in groups.get(name, ()))
            if not here or (kind == "task" and not hits):
                continue
            told = lost >= 2 and placed > here
            p = fisher(hits, here, placed_lost - hits, placed - here) if told else None
            rows.append(Concentration(kind=kind, name=name, lost=hits, pairs=here, p=p))
    return rows


def together(rows: Sequence[Concentration], tasks: int) -> list[Concentration]:
    """The places where losses lie together beyond chance, each kind's p multiplied by how many places it has.

    Args:
        tasks: How many tasks there are: rows name only those that lost a pair.
    """
    found = []
    for row in rows:
        places = tasks if row.kind == "task" else sum(other.kind == row.kind for other in rows)
        if row.p is not None and row.p * places < SIGNIFICANT:
            found.append(row)
    return found


def _place(kind: str, pair: Pair, quarters: Mapping[Pair, str]) -> str | None:
    match kind:
        case "provider":
            return provider_of(pair.model)
        case "model":
            return pair.model
        case "agent":
            return pair.agent
        case "task":
            return pair.task
        case _:
            return quarters.get(pair)


def _quarters(pairs: Iterable[Pair], starts: Mapping[Pair, float]) -> dict[Pair, str]:
    known = {pair: starts[pair] for pair in pairs if pair in starts}
    times = sorted(known.values())
    if not times:
        return {}
    bounds = [times[len(times) * part // 4] for part in (1, 2, 3)]
    return {pair: QUARTERS[bisect_right(bounds, time)] for pair, time in known.items()}
