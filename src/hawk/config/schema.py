"""The eval set's JSON Schema, for editors; and the table of its fields, for the manual.

`python -m hawk.config.schema` writes both into `docs/`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from hawk.config.check import PASSTHROUGH, RESERVED, WITHOUT_EFFECT
from hawk.config.eval_set import EvalSetConfig

SCHEMA_FILE = "eval-set.schema.json"
MANUAL_FILE = "config.md"
_TABLES = re.compile(r"(<!-- generated: begin -->\n).*?(<!-- generated: end -->)", re.DOTALL)


def json_schema() -> dict[str, Any]:
    """The schema of what a person may write: short forms too, options of Inspect with their usual spelling only."""
    schema = EvalSetConfig.model_json_schema(mode="validation")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    for name in sorted(PASSTHROUGH):
        schema["properties"].setdefault(name, {"description": "Passed on to Inspect unchecked."})
    for name, why in WITHOUT_EFFECT.items():
        schema["properties"].setdefault(name, {"description": f"No effect: {why}.", "deprecated": True})
    schema["additionalProperties"] = False
    return schema


def render_schema() -> str:
    """The file `docs/eval-set.schema.json`."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def render_manual(manual: str) -> str:
    """`docs/config.md` with its tables made anew."""
    parts = tables("Eval set", EvalSetConfig)
    parts.append(
        "### Options of Inspect that pass through\n\n"
        + ", ".join(f"`{n}`" for n in sorted(PASSTHROUGH))
        + ".\n"
    )
    parts.append("### Options of Inspect that Hawk decides\n\n" + _list({**RESERVED, **WITHOUT_EFFECT}))
    return fill(manual, parts)


def tables(title: str, model: type[BaseModel]) -> list[str]:
    """A table of the fields of a model, and one of each model in it."""
    schema = model.model_json_schema(mode="validation")
    parts = [_table(title, schema, None)]
    for name, definition in sorted(schema["$defs"].items()):
        if "properties" in definition:
            parts.append(_table(name, definition, definition.get("description")))
    return parts


def fill(manual: str, parts: list[str]) -> str:
    """A manual with what lies between its marks made anew."""
    body = "\n".join(parts)
    return _TABLES.sub(lambda m: f"{m[1]}\n{body}\n{m[2]}", manual)


def _table(title: str, schema: dict[str, Any], description: str | None) -> str:
    rows = ["| field | value | meaning |", "|---|---|---|"]
    required = schema.get("required", [])
    for name, field in schema["properties"].items():
        default = field.get("default")
        shown = isinstance(default, str | bool | int) and default is not False
        extra = " Required." if name in required else f" Default: `{json.dumps(default)}`." if shown else ""
        rows.append(f"| `{name}` | {_type(field)} | {_line(field.get('description', ''))}{extra} |")
    intro = f"{description}\n\n" if description else ""
    return f"### {title}\n\n{intro}" + "\n".join(rows) + "\n"


def _line(text: str) -> str:
    return " ".join(text.split())


def _type(field: dict[str, Any]) -> str:
    """What may be written there, in a few words."""
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[-1]
        return "anything" if name == "JsonValue" else f"[{name}](#{name.lower()})"
    if "anyOf" in field:
        kinds = dict.fromkeys(_type(option) for option in field["anyOf"] if option.get("type") != "null")
        return " or ".join(kinds)
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        inside = field.get("items") or {}
        return f"list of {_type(inside)}" if inside else "`[from, to]`"
    if field.get("type") == "object":
        inside = field.get("additionalProperties")
        return f"mapping to {_type(inside)}" if isinstance(inside, dict) else "mapping"
    words = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
    return words.get(field.get("type", ""), "anything")


def _list(reasons: dict[str, str]) -> str:
    return "\n".join(f"- `{name}`: {why}." for name, why in sorted(reasons.items())) + "\n"


def main(docs: Path) -> None:
    """Write the schema and the manual's tables."""
    (docs / SCHEMA_FILE).write_text(render_schema(), "utf-8")
    manual = docs / MANUAL_FILE
    manual.write_text(render_manual(manual.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(Path("docs"))
