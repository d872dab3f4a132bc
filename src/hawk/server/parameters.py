"""What paths and queries hold, and how `/openapi.json` describes it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import AfterValidator, BeforeValidator, Field

from hawk.config.ids import MAX_LENGTH, PATTERN

_NO_NUL = r"^[^\x00]*$"  # PostgreSQL knows no text with it

# The form of ids is described, and not checked: `check_id` has the better message.
_ID: dict[str, Any] = {"pattern": PATTERN, "minLength": 1, "maxLength": MAX_LENGTH}
LOG_NAME: dict[str, Any] = {"pattern": rf"{PATTERN.removesuffix('$')}/[^/]+\.eval$"}

JobId = Annotated[str, Path(json_schema_extra=_ID)]
"""An eval set's id, in the path."""

JobIdQuery = Annotated[str, Query(json_schema_extra=_ID)]

LogName = Annotated[str, Path(json_schema_extra=LOG_NAME)]
"""A log's name: `<eval set id>/<file>.eval`."""

Uuid = Annotated[str, Path(pattern=_NO_NUL)]
"""An attempt's, in the path."""

Word = Annotated[str | None, Query(pattern=_NO_NUL)]
Words = Annotated[list[Annotated[str, Field(pattern=_NO_NUL)]] | None, Query()]
Search = Annotated[str | None, Query(pattern=_NO_NUL, max_length=500)]

BAD_ID = (400, 404)
"""What a route with an eval set's id answers when it is none, or nobody's."""


def _written_out(value: Any) -> Any:
    if isinstance(value, str) and value.replace(".", "").removeprefix("-").isdecimal():
        raise ValueError("a number is no time")  # pydantic would guess its unit
    return value


def _zoned(value: datetime) -> datetime:
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


Since = Annotated[
    Annotated[datetime, BeforeValidator(_written_out), AfterValidator(_zoned)] | None,
    Query(description="Only what is later. Without a zone it is UTC."),
]
