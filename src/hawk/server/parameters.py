"""Ids in paths and queries. What `/openapi.json` says of their form is not checked here: `check_id` has the better message."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query

from hawk.config.ids import MAX_LENGTH, PATTERN

_ID: dict[str, Any] = {"pattern": PATTERN, "minLength": 1, "maxLength": MAX_LENGTH}
_LOG: dict[str, Any] = {"pattern": rf"{PATTERN.removesuffix('$')}/[^/\0]+\.eval$"}

JobId = Annotated[str, Path(json_schema_extra=_ID)]
"""An eval set's id, in the path."""

JobIdQuery = Annotated[str, Query(json_schema_extra=_ID)]

LogName = Annotated[str, Path(json_schema_extra=_LOG)]
"""A log's name: `<eval set id>/<file>.eval`."""

LOG_NAME = _LOG
"""The same within a body."""

BAD_ID = (400, 404)
"""What a route with an eval set's id answers when it is none, or nobody's."""
