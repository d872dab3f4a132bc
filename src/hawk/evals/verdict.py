"""What a scorer says: whether the attempt passed, what it looked at, what the judge said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hawk.core.attempts.results import Check
from hawk.evals.errors import ScorerError

MAX_CHECKS = 500
_NAME, _NOTES, _EXPLANATION = 200, 2000, 1000  # characters that are kept


class Judged(msgspec.Struct, frozen=True):
    """The judge's word on one text.

    Attributes:
        passed: Whether the text meets the rubric.
        notes: Why, in the judge's words.
        model: Who judged.
    """

    passed: bool
    notes: str = ""
    model: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """One attempt, scored.

    Attributes:
        passed: What the scorer decided; a check may have failed all the same, if the scorer says that it only advises.
        checks: What it looked at.
        judged: What it asked the judge, in order.
    """

    passed: bool
    checks: tuple[Check, ...] = ()
    judged: tuple[Judged, ...] = ()

    @property
    def explanation(self) -> str:
        """The checks that failed, short."""
        failed = [check for check in self.checks if not check.passed]
        count = len(self.checks)
        if not failed:
            word = "passed" if self.passed else "failed"
            return f"{count} of {count} checks passed" if count and self.passed else word
        names = "; ".join(f"{check.name} ({check.notes})" if check.notes else check.name for check in failed)
        return cut(f"{len(failed)} of {count} checks failed: {names}", _EXPLANATION)


class _Check(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    passed: bool
    notes: str | None = None


class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    passed: bool | None = None
    checks: list[_Check] = []


def parse_answer(answer: Any) -> Verdict:
    """What a scorer's function returned: `{passed, checks: [{name, passed, notes}]}`.

    Without `passed`, every check must have passed.

    Raises:
        ScorerError: It returned something else.
    """
    if not isinstance(answer, Mapping):
        raise ScorerError(
            f"the scorer must return {{'passed': …, 'checks': […]}}, not {type(answer).__name__}"
        )
    try:
        said = msgspec.convert(dict(answer), _Answer, strict=True)
    except (msgspec.ValidationError, TypeError) as ex:
        raise ScorerError(f"the scorer returned what is no verdict: {ex}") from ex
    if len(said.checks) > MAX_CHECKS:
        raise ScorerError(
            f"the scorer returned {len(said.checks):,} checks; at most {MAX_CHECKS} are allowed"
        )
    if said.passed is None and not said.checks:
        raise ScorerError("the scorer returned neither 'passed' nor any 'checks'")
    checks = tuple(Check(cut(c.name, _NAME), c.passed, cut(c.notes or "", _NOTES)) for c in said.checks)
    passed = said.passed if said.passed is not None else all(check.passed for check in checks)
    return Verdict(passed, checks)


def cut(text: str, most: int) -> str:
    """A text's beginning, with an ellipsis where something is missing."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def end_of(text: str, most: int = 500) -> str:
    """A text's end, where programs say what went wrong."""
    text = text.strip()
    return text if len(text) <= most else f"…{text[1 - most :]}"
