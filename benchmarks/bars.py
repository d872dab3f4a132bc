"""A bar: a figure, the most it may be, and how it is shown and kept."""

from __future__ import annotations

import math
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Bar:
    """One measured figure.

    Attributes:
        name: What was measured.
        figure: The measurement; NaN when it could not be made, which is a miss.
        limit: The most it may be.
        unit: `s`, `ms`, `MB`, `MiB`, `x` or a count.
        note: What it was measured from.
        needed: Without a measurement it is a miss.
    """

    name: str
    figure: float
    limit: float
    unit: str
    note: str = ""
    needed: bool = True

    @property
    def ratio(self) -> float:
        """Figure over limit: up to 1 passes."""
        if self.limit:
            return self.figure / self.limit
        return float(self.figure > 0) * 2

    @property
    def verdict(self) -> str:
        if math.isnan(self.figure) and not self.needed:
            return "NOT MEASURED"
        return "PASS" if self.figure <= self.limit else "MISS"


def missing(name: str, limit: float, unit: str, why: str, *, needed: bool = True) -> Bar:
    """A bar that could not be measured, with its reason: a miss, unless it is not needed."""
    return Bar(name, float("nan"), limit, unit, f"NOT MEASURED: {why}", needed)


def table(bars: Sequence[Bar]) -> list[list[str]]:
    head = ["what", "figure", "bar", "ratio", "", "measured from"]
    return [
        head,
        *(
            [b.name, _amount(b.figure, b.unit), _amount(b.limit, b.unit), f"{b.ratio:.2f}", b.verdict, b.note]
            for b in bars
        ),
    ]


def text(bars: Sequence[Bar]) -> str:
    rows = table(bars)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def write_results(name: str, bars: Sequence[Bar]) -> Path:
    """Keep the figures with the command that made them and what they were made on."""
    rows = [f"| {' | '.join(row)} |" for row in table(bars)]
    rows.insert(1, "|" + "---|" * len(table(bars)[0]))
    command = shlex.join(["python", "-m", f"benchmarks.{name}", *sys.argv[1:]])
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC on {machine}; load at the end {os.getloadavg()[0]:.1f}."
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.md"
    path.write_text("\n".join([f"# {name}", "", f"    {command}", "", made, "", *rows, ""]), "utf-8")
    return path


def _amount(value: float, unit: str) -> str:
    return f"{value:.3g} {unit}".strip() if value < 1000 else f"{value:.0f} {unit}".strip()
