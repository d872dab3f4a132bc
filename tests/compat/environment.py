"""Where the public `hawk` client lives: an environment of its own, found or built once.

`HAWK_COMPAT_CLIENT` names a ready one (its directory or its `hawk` command). Otherwise it is built under
`~/.cache/hawk-compat` with uv, because pip's resolver takes ten minutes over the client's requirements.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

VERSION = "3.7.2"
_BUILD_SECONDS = 600


def client_directory() -> Path:
    """The environment that holds the client; skips the test where there can't be one."""
    named = os.environ.get("HAWK_COMPAT_CLIENT")
    if named:
        path = Path(named)
        directory = path.parent.parent if path.is_file() else path
        if not (directory / "bin" / "hawk").exists():
            pytest.fail(f"HAWK_COMPAT_CLIENT={named} holds no bin/hawk")
        return directory
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hawk-compat"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # parallel test workers build it once
        directory = cache / VERSION
        if not (directory / "complete").exists():
            _build(cache, directory)
        return directory


def _build(cache: Path, directory: Path) -> None:
    python = next(_pythons(), None)
    if python is None:
        pytest.skip(f"NOT TESTED: the public hawk {VERSION} needs Python 3.13, which is not on this machine")
    uv = _uv(cache)
    shutil.rmtree(directory, ignore_errors=True)
    _run(uv, "venv", "--python", python, directory)
    _run(uv, "pip", "install", "--python", directory / "bin" / "python", f"hawk[cli]=={VERSION}")
    (directory / "complete").touch()


def _pythons() -> Iterator[str]:
    """Every Python 3.13 that answers: one on the PATH may be a pyenv shim that leads nowhere."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [shutil.which("python3.13"), *sorted(map(str, root.glob("versions/3.13*/bin/python3.13")))]
    if sys.version_info[:2] == (3, 13):
        candidates.insert(0, sys.executable)
    for candidate in filter(None, candidates):
        done = subprocess.run([candidate, "-c", "import ensurepip"], capture_output=True)
        if done.returncode == 0:
            yield candidate


def _uv(cache: Path) -> str:
    """uv from the PATH, else from an environment of its own."""
    found = shutil.which("uv")
    if found:
        return found
    helper = cache / "uv"
    if not (helper / "bin" / "uv").exists():
        venv.create(helper, with_pip=True, clear=True)
        _run(helper / "bin" / "python", "-m", "pip", "install", "--quiet", "uv")
    return str(helper / "bin" / "uv")


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_SECONDS)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}", pytrace=False)
