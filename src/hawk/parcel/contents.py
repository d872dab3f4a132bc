"""Which files of the directory that an eval set is submitted from go along to where there is no such directory.

Hidden files, virtual environments and caches stay behind.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from hawk.errors import ConfigError

LARGEST = 64 * 1024 * 1024
"""Bytes of all files together: they are held in a pod's ephemeral storage, and carried at each start."""

MOST = 50_000
"""Files and directories."""

LEFT_OUT = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})
"""Directories that are made again where they are needed."""

_OF_TOOLS = frozenset(
    {
        ".DS_Store",
        ".coverage",
        ".dockerignore",
        ".editorconfig",
        ".git",
        ".gitattributes",
        ".gitignore",
        ".gitmodules",
        ".pre-commit-config.yaml",
        ".python-version",
    }
)
"""Hidden files that no task reads."""


class Contents(NamedTuple):
    """What goes along of a directory.

    Attributes:
        base: The directory.
        paths: Directories, files and links, in the order in which they are packed.
        files: How many of them are files.
        bytes: What the files hold.
        hidden: Hidden files that stay behind, relative to it: those that somebody may miss.
        links: Links that stay behind, because they lead out of it.
    """

    base: Path
    paths: list[Path]
    files: int
    bytes: int
    hidden: list[str]
    links: list[str]


def contents(base: Path) -> Contents:
    """Look through a directory: files, links that stay within it, and directories, in the order of their names.

    Raises:
        ConfigError: There is too much.
        OSError: A file in it can't be looked at.
    """
    found: list[Path] = []
    hidden: list[str] = []
    links: list[str] = []
    sizes: dict[str, int] = {}
    files, deadline, too_much = 0, time.monotonic() + 10.0, False
    for here, directories, names in _walk(base):
        found += directories
        for name in names:
            path = here / name
            if name.startswith("."):
                hidden += [str(path.relative_to(base))] if name not in _OF_TOOLS else []
                continue
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                files += 1
                top = path.relative_to(base).parts[0]
                sizes[top] = sizes.get(top, 0) + status.st_size
            elif not stat.S_ISLNK(status.st_mode):
                continue
            elif not _within(path, base):
                links.append(str(path.relative_to(base)))
                continue
            found.append(path)
        too_much = too_much or sum(sizes.values()) > LARGEST or len(found) > MOST
        if too_much and (len(found) > 4 * MOST or time.monotonic() > deadline):
            break
    if too_much:
        raise _too_much(base, sizes, len(found))
    return Contents(base, found, files, sum(sizes.values()), hidden, links)


def stays(name: PurePosixPath, base: Path) -> str | None:
    """Why a path in a directory does not go along, in words that follow "it"; None: it goes, if it is there."""
    for depth, part in enumerate(name.parts, start=1):
        path = base.joinpath(*name.parts[:depth])
        if part.startswith("."):
            return "is hidden" if depth == len(name.parts) else "is in a hidden directory"
        if path.is_dir() and not _kept(path):
            return f"is in {part}, which is made again where it is needed"
        if path.is_symlink() and not _within(path, base):
            return (
                f"leads out of {base}"
                if depth == len(name.parts)
                else f"is behind {part}, a link out of {base}"
            )
    return None


def leads_out(link: str, *, parent: Path, base: Path) -> bool:
    """Whether a link could lead out of a directory.

    Its way up comes first, or it could go up from where another link has led it.

    Args:
        link: What it says.
        parent: The directory that it is in, without links in its path; as `base`.
    """
    parts = PurePosixPath(link).parts
    descended = [i for i, part in enumerate(parts) if part != ".."]
    if not parts or link.startswith("/") or (descended and ".." in parts[descended[0] :]):
        return True
    return not Path(os.path.normpath(parent / link)).is_relative_to(base)


def _walk(base: Path) -> Iterator[tuple[Path, list[Path], list[str]]]:
    """Each directory that can be read with the directories in it that are entered, and the names of all else."""
    for directory, names, files in os.walk(base):
        here = Path(directory)
        links = [name for name in names if (here / name).is_symlink()]
        names[:] = sorted(name for name in names if name not in links and _kept(here / name))
        yield here, [here / name for name in names], sorted([*files, *links])


def _kept(directory: Path) -> bool:
    name = directory.name
    return not (name.startswith(".") or name in LEFT_OUT or (directory / "pyvenv.cfg").exists())


def _within(link: Path, base: Path) -> bool:
    return not leads_out(str(link.readlink()), parent=link.parent, base=base)


def _too_much(base: Path, sizes: dict[str, int], count: int) -> ConfigError:
    largest = max(sizes, key=lambda name: sizes[name], default="")
    what = f"{base / largest} alone has {sizes.get(largest, 0) / 2**20:,.0f} MiB"
    return ConfigError(
        f"{base} holds {sum(sizes.values()) / 2**20:,.0f} MiB in {count:,} files or more; "
        f"{LARGEST // 2**20} MiB and {MOST:,} can go along. {what}.",
        remedy="Submit from a directory that holds what the eval set needs, or bring large files in an image or a volume.",
        problems=[],
    )
