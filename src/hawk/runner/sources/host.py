"""The machine: room on disks, memory, load."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import psutil

from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.evidence import Evidence, Host
from hawk.runner.sources.context import Context
from hawk.store.disks import look


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
            disks=[look(what, path) for what, path in places.items()],
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
