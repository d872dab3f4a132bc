"""The tests of sandboxes once more, started by an ordinary user without any capability, as in a container.

Each module runs in a pytest of its own; what it says is shown when it fails.
"""

from __future__ import annotations

import re
import sys

import pytest

from tests.sandbox import ordinary

LEAST = {"test_self_check": 85, "test_provider": 30, "test_escapes": 30, "test_nothing_left": 10}
"""Module to how many of its tests pass at least: all but what takes root."""

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("module", LEAST)
def test_everything_holds_for_an_ordinary_user(module: str) -> None:
    if (reason := ordinary.why_not()) is not None:
        pytest.skip(reason)
    with ordinary.directory() as home:
        options = ["-q", "-rfEsx", "-p", "no:cacheprovider", "--timeout=120", f"--basetemp={home / 'tmp'}"]
        ran = ordinary.run(
            [sys.executable, "-m", "pytest", *options, f"tests/sandbox/{module}.py"], home, timeout=280
        )
    assert ran.returncode == 0, ran.stdout[-20_000:]
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed is not None, ran.stdout[-5_000:]
    assert int(passed[1]) >= LEAST[module], ran.stdout[-5_000:]
    print(ran.stdout[-2_000:])
