"""Prints the bars of diagnosis: `python -m benchmarks.diagnosis [--only lab,speed,rivals] [--seed N] [--jobs N]`.

Ends with 1 when a bar is missed. The lab provokes every cause with real processes, sandboxes and a scriptable provider,
and takes a good half hour.
"""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Callable

from benchmarks import bars, diagnosis_lab, diagnosis_rivals, diagnosis_speed
from benchmarks.processes import calm

PARTS: dict[str, Callable[[argparse.Namespace], list[bars.Bar]]] = {
    "speed": diagnosis_speed.measure,
    "lab": diagnosis_lab.measure,
    "rivals": diagnosis_rivals.show,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--scenarios", metavar="GLOB", help="of the lab: only these, several with commas")
    parser.add_argument("--seed", type=int, default=0, help="of the lab's names, sizes and delays (0)")
    parser.add_argument("--jobs", type=int, default=3, help="scenarios at once (3)")
    parser.add_argument("--rounds", type=int, default=20, help="of each measurement of speed (20)")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := [name for name in wanted if name not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # or servers and jobs would stay behind
    measured: list[bars.Bar] = []
    for name in PARTS:
        if name in wanted:
            print(f"{name} …", file=sys.stderr, flush=True)
            measured += _part(name, options)
    print(bars.text(measured))
    if options.only == parser.get_default("only") and options.scenarios is None:
        written = bars.write_results("diagnosis", measured)
        print(f"Written to {written.relative_to(bars.RESULTS.parents[1])}")
    return 0 if all(bar.verdict in ("PASS", "NOT MEASURED") for bar in measured) else 1


def _part(name: str, options: argparse.Namespace) -> list[bars.Bar]:
    """One part's bars; a part that fails is a miss, and the others are still measured."""
    calm()
    try:
        return PARTS[name](options)
    except Exception as ex:
        traceback.print_exc()
        return [bars.missing(f"all of {name}", 0, "", f"{type(ex).__name__}: {ex}")]


if __name__ == "__main__":
    sys.exit(main())
