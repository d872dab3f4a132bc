"""A compose file as a pod's configuration: the part of it that a cluster can do, and a clear word for the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hawk.errors import ConfigError

_TAKEN = {
    *("image", "command", "entrypoint", "working_dir", "environment", "user", "mem_limit", "mem_reservation"),
    *("cpus", "deploy", "healthcheck", "network_mode", "pull_policy", "cap_add", "cap_drop", "read_only"),
}
_WITHOUT_EFFECT = {
    *(
        "init",
        "restart",
        "stdin_open",
        "tty",
        "ports",
        "expose",
        "stop_grace_period",
        "depends_on",
        "networks",
    ),
    *(
        "hostname",
        "x-default",
        "x_default",
        "memswap_limit",
        "pids_limit",
        "shm_size",
        "ulimits",
        "platform",
        "runtime",
    ),
    *("build", "cgroup"),
}
_PULL = {"always": "Always", "never": "Never", "missing": "IfNotPresent", "if_not_present": "IfNotPresent"}
_UNSET: tuple[Any, ...] = (None, [], {}, False)


def pod_data(compose: Mapping[str, Any], *, name: str) -> dict[str, Any]:
    """The fields of a pod's configuration.

    What `x-hawk` holds at the top is taken as it is: `x-hawk: {network: open, warm: 2}`.

    Args:
        compose: The file's content.
        name: What it is called in an error.

    Raises:
        ConfigError: It asks for what a pod can't have, or has no default service.
    """
    services: dict[str, Mapping[str, Any]] = dict(compose.get("services") or {})
    chosen = [
        key for key, service in services.items() if service.get("x-default") or service.get("x_default")
    ]
    default = chosen[0] if chosen else "default"
    if default not in services:
        raise ConfigError(
            f"{name} has no service 'default'.",
            remedy="Name one so, or write 'x-default: true' in one of them.",
        )
    problems = [f"{key}.{said}" for key, service in services.items() for said in _impossible(service)]
    if problems:
        raise ConfigError(
            f"{name} asks for what a pod sandbox does not have: {'; '.join(problems)}.",
            remedy="Leave it out, or write a pod.yaml.",
        )
    data = _container(services[default])
    data["services"] = {key: _container(service) for key, service in services.items() if key != default}
    if default != "default":
        data["default"] = default
    if any(service.get("network_mode") in ("bridge", "host") for service in services.values()):
        data["network"] = "open"
    return {**data, **dict(compose.get("x-hawk") or {})}


def _impossible(service: Mapping[str, Any]) -> Iterator[str]:
    for field, value in service.items():
        if value in _UNSET or field in _TAKEN or field in _WITHOUT_EFFECT or field.startswith("x-"):
            continue
        yield field
    if not service.get("image"):
        yield "image is missing (images are built before, and pulled by the cluster)"


def _container(service: Mapping[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = {"image": service["image"]}
    command = [*_words(service.get("entrypoint")), *_words(service.get("command"))]
    if command:
        data["command"] = command
    for field in ("working_dir", "user"):
        if service.get(field):
            data[field] = service[field]
    environment = service.get("environment")
    if environment:
        data["environment"] = _environment(environment)
    if policy := _PULL.get(str(service.get("pull_policy"))):
        data["pull_policy"] = policy
    data["resources"] = _resources(service)
    security: dict[str, Any] = {}
    if service.get("read_only"):
        security["read_only_root"] = True
    added = [str(c).upper().removeprefix("CAP_") for c in service.get("cap_add") or ()]
    if added or service.get("cap_drop"):
        from hawk.sandbox.pod.options import CAPABILITIES

        dropped = {str(c).upper().removeprefix("CAP_") for c in service.get("cap_drop") or ()}
        kept = [] if "ALL" in dropped else [c for c in CAPABILITIES if c not in dropped]
        security["capabilities"] = sorted({*kept, *added})
    if security:
        data["security"] = security
    test = (service.get("healthcheck") or {}).get("test")
    if isinstance(test, str):
        data["ready"] = test
    elif test and test[0] == "CMD":
        data["ready"] = test[1:]
    elif test and test[0] == "CMD-SHELL":
        data["ready"] = test[1]
    return data


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        import shlex

        return shlex.split(value)
    return [str(word) for word in value or ()]


def _environment(value: Any) -> dict[str, str]:
    pairs = value.items() if isinstance(value, Mapping) else (str(line).partition("=")[::2] for line in value)
    return {str(key): "" if text is None else str(text) for key, text in pairs}


def _resources(service: Mapping[str, Any]) -> dict[str, Any]:
    asked = ((service.get("deploy") or {}).get("resources")) or {}
    limits, reserved = asked.get("limits") or {}, asked.get("reservations") or {}
    result: dict[str, Any] = {}
    for field, value in (
        ("memory", service.get("mem_limit") or limits.get("memory")),
        ("request_memory", service.get("mem_reservation") or reserved.get("memory")),
    ):
        if value:
            result[field] = re.sub(r"b$", "", str(value).strip(), flags=re.IGNORECASE)
    for field, value in (
        ("cpu", service.get("cpus") or limits.get("cpus")),
        ("request_cpu", reserved.get("cpus")),
    ):
        if value:
            result[field] = float(value)
    for device in reserved.get("devices") or ():
        if "gpu" in (device.get("capabilities") or ()):
            count = device.get("count")
            result["gpu"] = int(count) if str(count).isdecimal() else len(device.get("device_ids") or [0])
    return result
