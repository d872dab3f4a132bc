"""Paths that an eval set names: of files, of folders of evals, of packages that lie on the disk."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hawk.config.check import entries
from hawk.config.entries import Entry, TaskEntry
from hawk.config.eval_set import EvalSetConfig
from hawk.config.problems import FieldPath, Problem
from hawk.config.requirements import directory_of
from hawk.config.source import Source


class Named(NamedTuple):
    """A path as it is written, and the field that it is in."""

    field: FieldPath
    path: str


def named_paths(config: EvalSetConfig) -> Iterator[Named]:
    """Everything that must be there before the eval set can be loaded."""
    for kind, i, entry in entries(config):
        yield from _of_entry((kind, i), entry)
    for role, model in config.model_roles.items():
        yield from _of_entry(("model_roles", role), model)
    for i, experiment in enumerate(config.experiments):
        for what, actor in experiment.entries.items():
            yield from _of_entry(("experiments", i, what), actor)
    for i, package in enumerate(config.packages):
        if (directory := directory_of(package)) is not None:
            yield Named(("packages", i), directory)


def _of_entry(at: FieldPath, entry: Entry[Any]) -> Iterator[Named]:
    if entry.file is not None:
        yield Named((*at, "file"), entry.file)
    if isinstance(entry, TaskEntry) and entry.folder is not None:
        yield Named((*at, "folder"), entry.folder)
    if entry.package is not None and (directory := directory_of(entry.package)) is not None:
        yield Named((*at, "package"), directory)


def leads_out(path: str) -> bool:
    """Whether a path is not one below the directory that it is relative to."""
    return path.startswith(("/", "~")) or os.path.normpath(path).split("/")[0] == ".."


def check_inside(config: EvalSetConfig, source: Source) -> list[Problem]:
    """Paths that lead out of the files that were sent along: what is there is not the submitter's."""
    message = "leads out of the files that were sent along"
    return [source.problem(at, f"{path} {message}") for at, path in named_paths(config) if leads_out(path)]


def check_patterns(source: Source) -> list[Problem]:
    """The same of files that experiments are read from."""
    given = source.data.get("experiments")
    written = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    return [
        source.problem(("experiments", i), f"{pattern} leads out of the files that were sent along")
        for i, pattern in enumerate(written)
        if isinstance(pattern, str) and leads_out(pattern)
    ]


def made_relative(data: Any, base: Path) -> Any:
    """The same data with every text that is the absolute path of something in a directory relative to it.

    Args:
        base: The directory, absolute.
    """
    if isinstance(data, dict):
        return {key: made_relative(value, base) for key, value in data.items()}
    if isinstance(data, list):
        return [made_relative(value, base) for value in data]
    if data == str(base):
        return "."
    if not isinstance(data, str) or not data.startswith(f"{base}/") or not _exists(Path(data)):
        return data
    found = os.path.relpath(data, base)
    return data if found.startswith("..") else f"./{found}"


def existing_paths(data: Any, base: Path) -> list[str]:
    """Texts in data that are the path of something in a directory, or from there, each once; names of items are none."""
    texts = dict.fromkeys(_texts(data))
    return [
        t for t in texts if re.fullmatch(r"[^\0\n]{1,1024}", t) and t not in (".", "..") and _exists(base / t)
    ]


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from () if key == "name" else _texts(value)
    elif isinstance(data, list):
        for value in data:
            yield from _texts(value)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # its name is too long
        return False
