"""The nested settings of an eval set: epochs, attempts, sandbox, approval, prices, runner, checkpoints."""

# ruff: noqa: RUF012 - pydantic copies mutable defaults

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from hawk.config.entries import Args, Fields, Name, SecretEntry, Strict

Count = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]


class Epochs(Strict):
    """How often each sample is tried, and how its scores become one."""

    epochs: Count
    """Attempts of each sample."""

    reducer: str | list[str] | None = None
    """How the scores of a sample's attempts become one: mean, max, mode, at_least_k, pass_at_k, …"""


class Pass(Strict):
    """When an attempt has passed."""

    scorer: Name | None = None
    """Name of the scorer that decides; the first when left out."""

    threshold: float = 1.0
    """The least number that passes. `C` is 1, `P` 0.5, `I` 0; of a scorer with several values their mean counts."""


class Attempts(Strict):
    """Which attempts of a pair run, and when. A pair has passed when any of its attempts has."""

    policy: Literal["sequential", "parallel", "selective"] | None = None
    """One after the other until one passes (`sequential`, the default), all at once (`parallel`), or at once for pairs \
that are predicted to be long and one after the other for the rest (`selective`). With `epochs`: `parallel`."""

    runs: Count | None = None
    """Attempts of each pair: the same as `runs` beside it."""

    cancel_siblings: bool = False
    """A pass stops the other attempts of its pair. pass@k is then not given."""

    selective_above: Annotated[float, Field(ge=0)] | None = None
    """For `selective`: seconds above which a pair's attempts run at once. Left out, the plan chooses from history."""

    infra_retries: NotNegative | None = None
    """Times an attempt that failed for other reasons than its agent is begun again: the same as `retry_on_error`."""

    pass_: Pass = Field(default=Pass(), alias="pass")
    """What makes an attempt a pass."""

    history: Name | None = None
    """A CSV file of earlier attempts, beside what the server knows: columns task, sample, model, agent, duration_s, outcome, \
tokens, cost_usd, as `hawk export` writes them."""

    @model_validator(mode="after")
    def _only_what_means_something(self) -> Attempts:
        if self.selective_above is not None and self.policy != "selective":
            raise ValueError("'selective_above' is for 'policy: selective'")
        if self.cancel_siblings and self.policy == "sequential":
            raise ValueError(
                "'cancel_siblings' is for attempts that run at once: 'policy: parallel' or 'selective'"
            )
        return self


class SandboxSpec(Strict):
    """The sandbox that every task gets instead of its own."""

    type: Name
    """Inspect sandbox provider: bubblewrap, pod, docker, local, …"""

    config: JsonValue = None
    """The provider's configuration: the path of a file, or for bubblewrap and pod the fields of that file right here."""


class Approver(Fields):
    """One approver of tool calls; fields not listed are its arguments too."""

    model_config = ConfigDict(extra="allow")

    name: Name
    """Registry name of the approver: auto, human, …"""

    tools: str | list[str] = "*"
    """Tools it decides about; `*` matches any ending."""

    args: Args = {}
    """Arguments it is made with."""


class Approval(Strict):
    """Who approves tool calls."""

    approvers: Annotated[list[Approver], Field(min_length=1)]
    """Asked in this order."""


class ModelCost(Strict):
    """Prices of one model, in dollars per million tokens."""

    input: float
    """Input."""

    output: float
    """Output."""

    input_cache_write: float = 0
    """Input written to the provider's cache."""

    input_cache_read: float = 0
    """Input read from the provider's cache."""


def _number_as_text(value: Any) -> Any:
    return str(value) if type(value) in (int, float) else value


Text = Annotated[str, BeforeValidator(_number_as_text, json_schema_input_type=str | float)]
"""Text that YAML may have taken for a number (`cpu: 2`)."""


Quantity = Annotated[
    str,
    BeforeValidator(_number_as_text, json_schema_input_type=str | float),
    Field(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|[KMGTPE]i?)?$"),
]
"""An amount as Kubernetes writes it: `500m`, `2`, `4Gi`."""


class Toleration(Strict):
    """A taint of nodes that the runner may be placed on all the same."""

    key: str | None = None
    """The taint's key; any when left out."""

    operator: Literal["Exists", "Equal"] = "Equal"
    """Whether the value counts."""

    value: str | None = None
    """The taint's value."""

    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; any when left out."""


class ClusterVolume(Strict):
    """A volume that the runner mounts. One of `claim`, `secret`, `config_map`; without, an empty one for its lifetime."""

    mount: Annotated[str, Field(pattern=r"^/[^:]+$")]
    """Where, as an absolute path."""

    claim: Name | None = None
    """A PersistentVolumeClaim that is there."""

    secret: Name | None = None
    """A Secret that is there."""

    config_map: Name | None = None
    """A ConfigMap that is there."""

    size: Quantity | None = None
    """The most that an empty volume may hold."""

    read_only: bool = False
    """Nothing can be written to it."""

    @model_validator(mode="after")
    def _one_source(self) -> ClusterVolume:
        named = [name for name in ("claim", "secret", "config_map") if getattr(self, name) is not None]
        if len(named) > 1:
            raise ValueError(f"{' and '.join(named)} exclude each other")
        if named and self.size is not None:
            raise ValueError("'size' is for an empty volume")
        return self


class Runner(Strict):
    """Where and with what the eval set runs."""

    image: str | None = None
    """Container image (cluster)."""

    image_tag: Text | None = None
    """Tag of the container image (cluster)."""

    workers: Literal["processes", "pods"] = "processes"
    """Where the tasks run: in processes beside each other in the runner's pod, or in a pod of its own for each share of the
    (task, model)s, eight at most unless `HAWK_WORKERS` says another number. `memory`, `cpu`, `gpu` and `disk` are then of each
    of these pods (cluster)."""

    memory: Quantity | None = None
    """Memory of the runner (cluster)."""

    cpu: Quantity | None = None
    """Processors of the runner (cluster)."""

    disk: Quantity | None = None
    """Disk of the runner beside its volumes (cluster)."""

    gpu: Count | dict[str, Count] | None = None
    """GPUs of the runner: a number of `nvidia.com/gpu`, or numbers by resource (cluster)."""

    node_selector: dict[str, Text] = {}
    """Labels of the nodes that the runner may be placed on (cluster)."""

    tolerations: list[Toleration] = []
    """Taints that do not keep the runner away (cluster)."""

    volumes: list[ClusterVolume] = []
    """More volumes (cluster)."""

    pull_secrets: list[Name] = []
    """Secrets with credentials of the image's registry (cluster)."""

    service_account: Name | None = None
    """Service account of the runner, whose token it gets. Without, it has one only when its sandboxes are pods (cluster)."""

    queue: Name | None = None
    """Kueue queue that admits it (cluster)."""

    priority: Name | None = None
    """Its priority class there (cluster)."""

    deadline: Annotated[int, Field(ge=60)] | None = None
    """Seconds that it may run, starts again included (cluster)."""

    cleanup: bool | None = None
    """Whether the runner is removed at the end (cluster)."""

    secrets: list[SecretEntry] = []
    """Secrets that the runner needs."""

    environment: dict[str, Text] = {}
    """Environment variables of the runner. Stored with the eval set: nothing secret."""

    storage_grants: list[JsonValue] = []
    """Buckets that the runner may use (cluster)."""

    oom_diagnostics_enabled: bool | None = None
    """Memory profiles (cluster)."""


class CheckpointTrigger(Strict):
    """When a checkpoint is taken."""

    type: Literal["time", "turn", "token", "manual"] = "time"
    """What is counted."""

    every: NotNegative = 600
    """Every so many seconds, turns or tokens."""


class Checkpoint(Strict):
    """Saving attempts half-way."""

    enabled: bool = False
    """Whether attempts are saved."""

    trigger: CheckpointTrigger = CheckpointTrigger()
    """When."""

    sandbox_paths: dict[str, list[str]] = {}
    """What is saved of each sandbox: absolute paths."""

    max_consecutive_failures: NotNegative | None = None
    """After so many failures in a row an attempt is no longer saved."""

    checkpoints_location: str | None = None
    """Where to."""


def _as_epochs(value: Any) -> Any:
    return {"epochs": value} if isinstance(value, int | float | str) else value


def _as_attempts(value: Any) -> Any:
    return {"policy": value} if isinstance(value, str) else value


def _as_sandbox(value: Any) -> Any:
    if isinstance(value, list) and len(value) == 2:  # as a task writes it: [pod, pod.yaml]
        return {"type": value[0], "config": value[1]}
    return {"type": value} if isinstance(value, str) else value


def _as_checkpoint(value: Any) -> Any:
    return {"enabled": value} if isinstance(value, bool) else value


class SpendingLimit(Strict):
    """What a job may spend on models through the middleman. It is stopped when a bound is reached; finished work is kept."""

    usd: Annotated[float, Field(gt=0)] | None = None
    """Dollars, by the middleman's prices."""

    tokens: Count | None = None
    """Tokens: input, output and cached ones together."""


class MiddlemanOptions(Strict):
    """How the job's requests to model providers go through the middleman."""

    off: bool = False
    """Workers reach providers themselves, with the keys that they are given."""

    budget: SpendingLimit | None = None
    """What the job may spend on models."""

    models: list[Name] = []
    """Models that the job may use, as shell patterns of Inspect's names (`openai/gpt-5*`); any when left out."""

    record: bool | Name = False
    """Keep every answer in a file: `cassette.jsonl` in the run directory, or the one named here."""

    replay: Name | None = None
    """Take every answer from a file that was recorded, and none from a provider."""

    replay_speed: Annotated[float, Field(ge=0)] = 0.0
    """Pauses of replayed answers: 1 as recorded, 2 half as long, 0 none."""

    @model_validator(mode="after")
    def _one_of_them(self) -> MiddlemanOptions:
        if self.record and self.replay is not None:
            raise ValueError("record and replay exclude each other")
        if self.off and (self.record or self.replay is not None or self.budget is not None or self.models):
            raise ValueError("off leaves nothing for the other settings to act on")
        return self


def _as_middleman(value: Any) -> Any:
    if value is False or value == "off":  # YAML 1.1 reads `off` as false
        return {"off": True}
    return {} if value is True or value == "on" else value


Policy = Literal["sequential", "parallel", "selective"]
EpochsEntry = Annotated[Epochs, BeforeValidator(_as_epochs, json_schema_input_type=Count | Epochs)]
AttemptsEntry = Annotated[Attempts, BeforeValidator(_as_attempts, json_schema_input_type=Policy | Attempts)]
SandboxEntry = Annotated[
    SandboxSpec, BeforeValidator(_as_sandbox, json_schema_input_type=str | list[JsonValue] | SandboxSpec)
]
MiddlemanEntry = Annotated[
    MiddlemanOptions,
    BeforeValidator(_as_middleman, json_schema_input_type=bool | Literal["on", "off"] | MiddlemanOptions),
]
CheckpointEntry = Annotated[
    Checkpoint, BeforeValidator(_as_checkpoint, json_schema_input_type=bool | Checkpoint)
]
