"""The fault lab as bars: how often the right cause stands first, in what time, and what healthy runs raise."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.faults.lab import matrix
from tests.faults.lab.__main__ import chosen
from tests.faults.lab.lab import Lab
from tests.faults.lab.scenario import SIGNAL, Scenario
from tests.faults.lab.scenarios import SCENARIOS
from tests.faults.lab.trial import Outcome, Result

from benchmarks.bars import Bar


def measure(options: argparse.Namespace) -> list[Bar]:
    scenarios = chosen(options.scenarios)
    lab = Lab(
        options.seed,
        jobs=options.jobs,
        told=lambda result: print(f"  {matrix.line(result)}", file=sys.stderr, flush=True),
    )
    results = lab.run(scenarios)
    print(matrix.matrix(results))
    print(matrix.summary(results))
    return _bars(results, {scenario.name: scenario for scenario in SCENARIOS}, options.seed)


def _bars(results: Sequence[Result], scenarios: dict[str, Scenario], seed: int) -> list[Bar]:
    faults = matrix.faults(results)
    one = [r for r in faults if not r.several]
    several = [r for r in faults if r.several]
    healthy = [r for r in results if r.healthy and r.outcome is not Outcome.SKIPPED]
    dead = [r for r in faults if r.dead is not None]
    signal = [r.seconds for r in faults if r.seconds is not None and scenarios[r.name].within <= SIGNAL]
    silence = [r.seconds for r in faults if r.seconds is not None and scenarios[r.name].within > SIGNAL]
    ran = f"--seed {seed}"
    return [
        Bar("wrong cause first", 1 - matrix.first_right(results), 0.03, "of all", f"{len(one)} scenarios, {ran}"),
        Bar("wrong layer", 1 - matrix.layer_right(results), 0.0, "of all", f"{len(one)} scenarios"),
        Bar("two or three at once, not all named", 1 - matrix.several_named(results), 0.05, "of all",
            f"{len(several)} scenarios"),
        Bar("false stuck or fatal", matrix.alarms(results), 0, "", f"{len(healthy)} healthy runs"),
        Bar("healthy runs with anything above info", sum(r.outcome is Outcome.ALARM for r in healthy), 0, "",
            f"{len(healthy)} healthy runs"),
        Bar("fault to verdict, with a signal", max(signal, default=float("nan")), 20, "s",
            f"the slowest of {len(signal)}; the middle one {_middle(signal):.1f} s"),
        Bar("fault to verdict, silence", max(silence, default=float("nan")), 60, "s",
            f"the slowest of {len(silence)}; the middle one {_middle(silence):.1f} s"),
        Bar("another cause after death", 1 - matrix.after_death(results), 0.05, "of all",
            f"{len(dead)} scenarios: from what is kept, and from a new server"),
    ]  # fmt: skip


def _middle(times: Sequence[float]) -> float:
    return sorted(times)[len(times) // 2] if times else float("nan")
