"""What Inspect's docker provider left behind: compose projects whose process has ended without cleaning up.

Such a project says nothing of its owner: it is called `inspect-<task>-i<random>`, by which `inspect sandbox cleanup
docker` finds and removes it together with those in use. But its owner started before it. So a project may go when no
process that could be running Inspect is as old; whatever is in doubt stays.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import psutil

from hawk.sandbox.docker import ask
from hawk.sandbox.errors import SandboxError

_PROJECT = re.compile(r"inspect-[a-z\d\-_]*-i[a-z\d]{6,}")
"""As Inspect names them: `task_project_name` in its docker provider."""

_LABEL = "com.docker.compose.project"
_SIGN = "pydantic_core"
"""A library that every process with Inspect has loaded: it can't be imported without."""

_SLACK = 60.0
"""Seconds by which two clocks may differ: the engine's, and the one that start times of processes are counted in."""


@dataclass
class Project:
    """One sandbox of Inspect's docker provider.

    Attributes:
        created: Seconds since 1970, of its first part.
        config: The compose file.
        owners: Processes that it may belong to, for people; with none, nobody is left who would remove it.
    """

    name: str
    created: float
    containers: list[str] = field(default_factory=list)
    networks: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)
    config: str = ""
    owners: list[str] = field(default_factory=list)

    @property
    def abandoned(self) -> bool:
        return not self.owners


def projects() -> list[Project]:
    """Every project of Inspect in the engine, with the processes that it may belong to.

    Raises:
        SandboxError: The engine does not answer, or processes that use it are out of sight.
    """
    _check_sight()
    found: dict[str, Project] = {}
    for project, created, identity, config in _listed(
        "ps", "--all", "--no-trunc", fields=(".CreatedAt", ".ID", f'.Label "{_LABEL}.config_files"')
    ):
        _note(found, project, created).containers.append(identity)
        found[project].config = config
    for project, created, identity in _listed("network", "ls", "--no-trunc", fields=(".CreatedAt", ".ID")):
        _note(found, project, created).networks.append(identity)
    for project, name in _listed("volume", "ls", fields=(".Name",)):
        created = ask("volume", "inspect", "--format", "{{.CreatedAt}}", "--", name).strip()
        _note(found, project, created).volumes.append(name)
    candidates = list(_candidates()) if found else []
    for entry in found.values():
        entry.owners = [who for who, started in candidates if started <= entry.created + _SLACK]
    return sorted(found.values(), key=lambda entry: entry.created)


def remove(project: Project) -> list[str]:
    """Remove a project: its containers, networks, volumes and the images and compose file made for it.

    Returns:
        What could not be removed, and why.
    """
    images = [
        name  # by name: the same image may have others
        for name in ask("images", "--format", "{{.Repository}}:{{.Tag}}").split()
        if name.startswith((f"{project.name}-", f"{project.name}_"))
    ]
    failed = [
        *_remove(project.containers, "rm", "--force", "--volumes"),
        *_remove(project.networks, "network", "rm"),
        *_remove(project.volumes, "volume", "rm"),
        *_remove(images, "rmi"),
    ]
    file = Path(project.config)
    if file.is_absolute() and file.name == f"{project.name}.yaml":  # made for this project alone
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
    return failed


def _remove(what: Iterable[str], *command: str) -> Iterator[str]:
    for identity in what:
        try:
            ask(*command, identity)
        except SandboxError as ex:
            if "no such" not in ex.message.lower():
                yield ex.message


def _listed(*command: str, fields: tuple[str, ...]) -> Iterator[list[str]]:
    """What there is with a project of Inspect: the project, then the fields."""
    form = "\t".join(f"{{{{{name}}}}}" for name in (f'.Label "{_LABEL}"', *fields))
    for line in ask(*command, "--filter", f"label={_LABEL}", "--format", form).splitlines():
        row = line.split("\t")
        if len(row) == len(fields) + 1 and _PROJECT.fullmatch(row[0]):
            yield row


def _note(found: dict[str, Project], name: str, created: str) -> Project:
    at = _seconds(created)
    project = found.setdefault(name, Project(name, at))
    project.created = min(project.created, at)
    return project


def _seconds(text: str) -> float:
    """Seconds since 1970 of a time as docker prints it: `2026-01-31 12:00:00.5 +0100 CET`, or ISO 8601."""
    match = re.match(r"(\d+-\d+-\d+)[ T](\d+:\d+:\d+)(?:\.\d+)? ?(Z|[+-]\d\d:?\d\d)", text)
    if match is None:
        raise SandboxError(f"docker says a time that can't be read: {text[:60]!r}.")
    return datetime.strptime(" ".join(match.groups()), "%Y-%m-%d %H:%M:%S %z").timestamp()


def _candidates() -> Iterator[tuple[str, float]]:
    """Processes that may be running Inspect: for people, and since when."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.pid != psutil.Process().pid and _may_run_inspect(process):
                try:
                    said = " ".join(process.cmdline()) or process.name()
                except psutil.AccessDenied:
                    said = process.name()
                yield f"{process.pid} ({said[:80]})", process.create_time()


def _may_run_inspect(process: psutil.Process) -> bool:
    try:
        if process.cmdline()[1:3] == ["-m", "hawk.server"]:
            return False  # it starts those who do
        return _SIGN in Path(f"/proc/{process.pid}/maps").read_text(errors="replace")
    except (psutil.AccessDenied, PermissionError):
        return process.name().startswith(("python", "inspect", "hawk"))  # another user's
    except OSError:
        return False


def _check_sight() -> None:
    """Raises: SandboxError when there may be processes that use the engine and can't be seen from here."""
    endpoint = ask("context", "inspect", "--format", "{{.Endpoints.docker.Host}}").strip()
    reason = f"the engine is at {endpoint}"
    if endpoint.startswith("unix://"):
        try:
            if _peer(endpoint.removeprefix("unix://")):
                return
            reason = "the engine runs outside of this container"
        except OSError as ex:
            reason = f"{endpoint}: {ex.strerror}"
    raise SandboxError(
        f"Whether docker containers are still in use can't be known here: {reason}.",
        remedy="Where you know that no eval runs: inspect sandbox cleanup docker",
    )


def _peer(path: str) -> int:
    """Pid of who listens at a socket; 0 when that process is not in sight."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        sock.connect(path)
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid: int = struct.unpack("3i", raw)[0]
        return pid
