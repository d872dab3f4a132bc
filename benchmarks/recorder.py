"""Prints the flight recorder's bars: `python -m benchmarks.recorder [--only stacks,trace,…] [--rounds N]`.

Ends with 1 when a bar is missed. An idle machine gives the better figures: a hundredth of a run's time is little.
"""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Callable

from benchmarks import bars, recorder_overhead, recorder_stacks, recorder_timeline, recorder_trace
from benchmarks.processes import calm

PARTS: dict[str, tuple[Callable[[int], list[bars.Bar]], int]] = {
    "stacks": (recorder_stacks.measure, 9),
    "trace": (recorder_trace.measure, 10),
    "timeline": (recorder_timeline.measure, 5),
    "overhead": (recorder_overhead.measure, 8),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, help="rounds of each part, instead of its own number")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := [name for name in wanted if name not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # or servers and jobs would stay behind
    measured: list[bars.Bar] = []
    for name in wanted:
        print(f"{name} …", file=sys.stderr, flush=True)
        measured += _part(name, options.rounds)
    print(bars.text(measured))
    if options.only == parser.get_default("only"):
        print(f"Written to {bars.write_results('recorder', measured).relative_to(bars.RESULTS.parents[1])}")
    return 0 if all(bar.verdict == "PASS" for bar in measured) else 1


def _part(name: str, rounds: int | None) -> list[bars.Bar]:
    """One part's bars; a part that fails is a miss, and the others are still measured."""
    calm()
    measure, usual = PARTS[name]
    try:
        return measure(rounds or usual)
    except Exception as ex:
        traceback.print_exc()
        return [bars.missing(f"all of {name}", 0, "", f"{type(ex).__name__}: {ex}")]


if __name__ == "__main__":
    sys.exit(main())
