"""Entries of an eval set's lists: which tasks, models, agents and solvers, and where they come from.

An entry names a package or a file, and items in it; one of tasks may name a folder of evals instead. A short string
stands for an entry with one item: `problems.py@easy` is `{file: problems.py, items: [{name: easy}]}`.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    field_validator,
    model_validator,
)

BUILTIN = "inspect-ai"
"""The `package` of everything that Inspect itself brings."""

Args = dict[str, JsonValue]
Name = Annotated[str, Field(min_length=1)]


class Fields(BaseModel):
    """A mapping in which `null` means "not said": the public client sends every field that it knows."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_not_said(cls, data: Any) -> Any:
        return {k: v for k, v in data.items() if v is not None} if isinstance(data, dict) else data


class Strict(Fields):
    """Refuses unknown fields: one that is misspelt would otherwise change a run in silence."""

    model_config = ConfigDict(extra="forbid")


class Secret(Strict):
    """A secret that the eval set needs. The value travels by pipe and is never stored."""

    type: Literal["env", "aws-secrets-manager"] = "env"
    """Where the value comes from. Here always the submitter's environment or secrets file, by `name`."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Environment variable that the runner will find it in."""

    description: str | None = None
    """What it is for; shown when it is missing."""

    arn: str | None = None
    """For `aws-secrets-manager`: which secret."""

    secret_name: str | None = None
    """For `aws-secrets-manager`: which secret, by name."""


def _as_secret(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


SecretEntry = Annotated[Secret, BeforeValidator(_as_secret, json_schema_input_type=str | Secret)]


class Isolation(Strict):
    """What a sandbox may reach."""

    level: Literal["standard", "strict"] = "standard"
    """How much a sandbox is shut in."""

    allow_domains: list[str] = []
    """Domains that a strict sandbox may reach."""

    allow_cidr: list[str] = []
    """Networks that a strict sandbox may reach."""

    runtime_class: str | None = None
    """Kubernetes runtime class of the sandbox's pod."""

    allow_gpu: bool = False
    """Whether a strict sandbox may have a GPU."""

    non_root: bool | None = None
    """Whether the sandbox must run as an ordinary user."""

    read_only_root: bool | None = None
    """Whether the sandbox's root file system is read-only."""


def _as_isolation(value: Any) -> Any:
    return {"level": value} if isinstance(value, str) else value


IsolationEntry = Annotated[
    Isolation,
    BeforeValidator(_as_isolation, json_schema_input_type=Literal["standard", "strict"] | Isolation),
]


class Item(Strict):
    """One thing in a package or file."""

    name: Name
    """Its name there."""

    args: Args = {}
    """Arguments it is called with."""


class TaskItem(Item):
    """One task."""

    sample_ids: Annotated[list[str | int], Field(min_length=1)] | None = None
    """Only these samples of its dataset; all when left out."""

    secrets: list[SecretEntry] = []
    """Secrets that this task needs."""

    isolation: IsolationEntry | None = None
    """Isolation of this task's sandboxes."""

    @field_validator("sample_ids")
    @classmethod
    def _once(cls, ids: list[str | int] | None) -> list[str | int] | None:
        repeated = {str(i) for i in ids or [] if [str(j) for j in ids or []].count(str(i)) > 1}
        if repeated:
            raise ValueError(f"sample ids listed more than once: {', '.join(sorted(repeated))}")
        return ids


class AgentItem(Item):
    """One agent or solver."""

    secrets: list[SecretEntry] = []
    """Secrets that it needs."""


class ModelArgs(Fields):
    """Arguments of `get_model()`; others go to the model's provider."""

    model_config = ConfigDict(extra="allow")

    role: str | None = None
    """Role that stands for this model where tasks ask for one."""

    default: str | None = None
    """Model to fall back to when the role is bound to none."""

    config: dict[str, JsonValue] = {}
    """Generation options of this model (temperature, max_tokens, …)."""

    base_url: str | None = None
    """Another address of the provider's API."""

    memoize: bool = True
    """Share one client between equal models."""

    @model_validator(mode="before")
    @classmethod
    def _no_key(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("api_key") is not None:
            raise ValueError("'api_key' is not allowed here: name it under secrets, the runner will find it")
        return data


class ModelItem(Strict):
    """One model."""

    name: Name
    """`provider/model`, as Inspect spells it."""

    args: ModelArgs | None = None
    """Arguments it is made with."""

    secrets: list[SecretEntry] = []
    """Secrets that it needs."""


ItemT = TypeVar("ItemT", TaskItem, AgentItem, ModelItem)


class Entry(Strict, Generic[ItemT]):
    """Items of one package or one file. Exactly one of `package` and `file` is given."""

    sources: ClassVar[tuple[str, ...]] = ("package", "file")

    package: Name | None = None
    """What pip installs (a PEP 508 requirement, git URL, or directory: `./mypkg`); `inspect-ai` for what Inspect brings."""

    file: Name | None = None
    """A Python file, relative to the eval set's own directory."""

    name: Name | None = None
    """The package's name among Inspect's entry points; by default the package's, with `_` for `-`."""

    items: list[ItemT] = []
    """What to take from it; of a task file, everything when left out."""

    @model_validator(mode="after")
    def _one_source(self) -> Entry[ItemT]:
        given = [source for source in self.sources if getattr(self, source) is not None]
        if len(given) != 1:
            *others, last = map(repr, self.sources)
            raise ValueError(f"give either {', '.join(others)} or {last}")
        if given == ["folder"]:
            return self
        if self.file is not None:
            if not self.file.endswith(".py"):
                raise ValueError(f"'file' must be a Python file (.py), not {self.file!r}")
            return self
        if self.package != BUILTIN and re.match(r"inspect[-_]ai\b", self.package or "", re.IGNORECASE):
            raise ValueError(f"found {self.package!r}; what Inspect brings is written 'package: {BUILTIN}'")
        if not self.items:
            raise ValueError("'items' must name at least one")
        if self.name is None and self.package != BUILTIN and self.entry_point is None:
            raise ValueError("'name' is missing: the package's name among Inspect's entry points")
        return self

    @property
    def entry_point(self) -> str | None:
        """Prefix of the items' registry names; None for files and for what Inspect brings."""
        if self.package is None or self.package == BUILTIN:
            return None
        plain = re.match(r"[A-Za-z0-9][\w.-]*(?=$|[\s\[<>=!~;@])", self.package)
        is_address = re.match(r"[a-z+]+://|git\+", self.package) is not None
        return self.name or (plain.group().replace("-", "_") if plain and not is_address else None)

    def qualified(self, item: str) -> str:
        """Registry name of an item."""
        prefix = self.entry_point
        return item if prefix is None or item.startswith(f"{prefix}/") else f"{prefix}/{item}"


class TaskEntry(Entry[TaskItem]):
    """Tasks of one package or file, or a folder of evals. Exactly one of `package`, `file` and `folder` is given."""

    sources: ClassVar[tuple[str, ...]] = ("package", "file", "folder")

    folder: Name | None = None
    """A directory that holds a directory for each eval, relative to the eval set's own directory."""

    evals: list[Name] = []
    """Of a folder: only these evals; `*` and `?` stand for any text. All when left out."""

    suites: list[Name] = []
    """Of a folder: only evals of these suites; `*` and `?` stand for any text. All when left out."""

    @property
    def folder_name(self) -> str:
        """What results call the folder: its path, without what leads up to it."""
        path = PurePosixPath(self.folder or "")
        parts = (
            [path.name] if path.is_absolute() else [part for part in path.parts if part not in (".", "..")]
        )
        return "-".join(parts) or "evals"

    @model_validator(mode="after")
    def _evals_are_of_a_folder(self) -> TaskEntry:
        if self.folder is None and (self.evals or self.suites):
            raise ValueError(
                "'evals' and 'suites' choose among the evals of a 'folder'; for other tasks use 'items'"
            )
        if self.folder is not None and (self.items or self.name is not None):
            raise ValueError(
                "a 'folder' has no 'items' and no 'name'; choose among its evals with 'evals' and 'suites'"
            )
        return self


class AgentEntry(Entry[AgentItem]):
    """Agents or solvers of one package or file."""


class ModelEntry(Entry[ModelItem]):
    """Models. A file is imported first, so that it can register a provider (`@modelapi`)."""


def _short(value: Any) -> Any:
    """The long form of a short string; anything else as it is."""
    if not isinstance(value, str) or not value:
        return value
    path, _, item = value.rpartition("@")
    if path.endswith(".py"):
        return {"file": path, "items": [{"name": item}]}
    if value.endswith(".py"):
        return {"file": value}
    return None


def _short_task(value: Any) -> Any:
    entry = _short(value)
    if entry is not None or value is None:
        return entry
    package, _, item = str(value).partition("/")
    if not item or package in (".", "..", "") or item.endswith("/"):
        return {"folder": value}
    return {"package": package, "name": package, "items": [{"name": item}]}


def _short_builtin(value: Any) -> Any:
    entry = _short(value)
    return entry if entry is not None or value is None else {"package": BUILTIN, "items": [{"name": value}]}


Tasks = list[Annotated[TaskEntry, BeforeValidator(_short_task, json_schema_input_type=str | TaskEntry)]]
Agents = list[Annotated[AgentEntry, BeforeValidator(_short_builtin, json_schema_input_type=str | AgentEntry)]]
Models = list[Annotated[ModelEntry, BeforeValidator(_short_builtin, json_schema_input_type=str | ModelEntry)]]
Actor = Annotated[AgentEntry, BeforeValidator(_short_builtin, json_schema_input_type=str | AgentEntry)]
Role = Annotated[ModelEntry, BeforeValidator(_short_builtin, json_schema_input_type=str | ModelEntry)]
