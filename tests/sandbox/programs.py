"""Programs that tests run in sandboxes, which see this machine's `/usr`: what is missing skips the test, loudly."""

from __future__ import annotations

import shutil
import subprocess

import pytest

PATH = "/usr/local/bin:/usr/bin:/bin"


def needs(*names: str) -> pytest.MarkDecorator:
    """Skip where one of these programs is not on this machine, or does not run."""
    missing = [name for name in names if not _runs(name)]
    return pytest.mark.skipif(
        bool(missing), reason=f"NOT TESTED: this machine has no {', no '.join(missing)}"
    )


def _runs(name: str) -> bool:
    path = shutil.which(name, path=PATH)
    if path is None:
        return False
    tried = subprocess.run([path, "--version"], env={"PATH": PATH}, capture_output=True, check=False)
    return tried.returncode == 0


def _python_is_whole() -> bool:
    """Whether the system's Python has what attacks need: a minimal one lacks it."""
    path = shutil.which("python3", path=PATH)
    code = "import ctypes, json, socket, urllib.request"
    return (
        path is not None
        and subprocess.run([path, "-c", code], env={"PATH": PATH}, check=False).returncode == 0
    )


needs_python = pytest.mark.skipif(
    not _python_is_whole(), reason="NOT TESTED: this machine's /usr has no whole python3"
)
