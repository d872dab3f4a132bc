"""What is packed of the directory that an eval set is submitted from, and what comes out of it in a pod."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from hawk.core.zstd import pack
from hawk.errors import ConfigError
from hawk.link.start import Start
from hawk.parcel import contents
from hawk.runner.pod_files import read_job, relocate, unpack_source
from hawk.server.services.sources import pack_source
from hawk.store.rundir import RunDir
from tests.server.fakes import FakeEngine
from tests.server.serving import CONFIG, Service
from tests.store.runs import make_run


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return make_run(tmp_path / "runs", "j")


def tree(base: Path) -> dict[str, str]:
    return {
        str(p.relative_to(base)): str(p.readlink()) if p.is_symlink() else p.read_text()
        for p in sorted(base.rglob("*"))
        if p.is_symlink() or p.is_file()
    }


def test_files_arrive_without_what_is_hidden_or_made_again(tmp_path: Path, run: RunDir) -> None:
    base = tmp_path / "evals"
    kept = {"task.py": "x", "data/deep/a.json": "{}", "env/used.py": "y", "script.sh": "#!/bin/sh"}
    left = [
        ".git/config",
        ".env",
        "__pycache__/a.pyc",
        "node_modules/x/y.js",
        ".venv/bin/python",
        "data/.cache/x",
    ]
    for name, text in {**kept, **dict.fromkeys(left, "secret")}.items():
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(text)
    (base / "own").mkdir()
    (base / "own/pyvenv.cfg").write_text("")
    (base / "script.sh").chmod(0o755)
    (base / "inside").symlink_to("data/deep")
    (base / "outside").symlink_to("../../etc/passwd")
    (base / "absolute").symlink_to("/etc/passwd")
    os.mkfifo(base / "pipe")
    (base / "empty").mkdir()
    pack_source(run, base)
    first = (run.path / "source.tar.zst").read_bytes()
    pack_source(run, base)
    assert (run.path / "source.tar.zst").read_bytes() == first
    unpack_source(run, tmp_path / "pod")
    assert tree(tmp_path / "pod") == {**kept, "inside": "data/deep"}
    assert os.access(tmp_path / "pod/script.sh", os.X_OK)
    assert (tmp_path / "pod/empty").is_dir()
    assert [p.name for p in run.path.iterdir() if p.name.startswith(".")] == []


def test_too_much_is_refused_with_the_name_of_the_largest(
    tmp_path: Path, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "evals"
    (base / "weights").mkdir(parents=True)
    for n in range(3):
        with (base / f"weights/{n}.bin").open("wb") as file:
            file.truncate(30 * 2**20)
    (base / "task.py").write_text("x")
    with pytest.raises(ConfigError, match=r"weights alone has 90 MiB"):
        pack_source(run, base)
    assert not (run.path / "source.tar.zst").exists()
    monkeypatch.setattr(contents, "MOST", 1)
    with pytest.raises(ConfigError, match=r"5 files"):
        pack_source(run, base)


def test_a_directory_that_is_not_there_leaves_the_source_that_there_is(tmp_path: Path, run: RunDir) -> None:
    (run.path / "source.tar.zst").write_bytes(b"of before")
    pack_source(run, tmp_path / "nowhere")
    assert (run.path / "source.tar.zst").read_bytes() == b"of before"


def test_an_archive_that_leads_out_is_not_unpacked(tmp_path: Path, run: RunDir) -> None:
    for name, link in (("../out", None), ("/abs", None), ("a", "/etc")):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            info = tarfile.TarInfo(name)
            if link is not None:
                info.type, info.linkname = tarfile.SYMTYPE, link
            tar.addfile(info)
        (run.path / "source.tar.zst").write_bytes(pack(data.getvalue()))
        base = tmp_path / "pod" / "base"
        with contextlib.suppress(ConfigError):  # a leading slash only is taken away
            unpack_source(run, base)
        assert not (tmp_path / "pod/out").exists()
        assert not (base / "a").is_symlink()
    (run.path / "source.tar.zst").write_bytes(b"torn")
    with pytest.raises(ConfigError, match="can't be unpacked"):
        unpack_source(run, tmp_path / "pod2")


def test_a_job_that_can_not_be_where_it_was_says_where_it_is(tmp_path: Path) -> None:
    run = make_run(tmp_path, "moved", base_dir="/root/evals", script="/root/evals/a/eval.py")
    start = Start("moved", 1, "/hawk/source", "token")
    relocate(run, start)
    spec = run.read_spec()
    assert (spec.base_dir, spec.script) == ("/hawk/source", "/hawk/source/a/eval.py")
    relocate(run, start)
    assert run.read_spec() == spec
    run = make_run(tmp_path, "elsewhere", base_dir="/root/evals", script="/root/other.py")
    with pytest.raises(ConfigError, match="not in the pod"):
        relocate(run, start)
    with pytest.raises(ConfigError, match="can't be a directory of a pod"):
        relocate(run, Start("elsewhere", 1, "/hawk/source", "token", shared=True))


def test_what_a_pod_is_told_must_be_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "start.json").write_text('{"job":"j","generation":1,"base_dir":"/b","token":"t","new":1}')
    start, secrets = read_job(tmp_path)
    assert (start.job, start.server, start.log_shared, secrets) == ("j", None, 3, {})
    (tmp_path / "secrets.json").write_text('{"A":1}')
    with pytest.raises(ConfigError):
        read_job(tmp_path)


def test_a_job_for_a_cluster_is_submitted_with_its_source(
    service: Service, engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "evals"
    base.mkdir()
    (base / "task.py").write_text("x")
    fields = {"base_dir": str(base), "config": CONFIG}
    assert service.submit("local", **fields).status_code == 200
    assert not (engine.run("local").path / "source.tar.zst").exists()
    assert service.submit("away", engine="kubernetes", **fields).status_code == 200
    assert (engine.run("away").path / "source.tar.zst").exists()
    monkeypatch.setattr(contents, "LARGEST", 0)
    refused = service.submit("large", engine="kubernetes", **fields)
    assert (refused.status_code, refused.json()["code"]) == (422, "config")
    assert not engine.run("large").path.exists()
