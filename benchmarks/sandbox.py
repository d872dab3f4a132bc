"""Prints the sandbox's bars: `python -m benchmarks.sandbox [--only start,crowd,snapshot,churn] [--rounds N]`.

Ends with 1 when a bar is missed. Its rivals, a bare bwrap and Docker, are measured in the same call, in turn with
ours; still, an idle machine gives the better figures.
"""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from benchmarks import bars, sandbox_churn, sandbox_crowd, sandbox_snapshot, sandbox_start
from benchmarks.processes import calm
from benchmarks.sandboxes import home

PARTS: dict[str, tuple[Callable[[Path, int], list[bars.Bar]], int]] = {
    "start": (sandbox_start.measure, 30),
    "crowd": (sandbox_crowd.measure, 3),
    "snapshot": (sandbox_snapshot.measure, 10),
    "churn": (sandbox_churn.measure, 10),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, help="rounds of each part, instead of its own number")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := [name for name in wanted if name not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # or a daemon and sandboxes would stay behind
    measured: list[bars.Bar] = []
    for name in wanted:
        print(f"{name} …", file=sys.stderr, flush=True)
        measured += _part(name, options.rounds)
    print(bars.text(measured))
    for bar in measured:
        if bar.verdict == "NOT MEASURED":
            print(f"!! {bar.name}: {bar.note}")
    if options.only == parser.get_default("only"):
        print(f"Written to {bars.write_results('sandbox', measured).relative_to(bars.RESULTS.parents[1])}")
    return 0 if all(bar.verdict != "MISS" for bar in measured) else 1


def _part(name: str, rounds: int | None) -> list[bars.Bar]:
    """One part's bars, with a store of its own; a part that fails is a miss, and the others are still measured."""
    measure, usual = PARTS[name]
    with home() as base:
        calm()
        try:
            return measure(base, rounds or usual)
        except Exception as ex:
            traceback.print_exc()
            return [bars.missing(f"all of {name}", 0, "", f"{type(ex).__name__}: {ex}")]


if __name__ == "__main__":
    sys.exit(main())
