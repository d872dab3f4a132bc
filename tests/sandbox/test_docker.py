"""A real docker engine of the test's own: importing its images, and sweeping what Inspect's provider left in it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hawk.sandbox import dockerleft, init
from hawk.sandbox.errors import SandboxError
from tests.sandbox.hawkrun import listed, said, small_root, write_config
from tests.system import until

MISSING = [name for name in ("docker", "dockerd", "containerd", "runc") if shutil.which(name) is None]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"NOT TESTED: this machine has no {', no '.join(MISSING)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: a docker engine is started by root"),
]

IDLE = "idle:1"  # an image whose program sleeps for ever
FILES = "com.docker.compose.project.config_files"


@pytest.fixture(scope="module")
def engine() -> Iterator[Path]:
    """An engine with nothing but `IDLE` in it; its directory."""
    path = Path(tempfile.mkdtemp(prefix="hk-docker-"))
    log = (path / "log").open("wb")
    options = ["--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs"]
    places = [f"--data-root={path / 'data'}", f"--exec-root={path / 'exec'}", f"--pidfile={path / 'pid'}"]
    address = f"unix://{path / 'sock'}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", address)
        patch.setenv("DOCKER_CONFIG", str(path / "config"))
        daemon = subprocess.Popen(["dockerd", *options, *places, "-H", address], stdout=log, stderr=log)
        try:
            try:
                until("the engine answers", lambda: daemon.poll() is not None or _answers(), 30)
            except AssertionError:
                daemon.kill()
            if daemon.poll() is not None:
                pytest.skip(f"NOT TESTED: dockerd does not run here: {(path / 'log').read_text()[-300:]}")
            _make_idle(path)
            yield path
        finally:
            daemon.terminate()
            daemon.wait(30)
            log.close()
            shutil.rmtree(path, ignore_errors=True)


def _answers() -> bool:
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def docker(*args: str, stdin: bytes = b"") -> str:
    return (
        subprocess.run(["docker", *args], input=stdin, capture_output=True, check=True)
        .stdout.decode()
        .strip()
    )


def _make_idle(path: Path) -> None:
    fd = init.memfd()
    (path / "idle").write_bytes(os.pread(fd, 1 << 20, 0))
    (path / "idle").chmod(0o755)
    os.close(fd)
    tar = subprocess.run(["tar", "-C", str(path), "-c", "idle"], capture_output=True, check=True).stdout
    docker("import", "--change", 'CMD ["/idle"]', "-", IDLE, stdin=tar)


# --- import


def test_an_image_of_the_engine_is_imported_by_its_name(engine: Path, home: Path, tmp_path: Path) -> None:
    changes = ["--change", "ENV FLAVOUR=strange", "--change", "USER 1000", "--change", "WORKDIR /srv"]
    docker("import", *changes, "-", "someone/small:1", stdin=small_root("cat"))
    before = docker("ps", "--all", "--quiet")
    text = said("import", "small", "docker:someone/small:1")
    assert "small: rootfs: docker image someone/small:1: unpacked (" in text
    for left_behind in ("ENV FLAVOUR=strange", "USER 1000", "WORKDIR /srv"):
        assert left_behind in text
    assert "already there" in said("import", "again", "someone/small:1")
    assert docker("ps", "--all", "--quiet") == before
    config = write_config(tmp_path, "rootfs: small")
    assert said("shell", config, "--", "cat", "/etc/motd") == "a small one\n"


def test_the_name_alone_means_the_engines_image(engine: Path, home: Path) -> None:
    docker("import", "-", "plain:2", stdin=small_root())
    said("import", "plain:2")
    assert set(listed()["images"]) == {"plain:2"}
    assert "no image 'other:1'" in said("import", "other:1", code=2)
    assert "holds no root file system" in said("import", IDLE, code=1)


def test_an_archive_of_docker_save_is_imported(engine: Path, home: Path, tmp_path: Path) -> None:
    docker("import", "-", "saved:1", stdin=small_root("cat"))
    docker("save", "--output", str(tmp_path / "saved.tar"), "saved:1")
    said("import", "saved", tmp_path / "saved.tar")
    config = write_config(tmp_path, "rootfs: saved")
    assert said("shell", config, "--", "cat", "/etc/motd") == "a small one\n"


def test_an_engine_that_does_not_answer_is_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{home.parent}/nobody")
    assert "docker image" in said("import", "x", "docker:y", code=1)
    assert "can't be known here" in said("sweep", "--docker", code=1)


# --- sweep


def project_name() -> str:
    return f"inspect-some-task-i{secrets.token_hex(3)}"


def make_project(name: str, config: Path | None = None) -> None:
    """What `docker compose up` makes of a compose file: a container, a network, a volume, an image."""
    label = ["--label", f"com.docker.compose.project={name}"]
    files = ["--label", f"{FILES}={config}"] if config is not None else []
    docker("network", "create", *label, f"{name}_default")
    docker("volume", "create", *label, f"{name}_data")
    docker("tag", IDLE, f"{name}-default:latest")
    docker("run", "--detach", "--network", "none", *label, *files, "--name", f"{name}-default-1", IDLE)


@contextlib.contextmanager
def an_inspect_process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has loaded what Inspect loads."""
    code = "import pydantic_core, sys; print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def containers() -> set[str]:
    return set(docker("ps", "--all", "--format", "{{.Names}}").split())


def only(monkeypatch: pytest.MonkeyPatch, *pids: int) -> None:
    """There are these processes on the machine, and no others: not this test's, which could own anything."""
    monkeypatch.setattr(
        psutil, "process_iter", lambda: [psutil.Process(p) for p in pids if psutil.pid_exists(p)]
    )


def test_a_project_without_any_process_that_could_own_it_is_removed(
    engine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = project_name()
    config = tmp_path / f"{name}.yaml"
    config.write_text("# inspect auto-generated docker compose file")
    make_project(name, config)
    docker("run", "--detach", "--network", "none", "--name", "somebodys", IDLE)
    only(monkeypatch)
    [found] = dockerleft.projects()
    assert (found.name, found.abandoned) == (name, True)
    assert [len(part) for part in (found.containers, found.networks, found.volumes)] == [1, 1, 1]
    assert dockerleft.remove(found) == []
    assert dockerleft.projects() == []
    assert containers() == {"somebodys"}
    assert name not in docker("volume", "ls") + docker("network", "ls") + docker("images")
    assert not config.exists()
    docker("rm", "--force", "somebodys")


def test_a_project_stays_while_a_process_lives_that_may_own_it(
    engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dockerleft, "_SLACK", 1.5)  # docker says whole seconds, by the same clock
    name = project_name()
    with an_inspect_process() as owner, subprocess.Popen(["sleep", "300"]) as other:
        make_project(name)
        only(monkeypatch, owner.pid, other.pid)
        [found] = dockerleft.projects()
        assert not found.abandoned
        assert found.owners[0].startswith(f"{owner.pid} (")
        assert len(found.owners) == 1
        other.kill()
    created = found.created
    until("some time later", lambda: time.time() > created + 2.5)
    with an_inspect_process() as later:
        only(monkeypatch, owner.pid, later.pid)
        [found] = dockerleft.projects()
        assert found.abandoned  # who began later can't have made it
    assert dockerleft.remove(found) == []


def test_the_command_keeps_what_may_be_somebodys_and_says_whose(engine: Path, home: Path) -> None:
    name = project_name()
    make_project(name)
    with contextlib.ExitStack() as stack:
        stack.callback(docker, "network", "rm", f"{name}_default")
        stack.callback(docker, "volume", "rm", "--force", f"{name}_data")
        stack.callback(docker, "rmi", f"{name}-default:latest")
        stack.callback(docker, "rm", "--force", f"{name}-default-1")
        # This very process could be running evals: it has all that Inspect needs, and is older.
        rows = json.loads(said("sweep", "--docker", "--json"))["projects"]
        [row] = [row for row in rows if row["name"] == name]
        assert (row["abandoned"], row["removed"], row["containers"]) == (False, False, 1)
        text = said("sweep", "--docker", "--dry-run")
        assert f"Kept {name}" in text
        assert "it may belong to process" in text
        assert f"{name}-default-1" in containers()


def test_times_are_read_as_docker_prints_them() -> None:
    expected = 1767225600.0
    for text in (
        "2026-01-01 00:00:00 +0000 UTC",
        "2026-01-01 01:00:00.123456789 +0100 CET",
        "2026-01-01T00:00:00Z",
    ):
        assert dockerleft._seconds(text) == expected
    with pytest.raises(SandboxError):
        dockerleft._seconds("yesterday")
