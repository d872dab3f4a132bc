"""Where the public `hawk` client and schemathesis live: environments of their own, found or built once.

`HAWK_COMPAT_CLIENT` and `HAWK_COMPAT_SCHEMATHESIS` name ready ones (directory or command). Otherwise they are built
under `~/.cache/hawk-compat` with uv, because pip's resolver takes ten minutes over the client's requirements.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

VERSION = "3.7.2"
SCHEMATHESIS = "4.32.5"
_BUILD_SECONDS = 600


def client_directory() -> Path:
    """The environment that holds the client; skips the test where there can't be one."""
    return _named("HAWK_COMPAT_CLIENT", "hawk") or _built(VERSION, _build_client)


def schemathesis_directory() -> Path:
    """The environment that holds schemathesis; skips the test where it can't be made."""
    name = f"schemathesis-{SCHEMATHESIS}"
    return _named("HAWK_COMPAT_SCHEMATHESIS", "schemathesis") or _built(name, _build_schemathesis)


def _named(variable: str, command: str) -> Path | None:
    named = os.environ.get(variable)
    if not named:
        return None
    path = Path(named)
    directory = path.parent.parent if path.is_file() else path
    if not (directory / "bin" / command).exists():
        pytest.fail(f"{variable}={named} holds no bin/{command}")
    return directory


def _built(name: str, build: Callable[[Path, Path], None]) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hawk-compat"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # parallel test workers build it once
        directory = cache / name
        if not (directory / "complete").exists():
            shutil.rmtree(directory, ignore_errors=True)
            build(cache, directory)
            (directory / "complete").touch()
        return directory


def _build_client(cache: Path, directory: Path) -> None:
    python = next(_pythons(), None)
    if python is None:
        pytest.skip(f"NOT TESTED: the public hawk {VERSION} needs Python 3.13, which is not on this machine")
    _install(cache, directory, python, f"hawk[cli]=={VERSION}")


def _build_schemathesis(cache: Path, directory: Path) -> None:
    try:
        _install(cache, directory, sys.executable, f"schemathesis=={SCHEMATHESIS}")
    except (pytest.fail.Exception, subprocess.TimeoutExpired) as ex:
        pytest.skip(f"NOT TESTED: schemathesis {SCHEMATHESIS} can't be installed: {ex}")


def _install(cache: Path, directory: Path, python: str, package: str) -> None:
    uv = _uv(cache)
    _run(uv, "venv", "--python", python, directory)
    _run(uv, "pip", "install", "--python", directory / "bin" / "python", package)


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
