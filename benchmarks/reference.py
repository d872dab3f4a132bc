"""The public `hawk` 3.7.2 in an environment of its own, made once and kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

VERSION = "3.7.2"
PYTHONS = (
    "python3.13",
    "~/.pyenv/versions/3.13*/bin/python",
    "/usr/local/bin/python3.13",
    "/usr/bin/python3.13",
)


def cache() -> Path:
    """`HAWK_BENCHMARK_CACHE`, else `~/.cache/hawk-benchmarks`."""
    return Path(os.environ.get("HAWK_BENCHMARK_CACHE") or "~/.cache/hawk-benchmarks").expanduser()


def public_hawk() -> Path:
    """Its `hawk` command.

    Raises:
        RuntimeError: It can't be had here: no Python 3.13, or the installation failed.
    """
    home = cache() / f"hawk-{VERSION}"
    command = home / "bin" / "hawk"
    if (home / ".installed").exists():
        return command
    python = _python313()
    print(f"Installing hawk {VERSION} into {home} (once) …", file=sys.stderr, flush=True)
    # uv, because pip tries old releases of its dependencies for ten minutes.
    _run(python, "-m", "venv", cache() / "uv")
    _run(cache() / "uv" / "bin" / "python", "-m", "pip", "install", "-qq", "uv")
    _run(python, "-m", "venv", home)
    uv = cache() / "uv" / "bin" / "uv"
    _run(
        uv,
        "pip",
        "install",
        "-q",
        "--python",
        home / "bin" / "python",
        "--compile-bytecode",
        f"hawk[cli]=={VERSION}",
    )
    (home / ".installed").touch()
    return command


def _python313() -> Path:
    for pattern in PYTHONS:
        expanded = Path(pattern).expanduser()
        candidates = expanded.parent.parent.parent.glob("3.13*/bin/python") if "*" in pattern else [expanded]
        for candidate in candidates:
            if _is_313(candidate):
                return candidate
    raise RuntimeError("there is no Python 3.13 on this machine")


def _is_313(candidate: Path) -> bool:
    try:
        done = subprocess.run(
            [str(candidate), "-c", "import sys; sys.exit(sys.version_info[:2] != (3, 13))"],
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0


def _run(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"installing hawk {VERSION} failed: {done.stderr.strip()[-400:]}")
