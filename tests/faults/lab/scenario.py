"""What a scenario is, and the list of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hawk.core.diagnosis.causes import Severity

if TYPE_CHECKING:
    from tests.faults.lab.bench import Bench, Case

SIGNAL, SILENCE = 20.0, 60.0
"""Seconds from a fault to its verdict: where something is said, and where nothing is."""


@dataclass(frozen=True)
class Scenario:
    """One thing to provoke, and what has to be said of it. Causes are spelt `layer.word`.

    Attributes:
        cause: What has to be named first. Of a healthy one: what has to be named, if anything has; else empty.
        make: Makes its eval set, provider and actions from a bench with random names, sizes and delays of its own.
        healthy: Nothing above `most` may ever be said.
        also: More causes, each of which has to be named: several faults at once. Which is first does not matter then.
        either: Other causes that may stand first instead: what happens is both.
        must_not: Causes that may not be named above `info`.
        least: How bad the right verdict has to be at least.
        most: How bad anything of a healthy one may be at most.
        within: Seconds from the fault to the verdict.
        watch: Seconds for which a healthy one is looked at; its end is the end too.
        dead: Checked again from what is kept, once everything was killed.
        alone: Needs a Hawk of its own.
        quick: In the part that CI runs.
        needs: Says why it can't be run on this machine; None: it can.
    """

    name: str
    cause: str
    make: Callable[[Bench], Case]
    healthy: bool = False
    also: tuple[str, ...] = ()
    either: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()
    least: Severity = Severity.INFO
    most: Severity = Severity.INFO
    within: float = SIGNAL
    watch: float = 40.0
    dead: bool = True
    alone: bool = False
    quick: bool = False
    needs: Callable[[], str | None] | None = None

    @property
    def layer(self) -> str:
        return self.cause.partition(".")[0]

    @property
    def causes(self) -> tuple[str, ...]:
        """All that have to be named."""
        return (self.cause, *self.also) if self.cause else self.also

    @property
    def missing(self) -> str | None:
        """Why it can't be run here."""
        return self.needs() if self.needs is not None else None


SCENARIOS: list[Scenario] = []
"""All, in the order of their modules: `tests.faults.lab.scenarios` fills it."""

CLUSTER = {
    "sandbox.image_pull": "a registry and a container engine",
    "sandbox.crash_loop": "pods",
    "sandbox.unschedulable": "pods",
}
"""Causes that only a cluster can provoke, and what they need: tested on documents written by hand, in tests/core."""

Make = Callable[["Bench"], "Case"]


def scenario(
    cause: str,
    *also: str,
    either: Sequence[str] = (),
    must_not: Sequence[str] = (),
    least: Severity = Severity.INFO,
    within: float = SIGNAL,
    dead: bool = True,
    alone: bool = False,
    quick: bool = False,
    needs: Callable[[], str | None] | None = None,
) -> Callable[[Make], Make]:
    """A fault: the function makes it, its name is the scenario's."""

    def register(make: Make) -> Make:
        SCENARIOS.append(
            Scenario(
                _name(make), cause, make, also=also, either=tuple(either), must_not=tuple(must_not), least=least,
                within=within, dead=dead, alone=alone, quick=quick, needs=needs,
            )
        )  # fmt: skip
        return make

    return register


def healthy(
    cause: str = "",
    *,
    watch: float = 40.0,
    most: Severity = Severity.INFO,
    alone: bool = False,
    quick: bool = False,
    needs: Callable[[], str | None] | None = None,
) -> Callable[[Make], Make]:
    """A healthy or merely slow run."""

    def register(make: Make) -> Make:
        SCENARIOS.append(
            Scenario(
                _name(make), cause, make, healthy=True, watch=watch, most=most, dead=False, alone=alone, quick=quick,
                needs=needs,
            )
        )  # fmt: skip
        return make

    return register


def _name(make: Make) -> str:
    return make.__name__.strip("_").replace("_", "-")
