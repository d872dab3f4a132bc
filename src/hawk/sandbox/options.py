"""What a bubblewrap sandbox may be told: the fields of `sandbox.yaml`.

The text under each field is its documentation and its text in the schema.
"""

# ruff: noqa: RUF012 - pydantic copies mutable defaults

from __future__ import annotations

import json
import posixpath
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from hawk.config.entries import Strict
from hawk.config.options import Count
from hawk.sandbox.quantities import Duration, Size
from hawk.sandbox.words import (
    ApkPackage,
    AptPackage,
    Command,
    Destination,
    Environment,
    HostName,
    Mode,
    PipPackage,
    Rootfs,
    ServiceName,
    User,
    Word,
    Workspace,
    encodable,
    is_path,
    plain,
)

_LITTLE = 1024**2
"""No sandbox starts with less; such a number lacks its unit."""


class Frozen(Strict):
    """Can't be changed, and is a key by what it says: Inspect collects the sandboxes of a task in a set."""

    model_config = ConfigDict(frozen=True)

    def __hash__(self) -> int:
        return hash(json.dumps(self.model_dump(mode="json"), sort_keys=True))


class Limits(Frozen):
    """What a sandbox may use. Sizes: bytes, or `512m`, `1g`, `1.5 GiB`, where k, m, g and t are powers of 1024."""

    memory: Size = 2 * 1024**3
    """Memory of its processes."""

    processes: Count = 512
    """Processes and threads at once."""

    workspace: Size = 1024**3
    """All that it may write: the workspace and changes anywhere else."""

    file_size: Size | None = None
    """The largest file that it may write; as large as all of `limits.workspace` when left out."""

    inodes: Count = 200_000
    """Files and directories that it may create."""

    open_files: Count = 4096
    """Files that one process may have open."""

    cpu_time: Duration | None = None
    """Processor time that one process may use: seconds, or `90s`, `10m`, `2h`."""

    wall_time: Duration | None = None
    """How long the sandbox may live: seconds, or `90s`, `10m`, `2h`."""

    cpus: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Processors that it may keep busy; 0.5 is half of one."""

    @field_validator("memory", "workspace")
    @classmethod
    def _enough_to_start(cls, size: int) -> int:
        if size < _LITTLE:
            raise ValueError(f"{size} bytes are too few to start anything; write a unit, as in 512m or 2g")
        return size


class SetupFile(Frozen):
    """What a file or directory of the sandbox is made from. Exactly one of `from` and `text` is given."""

    # read under both names, because a dump may hold either; written under its own
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)

    path: Word | None = Field(default=None, validation_alias="from", serialization_alias="from")
    """A file or directory of this machine, relative to the config's own directory. It keeps its mode."""

    text: str | None = None
    """The content itself."""

    mode: Mode | None = None
    """Permissions of a file with `text`, in octal and in quotes; "0644" when left out."""

    @field_validator("text")
    @classmethod
    def _can_be_written(cls, text: str | None) -> str | None:
        return text if text is None else encodable(text)

    @model_validator(mode="after")
    def _one_source(self) -> SetupFile:
        if (self.path is None) == (self.text is None):
            raise ValueError("give either 'from' (a local path) or 'text'")
        if self.mode is not None and self.text is None:
            raise ValueError("'mode' goes with 'text'; a local file keeps the mode that it has")
        return self

    def resolved(self, base: Path) -> SetupFile:
        """The same with an absolute path."""
        return self if self.path is None else self.model_copy(update={"path": _absolute(self.path, base)})


def _as_file(value: Any) -> Any:
    return {"from": value} if isinstance(value, str) else value


SetupFileEntry = Annotated[SetupFile, BeforeValidator(_as_file, json_schema_input_type=str | SetupFile)]


class Packages(Frozen):
    """Packages to install, by the program that installs them."""

    apt: list[AptPackage] = []
    """Debian and Ubuntu: `name`, `name=version`."""

    apk: list[ApkPackage] = []
    """Alpine: `name`, `name=version`."""

    pip: list[PipPackage] = []
    """Python: `name`, `name==version`, a git URL."""

    @property
    def any(self) -> bool:
        return bool(self.apt or self.apk or self.pip)


class Setup(Frozen):
    """What is prepared once and then shared, read-only, by all sandboxes that ask for the same."""

    files: dict[Destination, SetupFileEntry] = {}
    """Files and directories to put in, by their place in the sandbox: absolute, or relative to the workspace. A text
    is short for `{from: …}`."""

    packages: Packages = Packages()
    """Packages to install."""

    script: str | None = None
    """Shell commands to run last, in the workspace."""

    script_file: Word | None = None
    """The same from a local file, relative to the config's own directory. Give one of the two."""

    user: Literal["root", "user"] = "root"
    """Who runs the script."""

    network: Literal["none", "host"] = "host"
    """What the script and the installers may reach: nothing, or all that this machine reaches."""

    timeout: Duration = 1800
    """How long all of it may take: seconds, or `90s`, `10m`, `2h`."""

    environment: Environment = {}
    """Environment variables of the setup alone, besides the sandbox's own. Stored: nothing secret."""

    @field_validator("script")
    @classmethod
    def _can_be_passed_on(cls, script: str | None) -> str | None:
        return script if script is None else plain(script)

    @model_validator(mode="after")
    def _one_script(self) -> Setup:
        if self.script is not None and self.script_file is not None:
            raise ValueError("give either 'script' or 'script_file'")
        return self

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        has_script = self.script_file is not None or bool(self.script and self.script.strip())
        return not (self.files or self.packages.any or has_script)

    def resolved(self, base: Path) -> Setup:
        """The same with absolute paths."""
        changes: dict[str, Any] = {}
        if any(file.path is not None for file in self.files.values()):
            changes["files"] = {place: file.resolved(base) for place, file in self.files.items()}
        if self.script_file is not None:
            changes["script_file"] = _absolute(self.script_file, base)
        return self.model_copy(update=changes) if changes else self


class Common(Frozen):
    """What a sandbox and its services have in common."""

    user: User = "user"
    """Who runs commands: `user` (number 1000), `root`, or a user of the root file system by name or number."""

    hostname: HostName | None = None
    """The name it calls itself; `sandbox` when left out, and for a service its own."""

    environment: Environment = {}
    """Environment variables of every command. Stored with the eval set: nothing secret."""

    workspace: Workspace = "/workspace"
    """Where commands start: an absolute path, made when it is missing."""

    limits: Limits = Limits()
    """What it may use."""

    storage: Literal["memory", "disk"] = "memory"
    """Where what it writes is kept: in memory, where `limits.workspace` can't be passed, or on disk under HAWK_HOME,
    where it is watched."""

    rootfs: Rootfs | None = None
    """Its root file system: a directory or tar file (.gz, .xz, .bz2), relative to the config's own directory, or the
    name of an imported image (`name`, `name:tag`). Without one, this machine's programs, read-only."""

    setup: Setup = Setup()
    """What is prepared once, before the first attempt."""

    inspect_tools: bool = True
    """Whether Inspect's own tools (bash_session, editor, browser) are put in ahead of time: their first use is instant
    then."""

    @property
    def rootfs_path(self) -> Path | None:
        """Path of the root file system, where it is named by one."""
        return Path(self.rootfs) if self.rootfs is not None and is_path(self.rootfs) else None

    @property
    def rootfs_image(self) -> str | None:
        """Name of the imported image, where it is one."""
        return self.rootfs if self.rootfs is not None and not is_path(self.rootfs) else None

    def place(self, destination: str) -> str:
        """Where one of `setup.files` is, as an absolute path in the sandbox."""
        return posixpath.join(self.workspace, destination)

    def resolved(self, base: Path) -> Self:
        """The same with absolute local paths.

        Args:
            base: What relative ones are relative to, absolute.
        """
        changes: dict[str, Any] = {}
        if (setup := self.setup.resolved(base)) is not self.setup:
            changes["setup"] = setup
        if self.rootfs is not None and is_path(self.rootfs):
            changes["rootfs"] = _absolute(self.rootfs, base)
        return self.model_copy(update=changes) if changes else self

    @model_validator(mode="after")
    def _each_place_once(self) -> Self:
        first: dict[str, str] = {}
        for written in self.setup.files:
            other = first.setdefault(self.place(written), written)
            if other != written:
                raise ValueError(f"setup.files: {written!r} and {other!r} are the same place")
        return self


class Service(Common):
    """A second sandbox beside the first, in the same network: they reach each other by name, so ports must differ."""

    command: Command | None = None
    """What it runs in the background from its start: a list, or shell text."""

    ready: Command | None = None
    """A command that must succeed in it before the attempt begins; asked again and again."""

    ready_timeout: Duration = 60
    """How long it may take to become ready: seconds, or `90s`, `10m`, `2h`."""


class BubblewrapConfig(Common):
    """The configuration of a bubblewrap sandbox."""

    model_config = ConfigDict(title="Bubblewrap sandbox")

    network: Literal["none", "host"] = "none"
    """What the sandbox may reach: nothing, or all that this machine reaches."""

    allow: list[str] = []
    """Domains that it may reach. Not in this version."""

    services: dict[ServiceName, Service] = {}
    """More sandboxes for the same attempt, by name: a database, a server to attack."""

    @field_validator("allow")
    @classmethod
    def _not_yet(cls, domains: list[str]) -> list[str]:
        if domains:
            raise ValueError(
                "lists of allowed domains come with the middleman, which is not part of this version; "
                "leave 'allow' out and write 'network: none' (nothing) or 'network: host' (everything)"
            )
        return domains

    def resolved(self, base: Path) -> Self:
        """The same with absolute local paths, those of the services too."""
        own = super().resolved(base)
        services = {name: service.resolved(base) for name, service in self.services.items()}
        return own.model_copy(update={"services": services}) if services else own


def _absolute(path: str, base: Path) -> str:
    try:
        return str(base / Path(path).expanduser())
    except RuntimeError:  # no such user: the path is not found, and named as it was written
        return str(base / path)
