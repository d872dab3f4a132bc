"""Debian as a base, from its package archive: by mmdebstrap where it is, else by debootstrap, which needs root."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from hawk.errors import UsageError
from hawk.images.archive import EPOCH, file_layer
from hawk.images.base import Base, ImageError, look
from hawk.images.packages import compile_tree
from hawk.images.trees import pack

MIRROR = "http://deb.debian.org/debian"
RELEASES = {(3, 11): "bookworm", (3, 13): "trixie"}
"""Release by the Python that it has: a base whose Python is this machine's needs nothing else to build for it."""

NEWEST = "trixie"
PACKAGES = ("python3", "ca-certificates")
_NAME = re.compile(r"[a-z0-9][a-z0-9.+-]*")

_LEFT_OUT = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/lintian",
    "var/cache",
    "var/log",
    "var/lib/apt/lists",
    "var/lib/dpkg/available-old",
    "var/lib/dpkg/status-old",
    "debootstrap",
    "etc/machine-id",
    "etc/hostname",
    "etc/resolv.conf",
    "etc/passwd-",
    "etc/group-",
    "etc/shadow-",
    "etc/gshadow-",
    "root/.bashrc",
    "tmp",
    "dev",
    "run",
)
"""Documentation, caches, and what differs from one time to the next. Directories stay, empty."""


def release_for(version: tuple[int, int]) -> str:
    """The release whose Python is of this version, or the newest."""
    return RELEASES.get(version, NEWEST)


def debian(
    release: str, work: Path, *, packages: Sequence[str] = (), mirror: str = MIRROR, epoch: int = EPOCH
) -> Base:
    """Make a minimal Debian with Python.

    Args:
        release: `bookworm`, `trixie`.
        work: Directory to make it in.
        packages: More Debian packages.
        mirror: Address of the archive.
        epoch: The time that everything bears.

    Raises:
        ImageError: Neither tool is there, or it failed.
        UsageError: A name is none.
    """
    for name in (release, *packages):
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name in Debian.", remedy="Use names as apt knows them.")
    wanted = ",".join(dict.fromkeys((*PACKAGES, *packages)))
    options = ["--variant=minbase", f"--include={wanted}"]
    if os.geteuid() == 0 and shutil.which("debootstrap"):
        root = work / "debian"
        _run(["debootstrap", *options, release, str(root), mirror], epoch)
        if mirror == MIRROR:
            _update(root, release, epoch)
        tidy(root)
        version = int((root / "usr/bin/python3").readlink().name.removeprefix("python3."))
        for name in ("python3", f"python3.{version}"):
            compile_tree(root, f"/usr/lib/{name}", (3, version), root)
        base = look([pack(root, work / "base.tar", f"debian {release}", epoch=epoch, owner=None)], {})
        return dataclasses.replace(base, root=root)
    if shutil.which("mmdebstrap"):
        target = work / "base.tar"
        _run(["mmdebstrap", *options, release, str(target), mirror], epoch)
        return look([file_layer(target, f"debian {release}")], {})
    raise ImageError(
        "A Debian root file system is made by debootstrap, as root, or by mmdebstrap; neither can be used here.",
        remedy="Install mmdebstrap, run this as root with debootstrap, or give a base: --base TAR.",
    )


def tidy(root: Path) -> None:
    """Take out of a fresh Debian what nobody reads in a container, and what no two builds have alike."""
    for name in _LEFT_OUT:
        path = root / name
        if path.is_dir() and not path.is_symlink():
            for child in path.iterdir():
                shutil.rmtree(child) if child.is_dir() and not child.is_symlink() else child.unlink()
        else:
            path.unlink(missing_ok=True)
    shutil.rmtree(root / "debootstrap", ignore_errors=True)
    shutil.rmtree(root / "usr/share/i18n", ignore_errors=True)
    for cache in sorted(root.glob("usr/lib/python3*/**/__pycache__")):
        shutil.rmtree(cache)
    for name in ("etc/shadow", "etc/gshadow"):
        path = root / name
        if path.exists():  # the day of the last change of a password that nobody has
            text = re.sub(r"(?m)^([^:]*:[^:]*:)\d+:", r"\g<1>20454:", path.read_text())
            path.write_text(text)


def _update(root: Path, release: str, epoch: int) -> None:
    """Security and other updates since the release's last revision."""
    security = MIRROR.replace("/debian", "/debian-security")
    lines = [
        f"deb {MIRROR} {release} main",
        f"deb {MIRROR} {release}-updates main",
        f"deb {security} {release}-security main",
    ]
    (root / "etc/apt/sources.list").write_text("".join(f"{line}\n" for line in lines))
    for step in (["update"], ["upgrade", "-y", "--no-install-recommends"], ["clean"]):
        _run(["chroot", str(root), "apt-get", "-q", *step], epoch)


def _run(command: list[str], epoch: int) -> None:
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
    )
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-5:]
        raise ImageError(
            f"{command[0]} failed: {' / '.join(lines) or f'exit code {done.returncode}'}",
            remedy="Can this machine reach the mirror? --mirror URL names another; --base TAR needs none.",
        )
