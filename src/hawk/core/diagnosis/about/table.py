"""What is said of a cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from hawk.core.diagnosis.causes import Cause, Layer, Who


@dataclass(frozen=True)
class About:
    """One cause.

    Attributes:
        title: A few words, as `hawk diagnose` heads it.
        meaning: What is going on, for somebody who has never met it.
        seen: What it is concluded from, and what it is told apart from.
        remedy: One line: what to do.
        next: A command that can be pasted.
        who: Who can act.
    """

    layer: Layer
    title: str
    meaning: str
    seen: str
    remedy: str
    next: str
    who: Who
    word: str = ""

    @property
    def anchor(self) -> str:
        return f"{self.layer}-{self.word}".replace("_", "-")


Table: TypeAlias = Mapping[Cause, tuple[str, str, str, str, str, Who]]
"""Of the causes of one layer: title, meaning, seen, remedy, next, who."""
