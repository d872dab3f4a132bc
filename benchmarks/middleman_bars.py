"""What the parts of the middleman benchmark share: how they are run, and bars that a figure must reach."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bars import Bar


@dataclass(frozen=True)
class Way:
    """How a run is made.

    Attributes:
        base: Directory of this part, removed afterwards.
        litellm: An environment with LiteLLM; None: the cached one.
        quick: For trying; its figures are no results.
    """

    base: Path
    litellm: Path | None = None
    quick: bool = False


@dataclass(frozen=True)
class Reached(Bar):
    """A bar that the figure must reach: `limit` is the least it may be."""

    @property
    def ratio(self) -> float:
        """Limit over figure: up to 1 passes."""
        return self.limit / self.figure if self.figure else math.inf

    @property
    def verdict(self) -> str:
        if math.isnan(self.figure) and not self.needed:
            return "NOT MEASURED"
        return "PASS" if self.figure >= self.limit else "MISS"


def check(what: str, failed: int, said: str) -> None:
    """Calls that failed say nothing about speed.

    Raises:
        RuntimeError: Some failed.
    """
    if failed:
        raise RuntimeError(f"{what}: {failed} calls failed, the first with {' '.join(said.split())[:300]}")
