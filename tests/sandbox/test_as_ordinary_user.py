"""The tests of sandboxes once more, started by an ordinary user without any capability, as in a container.

Each group runs in a pytest of its own; what it says is shown when it fails.
"""

from __future__ import annotations

import re
import sys

import pytest

from tests.sandbox import ordinary

FOLDER = "tests/sandbox"
GROUPS = {
    "self check": (["test_self_check.py"], 80),
    "provider": (
        [f"test_provider{part}.py" for part in ("", "_tools", "_limits", "_services", "_layers", "_losses")],
        55,
    ),
    "escapes": (["escapes"], 50),
    "nothing left": (["test_nothing_left.py"], 9),
}
"""What runs together, and how many tests of it pass at least: all but what takes root or cgroups."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(960)]


@pytest.mark.parametrize("group", GROUPS)
def test_everything_holds_for_an_ordinary_user(group: str) -> None:
    if (reason := ordinary.why_not()) is not None:
        pytest.skip(reason)
    modules, least = GROUPS[group]
    with ordinary.directory() as home:
        options = ["-q", "-rfEsx", "-p", "no:cacheprovider", f"--basetemp={home / 'tmp'}"]
        paths = [f"{FOLDER}/{module}" for module in modules]
        ran = ordinary.run([sys.executable, "-m", "pytest", *options, *paths], home, timeout=900)
    assert ran.returncode == 0, ran.stdout[-20_000:]
    found = re.search(r"(\d+) passed", ran.stdout)
    if found is None and (why := re.search(r"NOT TESTED.*", ran.stdout)):
        pytest.skip(f"{why[0]} (as an ordinary user)")
    assert found is not None, ran.stdout[-5_000:]
    assert int(found[1]) >= least, ran.stdout[-5_000:]
    print(ran.stdout[-2_000:])
