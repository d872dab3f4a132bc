"""Files that are sent to a server that does not see the submitter's disk: taken, kept, given to jobs, removed."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import tarfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import httpx
import pytest

from hawk.config.settings import Settings
from hawk.core.attempts.results import Outcome, Pair, Result
from hawk.errors import NotFoundError
from hawk.server.services import uploads
from hawk.server.services.uploads import Uploads
from hawk.store.attempts import write_result
from tests.parcel.archives import archive, file, link, special
from tests.server.fakes import FakeEngine
from tests.server.serving import Service, until
from tests.server.test_submissions import ended

TASK = b"from inspect_ai import task\n\n\n@task\ndef t(): ...\n"
CONFIG: dict[str, Any] = {"tasks": [{"file": "tasks/a.py", "items": [{"name": "t"}]}]}
DATA = archive(file("tasks/a.py", TASK), file("eval.py", b"eval_set()"))
DIGEST = hashlib.sha256(DATA).hexdigest()


def send(service: Service, data: bytes = DATA, digest: str | None = None) -> httpx.Response:
    return service.client.put(f"/sources/{digest or hashlib.sha256(data).hexdigest()}", content=data)


def submit(service: Service, job_id: str, data: bytes = DATA, **fields: Any) -> httpx.Response:
    """Send and submit."""
    assert send(service, data).status_code == 201
    body = {"eval_set_config": CONFIG, "files": hashlib.sha256(data).hexdigest(), **fields}
    return service.client.post("/eval_sets/", json={"eval_set_id": job_id, **body})


def kept(settings: Settings) -> list[Path]:
    return sorted(p for p in (settings.home / "sources").rglob("*") if p.is_file())


def left_behind(settings: Settings) -> list[str]:
    """What is beside the run directories and should not be."""
    return [p.name for p in settings.root.iterdir() if p.name.startswith(".incoming")]


def test_what_was_sent_once_is_known_to_whoever_sent_it(service: Service, settings: Settings) -> None:
    assert service.get(f"/sources/{DIGEST}").status_code == 404
    assert send(service).json() == send(service).json() == {"digest": DIGEST, "bytes": len(DATA)}
    assert service.get(f"/sources/{DIGEST}").json() == {"digest": DIGEST, "bytes": len(DATA)}
    others = Uploads(settings.home, settings.root)
    with pytest.raises(NotFoundError):
        others.find("somebody else", DIGEST)
    assert [p.stat().st_mode & 0o077 for p in kept(settings)] == [0]
    for method in ("GET", "PUT"):
        assert httpx.request(method, f"{service.url}/sources/{DIGEST}", trust_env=False).status_code == 401
    assert service.get("/sources/..%2f..%2ftoken").status_code in (400, 404)
    assert service.get(f"/sources/{'G' * 64}").status_code == 400


def test_what_must_not_be_kept_is_not(
    service: Service, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = send(service, DATA + b"x", DIGEST)
    assert (other.status_code, other.json()["code"]) == (400, "usage")
    monkeypatch.setattr(uploads, "MOST_PACKED", 10)
    for body in (DATA, iter([DATA])):  # announced, and not
        assert "larger than" in service.client.put(f"/sources/{DIGEST}", content=body).json()["detail"]
    assert kept(settings) == []
    assert left_behind(settings) == []


def test_what_must_not_be_unpacked_makes_no_job(service: Service, settings: Settings) -> None:
    for data in (b"", b"no archive", archive(link("a", "/etc")), archive(special("f", tarfile.FIFOTYPE))):
        answer = submit(service, "a", data)
        assert (answer.status_code, answer.json()["code"]) == (422, "config")
        assert "can't be unpacked" in answer.json()["detail"]
    assert not (settings.root / "a").exists()
    assert left_behind(settings) == []


def test_a_full_disk_is_said_before_anything_is_written(
    service: Service, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, 1 << 20))
    answer = send(service)
    assert (answer.status_code, answer.json()["code"]) == (507, "storage")
    assert "1 MiB are free" in answer.json()["detail"]
    assert kept(settings) == []


def test_half_an_archive_is_not_kept(service: Service, settings: Settings) -> None:
    head = f"PUT /sources/{DIGEST} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {service.token}\r\n"
    with socket.create_connection(("127.0.0.1", service.client.base_url.port or 0)) as line:
        line.sendall(f"{head}Content-Length: {len(DATA)}\r\n\r\n".encode() + DATA[:50])
        until(lambda: kept(settings))
    until(lambda: not kept(settings))
    assert service.get(f"/sources/{DIGEST}").status_code == 404


def test_a_local_job_works_in_the_same_directory_whatever_was_sent(
    service: Service, engine: FakeEngine, settings: Settings
) -> None:
    assert submit(service, "a").status_code == 200
    run = engine.run("a")
    spec = run.read_spec()
    base = Path(spec.base_dir)
    assert (base / "tasks/a.py").read_bytes() == TASK
    assert base.is_relative_to(run.path)
    ended(engine, service, "a")
    changed = archive(file("tasks/a.py", TASK + b"# changed"))
    assert submit(service, "a", changed).json()["created"] is False
    again = run.read_spec()
    assert (again.base_dir, again.generation) == (spec.base_dir, 2)
    assert (base / "tasks/a.py").read_bytes().endswith(b"# changed")
    assert not (base / "eval.py").exists()
    adopted = submit(service, "a").json()
    assert adopted["adopted"] is True
    assert "runs with the files that it was started with" in adopted["warnings"][0]
    assert left_behind(settings) == []


def test_a_resume_has_the_files_of_before_even_when_they_were_lost(
    service: Service, engine: FakeEngine
) -> None:
    submit(service, "a")
    ended(engine, service, "a")
    base = Path(engine.run("a").read_spec().base_dir)
    shutil.rmtree(base)
    assert service.submit("a", None, resume=True).status_code == 200
    assert (base / "tasks/a.py").read_bytes() == TASK
    ended(engine, service, "a")
    assert service.submit("a", None, resume=True, engine="kubernetes").status_code == 200
    assert engine.run("a").read_spec().base_dir == "/hawk/source"


def test_a_runner_that_is_started_again_has_its_files_again(service: Service, engine: FakeEngine) -> None:
    submit(service, "a")
    base = Path(engine.run("a").read_spec().base_dir)
    shutil.rmtree(base)  # as after a disk was lost, and its run directories came back from a bucket
    engine.alive.discard("a")
    until(lambda: len(engine.launches) == 2)
    assert (base / "tasks/a.py").read_bytes() == TASK


def test_a_job_for_a_cluster_has_the_archive_and_a_directory_of_the_pod(
    service: Service, engine: FakeEngine
) -> None:
    submit(service, "a", engine="kubernetes")
    run = engine.run("a")
    assert (run.path / "source.tar.zst").read_bytes() == DATA
    assert run.read_spec().base_dir == "/hawk/source"
    submit(service, "s", engine="kubernetes", eval_set_config=None, script="eval.py")
    assert engine.run("s").read_spec().script == "/hawk/source/eval.py"


def test_attempts_are_scored_again_with_the_files_of_their_job(service: Service, engine: FakeEngine) -> None:
    submit(service, "a", eval_set_config=None, script="eval.py")
    write_result(engine.run("a"), Result(pair=Pair("t", "s", "m"), attempt=1, outcome=Outcome.PASS))
    ended(engine, service, "a")
    answer = service.submit(None, None, rescore="a").json()
    assert "scored with the files that were sent with a" in answer["warnings"][0]
    spec = engine.run("a-rescore-1").read_spec()
    assert spec.base_dir == str(engine.run("a-rescore-1").path / ".source")
    assert spec.script == f"{spec.base_dir}/eval.py"
    assert Path(spec.script).is_file()
    other = archive(file("tasks/a.py", TASK), file("new.py", b"eval_set()"))
    send(service, other)
    digest = hashlib.sha256(other).hexdigest()
    body = {"eval_set_config": CONFIG, "files": digest, "rescore": "a"}
    assert service.client.post("/eval_sets/", json=body).status_code == 200
    assert (Path(engine.run("a-rescore-2").read_spec().base_dir) / "new.py").exists()


def test_nothing_but_what_was_sent_is_looked_at(service: Service, settings: Settings) -> None:
    (settings.home / "secret.py").write_text("no python, a secret: 12345")
    for path in (str(settings.home / "secret.py"), "../../secret.py"):
        wrong = {"tasks": [{"file": path, "items": [{"name": "t"}]}]}
        answer = submit(service, "a", eval_set_config=wrong)
        assert (answer.status_code, answer.json()["code"]) == (422, "config")
        assert "12345" not in answer.text
    for script in (str(settings.home / "secret.py"), "../../secret.py", "nowhere.py"):
        assert submit(service, "a", eval_set_config=None, script=script).status_code == 400
    assert submit(service, "a", eval_set_config=None).status_code == 400
    unknown = service.submit("a", CONFIG, files="0" * 64)
    assert (unknown.status_code, unknown.json()["fields"]) == (404, {"files": "0" * 64})
    assert not (settings.root / "a").exists()
    assert left_behind(settings) == []


def test_an_archive_goes_with_its_last_job(service: Service, engine: FakeEngine, settings: Settings) -> None:
    submit(service, "a")
    submit(service, "b")
    service.client.delete("/eval_sets/a").raise_for_status()
    assert [p.name for p in kept(settings)] == [DIGEST]
    service.client.delete("/eval_sets/b").raise_for_status()
    assert kept(settings) == []
    plan = submit(service, "p", dry_run=True).json()["eval_set_id"]
    service.client.delete(f"/eval_sets/{plan}").raise_for_status()
    assert [p.name for p in kept(settings)] == [DIGEST]  # the job itself may come at once


def test_what_nobody_needs_goes_after_an_hour(service: Service, settings: Settings) -> None:
    submit(service, "a")
    unused = archive(file("unused"))
    send(service, unused)
    (settings.root / ".incoming-cut").mkdir()
    for path in (*kept(settings), settings.root / ".incoming-cut"):
        os.utime(path, (0, 0))
    service.context.uploads.tidy()
    assert [p.name for p in kept(settings)] == [DIGEST]
    assert left_behind(settings) == []
    send(service, unused)
    service.context.uploads.tidy()
    assert len(kept(settings)) == 2
