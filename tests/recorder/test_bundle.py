"""A bundle holds what explains a job, and no secret; it is read again as a run directory, and refused when hostile."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import tarfile
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hawk.bridge.evallog import read_sample
from hawk.core.recorder.redact import MARK
from hawk.core.zstd import pack, unpack
from hawk.errors import StorageError
from hawk.server.errors import StreamBrokenError
from hawk.server.services import bundle_files
from hawk.server.services.bundles import Bundle
from hawk.store.bundles import open_bundle
from hawk.store.rundir import RunDir
from hawk.store.traces import Traces
from tests.server.fakes import FakeEngine
from tests.server.serving import Service, serving
from tests.store.runs import make_run, settings_in

SECRET = "sk-proj-Zq81LmPw0vT5xYb7Rk2Nd4Hs"
VALUE = "correct-Horse-battery-9"
SAID = "what the model said"
PAIR = "attempts/t-m-s-0123456789"


def action(event: str, name: str, trace_id: str, detail: str) -> dict[str, Any]:
    at = datetime.now(UTC)
    more = {"start_time": at.timestamp()} if event == "enter" else {"duration": 0.5}
    line = {"timestamp": at.isoformat(), "level": "TRACE", "message": f"{name}: {detail} ({event})"}
    return {
        **line,
        "action": name,
        "detail": detail,
        "event": event,
        "trace_id": trace_id,
        "sample_id": "s",
        **more,
    }


def write(path: Path, *documents: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in documents)
    path.write_text(text + "\n", "utf-8", "surrogatepass")


def fill(run: RunDir) -> None:
    """A run directory with secrets and the words of a model everywhere."""
    write(run.journal_file, {"at": "2026-01-02T03:04:05Z", "kind": "job", "subject": "j", "state": "running", "reason": f"Bearer {SECRET}"})  # fmt: skip
    write(run.supervisor_log, f"started with {VALUE}")
    write(run.path / "eval-set.yaml", "name: x", f"runner: {{environment: {{SERVICE_API_KEY: {SECRET}}}}}")
    home = run.worker(0)
    lines = [
        action("enter", "Run Task", "a", "task: t (m)"),
        action("enter", "Tool Call", "b", f"bash(cmd='{SAID} {SECRET}')"),
        action("enter", "Model", "c", "generate (m)"),
        action("exit", "Model", "c", "generate (m)"),
    ]
    write(home / "trace.jsonl", *lines, '{"torn": ')
    encoded = [json.dumps(line) for line in lines]
    base, after = 5000, sum(len(line) + 1 for line in encoded[:2])
    sidecar = {"pid": 1, "began": 0, "base": base, "at": base + after, "time": "2026-01-02T03:04:05Z", "actions": lines[:2], "dropped": 0}  # fmt: skip
    (home / "trace.open.json").write_text(json.dumps(sidecar))
    (home / "trace-000000000000000.jsonl.zst").write_bytes(pack(f"{encoded[1]}\n".encode() * 3))
    (home / "trace-000000000004000.jsonl").write_text(f"{encoded[2]}\n")
    write(home / "output.jsonl", {"logger": "hawk.x", "msg": f"key {SECRET}"}, f"print {SAID}")
    write(home / "heartbeat.json", {"at": "2026-01-02T03:04:05Z", "pid": 1})
    write(home / "stacks" / "odd\x1b]0;x\x07 name.json", {"why": VALUE})
    (home / "stacks" / "link.json").symlink_to("/etc/passwd")
    write(run.path / PAIR / "1" / "result.json", {"scores": {"s": {"value": "C", "answer": SAID}}, "reason": f"?key={VALUE}"})  # fmt: skip
    _write_log(run)
    _write_workspace(run)
    _write_buffer(run)


def _write_log(run: RunDir) -> None:
    header = {
        "version": 2,
        "status": "success",
        "eval": {"task": "t", "model": "m", "metadata": {"token": SECRET}},
    }
    sample = {"id": "../../s", "epoch": 1, "messages": [{"role": "assistant", "content": f"{SAID} {SECRET}"}]}
    with zipfile.ZipFile(run.logs / "2026-01-02T03-04-05_t_1.eval", "w") as log:
        log.writestr("header.json", json.dumps(header))
        log.writestr("samples/../../s_epoch_1.json", json.dumps(sample))


def _write_workspace(run: RunDir) -> None:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        content = f"export API_KEY={VALUE}\n{SAID}".encode()
        info = tarfile.TarInfo("workspace/.env")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    (run.path / PAIR / "1" / "workspace.tar.zst").write_bytes(pack(held.getvalue()))


def _write_buffer(run: RunDir) -> None:
    path = run.buffers / "hash" / "t.eval.1.db"
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, data TEXT)")
        database.execute("INSERT INTO events VALUES (7, ?)", [f"{SAID} {SECRET}"])
    database.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server with one job; the server's environment holds a secret."""
    settings = settings_in(tmp_path_factory.mktemp("hawk") / "home", middleman=False)
    fill(make_run(settings.root, "job", packages=[f"git+https://me:{VALUE}@example.org/p.git"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MY_PASSWORD", VALUE)
        with serving(settings, FakeEngine(settings.root)) as running:
            yield running


@pytest.fixture(scope="module")
def bundles(service: Service, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One without and one with transcripts."""
    base = tmp_path_factory.mktemp("bundles")
    made = {}
    for transcripts in ("false", "true"):
        answer = service.get(f"/monitoring/jobs/job/bundle?transcripts={transcripts}")
        assert answer.headers["content-type"] == "application/zstd"
        assert answer.headers["content-disposition"] == 'attachment; filename="job.bundle.tar.zst"'
        made[transcripts] = base / f"{transcripts}.tar.zst"
        made[transcripts].write_bytes(answer.content)
    return made


def contents(path: Path) -> dict[str, bytes]:
    """Every file, those packed within it unpacked."""
    with tarfile.open(fileobj=io.BytesIO(unpack(path.read_bytes()))) as tar:
        found = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
    return {name: unpack(data) if name.endswith(".zst") else data for name, data in found.items()}


@pytest.mark.parametrize("transcripts", ["false", "true"])
def test_no_secret_is_in_it(bundles: dict[str, Path], transcripts: str) -> None:
    found = contents(bundles[transcripts])
    assert [name for name, data in found.items() if SECRET.encode() in data or VALUE.encode() in data] == []
    readme = found["job/README.txt"].decode()
    assert "known values: " in readme
    assert "keys: " in readme
    assert MARK in found["job/journal.jsonl"].decode()


def test_without_transcripts_nobody_is_quoted(bundles: dict[str, Path]) -> None:
    found = contents(bundles["false"])
    assert [name for name, data in found.items() if SAID.encode() in data] == []
    assert not [name for name in found if name.endswith((".eval", ".db")) or "workspace" in name]
    assert "workspace.tar.zst: what agents left" in found["job/README.txt"].decode()
    expected = {"job.json", "eval-set.yaml", "journal.jsonl", "supervisor.log", "workers/0/trace.jsonl",
                "workers/0/trace-000000000000000.jsonl.zst", "workers/0/trace-000000000004000.jsonl.zst", f"{PAIR}/1/result.json", "live/versions.json",
                "logs/2026-01-02T03-04-05_t_1.eval.header.json", "live/machine.json", "live/processes.json"}  # fmt: skip
    assert {f"job/{name}" for name in expected} <= set(found)


def test_names_are_plain_and_links_are_not_followed(bundles: dict[str, Path]) -> None:
    names = contents(bundles["false"])
    assert all(name.isascii() and name.isprintable() and ".." not in name for name in names)
    assert [name for name in names if "/stacks/" in name and name.startswith("job/workers/0/stacks/odd_")]
    assert not [name for name in names if "link" in name]
    assert b"root:" not in b"".join(names.values())


def test_it_is_read_as_a_run_directory(bundles: dict[str, Path]) -> None:
    with open_bundle(bundles["false"]) as run:
        assert run.read_spec().job_id == run.job_id == "job"
        assert next(run.journal()).state == "running"
        with Traces(run) as traces:
            actions = traces.actions(most=10, lines=10, now=datetime.now(UTC))
        assert [(row.action, row.detail) for row in actions.in_flight] == [
            ("Tool Call", "bash"),
            ("Run Task", "task: t (m)"),
        ]
        assert not actions.workers[0].alive
        kept = run.path
    assert not kept.exists()


def test_with_transcripts_logs_and_buffers_are_read_as_ever(bundles: dict[str, Path]) -> None:
    with open_bundle(bundles["true"]) as run:
        (log,) = run.logs.glob("*.eval")
        sample = read_sample(log, "../../s", 1)
        assert sample["messages"][0]["content"] == f"{SAID} {MARK}"
        (buffer,) = run.path.glob("buffer/*/*.db")
        with sqlite3.connect(buffer) as database:
            assert database.execute("SELECT * FROM events").fetchall() == [(7, f"{SAID} {MARK}")]
        database.close()
        packed = run.path / PAIR / "1" / "workspace.tar.zst"
        with tarfile.open(fileobj=io.BytesIO(unpack(packed.read_bytes()))) as tar:
            file = tar.extractfile("workspace/.env")
            assert file is not None
            assert file.read().decode() == f"export API_KEY={MARK}\n{SAID}"


def test_it_is_bounded_and_says_so(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that is too large the newest lines are taken, without reading the rest; of all, what comes first."""
    run = make_run(service.context.settings.root, "large")
    with run.journal_file.open("wb") as journal:
        os.truncate(journal.fileno(), 3 << 30)
        journal.seek(0, os.SEEK_END)
        journal.write(b"\n" + b"".join(b'{"state": "%d"}\n' % number for number in range(1000)))
    write(run.supervisor_log, "x" * 100_000)
    monkeypatch.setattr(bundle_files, "LINES", 4096)
    parts = Bundle(service.context, run, transcripts=False, most=50_000).parts()
    with tarfile.open(fileobj=io.BytesIO(unpack(b"".join(parts)))) as tar:
        found = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
    assert sum(map(len, found.values())) < 60_000
    lines = found["large/journal.jsonl"].splitlines()
    assert lines[-1] == b'{"state": "999"}'
    assert len(lines) > 100
    readme = found["large/README.txt"].decode()
    assert "journal.jsonl: the last 4,096 bytes of 3,22" in readme
    assert "supervisor.log: " in readme


def test_a_job_that_goes_away_meanwhile_breaks_the_stream_off(service: Service) -> None:
    run = make_run(service.context.settings.root, "going")
    parts = Bundle(service.context, run, transcripts=False).parts()
    run.path.rename(run.path.with_name("gone"))
    with pytest.raises(StreamBrokenError, match="deleted"):
        list(parts)


def test_an_unknown_job_is_said_to_be_so(service: Service) -> None:
    assert service.get("/monitoring/jobs/nobody/bundle").status_code == 404
    assert service.get("/monitoring/jobs/..%2f..%2fetc/bundle").status_code in (400, 404)


def archive(*members: tuple[str, bytes, bytes]) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(content), "/etc/passwd"
            tar.addfile(info, io.BytesIO(content))
    return held.getvalue()


HOSTILE = {
    "a file named": archive(("job/../../x", tarfile.REGTYPE, b"x")),
    "file named": archive(("/etc/x", tarfile.REGTYPE, b"x")),
    "no plain file": archive(("job/x", tarfile.SYMTYPE, b"")),
    "which is no": archive(("job/x", tarfile.CHRTYPE, b"")),
    "a second time": archive(("job/x", tarfile.REGTYPE, b"1"), ("job/x", tarfile.REGTYPE, b"2")),
    "more than a bundle": archive(("job/x", tarfile.REGTYPE, b"1"), ("other/x", tarfile.REGTYPE, b"2")),
    "cut short": archive(("job/x", tarfile.REGTYPE, b"x" * 5000))[:2000],
    "no tar file": b"x" * 4096,
    "it is empty": bytes(1024),
    "y" * 90: archive((f"job/{'y' * 200}/..", tarfile.REGTYPE, b"x")),
}


@pytest.mark.parametrize("why", HOSTILE)
def test_what_no_bundle_holds_is_refused(why: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tar.zst"
    path.write_bytes(pack(HOSTILE[why]))
    with pytest.raises(StorageError, match=why), open_bundle(path):
        pass


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    """A file of a size that no bundle has; it is refused before it is unpacked."""
    info = tarfile.TarInfo("job/x")
    info.size = 1 << 40
    path = tmp_path / "x.tar.zst"
    path.write_bytes(pack(info.tobuf(tarfile.PAX_FORMAT) + bytes(1 << 20)))
    with pytest.raises(StorageError, match="more than a bundle does"), open_bundle(path):
        pass


@pytest.mark.parametrize("data", [b"", b"no zstd at all", pack(bytes(600))[:10]])
def test_what_is_damaged_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.tar.zst"
    path.write_bytes(data)
    with pytest.raises(StorageError), open_bundle(path):
        pass
