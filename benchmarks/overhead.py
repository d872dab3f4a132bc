"""Prints every bar: `python -m benchmarks.overhead [--only start,running,snapshots] [--rounds N]`.

Ends with 1 when a bar is missed. What is compared runs in turn on the same machine, and medians of ratios are
taken; still, an idle machine gives the better figures.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable

from benchmarks import bars, running, snapshots, start

PARTS: dict[str, tuple[Callable[[int], list[bars.Bar]], int]] = {
    "start": (start.measure, 15),
    "running": (running.measure, 3),
    "snapshots": (snapshots.measure, 3),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, help="rounds of each part, instead of its own number")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # or servers and jobs would stay behind
    measured: list[bars.Bar] = []
    for name in options.only.split(","):
        measure, rounds = PARTS[name]
        print(f"{name} …", file=sys.stderr, flush=True)
        measured += measure(options.rounds or rounds)
    print(bars.text(measured))
    if options.only == parser.get_default("only"):
        print(f"Written to {bars.write_results('overhead', measured).relative_to(bars.RESULTS.parents[1])}")
    return 0 if all(bar.verdict == "PASS" for bar in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
