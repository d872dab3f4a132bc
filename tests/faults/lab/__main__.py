"""The fault lab by hand: `python -m tests.faults.lab [--list] [--only GLOB] [--healthy] [--seed N] [--jobs N] …`."""

from __future__ import annotations

import argparse
import fnmatch
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.faults.lab.lab import Lab
from tests.faults.lab.matrix import line, matrix, summary
from tests.faults.lab.scenario import CLUSTER
from tests.faults.lab.scenarios import SCENARIOS, Scenario


def chosen(only: str | None, *, quick: bool = False, healthy: bool = False) -> list[Scenario]:
    """Scenarios whose name or cause matches one of some shell patterns."""
    patterns = (only or "*").split(",")
    return [
        scenario
        for scenario in SCENARIOS
        if any(
            fnmatch.fnmatch(word, pattern)
            for pattern in patterns
            for word in (scenario.name, scenario.cause, scenario.layer)
        )
        and (scenario.quick or not quick)
        and (scenario.healthy or not healthy)
    ]


def _list(scenarios: Sequence[Scenario]) -> None:
    for scenario in scenarios:
        says = "healthy" if scenario.healthy else ", ".join(scenario.causes)
        marks = [word for word in ("quick", "alone") if getattr(scenario, word)]
        if scenario.missing:
            marks.append(f"not here: {scenario.missing}")
        print(f"{scenario.name:45} {says}{f' ({chr(44).join(marks)})' if marks else ''}")
    for cause, need in CLUSTER.items():
        print(f"{'-':45} {cause} (NOT PROVOKED: needs {need}; see tests/core)")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.lab", description="Provoke faults, and see what is said."
    )
    parser.add_argument("--list", action="store_true", help="say what there is, and do nothing")
    parser.add_argument("--only", metavar="GLOB", help="names or causes, several with commas")
    parser.add_argument("--healthy", action="store_true", help="only healthy runs")
    parser.add_argument("--quick", action="store_true", help="only the part that CI runs")
    parser.add_argument("--seed", type=int, help="for names, sizes and delays; a random one when left out")
    parser.add_argument("--jobs", type=int, default=3, help="how many run at once (3)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="put the evidence of each there")
    parser.add_argument("--no-deaths", action="store_true", help="don't kill everything at the end of each")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    options = parser.parse_args()
    scenarios = chosen(options.only, quick=options.quick, healthy=options.healthy)
    if options.list:
        _list(scenarios)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # or servers and jobs would stay behind
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10_000)
    print(f"{len(scenarios)} scenarios, --seed {seed}", flush=True)
    lab = Lab(
        seed,
        jobs=options.jobs,
        keep=options.keep,
        deaths=not options.no_deaths,
        told=lambda result: print(line(result), flush=True),
    )
    results = lab.run(scenarios)
    print(matrix(results))
    print(summary(results))
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    return 0 if all(result.good or result.outcome == "skipped" for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
