"""Python packages for another root file system: chosen by what is installed here, fetched as wheels, compiled once.

An image holds the very versions that this machine runs, so that what worked here works there. A lock file pins them
for good.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from hawk.errors import EnvironmentInstallError
from hawk.images.base import Base, ImageError

PROJECT = "hawk-evals"
EXTRAS = ("kubernetes", "postgres")
"""What a runner and a server on a cluster need of Hawk's extras."""

ALWAYS = ("pip",)
"""Eval sets with `packages:` are installed by it, in the pod."""

_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([\w.-]+)['"]""")
_MACHINE = platform.machine()


def requirements() -> list[str]:
    """What Hawk and its extras need, as its own metadata says.

    Raises:
        ImageError: Hawk is not installed, or its metadata is older than its code.
    """
    try:
        lines = importlib.metadata.requires(PROJECT) or []
    except importlib.metadata.PackageNotFoundError as ex:
        raise ImageError("Hawk is not installed here.", remedy=f"pip install {PROJECT}") from ex
    found, extras = [], set()
    for line in lines:
        requirement, _, marker = line.partition(";")
        extra = _EXTRA.search(marker)
        if extra is None:
            found.append(line)
        elif extra[1] in EXTRAS:
            extras.add(extra[1])
            found.append(requirement.strip())
    if missing := set(EXTRAS) - extras:
        raise ImageError(
            f"Hawk's metadata here knows no extra {', '.join(sorted(missing))}: it is older than its code.",
            remedy="Install Hawk again: pip install -e .",
        )
    return [*found, *ALWAYS]


def pins(without: Iterable[str] = ()) -> list[str]:
    """`name==version` of everything that is installed here from an index.

    Args:
        without: Requirements that are asked for by name: those decide themselves.
    """
    left_out = {normal(PROJECT), *(normal(match[1]) for line in without if (match := _NAME.match(line)))}
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = normal(distribution.metadata["Name"] or "")
        if name and name not in left_out and distribution.read_text("direct_url.json") is None:
            found.setdefault(name, distribution.version)
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def normal(name: str) -> str:
    """A project's name as indexes spell it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def install(base: Base, site: Path, wanted: Sequence[str], work: Path, *, lock: Path | None = None) -> None:
    """Install packages for a base's Python into a directory.

    Args:
        wanted: Requirements; with a lock file only those in it are installed.
        work: Directory for temporary files.

    Raises:
        EnvironmentInstallError: They don't install. Fields: `packages`, `output`.
    """
    constraints = work / "constraints.txt"
    constraints.write_text("\n".join(pins(wanted)) + "\n")
    what = ["--no-deps", "-r", str(lock)] if lock is not None else ["-c", str(constraints), *wanted]
    command = [*_installer(base), "--target", str(site), *what]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, cwd=Path.cwd()
    )
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-12:]
        blamed = next(
            (line for line in reversed(lines) if "error" in line.lower()), lines[-1] if lines else ""
        )
        raise EnvironmentInstallError(
            f"The image's packages do not install: {blamed.strip()[:500]}",
            remedy="Correct --package or --lock. For another Python than this one, everything must have a wheel.",
            packages=list(wanted),
            output=lines,
        )


def _installer(base: Base) -> list[str]:
    """An installer's command line, told for which Python and C library when they are not this machine's own."""
    low, high = base.version
    if importlib.util.find_spec("pip") is not None:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--no-input",
            "--no-compile",
            "--no-warn-conflicts",
        ]
        command.append("--disable-pip-version-check")
        if not _same(base):
            command += ["--only-binary=:all:", "--python-version", f"{low}.{high}", "--implementation", "cp"]
            for tag in _platforms(base.glibc):
                command += ["--platform", tag]
        return command
    uv = shutil.which("uv")
    if uv is None:
        raise ImageError("Neither pip nor uv is here to fetch packages.", remedy="Install uv.")
    glibc = max(minor for minor in (17, 28, *range(31, 41)) if minor <= max(base.glibc[1], 17))
    foreign = ["--only-binary", ":all:", "--python-version", f"{low}.{high}"]
    foreign += ["--python-platform", f"{_MACHINE}-manylinux_2_{glibc}"]
    command = [uv, "pip", "install", "--link-mode", "copy", "--python", sys.executable]
    return command if _same(base) else command + foreign


def _same(base: Base) -> bool:
    """Whether what is installed for this interpreter runs on that base."""
    name, version = platform.libc_ver()
    here = tuple(int(part) for part in version.split(".")[:2]) if name == "glibc" else (99, 0)
    return sys.version_info[:2] == base.version and here <= base.glibc


def _platforms(glibc: tuple[int, int]) -> list[str]:
    """Tags of wheels that run with a C library, the best first."""
    names = [f"manylinux_2_{minor}_{_MACHINE}" for minor in range(glibc[1], 4, -1)]
    return [*names, *(f"{old}_{_MACHINE}" for old in ("manylinux2014", "manylinux2010", "manylinux1"))]


def settle(site: Path, bin_directory: Path, python: str) -> list[str]:
    """Make what an installer left the same everywhere, and move its commands.

    Args:
        site: The packages.
        bin_directory: Gets the commands.
        python: The interpreter that they are to start, as the image names it.

    Returns:
        `name==version` of each package, by name.
    """
    for cache in list(site.rglob("__pycache__")):
        shutil.rmtree(cache)
    for told in [*site.glob("*.dist-info/direct_url.json"), *site.glob("*.dist-info/REQUESTED")]:
        told.unlink()
    shutil.rmtree(site / "bin" / "__pycache__", ignore_errors=True)
    if (site / "bin").is_dir():
        for command in sorted((site / "bin").iterdir()):
            _move_command(command, bin_directory / command.name, python)
        shutil.rmtree(site / "bin")
    for record in site.glob("*.dist-info/RECORD"):
        lines = record.read_text("utf-8").splitlines()
        kept = [line for line in lines if not re.match(r"(\.\./)*bin/|.*(direct_url\.json|REQUESTED),", line)]
        record.write_text("\n".join(sorted(kept)) + "\n", "utf-8")
    found = importlib.metadata.distributions(path=[str(site)])
    return sorted(f"{normal(one.metadata['Name'])}=={one.version}" for one in found)


def _move_command(source: Path, target: Path, python: str) -> None:
    content = source.read_bytes()
    first, end, rest = content.partition(b"\n")
    if first.startswith(b"#!") and b"python" in first:
        content = f"#!{python}".encode() + end + rest
    elif first == b"#!/bin/sh" and rest.startswith(b"'''exec'"):  # the way around a long path to Python
        content = f"#!{python}\n".encode() + rest.split(b"' '''\n", 1)[-1]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    target.chmod(0o755)


def compile_tree(tree: Path, prefix: str, version: tuple[int, int], root: Path | None = None) -> bool:
    """Compile modules ahead, so that pods with a read-only file system need not do it at each start.

    The compiled files are not checked against times, which an image does not keep.

    Args:
        tree: Becomes `/`.
        prefix: The directory in it.
        version: Of the Python that will run them.
        root: An unpacked root file system with that Python, for the case that this machine has none.

    Returns:
        False: no such Python is here.
    """
    name = "python{}.{}".format(*version)
    here = _python_here(version)
    if here is not None:
        _compile([here], ["-s", str(tree), "-p", "/", f"{tree}{prefix}"])
        return True
    if root is None or os.geteuid() != 0 or not (root / "usr/bin" / name).exists():
        return False
    inside = ["chroot", str(root), f"/usr/bin/{name}"]
    if tree == root:
        _compile(inside, [prefix])
        return True
    place = root / prefix[1:]
    place.parent.mkdir(parents=True, exist_ok=True)
    (tree / prefix[1:]).rename(place)
    try:
        _compile(inside, [prefix])
    finally:
        place.rename(tree / prefix[1:])
    return True


def _python_here(version: tuple[int, int]) -> str | None:
    """An interpreter of this machine of that version. What is on the PATH may be a stand-in that starts none."""
    if sys.version_info[:2] == version:
        return sys.executable
    found = shutil.which("python{}.{}".format(*version))
    if found is None:
        return None
    code = "import sys; print(*sys.version_info[:2])"
    said = subprocess.run([found, "-c", code], capture_output=True, text=True, check=False).stdout
    return found if said.split() == [str(part) for part in version] else None


def _compile(python: list[str], place: list[str]) -> None:
    options = [
        "-s",
        "-P",
        "-m",
        "compileall",
        "-q",
        "-q",
        "-f",
        "-j",
        "1",
        "--invalidation-mode",
        "unchecked-hash",
    ]
    environ = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    # What does not compile (templates, other Pythons' syntax) is not imported either.
    subprocess.run([*python, *options, *place], env=environ, capture_output=True, check=False)
