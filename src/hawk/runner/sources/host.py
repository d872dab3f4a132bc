"""The machine: room on disks, memory, load."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import psutil

from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.evidence import Disk, Evidence, Host
from hawk.runner.sources.context import Context


class HostReader:
    """See the module. What a container is allowed is in the workers' own limits."""

    source = Source.HOST

    def fill(self, evidence: Evidence, context: Context) -> None:
        places = {
            "run directory": context.run_dir.path,
            "temporary files": Path(tempfile.gettempdir()),
            "Hawk's home": context.settings.home,
        }
        memory = psutil.virtual_memory()
        evidence.host = Host(
            cores=_cores(),
            load=round(os.getloadavg()[0], 2),
            pressure=_pressure(),
            memory=memory.total,
            memory_free=memory.available,
            disks=[_disk(what, path) for what, path in places.items()],
        )


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _pressure() -> float | None:
    """Share of the last ten seconds in which something waited for a CPU (PSI, Linux 4.20); None where it is not told."""
    try:
        first = Path("/proc/pressure/cpu").read_text().split("\n", 1)[0]
        return float(first.split("avg10=")[1].split()[0]) / 100
    except (OSError, IndexError, ValueError):
        return None


def _disk(what: str, path: Path) -> Disk:
    try:
        disk = os.statvfs(path)
    except OSError as ex:
        return Disk(what, str(path), writable=False, why=ex.strerror or str(ex))
    found = Disk(
        what,
        str(path),
        free=disk.f_bavail * disk.f_frsize,
        total=disk.f_blocks * disk.f_frsize,
        free_files=disk.f_favail if disk.f_files else None,
    )
    if disk.f_flag & os.ST_RDONLY:
        found.writable, found.why = False, "it is mounted read-only"
    elif not os.access(path, os.W_OK):
        found.writable, found.why = False, "permission denied"
    return found
