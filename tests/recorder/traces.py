"""Traces as workers leave them, made without a worker."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hawk.bridge.tracesegments import CURRENT, SIDECAR, Piece
from hawk.core.recorder.trace import Sidecar
from hawk.core.zstd import pack
from hawk.store.rundir import RunDir, write_json
from tests.store.runs import make_run

START = datetime(2026, 1, 2, tzinfo=UTC)


def line(seconds: float, message: str = "", **fields: object) -> bytes:
    """A line of the trace, as Inspect spells it, `seconds` after the start."""
    at = (START + timedelta(seconds=seconds)).isoformat()
    return json.dumps({"timestamp": at, "level": "TRACE", "message": message, **fields}).encode() + b"\n"


def enter(trace_id: str, seconds: float, action: str = "Model", **fields: object) -> bytes:
    start = (START + timedelta(seconds=seconds)).timestamp()
    return _action(trace_id, seconds, action, "enter", start_time=start, **fields)


def leave(
    trace_id: str, seconds: float, action: str = "Model", event: str = "exit", **fields: object
) -> bytes:
    return _action(trace_id, seconds, action, event, duration=1.0, **fields)


def _action(trace_id: str, seconds: float, action: str, event: str, **fields: object) -> bytes:
    detail = str(fields.pop("detail", f"what {trace_id} does"))
    message = f"{action}: {detail} ({event})"
    return line(seconds, message, action=action, detail=detail, event=event, trace_id=trace_id, **fields)


def worker_home(root: Path, index: int = 0, job_id: str = "a") -> Path:
    """The directory of a worker of a job that is there."""
    run = RunDir(root / job_id)
    if not run.spec_file.exists():
        make_run(root, job_id)
    home = run.worker(index)
    home.mkdir(parents=True, exist_ok=True)
    return home


def write_trace(home: Path, *parts: list[bytes], packed: bool = True, torn: bytes = b"") -> int:
    """Older parts, the last one as `trace.jsonl`. Returns the logical offset of that one's first byte."""
    start = 0
    for lines in parts[:-1]:
        data = b"".join(lines)
        piece = Piece(start, packed)
        (home / piece.name).write_bytes(pack(data) if packed else data)
        start += len(data)
    (home / CURRENT).write_bytes(b"".join(parts[-1]) + torn)
    return start


def write_sidecar(
    home: Path, *, at: int, base: int = 0, began: int = 0, pid: int = 1, enters: list[bytes]
) -> None:
    import msgspec

    actions = [msgspec.Raw(entered.rstrip()) for entered in enters]
    write_json(home / SIDECAR, Sidecar(pid, began, base, at, START.isoformat(), actions))
