"""`hawk sandbox list`: what there is, as data and as tables."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any

import click
import msgspec

from hawk.cli.context import note
from hawk.cli.text import duration, plural, size, table
from hawk.config.settings import Settings
from hawk.sandbox.door import Look, look_around
from hawk.sandbox.images import names
from hawk.sandbox.layers import LayerInfo, LayerStore
from hawk.sandbox.names import LABELS, store_path
from hawk.sandbox.sweep import keepers

JOB, WORKER = LABELS


def inventory(settings: Settings) -> dict[str, Any]:
    """`layers`, `images` (name to key), `sandboxes`, `silent` (keepers that do not answer) and `left` (dead keepers)."""
    directory = store_path(settings)
    store = LayerStore(directory)
    looks = list(look_around(directory))
    return {
        "layers": [_layer(info) for info in reversed(store.list())],
        "images": names(store),
        "sandboxes": [_sandbox(look, row) for look in looks for row in look.sandboxes],
        "silent": {look.keeper.name: look.silent for look in looks if look.silent is not None},
        "left": [keeper.name for keeper in keepers(directory) if not keeper.alive],
    }


def _layer(info: LayerInfo) -> dict[str, Any]:
    return {**msgspec.to_builtins(msgspec.structs.asdict(info), enc_hook=str)}


def _sandbox(look: Look, row: dict[str, Any]) -> dict[str, Any]:
    about = look.keeper.about
    kept = {key: value for key, value in row.items() if key != "environment"}
    return {
        **kept,
        "keeper": look.keeper.name,
        "pid": about.get("pid"),
        "job_id": about.get(JOB),
        "worker": about.get(WORKER),
    }


def print_inventory(found: dict[str, Any]) -> None:
    """Tables, as wide as the terminal; piped, nothing is cut."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    tables = [
        (
            ["sandbox", "job", "worker", "age", "memory", "processes", "workspace", "running"],
            _sandbox_rows(found),
        ),
        (["layer", "size", "files", "age", "last used", "image", "what"], _layer_rows(found)),
    ]
    shown = [table(headers, rows, columns=columns) for headers, rows in tables if rows]
    click.echo("\n\n".join(shown), nl=bool(shown))
    if not found["sandboxes"]:
        note("No sandbox lives.")
    if not found["layers"]:
        note("No layers.")
    for why in found["silent"].values():
        note(why)
    if found["left"]:
        note(f"{plural(len(found['left']), 'keeper')} died and left things behind: hawk sandbox sweep")


def _sandbox_rows(found: dict[str, Any]) -> list[list[str]]:
    return [
        [
            row["label"],
            row["job_id"] or f"by hand ({row['pid']})",
            row["worker"] or "",
            duration(row["age"]),
            _size(row.get("memory")),
            str(row.get("processes", "–")),
            _size(row.get("workspace")),
            plural(row["commands"], "command") if row["commands"] else "",
        ]
        for row in found["sandboxes"]
    ]


def _layer_rows(found: dict[str, Any]) -> list[list[str]]:
    now = time.time()
    called: dict[str, list[str]] = {}
    for name, key in found["images"].items():
        called.setdefault(key, []).append(name)
    return [
        [
            layer["key"][:8],
            size(layer["bytes"]),
            f"{layer['files']:,}",
            duration(now - layer["created"]),
            "in use" if layer["in_use"] else f"{duration(now - layer['last_used'])} ago",
            ", ".join(called.get(layer["key"], [])),
            layer["description"],
        ]
        for layer in found["layers"]
    ]


def _size(count: int | None) -> str:
    return "–" if count is None else size(count)
