"""Which sandboxes a process has, by attempt, and what attempts without one wait for."""

from __future__ import annotations

import pytest

from hawk.core.snapshot import SandboxFacts
from hawk.sandbox.registry import Registry


class Boxes:
    """Stands in for a group of sandboxes."""

    def __init__(self, facts: SandboxFacts) -> None:
        self._facts = facts

    def facts(self) -> SandboxFacts:
        return self._facts


QUIET = SandboxFacts("a.default")
HIT = SandboxFacts("b.default", {"oom_killed": 1})
LOST = SandboxFacts("c.default", lost="killed")


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    made.attempt = lambda: "s/1@e"
    return made


def test_an_attempt_waits_for_what_is_made_for_it(registry: Registry) -> None:
    assert registry.waits() == {}
    with registry.starting(["layer", "other"]) as tell:
        assert registry.waits() == {"s/1@e": "starting its sandbox"}
        with registry.working("somebody's", "building this"), registry.working("other", "building that"):
            assert registry.waits() == {"s/1@e": "building that"}
            assert registry.work() == "building this"
        assert registry.waits() == {"s/1@e": "starting its sandbox"}
        tell(Boxes(QUIET))  # type: ignore[arg-type]
    assert (registry.waits(), registry.work()) == ({}, None)
    assert registry.facts() == {"s/1@e": QUIET}


def test_one_that_could_not_be_made_is_not_waited_for(registry: Registry) -> None:
    with pytest.raises(ValueError, match="no"), registry.starting([]), registry.working("x", "building"):
        raise ValueError("no")
    assert (registry.waits(), registry.facts(), registry.work()) == ({}, {}, None)


@pytest.mark.parametrize(("facts", "told"), [(QUIET, []), (HIT, [("s/1@e", HIT)]), (LOST, [("s/1@e", LOST)])])
def test_the_end_of_one_that_was_in_trouble_is_told(
    registry: Registry, facts: SandboxFacts, told: list[tuple[str, SandboxFacts]]
) -> None:
    heard: list[tuple[str, SandboxFacts]] = []
    registry.ended = lambda attempt, said: heard.append((attempt, said))
    boxes = Boxes(facts)
    with registry.starting([]) as tell:
        tell(boxes)  # type: ignore[arg-type]
    registry.closed(Boxes(HIT))  # type: ignore[arg-type]
    assert (registry.facts(), heard) == ({"s/1@e": facts}, [])
    registry.closed(boxes)  # type: ignore[arg-type]
    registry.closed(boxes)  # type: ignore[arg-type]
    assert (registry.facts(), heard) == ({}, told)


def test_the_sandbox_of_the_next_try_stays_when_the_last_ones_ends_late(registry: Registry) -> None:
    first, second = Boxes(HIT), Boxes(QUIET)
    for boxes in (first, second):
        with registry.starting([]) as tell:
            tell(boxes)  # type: ignore[arg-type]
    registry.closed(first)  # type: ignore[arg-type]
    assert registry.facts() == {"s/1@e": QUIET}


def test_without_a_runner_nobody_is_told() -> None:
    registry = Registry()
    with registry.starting(["layer"]) as tell:
        assert registry.waits() == {}
        tell(Boxes(HIT))  # type: ignore[arg-type]
    registry.closed(Boxes(HIT))  # type: ignore[arg-type]
    assert registry.facts() == {}
