"""The fault lab: what is said of a job in which many things go wrong, and of healthy ones. `HAWK_FAULTLAB=1`: all of it.

`HAWK_FAULTLAB_SEED` makes names, sizes and delays those of an earlier run.
"""

from __future__ import annotations

import os
import random

import pytest

from hawk.core.diagnosis.about import ABOUT
from hawk.core.diagnosis.causes import Layer
from tests.faults.lab.lab import Lab
from tests.faults.lab.matrix import line, matrix, summary
from tests.faults.lab.scenario import CLUSTER
from tests.faults.lab.scenarios import SCENARIOS
from tests.faults.lab.trial import Outcome
from tests.sandbox.conftest import supported  # noqa: F401  # a fixture

WHOLE = os.environ.get("HAWK_FAULTLAB") == "1"

HEALTHY = {"healthy.progressing", "healthy.finishing", "provider.slow_generation"}
"""Causes that are no fault: healthy scenarios show them."""


def test_every_cause_has_a_scenario_or_needs_a_cluster() -> None:
    shown = {cause for scenario in SCENARIOS for cause in scenario.causes} | set(CLUSTER) | HEALTHY
    assert {f"{about.layer}.{about.word}" for about in ABOUT.values()} - shown == set()


def test_there_are_as_many_scenarios_of_each_kind_as_were_promised() -> None:
    faults = [s for s in SCENARIOS if not s.healthy]
    assert sum(s.healthy for s in SCENARIOS) >= 25
    assert sum(len(s.causes) == 2 for s in faults) >= 8
    assert sum(len(s.causes) >= 3 for s in faults) >= 2
    quick = [s for s in faults if s.quick]
    causes = {cause for s in quick for cause in s.causes}
    assert len(causes) >= 12
    assert {cause.partition(".")[0] for cause in causes} == set(Layer) - {Layer.HEALTHY}


@pytest.mark.slow
@pytest.mark.timeout(7200 if WHOLE else 240)
@pytest.mark.usefixtures("supported")
def test_faults_are_named_and_healthy_runs_raise_no_alarm(capsys: pytest.CaptureFixture[str]) -> None:
    """All that is quick at once: it waits more than it works."""
    seed = int(os.environ.get("HAWK_FAULTLAB_SEED") or random.SystemRandom().randrange(10_000))
    chosen = [s for s in SCENARIOS if WHOLE or s.quick]
    results = Lab(seed, jobs=3 if WHOLE else len(chosen)).run(chosen)
    left = len(SCENARIOS) - len(chosen)
    with capsys.disabled():
        print(f"\nfault lab, HAWK_FAULTLAB_SEED={seed}")
        print("\n".join(line(result) for result in results))
        print(f"{matrix(results)}\n{summary(results)}")
        if left:
            print(
                f"NOT RUN: {left} of {len(SCENARIOS)} scenarios. All of them: make faultlab, or HAWK_FAULTLAB=1"
            )
    wrong = [line(r) for r in results if not r.good and r.outcome is not Outcome.SKIPPED]
    assert not wrong, "\n".join(wrong)
