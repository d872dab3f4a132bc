"""Which attempts of a pair run, and when."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

import msgspec

from hawk.core.attempts.results import PassRule

NOT_NEEDED = "not needed"
"""Begins the reason of every attempt that its policy made unnecessary."""


class Policy(StrEnum):
    """How the attempts of a pair relate in time."""

    SEQUENTIAL = "sequential"  # attempt k+1 starts when attempt k has not passed
    PARALLEL = "parallel"  # all at once
    SELECTIVE = "selective"  # parallel for pairs predicted to be long, sequential for the rest


class Step(StrEnum):
    """What is to be done with an attempt that has not begun."""

    GO = "go"
    HOLD = "hold"  # until an earlier attempt of its pair has ended
    SKIP = "skip"  # it is not needed any more


class Rules(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job's policy, as its plan fixes it.

    Attributes:
        cancel_siblings: A pass stops the other attempts of its pair. Sequential attempts have none to stop.
        threshold: For selective: seconds above which a pair's attempts run at once; None: all of them do.
        pass_rule: When an attempt has passed.
    """

    policy: Policy = Policy.SEQUENTIAL
    cancel_siblings: bool = False
    threshold: float | None = None
    pass_rule: PassRule = PassRule()

    @property
    def name(self) -> str:
        """As forecasts and reports call it."""
        return f"{self.policy}+cancel" if self.cancel_siblings else str(self.policy)

    @property
    def stops_early(self) -> bool:
        """Whether a pass may leave planned attempts without a result, which biases pass@k."""
        return self.policy is not Policy.PARALLEL or self.cancel_siblings

    def one_by_one(self, predicted: float | None) -> bool:
        """Whether a pair's attempts run one after the other.

        Args:
            predicted: Seconds that an attempt at it is expected to take; a pair that nobody knows may be a long one.
        """
        if self.policy is Policy.SELECTIVE:
            return self.threshold is not None and predicted is not None and predicted <= self.threshold
        return self.policy is Policy.SEQUENTIAL

    def cancels(self, predicted: float | None) -> bool:
        """Whether a pass makes the other attempts of its pair unnecessary."""
        return self.cancel_siblings or self.one_by_one(predicted)

    def step(
        self, attempt: int, *, ended: Collection[int], passed: Collection[int], predicted: float | None
    ) -> Step:
        """What is to be done with an attempt now.

        Args:
            attempt: k, from 1.
            ended: Attempts of its pair that will not run any more, whatever came of them.
            passed: Those of them that passed.
            predicted: Seconds that an attempt at the pair is expected to take, or None.
        """
        others = [k for k in passed if k != attempt]
        if others and self.cancels(predicted):
            return Step.SKIP
        if self.one_by_one(predicted) and any(k not in ended for k in range(1, attempt)):
            return Step.HOLD
        return Step.GO


def not_needed(passed: int) -> str:
    """The reason of an attempt that another one's pass made unnecessary."""
    return f"{NOT_NEEDED}: attempt {passed} passed"
