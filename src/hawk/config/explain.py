"""Pydantic's errors in words for the person who wrote the file."""

from __future__ import annotations

import re
from typing import Any, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from hawk.config.problems import FieldPath, Problem
from hawk.config.source import Source
from hawk.config.suggest import listing, nearest


def explain(ex: ValidationError, source: Source, model: type[BaseModel]) -> list[Problem]:
    """Pydantic's errors as ours: one a field, however many alternatives a value failed.

    Args:
        ex: What pydantic said.
        source: The file that it is about.
        model: What the file should have been.
    """
    merged: dict[FieldPath, list[ErrorDetails]] = {}
    for error in ex.errors(include_url=False):
        merged.setdefault(_written_path(error, source.data), []).append(error)
    # of the alternatives that a value failed, the one that was meant complains about something inside it
    inner = {path[:n] for path in merged for n in range(len(path))}
    return [_problem(path, errors, source, model) for path, errors in merged.items() if path not in inner]


def _written_path(error: ErrorDetails, data: Any) -> FieldPath:
    """The part of pydantic's location that exists in the file: alternatives of a union are in it too."""
    path: FieldPath = ()
    here: Any = data
    for part in error["loc"]:
        if part in (here if isinstance(here, dict) else range(len(here)) if isinstance(here, list) else ()):
            here = here[cast(Any, part)]
            path = (*path, part)
        elif error["type"] == "missing" and part == error["loc"][-1]:
            return (*path, part)
    return path


def _problem(path: FieldPath, errors: list[ErrorDetails], source: Source, model: type[BaseModel]) -> Problem:
    error = errors[0]
    if error["type"] == "missing":
        return source.problem(path, "is required")
    if error["type"] == "extra_forbidden":
        known, word = _fields_at(model, path[:-1]), str(path[-1])
        message = f"unknown field {word!r}"
        return source.problem(path, message, allowed=listing(known, 20), suggestion=nearest(word, known))
    custom = [str(e["ctx"]["error"]) for e in errors if e["type"] == "value_error"]
    if custom:
        return source.problem(path, "; ".join(dict.fromkeys(custom)))
    return source.problem(
        path,
        "has a value that is not allowed",
        found=None if "secrets" in path else _shown(error["input"]),
        allowed=" or ".join(dict.fromkeys(_allowed(e) for e in errors)),
        suggestion=_nearest_literal(error),
    )


def _nearest_literal(error: ErrorDetails) -> str | None:
    found = error["input"]
    if error["type"] != "literal_error" or not isinstance(found, str):
        return None
    return nearest(found, re.findall(r"'([^']*)'", error["ctx"]["expected"]))


def _allowed(error: ErrorDetails) -> str:
    text = error["msg"].removeprefix("Input should be ").removeprefix("a valid ").split(", unable")[0]
    return text[0].lower() + text[1:]


def _shown(value: Any) -> str:
    """A value as it may be printed: what is inside a mapping or list could be secret."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _fields_at(model: type[BaseModel], path: FieldPath) -> list[str]:
    """Names of the fields of the model that describes what is at a path, as they are written."""
    here: type[BaseModel] | None = model
    is_key = False  # of a mapping to models: not one of the model's fields, whatever it is called
    for part in path:
        if isinstance(part, int) or is_key:
            is_key = False
            continue
        field = _fields(here).get(part) if here is not None else None
        if field is None:
            return []
        here = _model_in(field.annotation)
        is_key = any(get_origin(kind) is dict for kind in (field.annotation, *get_args(field.annotation)))
    return list(_fields(here)) if here is not None else []


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    written = {name: field.validation_alias for name, field in model.model_fields.items()}
    return {str(written[name] or name): field for name, field in model.model_fields.items()}


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for arg in get_args(annotation) if (model := _model_in(arg)) is not None), None)
