"""Reading a sandbox's configuration: a file, data, or a model, with every problem said at once."""

from __future__ import annotations

import functools
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from hawk.config.explain import explain
from hawk.config.load import nearest_file, read_text
from hawk.config.problems import FieldPath, Problem, config_error
from hawk.config.source import Source, parse_yaml
from hawk.errors import ConfigError
from hawk.sandbox.options import (
    BubblewrapConfig,
    Common,
    Limits,
    Packages,
    Service,
    Setup,
    SetupFile,
)
from hawk.sandbox.setup_key import setup_key
from hawk.sandbox.words import is_archive

__all__ = [
    "CONFIG_FILES",
    "BubblewrapConfig",
    "Common",
    "Limits",
    "Packages",
    "Service",
    "Setup",
    "SetupFile",
    "load",
    "setup_key",
]

CONFIG_FILES = ["sandbox.yaml", "bubblewrap.yaml"]
"""Names under which Inspect finds a configuration beside a task."""

_WHAT = "A sandbox's configuration"
_OF_DOCKER = re.compile(r"(?:.*[.-])?compose\.ya?ml|dockerfile(?:\..*)?|.*\.dockerfile", re.IGNORECASE)


def load(
    config: BaseModel | Mapping[str, Any] | str | Path | None, base: Path | None = None
) -> BubblewrapConfig:
    """The configuration, with absolute local paths.

    Local files that it names must exist when it is a file itself. Data may come from the log of another machine,
    so their files are only looked for when they are needed.

    Args:
        config: What a task gives Inspect: the path of a YAML file, a model, data, or nothing (the defaults).
        base: What relative paths are relative to; the working directory when left out. Those in a file are
            relative to its own directory.

    Raises:
        ConfigError: Anything is wrong with it; says everything that is.
    """
    base = (base or Path()).absolute()
    if isinstance(config, str | Path):
        path = base / config
        try:
            stat = path.stat()
        except OSError:
            return _from_file(path)  # says why
        return _known_file(path, stat.st_mtime_ns, stat.st_size)
    if isinstance(config, BubblewrapConfig):
        return config.resolved(base)
    if config is None:
        return BubblewrapConfig()
    if isinstance(config, Mapping):
        return _validate(Source("sandbox", dict(config)), base)
    raise ConfigError(
        f"A bubblewrap sandbox can't be configured by a {type(config).__name__}.",
        remedy="Give the path of a sandbox.yaml, or a BubblewrapConfig.",
    )


@functools.lru_cache(maxsize=64)
def _known_file(path: Path, mtime: int, size: int) -> BubblewrapConfig:
    """Read once: hundreds of attempts ask for the same file within seconds."""
    return _from_file(path)


def _from_file(path: Path) -> BubblewrapConfig:
    if _OF_DOCKER.fullmatch(path.name):
        message = "this is a file for docker, which a bubblewrap sandbox does not read"
        raise config_error(str(path), [Problem(message, str(path))], "Write a sandbox.yaml beside it.")
    # ${X} stays: in a file with shell scripts it is the shell's
    source = parse_yaml(read_text(path), str(path), None, what=_WHAT, may_be_empty=True)
    config = _validate(source, path.parent)
    problems = [*_wrong_files(config, source, ())]
    for name, service in config.services.items():
        problems += _wrong_files(service, source, ("services", name))
    if problems:
        raise config_error(source.name, problems)
    return config


def _validate(source: Source, base: Path) -> BubblewrapConfig:
    try:
        return BubblewrapConfig.model_validate(source.data).resolved(base)
    except ValidationError as ex:
        raise config_error(source.name, explain(ex, source, BubblewrapConfig)) from None


def _wrong_files(config: Common, source: Source, at: FieldPath) -> Iterator[Problem]:
    """Local files that are not there, or not what they should be."""
    named: list[tuple[FieldPath, Path | None]] = [(("rootfs",), config.rootfs_path)]
    for place, file in config.setup.files.items():
        named.append((("setup", "files", place), Path(file.path) if file.path is not None else None))
    script = config.setup.script_file
    named.append((("setup", "script_file"), Path(script) if script is not None else None))
    for field, path in named:
        if path is None:
            continue
        try:
            info = path.stat()
        except OSError as ex:
            reason = "there is no such file" if isinstance(ex, FileNotFoundError) else ex.strerror
            yield source.problem((*at, *field), f"{path}: {reason}", suggestion=nearest_file(path))
            continue
        is_file = stat.S_ISREG(info.st_mode)
        if field == ("setup", "script_file") and not is_file:
            yield source.problem((*at, *field), f"{path} is not a file")
        if field == ("rootfs",) and not (stat.S_ISDIR(info.st_mode) or (is_file and is_archive(path.name))):
            message = f"{path} is neither a directory nor a tar file"
            yield source.problem((*at, *field), message, allowed=".tar, .tar.gz, .tar.xz, .tar.bz2")
