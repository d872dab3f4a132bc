"""Scoring once more, started by an ordinary user without any capability: there is one user in a sandbox then."""

from __future__ import annotations

import re
import sys

import pytest

from tests.sandbox import ordinary

pytestmark = [pytest.mark.slow, pytest.mark.timeout(960)]


def test_scoring_holds_for_an_ordinary_user() -> None:
    if (reason := ordinary.why_not()) is not None:
        pytest.skip(reason)
    with ordinary.directory() as home:
        options = ["-q", "-rfEsx", "-p", "no:cacheprovider", f"--basetemp={home / 'tmp'}"]
        ran = ordinary.run(
            [sys.executable, "-m", "pytest", *options, "tests/evals/test_scoring.py"], home, timeout=900
        )
    assert ran.returncode == 0, ran.stdout[-20_000:]
    if (why := re.search(r"NOT TESTED.*", ran.stdout)) and " passed" not in ran.stdout:
        pytest.skip(f"{why[0]} (as an ordinary user)")
