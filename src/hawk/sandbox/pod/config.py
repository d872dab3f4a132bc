"""Reading a pod sandbox's configuration: a file, data, a compose file, or a model, with every problem said at once."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from hawk.config.explain import explain
from hawk.config.load import read_text
from hawk.config.problems import Problem, config_error
from hawk.config.source import Source, parse_yaml
from hawk.errors import ConfigError
from hawk.sandbox.pod.compose import pod_data
from hawk.sandbox.pod.options import PodConfig

CONFIG_FILES = ["pod.yaml", "compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"]
"""Names under which Inspect finds a configuration beside a task."""

_WHAT = "A pod sandbox's configuration"
_DOCKERFILE = re.compile(r"dockerfile(?:\..*)?|.*\.dockerfile", re.IGNORECASE)
_COMPOSE = re.compile(r"(?:.*[.-])?compose\.ya?ml", re.IGNORECASE)


def load(config: BaseModel | Mapping[str, Any] | str | Path | None, base: Path | None = None) -> PodConfig:
    """The configuration.

    Args:
        config: What a task gives Inspect: the path of a YAML file (compose files too), a model, data, or nothing
            (the defaults).
        base: What a relative path is relative to; the working directory when left out.

    Raises:
        ConfigError: Anything is wrong with it; says everything that is.
    """
    if isinstance(config, PodConfig):
        return config
    if config is None:
        return PodConfig()
    if isinstance(config, str | Path):
        path = (base or Path()).absolute() / config
        try:
            stat = path.stat()
        except OSError:
            return _from_file(path)  # says why
        return _known_file(path, stat.st_mtime_ns, stat.st_size)
    data = (
        config.model_dump(by_alias=True, exclude_none=True) if isinstance(config, BaseModel) else dict(config)
    )
    services = data.get("services")
    if isinstance(services, dict) and (
        "default" in services or any("x-default" in s for s in services.values())
    ):
        data = pod_data(data, name="The compose file")  # in a pod's own there is no service of that name
    return _validate(Source("sandbox", data))


@functools.lru_cache(maxsize=64)
def _known_file(path: Path, mtime: int, size: int) -> PodConfig:
    """Read once: hundreds of attempts ask for the same file within seconds."""
    return _from_file(path)


def _from_file(path: Path) -> PodConfig:
    if _DOCKERFILE.fullmatch(path.name):
        message = "a cluster does not build images"
        raise config_error(
            str(path),
            [Problem(message, str(path))],
            "Build and push the image, and name it in a pod.yaml or compose.yaml.",
        )
    source = parse_yaml(read_text(path), str(path), None, what=_WHAT, may_be_empty=True)
    if _COMPOSE.fullmatch(path.name):
        return _validate(Source(str(path), pod_data(source.data, name=str(path))))
    return _validate(source)


def _validate(source: Source) -> PodConfig:
    try:
        return PodConfig.model_validate(source.data)
    except ValidationError as ex:
        raise config_error(source.name, explain(ex, source, PodConfig)) from None


__all__ = ["CONFIG_FILES", "ConfigError", "PodConfig", "load"]
