"""A store of layers for tests, and a builder that counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hawk.sandbox.layers import Layer, LayerStore

KEY = "debian-12.abc_0"


@pytest.fixture
def store(tmp_path: Path) -> LayerStore:
    return LayerStore(tmp_path / "sandbox")


def again(store: LayerStore) -> LayerStore:
    """As another process sees it: nothing verified yet."""
    return LayerStore(store.directory)


class Builder:
    """Builds a small layer, and counts."""

    def __init__(self, seconds: float = 0.0, error: Exception | None = None) -> None:
        self.seconds, self.error = seconds, error
        self.builds = 0
        self.began = asyncio.Event()
        self.directories: list[Path] = []

    async def __call__(self, directory: Path) -> None:
        self.builds += 1
        self.directories.append(directory)
        self.began.set()
        (directory / "root/etc").mkdir(parents=True)
        (directory / "root/etc/motd").write_text("welcome")
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error


def build(store: LayerStore, key: str = KEY, builder: Callable[[Path], Any] | None = None) -> Layer:
    return asyncio.run(store.get_or_build(key, "a small one", builder or Builder()))


def left(store: LayerStore, part: str) -> list[str]:
    return sorted(path.name for path in (store.directory / part).iterdir())


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.005)
