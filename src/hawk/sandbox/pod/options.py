"""The configuration of a sandbox that is a pod: `pod.yaml`, or the same fields in the eval set.

Frozen and hashable: Inspect collects the sandboxes of a task in a set, and pods booted ahead are found by it.
"""

# ruff: noqa: RUF012 - pydantic copies mutable defaults

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from hawk.sandbox.options import Frozen
from hawk.sandbox.quantities import Duration, Size
from hawk.sandbox.words import Command, Environment, ServiceName, Word

DEFAULT_IMAGE = "debian:12-slim"
"""What a sandbox is made of that names no image."""

RUNNER_IMAGE = "runner"
"""The word for the image that the runner itself is made of: it has a Python, and is where the runner is."""

CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETUID"),
    "SYS_CHROOT",
)
"""What root keeps in a sandbox: enough to install packages, change owners and become another user."""

_DOMAIN = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)+"
)
_LABEL = re.compile(r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_QUANTITY = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:m|[kMGTPE]i?|Ki)?")


def _quantity(value: Any) -> Any:
    """The cluster's way to write sizes and ours: `512Mi`, `1.5g`."""
    if isinstance(value, str) and value.strip().lower().endswith("i"):
        return f"{value.strip()}B"
    return value


ClusterSize = Annotated[Size, BeforeValidator(_quantity)]
Cpus = Annotated[float, Field(gt=0, allow_inf_nan=False, le=10_000)]


class Resources(Frozen):
    """What a container may use, and what is set aside for it."""

    memory: ClusterSize = 2 * 1024**3
    """Memory; with more its processes are killed. Bytes, or `512m`, `2g`, `512Mi`."""

    cpu: Cpus | None = None
    """Processors that it may keep busy; 0.5 is half of one. As many as are free when left out."""

    ephemeral_storage: ClusterSize | Literal["none"] = 4 * 1024**3
    """What it may write to its own file system; with more the pod is evicted. `none`: no limit of ours."""

    gpu: Annotated[int, Field(ge=0)] = 0
    """Graphics processors."""

    gpu_resource: Word = "nvidia.com/gpu"
    """The cluster's name for them."""

    request_memory: ClusterSize | None = None
    """Memory set aside on the node; 256 MiB, or the limit where that is less, when left out."""

    request_cpu: Cpus | None = None
    """Processors set aside on the node; 0.05, or the limit where that is less, when left out."""


class Security(Frozen):
    """What the container's processes may do."""

    capabilities: list[Annotated[str, AfterValidator(str.upper)]] = list(CAPABILITIES)
    """Linux capabilities of root; all others are dropped."""

    privilege_escalation: bool = False
    """Whether `sudo` and other setuid programs work."""

    read_only_root: bool = False
    """Whether the image's files can't be changed."""

    run_as_user: Annotated[int, Field(ge=0)] | None = None
    """Number of the user that the container runs as. Nothing in it can be root then. The image's when left out."""

    run_as_group: Annotated[int, Field(ge=0)] | None = None
    """Number of its group."""

    seccomp: Literal["RuntimeDefault", "Unconfined"] = "RuntimeDefault"
    """Which system calls are let through: the container runtime's usual ones, or all."""


class Common(Frozen):
    """What a sandbox and its services have in common."""

    image: Word = DEFAULT_IMAGE
    """The image, as the cluster's nodes can pull it; `runner` is the one that the runner itself is made of."""

    pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When the image is pulled; HAWK_KUBE_PULL_POLICY, else the cluster's usual way, when left out."""

    command: Command | None = None
    """What the container runs: a list, or shell text. A sandbox needs none; a service runs its image's own."""

    working_dir: str | None = None
    """Where commands start; the image's own when left out."""

    environment: Environment = {}
    """Environment variables. Stored with the eval set and readable in the cluster: nothing secret."""

    user: str | None = None
    """Who runs commands: a user of the image by name or number. The image's when left out. Others than that need root."""

    resources: Resources = Resources()
    """What it may use."""

    security: Security = Security()
    """What its processes may do."""

    @field_validator("user", mode="before")
    @classmethod
    def _numbers_too(cls, value: Any) -> Any:
        return str(value) if type(value) is int else value

    @field_validator("working_dir")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        if path is not None and not path.startswith("/"):
            raise ValueError(f"{path!r} is not an absolute path")
        return path


class PodService(Common):
    """A second container: beside the sandbox, reached as localhost and by its name, so ports must differ."""

    ready: Command | None = None
    """A command that must succeed in it before the attempt begins; asked every second."""

    separate: bool = False
    """A pod of its own, reached by its name."""


class Network(Frozen):
    """What a sandbox may reach. A cluster whose network enforces no policies lets everything through."""

    allow: list[str] = []
    """Networks (`10.1.0.0/16`), addresses, and domains (`pypi.org`), which mean the addresses that they have when the
    first attempt begins: others of a large site may be refused."""

    open: bool = False
    """Everything that a pod of the namespace reaches."""

    @field_validator("allow")
    @classmethod
    def _known_forms(cls, entries: list[str]) -> list[str]:
        return [_destination(entry) for entry in entries]

    @model_validator(mode="after")
    def _one_of_them(self) -> Network:
        if self.open and self.allow:
            raise ValueError("'open' leaves nothing for 'allow' to add")
        return self


def _destination(entry: str) -> str:
    try:
        return str(ipaddress.ip_network(entry))
    except ValueError:
        if not _DOMAIN.fullmatch(entry):
            raise ValueError(
                f"{entry!r} is neither a network (10.1.0.0/16), an address nor a domain (pypi.org); no wildcards"
            ) from None
        return entry.lower()


def _as_network(value: Any) -> Any:
    if value in ("none", "open"):
        return {"open": value == "open"}
    if isinstance(value, str):
        raise ValueError(f"{value!r} is not known; write none, open, or a list of what may be reached")
    return {"allow": value} if isinstance(value, list) else value


NetworkEntry = Annotated[
    Network,
    BeforeValidator(_as_network, json_schema_input_type=Literal["none", "open"] | list[str] | Network),
]


class Toleration(Frozen):
    """A taint of nodes that does not keep the pod away."""

    key: str | None = None
    """The taint's key; any when left out."""

    operator: Literal["Equal", "Exists"] = "Exists"
    """Whether its value matters."""

    value: str | None = None
    """The taint's value."""

    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; any when left out."""


class PodConfig(Common):
    """The configuration of a pod sandbox."""

    model_config = ConfigDict(title="Pod sandbox")

    services: dict[ServiceName, PodService] = {}
    """More containers for the same attempt, by name: a database, a server to attack."""

    default: ServiceName | None = None
    """Another name for the sandbox itself, as a compose file has it."""

    network: NetworkEntry = Network()
    """What it may reach: `none` (nothing), `open` (everything), or a list of networks and domains."""

    pull_secrets: list[Word] = []
    """Secrets of the namespace with which images are pulled; HAWK_KUBE_PULL_SECRETS are added."""

    runtime_class: Word | None = None
    """The cluster's runtime class: `gvisor`, say. HAWK_KUBE_RUNTIME_CLASS when left out."""

    node_selector: dict[str, str] = {}
    """Labels that the node must have."""

    tolerations: list[Toleration] = []
    """Taints of nodes that do not matter."""

    labels: dict[str, str] = {}
    """More labels for the pod: for the cluster's own policies, say."""

    annotations: dict[str, str] = {}
    """More annotations for the pod."""

    service_account: Word | None = None
    """The pod's service account. Its token is in no case in the pod."""

    priority_class: Word | None = None
    """The cluster's priority class."""

    warm: Annotated[int, Field(ge=0, le=100)] = 0
    """Pods that are kept ready: an attempt gets one at once, instead of waiting until one has started."""

    lifetime: Duration | None = None
    """How long the pod may live, whatever runs in it: seconds, or `90s`, `10m`, `2h`."""

    start_timeout: Duration = 600
    """How long it may take to start: waiting for a node included."""

    image_grace: Duration = 30
    """How long an image may fail to be pulled before the attempt gives up."""

    @field_validator("labels", "node_selector")
    @classmethod
    def _label_names(cls, labels: dict[str, str]) -> dict[str, str]:
        for name, value in labels.items():
            if not _LABEL.fullmatch(name) or (
                value and not re.fullmatch(r"[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?", value)
            ):
                raise ValueError(f"{name}={value!r} can't be a label of Kubernetes")
            if name.startswith("hawk/"):
                raise ValueError(f"{name!r}: names that begin with hawk/ are Hawk's")
        return labels

    @model_validator(mode="after")
    def _names(self) -> PodConfig:
        if self.default is not None and self.default in self.services:
            raise ValueError(f"{self.default!r} is both the sandbox and a service")
        return self
