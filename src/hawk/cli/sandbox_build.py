"""`hawk sandbox build`: what is built, as it is built."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from hawk.cli.context import note
from hawk.cli.sandbox_configs import configs_of
from hawk.cli.text import clean, plural, shorten, size
from hawk.sandbox.building import Part, build
from hawk.sandbox.layers import LayerStore
from hawk.sandbox.prepare import layer_store

SHOWN = 90  # columns of a step


def run(path: Path, *, verify: bool, rebuild: bool) -> int:
    """Build the layers of a file's configurations. Exit code 1: `verify` found damage.

    Raises:
        HawkError: The config is wrong, or a step failed.
    """
    began = time.monotonic()
    configs = configs_of(path)
    with _steps(began):
        parts = asyncio.run(build(configs, rebuild=rebuild))
    for part in parts:
        layer = part.layer
        state = "built" if part.new else "already there"
        facts = f"{plural(layer.files, 'file')}, {size(layer.bytes)}, {layer.key[:8]}"
        click.echo(f"{part.sandbox}: {clean(layer.description)}: {state} ({facts})")
    if not parts:
        click.echo(f"{path}: nothing to build: it runs on this machine's programs as they are.")
    damaged = _verify(parts, layer_store()) if verify else False
    if not damaged:
        note(f"Ready after {time.monotonic() - began:.1f} s.")
    return 1 if damaged else 0


@contextmanager
def _steps(began: float) -> Iterator[None]:
    """While inside, what the store and the setup say is shown, with the time since the beginning."""
    handler = _Steps(began)
    logger = logging.getLogger("hawk.sandbox")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class _Steps(logging.Handler):
    def __init__(self, began: float) -> None:
        super().__init__()
        self._began = began

    def emit(self, record: logging.LogRecord) -> None:
        said = shorten(clean(record.getMessage()), SHOWN)
        note(f"{time.monotonic() - self._began:6.1f} s  {said}")


def _verify(parts: list[Part], store: LayerStore) -> bool:
    """Whether a layer is damaged; says how."""
    damaged = False
    for layer in {part.layer.key: part.layer for part in parts}.values():
        problems = store.verify(layer.key, deep=True)
        for problem in problems:
            note(f"{layer.key[:8]} is damaged: {problem}")
        if problems:
            damaged = True
        else:
            click.echo(f"{layer.key[:8]}: verified, {plural(layer.files, 'file')}")
    if damaged:
        note("→ hawk sandbox build --rebuild")
    return damaged
