"""The pods of one attempt as manifests. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hawk.sandbox.pod import names
from hawk.sandbox.pod.names import Owner
from hawk.sandbox.pod.network import Resolved
from hawk.sandbox.pod.options import RUNNER_IMAGE, Common, PodConfig, PodService

MAIN = "default"
"""Container of the sandbox itself."""

KEEP_ALIVE = "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait $!; done"
"""What a sandbox runs as its first process: it ends at once when asked to, and buries orphans, which `sleep` does not."""

_REQUEST_MEMORY = 256 * 1024**2
_REQUEST_CPU = 0.05
_REQUEST_STORAGE = 64 * 1024**2
_READY_PATIENCE = 10


@dataclass(frozen=True)
class Defaults:
    """What the environment decides where a configuration says nothing."""

    runner_image: str = RUNNER_IMAGE
    pull_policy: str | None = None
    pull_secrets: tuple[str, ...] = ()
    runtime_class: str | None = None
    cluster_domain: str = "cluster.local"

    def image(self, options: Common) -> str:
        """What a container is made of."""
        return self.runner_image if options.image == RUNNER_IMAGE else options.image


@dataclass(frozen=True)
class Placing:
    """Which sandbox it is.

    Attributes:
        group: Its name, which its pods have in common.
        network: Value of the label by which its policy selects it.
        labels, annotations: What says for whom it is.
    """

    group: str
    network: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def pods(
    config: PodConfig, owner: Owner, placing: Placing, resolved: Resolved, defaults: Defaults, namespace: str
) -> dict[str, dict[str, Any]]:
    """The pods by the service that each is; the sandbox is `default` and holds the services without their own."""
    together = {name: service for name, service in config.services.items() if not service.separate}
    apart = {name: service for name, service in config.services.items() if service.separate}
    subdomain = owner.name(placing.group) if apart else ""
    result = {}
    for service in (MAIN, *apart):
        containers = [_container(MAIN, config, defaults)] if service == MAIN else []
        inside = together if service == MAIN else {service: apart[service]}
        containers += [_container(name, options, defaults) for name, options in inside.items()]
        aliases = [{"ip": address, "hostnames": list(known)} for address, known in resolved.hosts]
        if together and service == MAIN:
            own = [MAIN, *([config.default] if config.default else []), *together]
            aliases.append({"ip": "127.0.0.1", "hostnames": own})
        spec = _spec(config, containers, aliases, defaults)
        spec["hostname"] = (config.default or MAIN) if service == MAIN else service
        if apart:
            spec["subdomain"] = subdomain
            spec["dnsConfig"] = {"searches": [f"{subdomain}.{namespace}.svc.{defaults.cluster_domain}"]}
        labels = {**config.labels, **placing.labels, names.NETWORK: placing.network, names.SERVICE: service}
        if apart:
            labels[names.GROUP] = placing.group
        name = owner.name(placing.group) if service == MAIN else owner.name(placing.group, service)
        meta = owner.meta(name, labels, {**config.annotations, **placing.annotations})
        result[service] = {"kind": "Pod", "metadata": meta, "spec": spec}
    return result


def headless(owner: Owner, group: str) -> dict[str, Any]:
    """The Service by which the pods of one attempt have names."""
    labels = {names.GROUP: group}
    return {
        "kind": "Service",
        "metadata": owner.meta(owner.name(group), labels, {}),
        "spec": {"clusterIP": "None", "selector": labels, "publishNotReadyAddresses": True},
    }


def _spec(
    config: PodConfig, containers: list[dict[str, Any]], aliases: list[dict[str, Any]], defaults: Defaults
) -> dict[str, Any]:
    secrets = dict.fromkeys((*config.pull_secrets, *defaults.pull_secrets))
    optional = {
        "hostAliases": aliases,
        "imagePullSecrets": [{"name": name} for name in secrets],
        "runtimeClassName": config.runtime_class or defaults.runtime_class,
        "nodeSelector": config.node_selector,
        "tolerations": [t.model_dump(exclude_none=True) for t in config.tolerations],
        "serviceAccountName": config.service_account,
        "priorityClassName": config.priority_class,
        "activeDeadlineSeconds": config.lifetime,
    }
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": containers,
        **{key: value for key, value in optional.items() if value},
    }


def _container(name: str, options: Common, defaults: Defaults) -> dict[str, Any]:
    result: dict[str, Any] = {
        "name": name,
        "image": defaults.image(options),
        "resources": _resources(options),
        "securityContext": _security(options),
    }
    if policy := options.pull_policy or defaults.pull_policy:
        result["imagePullPolicy"] = policy
    if options.command is not None:
        result["command"] = argv(options.command)
    elif name == MAIN:
        result["command"] = ["/bin/sh", "-c", KEEP_ALIVE]
    if options.working_dir is not None:
        result["workingDir"] = options.working_dir
    if options.environment:
        result["env"] = [{"name": key, "value": value} for key, value in options.environment.items()]
    if isinstance(options, PodService) and options.ready is not None:
        result["readinessProbe"] = {
            "exec": {"command": argv(options.ready)},
            "periodSeconds": 1,
            "timeoutSeconds": _READY_PATIENCE,
            "failureThreshold": 2,
        }
    return result


def argv(command: list[str] | str) -> list[str]:
    """A command as words."""
    return ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)


def _resources(options: Common) -> dict[str, Any]:
    asked = options.resources
    limits: dict[str, str] = {"memory": str(asked.memory)}
    memory = asked.request_memory or min(asked.memory, _REQUEST_MEMORY)
    cpu = asked.request_cpu or min(asked.cpu or _REQUEST_CPU, _REQUEST_CPU)
    requests = {"memory": str(min(memory, asked.memory)), "cpu": _cpus(cpu)}
    if asked.cpu is not None:
        limits["cpu"] = _cpus(asked.cpu)
    if asked.ephemeral_storage != "none":
        limits["ephemeral-storage"] = str(asked.ephemeral_storage)
        requests["ephemeral-storage"] = str(min(asked.ephemeral_storage, _REQUEST_STORAGE))
    if asked.gpu:
        limits[asked.gpu_resource] = requests[asked.gpu_resource] = str(asked.gpu)
    return {"limits": limits, "requests": requests}


def _cpus(number: float) -> str:
    return f"{max(1, round(number * 1000))}m"


def _security(options: Common) -> dict[str, Any]:
    asked = options.security
    capabilities: dict[str, Any] = {"drop": ["ALL"]}
    kept = [name for name in asked.capabilities if name != "ALL"]
    if "ALL" in asked.capabilities:
        capabilities = {"add": ["ALL"]}
    elif kept and not asked.run_as_user:  # an ordinary user has none in any case
        capabilities["add"] = kept
    result: dict[str, Any] = {
        "allowPrivilegeEscalation": asked.privilege_escalation,
        "capabilities": capabilities,
        "seccompProfile": {"type": asked.seccomp},
    }
    if asked.read_only_root:
        result["readOnlyRootFilesystem"] = True
    if asked.run_as_user is not None:
        result |= {"runAsUser": asked.run_as_user, "runAsNonRoot": asked.run_as_user != 0}
    if asked.run_as_group is not None:
        result["runAsGroup"] = asked.run_as_group
    return result
