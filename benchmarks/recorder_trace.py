"""`hawk trace` on a trace of one gibibyte: in one file, and in compressed pieces as a worker leaves it.

500 actions are in flight. Memory is the most that the server's and the command's process take at once, beyond what
the server takes at rest.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.bars import Bar
from benchmarks.processes import Hawk, hawk, timed
from hawk.bridge.tracesegments import CURRENT, SIDECAR, Piece
from hawk.client import HawkClient
from hawk.core.recorder.trace import Sidecar
from hawk.core.snapshot import Snapshot
from hawk.core.states import JobStatus
from hawk.core.zstd import pack
from hawk.store.rundir import JobSpec, RunDir, write_json

GIB = 1 << 30
PIECE = 64 << 20
MIB = 1 << 20
IN_FLIGHT = 500


def measure(rounds: int) -> list[Bar]:
    base = Path(tempfile.mkdtemp(prefix="hawk-benchmark-"))
    try:
        with hawk(base / "home", HAWK_MIDDLEMAN="0", HAWK_WARM="0") as instance:
            root = instance.settings.root
            for job, lay in (("one-file", _one_file), ("pieces", _pieces)):
                lay(_job(root, job))
                print(f"  {job}: {_size(root / job)} on disk", file=sys.stderr, flush=True)
            instance.start()
            return [bar for job in ("one-file", "pieces") for bar in _bars(instance, job, rounds)]
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _bars(instance: Hawk, job: str, rounds: int) -> Iterator[Bar]:
    name = f"1 GiB trace ({job.replace('-', ' ')})"
    pid = json.loads((Path(instance.env["HAWK_HOME"]) / "server.json").read_bytes())["pid"]
    client = instance.client()
    client.trace_actions_json(job, lines=100)
    rest = _memory(pid, "VmRSS")
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak begins anew
    asked = {
        "in flight and last lines": lambda: client.trace_actions_json(job, lines=100, most=20),
        "last lines": lambda: client.trace(job, lines=100).lines,
    }
    for what, ask in asked.items():
        yield Bar(f"{name}: {what}, over HTTP", 1000 * _median(ask, rounds), 300, "ms", f"{rounds} rounds")
    command: list[str | Path] = [instance.command, "trace", job]
    took = 1000 * median(timed(command, instance.env) for _ in range(rounds))
    yield Bar(f"{name}: hawk trace, the whole command", took, 300, "ms", f"{rounds} rounds")
    grown = _memory(pid, "VmHWM") - rest
    own = _peak(command, instance.env)
    note = f"server +{grown / MIB:.0f} MiB over its {rest / MIB:.0f}; the command {own / MIB:.0f} MiB at most"
    yield Bar(f"{name}: memory", (grown + own) / MIB, 50, "MiB", note)
    yield _whole(client, job, name)


def _whole(client: HawkClient, job: str, name: str) -> Bar:
    began, size = time.perf_counter(), 0
    for part in client.whole_trace(job):
        size += len(part)
    took = time.perf_counter() - began
    return Bar(f"{name}: all of it, over HTTP", took, 60, "s", f"{size / took / MIB:.0f} MiB a second")


def _median(ask: Callable[[], bytes], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        assert ask()
        times.append(time.perf_counter() - began)
    return median(times)


def _peak(command: list[str | Path], env: dict[str, str]) -> int:
    """The most memory that a command takes; asked for by a small process: a child begins with its parent's peak."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    words = [sys.executable, "-S", "-c", code, *map(str, command)]
    done = subprocess.run(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return int(done.stdout) * 1024


def _memory(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def _job(root: Path, job_id: str) -> Path:
    """The directory of a worker of a job that has ended."""
    run = RunDir(root / job_id)
    run.create()
    write_json(run.spec_file, JobSpec(job_id=job_id, base_dir="/", created_at=datetime.now(UTC).isoformat()))
    write_json(run.snapshot_file, Snapshot(job_id=job_id, status=JobStatus.COMPLETE))
    home = run.worker(0)
    home.mkdir(parents=True)
    return home


def _one_file(home: Path) -> None:
    enters = [_line(n, "enter", trace_id=f"open{n}") for n in range(IN_FLIGHT)]
    with (home / CURRENT).open("wb") as f:
        f.writelines(enters)
        size = f.tell()
        for block in _blocks(GIB):
            f.write(block)
            size += len(block)
    _sidecar(home, enters, at=size, base=0)


def _pieces(home: Path) -> None:
    enters = [_line(n, "enter", trace_id=f"open{n}") for n in range(IN_FLIGHT)]
    start = 0
    while start < GIB - PIECE:
        data = b"".join([*(enters if start == 0 else ()), *_blocks(PIECE)])
        newest = start + len(data) >= GIB - PIECE
        (home / Piece(start, not newest).name).write_bytes(data if newest else pack(data))
        start += len(data)
    last = b"".join([_line(n, "exit") for n in range(3)])  # fewer lines than are asked for
    (home / CURRENT).write_bytes(last)
    _sidecar(home, enters, at=start + len(last), base=start)


def _sidecar(home: Path, enters: list[bytes], *, at: int, base: int) -> None:
    """As a worker writes it: what came in the last second or so is not in it yet."""
    actions = [msgspec.Raw(enter.rstrip()) for enter in enters]
    write_json(home / SIDECAR, Sidecar(1, 0, base, max(base, at - 256 * 1024), _at(0), actions))


def _blocks(size: int) -> Iterator[bytes]:
    while size > 0:
        for block in _distinct():
            yield block
            size -= len(block)


@cache
def _distinct() -> list[bytes]:
    """16 blocks, about 32 MiB."""
    return [
        b"".join(_line(first + n // 2, "exit" if n % 2 else "enter") for n in range(4000))
        for first in range(0, 32_000, 2000)
    ]


def _line(number: int, event: str, trace_id: str | None = None) -> bytes:
    """A line of a tool call, 500 bytes, as Inspect writes it."""
    detail = f"bash(cmd='grep -rn {number:08} src | head -{number % 50}; python -m pytest tests/test_{number % 997}.py -q')"
    fields = {
        "timestamp": _at(number),
        "level": "TRACE",
        "message": f"sample=task-{number % 300}\nTool Call: {detail} ({event})",
        "action": "Tool Call",
        "detail": detail,
        "event": event,
        "trace_id": trace_id or f"{number:022}",
        "task": "benchmark",
        "sample_id": f"task-{number % 300}",
        "epoch": number % 2 + 1,
        "sample_uuid": f"uuid{number % 600:018}",
    }
    return json.dumps(fields).encode() + b"\n"


def _at(number: int) -> str:
    return (datetime(2026, 1, 2, tzinfo=UTC) + timedelta(seconds=number / 1000)).isoformat()


def _size(path: Path) -> str:
    return f"{sum(file.stat().st_size for file in path.rglob('*') if file.is_file()) / MIB:.0f} MiB"


if __name__ == "__main__":
    from benchmarks import bars

    print(bars.text(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 10)))
