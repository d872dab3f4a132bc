"""`hawk export`: files as they are on the server, and nothing that a hostile server could want instead."""

from __future__ import annotations

import csv
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hawk.cli.untar import unpack
from hawk.core.attempts.report import Report
from hawk.core.plan import Plan, PlanTask
from hawk.core.states import SamplePhase
from hawk.errors import HawkError
from hawk.server.services.attempts_export import header
from hawk.store.attempts import workspace_draft, write_result
from hawk.store.rundir import RunDir, write_json
from tests.cli import reports
from tests.cli.conftest import Run
from tests.cli.serving import Canned
from tests.server.fakes import FakeEngine
from tests.server.serving import Service, serving
from tests.store.hostile import NAMES
from tests.store.runs import settings_in, snapshot_of

Env = dict[str, str]
END = bytes(1024)


# --- against a real server


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    settings = settings_in(tmp_path / "server")
    engine = FakeEngine(settings.root)
    with serving(settings, engine) as running:
        running.submit("demo-1")
        engine.write(snapshot_of("demo-1", SamplePhase.RUNNING))
        yield running


@pytest.fixture
def there(service: Service, env: Env) -> Env:
    Path(env["HAWK_HOME"]).mkdir()
    return {**env, "HAWK_API_URL": service.url, "HAWK_ACCESS_TOKEN": service.token}


@pytest.fixture
def filled(service: Service) -> RunDir:
    """A run with results and workspaces of pairs with any names."""
    run = RunDir(service.context.settings.root / "demo-1")
    names = ["easy", *NAMES]
    write_json(
        run.plan_file, Plan("demo-1", [PlanTask("i", "coding", reports.MODEL, names, 1, agent="react")])
    )
    for name in names:
        [result] = reports.attempts(name, name == "easy")
        draft = workspace_draft(run, result.pair, 1)
        draft.write_bytes(os.urandom(10_000))
        write_result(run, result, workspace=draft)
    write_result(run, reports.attempts("easy", True)[0])
    return run


def test_everything_is_saved_as_it_is(
    service: Service, filled: RunDir, there: Env, run: Run, tmp_path: Path
) -> None:
    target = tmp_path / "new" / "export"
    done = run("export", "demo-1", str(target), env=there)
    assert done.returncode == 0, done.stderr
    want = {
        str(p.relative_to(filled.path)): p.read_bytes()
        for p in filled.path.glob("attempts/**/*.*")
        if p.is_file()
    }
    got = {str(p.relative_to(target)): p.read_bytes() for p in target.glob("attempts/**/*.*") if p.is_file()}
    assert got == want
    assert len(got) == 2 * (1 + len(NAMES)) + 2
    assert sorted(p.name for p in target.iterdir()) == [
        "attempts",
        "attempts.csv",
        "report.html",
        "report.json",
    ]
    body = (target / "report.json").read_bytes()
    assert body == service.get("/meta/eval-sets/demo-1/report").content
    assert msgspec.json.decode(body, type=Report).passed == 1
    rows = list(csv.DictReader(io.StringIO((target / "attempts.csv").read_text("utf-8"))))
    assert len(rows) == 1 + len(NAMES)
    assert f"Wrote {len(got)} files of attempts" in done.stderr


def test_a_directory_with_something_in_it_is_refused(
    filled: RunDir, there: Env, run: Run, tmp_path: Path
) -> None:
    target = tmp_path / "full"
    target.mkdir()
    (target / ".hidden").write_text("mine")
    done = run("export", "demo-1", str(target), env=there)
    assert (done.returncode, "is not empty" in done.stderr) == (2, True)
    assert [p.name for p in target.iterdir()] == [".hidden"]
    done = run("export", "demo-1", str(target / ".hidden"), env=there)
    assert done.returncode == 1
    assert (target / ".hidden").read_text() == "mine"


def test_an_unknown_id_or_one_without_a_plan_makes_no_directory(there: Env, run: Run, tmp_path: Path) -> None:
    for name in ("none", "demo-1"):
        assert run("export", name, str(tmp_path / "new"), env=there).returncode == 2
    assert not (tmp_path / "new").exists()


# --- against servers that lie


def file(name: str, content: bytes = b"x", **fields: object) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


GOOD = "attempts/p/1/result.json"
HOSTILE = {
    "parent": file("attempts/../../evil"),
    "absolute": file("/tmp/evil"),
    "outside": file("evil"),
    "root itself": file("attempts"),
    "report": file("report.json"),
    "dot": file("attempts/./evil"),
    "hidden": file("attempts/p/.bashrc"),
    "empty part": file("attempts//evil"),
    "backslash": file("attempts\\..\\evil"),
    "newline": file("attempts/p\n/1"),
    "escape": file("attempts/\x1b[2J/1"),
    "odd bytes": file("attempts/\udcff\udcfe"),
    "long": file("attempts/" + "x" * 300),
    "symlink": file(GOOD, b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "hard link": file(GOOD, b"", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    "directory": file("attempts/p", b"", type=tarfile.DIRTYPE),
    "device": file(GOOD, b"", type=tarfile.CHRTYPE),
    "pipe": file(GOOD, b"", type=tarfile.FIFOTYPE),
    "sparse": file(GOOD, b"", type=tarfile.GNUTYPE_SPARSE),
    "pax": file("attempts/pax", b"20 path=../../evil\n\n", type=tarfile.XHDTYPE),
    "twice": file(GOOD) + file(GOOD),
    "file as directory": file("attempts/p") + file("attempts/p/1"),
    "no header": b"y" * 512,
    "wrong checksum": file(GOOD).replace(b"attempts", b"attemptt", 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_refused_and_nothing_leaves_the_directory(tmp_path: Path, name: str) -> None:
    inner = tmp_path / "in"
    inner.mkdir()
    with pytest.raises(HawkError, match=r"refused|damaged") as raised:
        unpack([HOSTILE[name] + END], inner)
    assert raised.value.render().replace("\n  → ", "").isprintable()
    assert [p.name for p in tmp_path.iterdir()] == ["in"]
    found = [p for p in inner.rglob("*") if not p.is_dir()]
    assert all(p.is_file() and not p.is_symlink() for p in found)
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize("cut", [0, 100, 512, 700, 1024])
def test_a_stream_that_ends_too_early_is_no_export(tmp_path: Path, cut: int) -> None:
    whole = file(GOOD, b"z" * 300)
    with pytest.raises(HawkError, match="too early"):
        unpack([whole[:cut]], tmp_path)
    assert [p for p in tmp_path.rglob("*") if p.is_file() and p.stat().st_size not in (0, 300)] == []
    assert not list(tmp_path.rglob(".hawk-*"))


def test_a_negative_size_is_damage(tmp_path: Path) -> None:
    block = bytearray(header(GOOD, 1, 0) or b"")
    block[124:136] = b"\xff" * 12
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    with pytest.raises(HawkError, match="damaged"):
        unpack([bytes(block) + END], tmp_path)


@pytest.mark.parametrize("size", [1, 7, 512, 100_000])
def test_parts_of_any_length_give_the_same_files(tmp_path: Path, size: int) -> None:
    content = os.urandom(5000)
    data = file(GOOD, content) + file("attempts/p/1/workspace.tar.zst", b"") + END
    assert unpack((data[i : i + size] for i in range(0, len(data), size)), tmp_path) == (2, 5000)
    assert (tmp_path / GOOD).read_bytes() == content
    assert (tmp_path / "attempts/p/1/workspace.tar.zst").read_bytes() == b""


def test_a_hostile_server_gets_an_error_and_no_report_is_written(
    canned: Canned, remote: Env, run: Run, tmp_path: Path
) -> None:
    canned.routes["GET /meta/eval-sets/demo-1/report"] = reports.mixed()
    canned.routes["GET /meta/eval-sets/demo-1/attempts/export"] = HOSTILE["parent"] + END
    done = run("export", "demo-1", str(tmp_path / "x" / "y"), env=remote)
    assert done.returncode == 1
    assert "refused" in done.stderr
    assert not (tmp_path / "evil").exists()
    assert list((tmp_path / "x" / "y").iterdir()) == []
