"""Replays the published 237 pairs under each policy: `python -m benchmarks.attempts [--only parallel,…] [--scale N]`.

An agent sleeps in a real sandbox as long as the data says, a tenth of it by default, and passes or fails as it says.
Ends with 1 when a bar is missed. Bare Inspect runs the same tasks in the same call. An idle machine gives the better
figures: on a busy one starting 474 sandboxes alone takes longer than all bars allow.
"""

from __future__ import annotations

import argparse
import functools
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks import bars
from benchmarks.attempts_bare import bare
from benchmarks.attempts_report import measure_report
from benchmarks.attempts_runs import RUNS, Course, Ran, course, run
from benchmarks.bars import Bar
from benchmarks.processes import Hawk, calm, hawk

PARTS = (*RUNS, "bare", "report")
MAX_OVERHEAD = {"parallel": 1.05, "parallel-250": 1.06, "selective-250": 1.10, "sequential": 1.03}
MEMORY = 700
HOURS = 0.82


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument(
        "--scale", type=float, default=10.0, help="what durations are divided by (default 10)"
    )
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := [name for name in wanted if name not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # or servers and jobs would stay behind
    data = course(options.scale)
    measured: list[Bar] = []
    ran: dict[str, Ran] = {}
    with tempfile.TemporaryDirectory(prefix="hawk-benchmark-") as base:
        with hawk(Path(base) / "home") as instance:
            instance.start()
            for name in wanted:
                if name in RUNS:
                    measured += _part(name, functools.partial(_run, name, ran, instance, Path(base), data))
        if "bare" in wanted:
            measured += _part("bare", lambda: [bare(Path(base), data)])
        if "report" in wanted:
            measured += _part("report", lambda: measure_report(Path(base)))
    if "parallel" in ran and "selective-250" in ran:
        share = ran["selective-250"].hours / ran["parallel"].hours
        note = f"{ran['selective-250'].hours:.2f} of {ran['parallel'].hours:.2f}, as measured"
        measured.append(Bar("selective: sandbox-hours / parallel's", share, HOURS, "x", note))
    if ran:
        print(_predictions(ran.values(), data.scale))
    print(bars.text(measured))
    if options.only == parser.get_default("only") and options.scale == parser.get_default("scale"):
        print(f"Written to {bars.write_results('attempts', measured).relative_to(bars.RESULTS.parents[1])}")
    return 0 if all(bar.verdict != "MISS" for bar in measured) else 1


def _part(name: str, measure: Callable[[], list[Bar]]) -> list[Bar]:
    """One part's bars; a part that fails is a miss, and the others are still measured."""
    print(f"{name} …", file=sys.stderr, flush=True)
    calm()
    try:
        return measure()
    except Exception as ex:
        return [bars.missing(f"all of {name}", 0, "", f"{type(ex).__name__}: {ex}")]


def _run(name: str, ran: dict[str, Ran], instance: Hawk, base: Path, data: Course) -> list[Bar]:
    done = ran[name] = run(name, instance, base, data)
    print(
        f"  {done.wall:.1f} s, {done.attempts} attempts, {done.hours:.2f} sandbox-hours",
        file=sys.stderr,
        flush=True,
    )
    limit = MAX_OVERHEAD[name]
    against = data.slowest_pair if name == "sequential" else data.slowest
    what = "slowest pair" if name == "sequential" else "slowest attempt"
    note = (
        f"{done.wall:.1f} s against {against:.1f} s; first start after {done.first_start:.1f} s, "
        f"last end → complete {done.after_last_end:.1f} s"
    )
    rows = [
        Bar(f"{name}: submit → complete / {what}", done.wall / against, limit, "x", note),
        Bar(f"{name}: last attempt ends → complete report", done.report_after, 5.0, "s", "over HTTP"),
        _exactly(
            f"{name}: pairs unlike the data", done.wrong_pairs, "185 pass 2/2, 22 pass 1/2, 30 pass 0/2"
        ),
        _exactly(f"{name}: infrastructure errors", done.infra_errors, f"{done.attempts} attempts"),
        _exactly(
            f"{name}: sandboxes that are not an attempt's",
            abs(done.sandboxes - done.attempts),
            f"{done.sandboxes} sandboxes",
        ),
        _exactly(f"{name}: processes and mounts left", done.left, "after the job's end"),
    ]
    if name == "sequential":
        rows.append(
            _exactly("sequential: attempts away from 284", abs(done.attempts - 284), f"{done.attempts} ran")
        )
    if name == "parallel":
        note = f"at most {done.in_flight} in flight; proportional set size, sampled"
        rows.append(Bar("parallel: supervisor, workers and zygote", done.memory / 2**20, MEMORY, "MiB", note))
    return rows


def _exactly(name: str, figure: int, note: str) -> Bar:
    return Bar(name, figure, 0, "", note)


def _predictions(ran: Iterable[Ran], scale: float) -> str:
    """Each policy's row, predicted against measured."""
    lines = ["policy          predicted: wall, attempts, hours   measured: wall, attempts, hours"]
    for done in ran:
        predicted = done.predicted
        told = (
            "nothing"
            if predicted is None
            else f"{predicted.wall:7.1f} s {predicted.attempts:4d} {predicted.seconds * scale / 3600:6.2f}"
        )
        lines.append(f"{done.name:15s} {told:35s} {done.wall:7.1f} s {done.attempts:4d} {done.hours:6.2f}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
