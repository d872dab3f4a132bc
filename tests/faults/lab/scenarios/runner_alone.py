"""Faults of the runner's disk, which need a Hawk on a small one."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

from hawk.core.diagnosis.causes import Severity
from tests.faults.lab.bench import Bench, Case
from tests.faults.lab.replies import answered
from tests.faults.lab.run import Run, after, running
from tests.faults.lab.scenario import scenario


def _cant_mount() -> str | None:
    done = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    return None if done.returncode == 0 else "mounting is not allowed here"


def _small_disk(bench: Bench, mib: int) -> Path:
    disk = bench.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(disk)], check=True)
    bench.closing.callback(
        lambda: subprocess.run(["umount", "-l", str(disk)], check=False, capture_output=True)
    )
    return disk


@scenario("runner.disk_full", least=Severity.STUCK, alone=True, needs=_cant_mount)
def disk_runs_full(bench: Bench) -> Case:
    bench.model(answered(0.4))
    disk = _small_disk(bench, bench.number(24, 40))
    full: list[bool] = []

    def fill(run: Run) -> None:
        with contextlib.suppress(OSError), (disk / bench.word()).open("wb", buffering=0) as f:
            while True:
                f.write(b"x" * 4096)
        full.append(True)

    return bench.case(
        bench.samples(40, ["ask", 4]),
        max_samples=4,
        actions=[after(running, fill, bench.between(1, 3))],
        present=lambda run: full,
        case={"root": disk},
    )
