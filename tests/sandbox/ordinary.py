"""Running things as an ordinary user without any capability, as in a container: from root, on any machine.

The interpreter, its packages and this repository may lie below directories that only root may enter (`/root`). Then
they are shown to the user at the same paths in a mount namespace of their own.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
UID = 54321
"""An ordinary user: in no group, owner of nothing."""

_DROP = (f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--no-new-privs")
_DROP_CAPABILITIES = ("--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all")


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """A directory that is the user's own, with a short path: sockets will be below."""
    path = Path(tempfile.mkdtemp(prefix="hk-"))
    os.chown(path, UID, UID)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def command(argv: Sequence[str]) -> list[str]:
    """What runs a command as the user; for root."""
    plain = ["setpriv", *_DROP, *_DROP_CAPABILITIES, *argv]
    shown = _hidden_paths()
    if not shown:
        return plain
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", _script(shown), "sh", *plain]


def environment(home: Path, **more: str) -> dict[str, str]:
    """Variables of a command of the user."""
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LC_ALL", "TZ", "CI")}
    return {
        **kept,
        "HOME": str(home),
        "HAWK_HOME": str(home / "hawk"),
        "HAWK_MIDDLEMAN": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        **more,
    }


def run(
    argv: Sequence[str], home: Path, timeout: float, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command as the user, in the repository; output and errors together."""
    return subprocess.run(
        command(argv),
        cwd=REPOSITORY,
        env=environment(home, **(more or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )


@cache
def why_not() -> str | None:
    """Why nothing can be run as an ordinary user here; None when it can."""
    if os.geteuid() != 0:
        return "these tests already run as an ordinary user: there is nothing to give up"
    missing = [name for name in ("setpriv", "unshare") if shutil.which(name) is None]
    if missing:
        return f"NOT TESTED as an ordinary user: no {' and no '.join(missing)} (util-linux)"
    with directory() as home:
        tried = run([sys.executable, "-c", "import hawk.sandbox.config, pytest"], home, 120)
    if tried.returncode != 0:
        return f"NOT TESTED as an ordinary user: {sys.executable} does not run as one: {tried.stdout[-300:]}"
    return None


def _hidden_paths() -> list[Path]:
    """What the user needs and can't reach for a directory on the way."""
    needed = {
        Path(path)
        for path in (sys.prefix, sys.base_prefix, REPOSITORY, Path(sys.executable).resolve().parents[1])
    }
    return sorted(path for path in needed if _closed(path) is not None)


def _closed(path: Path) -> Path | None:
    """The first directory on the way that only its owner may enter."""
    for parent in reversed(path.parents):
        if not parent.stat().st_mode & 0o001:
            return parent
    return None


def _script(paths: list[Path]) -> str:
    """Shell text: put an empty directory in the place of each closed one, and in it what is needed; then go on."""
    lines = ["stage=$(mktemp -d)", 'mount -t tmpfs stage "$stage"']
    for number, path in enumerate(paths):
        lines += [f'mkdir "$stage/{number}"', f'mount --rbind {shlex.quote(str(path))} "$stage/{number}"']
    for closed in sorted({str(_closed(path)) for path in paths}):
        lines.append(f"mount -t tmpfs -o mode=0755 closed {shlex.quote(closed)}")
    for number, path in enumerate(paths):
        place = shlex.quote(str(path))
        lines += [f"mkdir -p {place}", f'mount --rbind "$stage/{number}" {place}']
    return "\n".join([*lines, 'umount -l "$stage"', 'rmdir "$stage"', 'exec "$@"'])
