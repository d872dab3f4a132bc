"""Isolated environments for eval sets that name `packages:`, cached by what they hold.

Built with uv where it is found, else with pip; in place, because a virtual environment does not survive being
moved, under a lock, and complete only when its marker says so. The interpreter's own packages (Hawk and
Inspect) come last on its path: what the eval set installs wins, and nothing outside is changed.

`python -m hawk.runner.environment DIRECTORY PACKAGE...` builds one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import site
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

from hawk.config.settings import Settings
from hawk.errors import EnvironmentInstallError, HawkError
from hawk.runner.processes import Reaper
from hawk.store.marks import marks
from hawk.store.rundir import RunDir

_COMPLETE = ".complete"


def key(packages: list[str]) -> str:
    """The name of the environment that holds these packages.

    A package given as a local directory counts with the times of its files: an edit makes a new environment.
    """
    parts = [sys.version, sys.prefix, version("inspect-ai"), *sorted(packages)]
    for package in packages:
        path = Path(package.removeprefix("-e ").removeprefix("file://"))
        if path.is_dir():
            parts += sorted(f"{p}:{p.stat().st_mtime_ns}" for p in path.rglob("*.py"))
            parts += [f"{p}:{p.stat().st_mtime_ns}" for p in path.glob("pyproject.toml")]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


class EnvironmentBuild:
    """A build in a process of its own, so that the supervisor goes on watching and can be stopped."""

    def __init__(self, settings: Settings, run_dir: RunDir, packages: list[str]) -> None:
        self._packages = packages
        self._directory = settings.environments / key(packages)
        self._output = run_dir.path / "workers" / "environment.log"
        self._output.parent.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None
        if not (self._directory / _COMPLETE).exists():
            with self._output.open("ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "hawk.runner.environment", str(self._directory), *packages],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **marks(run_dir, "environment")},
                )

    def poll(self, reaper: Reaper) -> str | HawkError | None:
        """The environment's interpreter, or why there is none, or None while it is being built."""
        if self._process is not None:
            status = reaper.status(self._process.pid)
            if status is None:
                return None
            if status != 0:
                return self._failure()
        os.utime(self._directory / _COMPLETE)  # the age that says how long nobody used it
        return str(_python(self._directory))

    def cancel(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _failure(self) -> EnvironmentInstallError:
        lines = [line for line in self._output.read_text(errors="replace").splitlines() if line.strip()][-12:]
        blamed = next(
            (line for line in reversed(lines) if "error" in line.lower()), lines[-1] if lines else ""
        )
        return EnvironmentInstallError(
            f"packages do not install ({', '.join(self._packages)}): {blamed.strip()[:500]}",
            remedy=f"Correct `packages`; the installer's output is in {self._output}",
            packages=self._packages,
            output=lines,
        )


def _python(directory: Path) -> Path:
    return directory / "bin" / "python"


def build(directory: Path, packages: list[str]) -> None:
    """Make the environment; returns at once when another process has just made it.

    Raises:
        subprocess.CalledProcessError: A package does not install; its output was shown.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f"{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (directory / _COMPLETE).exists():
            return
        shutil.rmtree(directory, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
        _see_parent(directory)
        constraint = directory / "constraints.txt"
        constraint.write_text(f"inspect-ai=={version('inspect-ai')}\n")
        subprocess.run([*_installer(directory), "-c", str(constraint), *packages], check=True)
        (directory / _COMPLETE).touch()


def _see_parent(directory: Path) -> None:
    """Put this interpreter's packages behind the environment's own on its path."""
    purelib = sysconfig.get_path("purelib", vars={"base": str(directory), "platbase": str(directory)})
    parents = [
        path for path in (*site.getsitepackages(), sysconfig.get_path("purelib")) if Path(path).is_dir()
    ]
    source = Path(__file__).parents[2]  # an editable install is not in site-packages
    lines = dict.fromkeys([str(source), *parents])
    # `site.addsitedir` also reads the parents' own .pth files
    text = "".join(f"import site; site.addsitedir({path!r})\n" for path in lines)
    Path(purelib, "_hawk_parent.pth").write_text(text)


def _installer(directory: Path) -> list[str]:
    python = str(_python(directory))
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", python]
    return [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-input",
        "--disable-pip-version-check",
    ]


if __name__ == "__main__":
    try:
        build(Path(sys.argv[1]), sys.argv[2:])
    except subprocess.CalledProcessError as failed:
        sys.exit(failed.returncode)
