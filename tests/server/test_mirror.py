"""Run directories in a bucket: a real job, a real server and the S3 protocol (moto's server has no disk of its own)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawk.errors import StorageError
from hawk.link import rules
from hawk.server.services.mirror import Mirror
from hawk.store.bucket import Bucket
from tests.system import System, kill, running, until

URL = "s3://evals/hawk"


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """Variables with which the storage is reached, also by this process."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    access = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in access}
    os.environ.update(access)
    try:
        import boto3

        boto3.client("s3").create_bucket(Bucket="evals")
        yield access
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
        server.stop()


def carried(run: Path) -> dict[str, int]:
    every = ((path, path.relative_to(run).as_posix()) for path in run.rglob("*") if path.is_file())
    return {
        name: path.stat().st_size for path, name in every if rules.carried(name) and not path.is_symlink()
    }


def stored(bucket: Bucket, job: str) -> dict[str, int]:
    return {name: held.size for name, held in bucket.files(job).items()}


def test_a_job_comes_back_on_a_machine_that_has_nothing(tmp_path: Path, s3: dict[str, str]) -> None:
    bucket = Bucket(URL)
    with running(tmp_path, HAWK_BUCKET=URL, **s3) as system:
        system.submit("kept", seconds=0.2)
        until("some of it is stored while it runs", lambda: stored(bucket, "kept").get("job.json"), 60)
        end = system.finish("kept")
        run = system.run_dir("kept").path
        until("all of it is stored", lambda: stored(bucket, "kept") == carried(run), 60)
        lose_everything(system)
        system.start()
        until("it is indexed again", lambda: system.status("kept").status is end.status, 60)
        assert system.status("kept").progress == end.progress
        assert stored(bucket, "kept") == carried(run)
        with system.client() as client:
            client.delete("kept")
        until("its copy is gone too", lambda: not bucket.files("kept"), 60)


def test_a_job_that_was_running_goes_on_with_what_had_been_stored(tmp_path: Path, s3: dict[str, str]) -> None:
    bucket = Bucket(URL)
    with running(tmp_path, HAWK_BUCKET=URL, **s3) as system:
        system.submit("torn", seconds=1.0)
        until("results are stored", lambda: sum("/result.json" in n for n in bucket.files("torn")) >= 2, 90)
        for pid in (*system.workers("torn"), system.supervisor("torn")):
            kill(pid)
        lose_everything(system)
        had = {name for name in bucket.files("torn") if name.endswith("/result.json")}
        system.start()
        end = system.finish("torn")
        assert str(end.status) == "complete"
        assert had <= carried(system.run_dir("torn").path).keys()


def lose_everything(system: System) -> None:
    system.kill_server()
    until("its processes are gone", lambda: system._kill_jobs(), 30)
    shutil.rmtree(system.home)


def test_a_server_without_its_bucket_says_so_and_does_not_start(tmp_path: Path) -> None:
    system = System(
        tmp_path,
        HAWK_BUCKET="s3://nowhere/hawk",
        AWS_ENDPOINT_URL="http://127.0.0.1:9",
        AWS_ACCESS_KEY_ID="x",
        AWS_SECRET_ACCESS_KEY="x",
        AWS_MAX_ATTEMPTS="1",
    )
    system.home.mkdir()
    server = subprocess.run(
        [sys.executable, "-m", "hawk.server", "--port", "0"],
        env=system.environ,
        capture_output=True,
        check=False,
    )
    assert server.returncode != 0
    assert b"s3://nowhere/hawk can't be read" in server.stdout + server.stderr


def test_what_changes_is_stored_again_and_what_goes_is_removed(tmp_path: Path) -> None:
    bucket = Bucket(f"file://{tmp_path}/bucket")
    run = tmp_path / "runs" / "j"
    (run / "attempts" / "p" / "1").mkdir(parents=True)
    (run / "job.json").write_text("{}")
    (run / "attempts" / "p" / "1" / "result.json").write_text("{}")
    (run / "supervisor.lock").write_text("")
    busy = ["j"]
    mirror = Mirror(bucket, tmp_path / "runs", lambda: busy)
    mirror.start([])
    try:
        until("stored", lambda: stored(bucket, "j") == carried(run), 20)
        with (run / "journal.jsonl").open("a") as file:
            file.write("more\n")
        (run / "attempts" / "p" / "1" / "result.json").unlink()
        until("stored again", lambda: stored(bucket, "j") == carried(run), 20)
        assert set(stored(bucket, "j")) == {"job.json", "journal.jsonl"}
        busy.clear()
        (run / "snapshot.json").write_text('{"status": "complete"}')
        until("the last word too", lambda: "snapshot.json" in stored(bucket, "j"), 20)
    finally:
        mirror.close()


def test_of_a_deleted_job_nothing_comes_back(tmp_path: Path) -> None:
    bucket = Bucket(f"file://{tmp_path}/bucket")
    for job in ("gone", "kept"):
        (tmp_path / "from").mkdir(exist_ok=True)
        (tmp_path / "from" / "job.json").write_text(f'{{"job_id": "{job}"}}')
        bucket.put(job, "job.json", tmp_path / "from" / "job.json")
        bucket.put(job, "logs/a.eval", tmp_path / "from" / "job.json")
    mirror = Mirror(bucket, tmp_path / "runs", list)
    assert mirror.restore({"gone"}) == ["kept"]
    mirror.start([])
    until("what was left of it is gone", lambda: bucket.jobs() == ["kept"], 20)
    mirror.close()
    assert sorted(carried(tmp_path / "runs" / "kept")) == ["job.json", "logs/a.eval"]
    assert not (tmp_path / "runs" / "gone").exists()


def test_a_bucket_that_can_not_be_used_names_itself(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="can't be written"):
        Bucket(f"file://{tmp_path}/file/in-a-file").put("j", "a", tmp_path / "file")


def test_a_large_file_goes_and_comes_in_parts(tmp_path: Path) -> None:
    bucket = Bucket(f"file://{tmp_path}/bucket")
    large = tmp_path / "large"
    large.write_bytes(os.urandom(40 * 2**20))
    assert bucket.put("j", "workers/0/output.jsonl", large) == 40 * 2**20
    bucket.get("j", "workers/0/output.jsonl", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == large.read_bytes()
