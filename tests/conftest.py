"""What holds for every test of this repository: memory, the order of modules, and that `caplog` hears Hawk."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.heard import heard

# Where it is ignored, as for what a shell runs in the background, nothing that the tests start could be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # what a collection imports and makes stays: looking for garbage in it took a third of the time


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest modules first, the quick ones last: no processor is left alone with a long one in the end."""
    longest: dict[Path, float] = {}
    for item in items:
        longest[item.path] = max(longest.get(item.path, 0.0), _most(item))
    items.sort(key=lambda item: -longest[item.path])


def _most(item: pytest.Item) -> float:
    """Seconds that a test marked slow may take, where it says so."""
    if item.get_closest_marker("slow") is None:
        return 0.0
    timeout = item.get_closest_marker("timeout")
    return float(timeout.args[0]) if timeout is not None else 1.0


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """From here on garbage is looked for again, though not among all that was collected."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def hawk_is_heard(request: pytest.FixtureRequest) -> Iterator[None]:
    """What Hawk logs reaches `caplog` even after an eval in this process has set up logging for itself."""
    if "caplog" not in request.fixturenames:
        yield
        return
    with heard(request.getfixturevalue("caplog"), "hawk"):
        yield
