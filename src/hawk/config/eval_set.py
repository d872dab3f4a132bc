"""The eval set: what a person writes to say what to run.

The fields are those of the public Hawk, so its files run unchanged, and a few of ours: `runs`, `attempts`,
`engine`, `sandbox`, and entries that name a `file`. Other options of Inspect's `eval_set()` pass through
(`EvalSetConfig.passthrough`). The text under each field is its documentation and its text in the schema.
"""

# ruff: noqa: RUF012 - pydantic copies mutable defaults

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, JsonValue, ValidationInfo, field_validator

from hawk.config.entries import (
    BUILTIN,
    Agents,
    Entry,
    Fields,
    IsolationEntry,
    Models,
    Name,
    Role,
    Secret,
    SecretEntry,
    Tasks,
)
from hawk.config.experiments import Experiments
from hawk.config.ids import check_id
from hawk.config.options import (
    Approval,
    AttemptsEntry,
    CheckpointEntry,
    Count,
    EpochsEntry,
    MiddlemanEntry,
    MiddlemanOptions,
    ModelCost,
    NotNegative,
    Runner,
    SandboxEntry,
)
from hawk.config.watchdog import Watchdog
from hawk.errors import UsageError

Seconds = Count


class EvalSetConfig(Fields):
    """One eval set: the grid tasks x agents x models, and how to run it."""

    model_config = ConfigDict(extra="allow", title="Hawk eval set")

    # What it is called

    name: Name | None = None
    """Beginning of the id when there is no `eval_set_id`."""

    eval_set_id: str | None = None
    """The id. Submitting it again resumes: finished attempts are reused."""

    tags: list[str] = []
    """Tags written into every log."""

    metadata: dict[str, JsonValue] = {}
    """Anything; written into every log."""

    # What runs

    tasks: Annotated[Tasks, Field(min_length=1)]
    """What is attempted. Every task runs with every agent and every model."""

    models: Models = []
    """Models under evaluation. Without one, each task uses its own."""

    agents: Agents = []
    """Agents to use instead of each task's own solver, one after the other."""

    solvers: Agents = []
    """Solvers to use instead of each task's own, beside `agents`."""

    experiments: Experiments = []
    """Agent, model and settings together, by name: files (`experiments/*.yaml`) or written out. Every task runs with
    every experiment, instead of with every agent and every model."""

    model_roles: dict[str, Role] = {}
    """Models that tasks ask for by role (grader, …): one each."""

    packages: list[Name] = []
    """More Python packages to install (PEP 508, git URL, or a directory: `./mypkg`). Installs into an environment of its own."""

    secrets: list[SecretEntry] = []
    """Environment variables to take from the submitter. Never stored."""

    runner: Runner = Runner()
    """Where and with what it runs."""

    engine: Literal["local", "kubernetes"] = "local"
    """Where it runs: on this machine or on a cluster."""

    sandbox: SandboxEntry | None = None
    """Sandbox for every task, instead of the task's own."""

    isolation: IsolationEntry | None = None
    """What sandboxes may reach. Acts on a cluster."""

    # How much runs

    limit: Count | tuple[NotNegative, Count] | None = None
    """Only the first N samples of each task, or samples `[from, to]`."""

    sample_shuffle: bool | int | None = None
    """Shuffle samples; a number makes the order repeatable."""

    epochs: EpochsEntry | None = None
    """Attempts of each sample: a number, or `{epochs, reducer}`."""

    runs: Count | None = None
    """Attempts of each pair. The same number as `epochs`; give one of them."""

    attempts: AttemptsEntry | None = None
    """Which attempts run, and when: a policy, or more."""

    score: bool = True
    """Whether attempts are scored."""

    # When an attempt ends

    message_limit: Count | None = None
    """Messages an attempt may have."""

    token_limit: Count | str | None = None
    """Tokens an attempt may use: a number, or Inspect's longer forms (`500k`, `output:1m`)."""

    turn_limit: Count | None = None
    """Model calls an attempt may make."""

    time_limit: Seconds | None = None
    """Seconds an attempt may take."""

    working_limit: Seconds | None = None
    """Seconds an attempt may take, waiting for others not counted."""

    cost_limit: Annotated[float, Field(gt=0)] | None = None
    """Dollars an attempt may cost; needs `model_cost_config`."""

    model_cost_config: dict[str, ModelCost] = {}
    """Prices by model."""

    # What happens when something fails

    retry_attempts: NotNegative | None = None
    """Times a task that failed is run again."""

    retry_on_error: NotNegative | None = None
    """Times an attempt that errored is run again."""

    max_retries: NotNegative | None = None
    """Times a model call is made again before the attempt errors."""

    attempt_timeout: Seconds | None = None
    """Seconds one model call may take."""

    watchdog: Watchdog | None = None
    """Remedies that are carried out without a person while it runs, and who is told of trouble. Off when left out."""

    # How many at once

    max_connections: Count | None = None
    """Model calls in flight at once, for each model; switches `adaptive_connections` off."""

    adaptive_connections: (
        bool
        | Count
        | Annotated[str, Field(pattern=r"^\d+-\d+(-\d+)?$")]
        | dict[Literal["min", "start", "max"], Count]
        | None
    ) = None
    """Let the number of model calls follow what the provider bears: on or off, the most, `min-max`, `min-start-max`."""

    max_samples: Count | None = None
    """Attempts in flight at once, for each task."""

    max_sandboxes: Count | None = None
    """Sandboxes at once."""

    max_subprocesses: Count | None = None
    """Subprocesses at once of a worker: Inspect's own, and commands in `local` and `docker` sandboxes."""

    # How models are reached

    middleman: MiddlemanEntry = MiddlemanOptions()
    """The proxy between workers and model providers: `off`, or a budget, recording and replaying."""

    # What is written down

    log_realtime: bool = True
    """Record events while attempts run; live views need it."""

    log_model_api: bool | None = None
    """Record every raw request and response of models."""

    log_images: bool | None = None
    """Keep images in the logs."""

    log_samples: bool | None = None
    """Record attempts in detail."""

    log_level: str | None = None
    """Console messages to keep: debug, http, info, warning, error."""

    log_level_transcript: str | None = None
    """Messages to keep in transcripts."""

    log_buffer: Count | None = None
    """Attempts to collect before the log is written."""

    # People in the loop, and more

    approval: Name | Approval | None = None
    """Who approves tool calls: an approver, a file, or `{approvers}`."""

    approval_timeout_minutes: Annotated[float, Field(gt=0)] | None = None
    """Minutes after which an unanswered approval is a no. Not done here."""

    acp_server: bool | int | None = None
    """Port of an agent client. Hawk sets it itself."""

    monitor: bool = False
    """Online monitoring by the cluster. Not done here."""

    human_eval: JsonValue = None
    """A person in place of the agent. Not done here."""

    scan: JsonValue = None
    """Scan transcripts while they are written. Not done here."""

    checkpoint: CheckpointEntry | None = None
    """Save attempts half-way. Not done here: a resumed attempt starts again."""

    @field_validator("eval_set_id")
    @classmethod
    def _valid_id(cls, value: str | None) -> str | None:
        try:
            return value if value is None else check_id(value)
        except UsageError as ex:
            raise ValueError(f"{ex.message} {ex.remedy}") from ex

    @field_validator("runs")
    @classmethod
    def _one_number_of_attempts(cls, runs: int | None, info: ValidationInfo) -> int | None:
        epochs = info.data.get("epochs")
        if runs is not None and epochs is not None and epochs.epochs != runs:
            raise ValueError(f"runs is {runs} and epochs is {epochs.epochs}: give one of them, or the same")
        return runs

    @field_validator("attempts")
    @classmethod
    def _the_same_number_of_attempts(
        cls, attempts: AttemptsEntry | None, info: ValidationInfo
    ) -> AttemptsEntry | None:
        runs, epochs = info.data.get("runs"), info.data.get("epochs")
        said = runs if runs is not None else epochs.epochs if epochs is not None else None
        if attempts is not None and attempts.runs is not None and said not in (None, attempts.runs):
            raise ValueError(
                f"attempts.runs is {attempts.runs} and {said} is said elsewhere: give one of them"
            )
        return attempts

    @field_validator("model_roles")
    @classmethod
    def _one_model_a_role(cls, roles: dict[str, Role]) -> dict[str, Role]:
        for role, entry in roles.items():
            if len(entry.items) != 1:
                raise ValueError(f"role {role!r} has {len(entry.items)} models; one is allowed")
        return roles

    @property
    def attempts_per_pair(self) -> int | None:
        """Number of attempts that this config asks for, or None: each task's own."""
        if self.epochs is not None:
            return self.epochs.epochs
        return self.runs if self.runs is not None or self.attempts is None else self.attempts.runs

    @property
    def passthrough(self) -> dict[str, Any]:
        """Options that only Inspect knows."""
        return dict(self.__pydantic_extra__ or {})

    @property
    def required_secrets(self) -> list[Secret]:
        """Every secret that is named anywhere in it, each once."""
        nested = [secret for entry in self._entries for item in entry.items for secret in item.secrets]
        if self.watchdog is not None:
            nested += [Secret(name=name) for name in self.watchdog.secret_names]
        return list(
            {secret.name: secret for secret in [*nested, *self.secrets, *self.runner.secrets]}.values()
        )

    @property
    def requirements(self) -> list[str]:
        """What the items come from and `packages`, as pip takes them, each once, in order."""
        sources = [entry.package for entry in self._entries if entry.package and entry.package != BUILTIN]
        return list(dict.fromkeys([*sources, *self.packages]))

    @property
    def _entries(self) -> list[Entry[Any]]:
        both = [entry for experiment in self.experiments for entry in experiment.entries.values()]
        return [*self.tasks, *self.models, *self.agents, *self.solvers, *both, *self.model_roles.values()]

    def to_data(self) -> dict[str, Any]:
        """Plain data for JSON that validates to this config again: what was said, nothing else."""
        return self.model_dump(mode="json", exclude_unset=True, by_alias=True)
