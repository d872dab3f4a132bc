"""Which files of a run directory go into a bundle, in which order, and what of them.

What is small and says most comes first, what is many or large last: when a bundle is full, the rest is left out. Of
files that grow the newest part is taken. A file that is gone or can't be read is named in the bundle's README.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from hawk.bridge.evallog import list_logs
from hawk.core.recorder.bundlecut import (
    cut_evidence,
    cut_journal,
    cut_output,
    cut_result,
    cut_snapshot,
    cut_trace_line,
)
from hawk.core.recorder.trace import InFlight, Sidecar
from hawk.core.zstd import pack
from hawk.server.services.bundle_logs import (
    buffer_without_secrets,
    header,
    log_without_secrets,
    workspace_without_secrets,
)
from hawk.server.services.bundle_reading import (
    Count,
    Gone,
    Item,
    Redact,
    cut_lines,
    joined,
    names,
    newest_first,
    opened,
    plain_or_zipped,
    read_lines,
    read_whole,
    unpacked,
    written,
)
from hawk.store.attempts import RESULT, WORKSPACE, attempts_folder
from hawk.store.rundir import RunDir

MiB = 1 << 20
DOCUMENT = 48 * MiB
"""Bytes above which a JSON document is left out: half of one is of no use."""
LINES = 16 * MiB
"""Bytes that are taken of the end of a file of lines."""
RESULTS = 10_000
"""Results of attempts, the newest."""
STACKS = 40
"""Stack records of a worker, the newest."""
ALL_LINES = 64 * MiB
"""Bytes that are taken of all workers' lines together."""
EARLIER = 48 * MiB
"""Bytes, unpacked, above which no earlier part of a worker's trace is begun, over all workers."""

_PODS = re.compile(r"pods(\.\d+)?\.json")
"""What the cluster said of the job's pods, of this generation and of earlier ones."""

Found = Iterator[Item | Gone]


def files(run: RunDir, redact: Redact, *, transcripts: bool) -> Found:
    """Everything of a run directory that belongs into its bundle.

    Args:
        redact: Takes secrets out of a stream; for what is packed again by itself.
        transcripts: Whether the words of models, tools and sandboxes do, too.
    """
    home = run.path
    for name in ("job.json", "eval-set.yaml", "eval-set.py", "plan.json", "prices.json", "history.json"):
        yield from _document(home / name, name)
    yield from _lines(run.journal_file, "journal.jsonl", None if transcripts else cut_journal)
    yield from _document(run.snapshot_file, "snapshot.json", None if transcripts else cut_snapshot)
    yield from _document(run.evidence_file, "evidence.json", None if transcripts else cut_evidence)
    yield from _document(run.learnt_file, "learnt.json")
    for name in names(home):
        if _PODS.fullmatch(name):
            yield from _document(home / name, name)
    yield from _lines(run.events_file, "events.jsonl")
    yield from _lines(run.supervisor_log, "supervisor.log")
    for name in names(run.stop_requests):
        yield from _document(run.stop_requests / name, f"stop/{name}")
    yield from _lines(home / "workers" / "environment.log", "workers/environment.log")
    workers = [name for name in names(home / "workers") if (home / "workers" / name).is_dir()]
    most = min(LINES, ALL_LINES // (2 * max(1, len(workers))))
    cut = _kept if transcripts else cut_trace_line
    for name in workers:
        yield from _worker(home / "workers" / name, f"workers/{name}", transcripts=transcripts, most=most)
        yield from _trace(home / "workers" / name, f"workers/{name}", cut, most)
    for name in names(home / "spans"):
        yield from _lines(home / "spans" / name, f"spans/{name}")
    for path in list_logs(run.logs):
        yield header(path, whole=transcripts)
    yield from _results(run, transcripts=transcripts)
    yield from _segments(home / "workers", workers, redact, cut)
    if transcripts:
        yield from _transcripts(run, redact)


def _worker(home: Path, name: str, *, transcripts: bool, most: int) -> Found:
    for file in ("worker.json", "selection.json", "exit.json", "heartbeat.json", "manifest.json"):
        yield from _document(home / file, f"{name}/{file}")
    for file in ("tasks.jsonl", "sandboxes.jsonl"):
        yield from _lines(home / file, f"{name}/{file}", most=most)
    stacks = newest_first(home / "stacks")
    for file in stacks[:STACKS]:
        yield from _document(home / "stacks" / file, f"{name}/stacks/{file}")
    if len(stacks) > STACKS:
        yield Gone(f"{name}/stacks/", f"{len(stacks) - STACKS} older records")
    yield from _lines(
        home / "output.jsonl", f"{name}/output.jsonl", None if transcripts else cut_output, most
    )


def _kept(line: bytes) -> bytes | None:
    return line


def _trace(home: Path, name: str, cut: Callable[[bytes], bytes | None], most: int) -> Found:
    """The end of the trace, and what was in flight there: a sidecar whose offsets fit what is left of the lines."""
    inspects = home / "data" / "inspect_ai" / "traces"
    for file in names(inspects):
        parts = cut_lines(plain_or_zipped(inspects / file, most), cut)
        yield Item(
            f"{name}/inspect-traces/{file.removesuffix('.gz')}", parts, written=written(inspects / file)
        )
    path = home / "trace.jsonl"
    try:
        sidecar = msgspec.json.decode((home / "trace.open.json").read_bytes(), type=Sidecar)
    except (OSError, msgspec.DecodeError):
        sidecar = None
    actions = InFlight(line for raw in (sidecar.actions if sidecar else ()) if (line := cut(bytes(raw))))
    after = sidecar.at - sidecar.base if sidecar else 0

    def lines() -> Iterator[bytes]:
        for offset, line in read_lines(path, most):
            kept = cut(line)
            if kept is not None:
                if offset >= after:
                    actions.feed(kept)
                yield kept

    if not path.exists():
        return
    trace = Item(f"{name}/trace.jsonl", lines(), _cut_note(path, most), written(path))
    yield trace
    if sidecar is not None and trace.size is not None:
        end = sidecar.base + trace.size
        fits = msgspec.structs.replace(
            sidecar,
            began=min(sidecar.began, end),
            at=end,
            actions=[msgspec.Raw(line.rstrip()) for line in actions.raw],
        )
        yield Item(f"{name}/trace.open.json", iter((msgspec.json.encode(fits),)))


def _segments(home: Path, workers: list[str], redact: Redact, cut: Callable[[bytes], bytes | None]) -> Found:
    """Earlier parts of the traces, the newest first, each packed again."""
    found = [
        path
        for worker in workers
        for file in names(home / worker)
        if (path := home / worker / file).match("trace-*.jsonl") or path.match("trace-*.jsonl.zst")
    ]
    taken = Count()
    for path in sorted(found, key=lambda path: written(path) or 0.0, reverse=True):
        name = f"workers/{path.parent.name}/{path.name.removesuffix('.zst')}.zst"
        if taken.total > EARLIER:
            yield Gone(name, "an earlier part of the trace")
            continue
        parts = unpacked(path) if path.suffix == ".zst" else plain_or_zipped(path, 2 * EARLIER)
        lines = cut_lines(taken.count(parts), cut)
        yield Item(name, map(pack, joined(redact(lines))), written=written(path), redacted=True)


def _results(run: RunDir, *, transcripts: bool) -> Found:
    folder = attempts_folder(run)
    found = []
    for path in folder.glob(f"*/*/{RESULT}"):
        try:
            found.append((path.stat().st_mtime, path))
        except OSError:
            continue
    for _, path in sorted(found, reverse=True)[:RESULTS]:
        name = path.relative_to(run.path).as_posix()
        yield from _document(path, name, None if transcripts else cut_result)
    if len(found) > RESULTS:
        yield Gone(f"attempts/*/*/{RESULT}", f"{len(found) - RESULTS} older ones")


def _transcripts(run: RunDir, redact: Redact) -> Found:
    for path in reversed(list_logs(run.logs)):
        yield Item(f"logs/{path.name}", log_without_secrets(path, redact), redacted=True)
    for path in sorted(run.buffers.glob("*/*.db")):
        name = path.relative_to(run.path).as_posix()
        yield Item(name, buffer_without_secrets(path, redact), redacted=True)
    for path in sorted(attempts_folder(run).glob(f"*/*/{WORKSPACE}")):
        name = path.relative_to(run.path).as_posix()
        yield Item(name, workspace_without_secrets(path, redact), redacted=True)


def _document(path: Path, name: str, cut: Callable[[bytes], bytes | None] | None = None) -> Found:
    """A file that is written whole; nothing when there is none."""
    try:
        with opened(path) as fd:
            size = os.fstat(fd).st_size
            if size > DOCUMENT:
                yield Gone(name, f"it is too large ({size:,} bytes)")
                return
            data = read_whole(fd, size)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as ex:
        yield Gone(name, ex.strerror or str(ex))
        return
    kept = data if cut is None else cut(data)
    if kept is None:
        yield Gone(name, "it is damaged")
    else:
        yield Item(name, iter((kept,)), written=written(path))


def _lines(
    path: Path,
    name: str,
    cut: Callable[[Iterable[bytes]], Iterator[bytes]] | None = None,
    most: int | None = None,
) -> Found:
    """The end of a file of lines, at most `LINES` bytes; nothing when there is none."""
    most = LINES if most is None else most
    if path.is_file():
        lines = (line for _, line in read_lines(path, most))
        yield Item(name, cut(lines) if cut else lines, _cut_note(path, most), written(path))


def _cut_note(path: Path, most: int) -> str:
    try:
        size = path.stat().st_size
    except OSError:
        return ""
    return f"the last {most:,} bytes of {size:,}" if size > most else ""
