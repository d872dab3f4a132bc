"""All scenarios, a module a layer. Importing this package registers them."""

from tests.faults.lab.scenario import SCENARIOS, Scenario
from tests.faults.lab.scenarios import (  # noqa: F401  # they register themselves
    attempt,
    healthy_models,
    healthy_work,
    middleman,
    middleman_alone,
    provider,
    provider_silent,
    runner,
    runner_alone,
    runner_start,
    sandbox,
    scheduler,
    several,
)

__all__ = ["SCENARIOS", "Scenario"]
