"""The beginning of `PROMPT.md`: what an eval may say about itself.

The text under each field is its documentation.
"""

# ruff: noqa: RUF012 - pydantic copies mutable defaults

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from hawk.config.entries import Strict
from hawk.config.options import Count
from hawk.sandbox.options import BubblewrapConfig, Service
from hawk.sandbox.quantities import Duration
from hawk.sandbox.words import ServiceName, plain

SCORE_TIME_LIMIT = 600
"""Seconds that scoring may take where an eval does not say."""

_TOKENS = re.compile(r"(\d+(?:\.\d+)?)\s*([km]?)", re.IGNORECASE)


def _as_tokens(value: Any) -> Any:
    match = _TOKENS.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return value
    return int(float(match[1]) * {"": 1, "k": 1_000, "m": 1_000_000}[match[2].lower()])


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Tokens = Annotated[Count, BeforeValidator(_as_tokens, json_schema_input_type=Count | str)]
WORD = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""What a name may be: it becomes part of paths, and of patterns on a command line."""

Word = Annotated[str, Field(pattern=WORD, max_length=100)]


class Limits(Strict):
    """When an attempt at the eval ends, whatever the eval set says: of two limits the lower counts."""

    time_limit: Duration | None = None
    """How long an attempt may take: seconds, or `90s`, `10m`, `2h`."""

    working_limit: Duration | None = None
    """The same, waiting for others not counted."""

    message_limit: Count | None = None
    """Messages an attempt may have."""

    turn_limit: Count | None = None
    """Model calls an attempt may make."""

    token_limit: Tokens | None = None
    """Tokens an attempt may use: a number, or `500k`, `1.5m`."""

    cost_limit: Annotated[float, Field(gt=0)] | None = None
    """Dollars an attempt may cost; needs prices in the eval set."""


class FrontMatter(Limits):
    """What stands between the two lines `---` at the beginning of `PROMPT.md`. Every field may be left out."""

    model_config = ConfigDict(title="PROMPT.md")

    description: str | None = None
    """One line for people; no agent sees it."""

    suite: Word | None = None
    """The suite that it belongs to: `hawk eval-set --suite NAME` runs one, reports have a line for each."""

    tags: Annotated[list[Word], BeforeValidator(_as_list, json_schema_input_type=Word | list[Word])] = []
    """More words to find it by; they are in the logs."""

    sandbox: BubblewrapConfig | str | None = None
    """Its sandbox: the fields of a sandbox.yaml, or the path of one, relative to the eval's directory."""

    services: dict[ServiceName, Service] = {}
    """More sandboxes for the same attempt, by name, as in a sandbox.yaml: a database, a server."""

    start: Annotated[str, AfterValidator(plain)] | None = None
    """Shell commands to run in the workspace when its files are there and before the agent begins."""

    keep_processes: bool = False
    """Whether what the agent left running may run on while it is scored. Such a process can see the hidden tests."""

    score_time_limit: Duration = SCORE_TIME_LIMIT
    """How long scoring may take: seconds, or `90s`, `10m`, `2h`."""

    @model_validator(mode="after")
    def _services_once(self) -> FrontMatter:
        if self.services and isinstance(self.sandbox, str):
            raise ValueError("'services' can't be added to a sandbox.yaml: write them there")
        if self.services and isinstance(self.sandbox, BubblewrapConfig) and self.sandbox.services:
            raise ValueError("'services' are given twice, here and in 'sandbox'")
        return self

    @property
    def limits(self) -> dict[str, int | float]:
        """The limits that it sets, by Inspect's names."""
        return {name: value for name in Limits.model_fields if (value := getattr(self, name)) is not None}
