"""What comes out of an archive that somebody else has made: nothing outside, nothing special, nothing endless."""

from __future__ import annotations

import io
import os
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from hawk.core.zstd import pack as squeeze
from hawk.errors import ConfigError
from hawk.parcel import contents as limits
from hawk.parcel.contents import contents, stays
from hawk.parcel.packing import pack
from hawk.parcel.unpacking import unpack
from tests.parcel.archives import archive, file, link, special, zeros


def taken(data: bytes, tmp_path: Path) -> Path:
    """A directory with an archive unpacked in it."""
    packed = tmp_path / "packed"
    packed.write_bytes(data)
    base = tmp_path / "deep" / "base"
    unpack(packed, base)
    return base


def refused(data: bytes, tmp_path: Path, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        taken(data, tmp_path)
    assert {p.name for p in tmp_path.iterdir()} <= {"packed", "deep"}
    assert {p.name for p in (tmp_path / "deep").iterdir()} == {"base"}


@pytest.mark.parametrize(
    "name", ["../out", "a/../../out", "/out", "a//b", "./a", "a/./b", "..", "n" * 256, "d/" * 70 + "f"]
)
def test_no_name_leads_elsewhere(name: str, tmp_path: Path) -> None:
    refused(archive(file(name)), tmp_path, "can't be the name of a file")


@pytest.mark.parametrize("to", ["/etc/passwd", "../out", "a/../../out", "..", "a/..", ""])
def test_no_link_leads_out(to: str, tmp_path: Path) -> None:
    refused(archive(link("there", to)), tmp_path, "leads out|empty")


def test_no_link_leads_out_by_way_of_another(tmp_path: Path) -> None:
    """`x/y/d` goes up to `sub`; from there the way of the second, harmless where it is written, would lead out."""
    members = (file("sub/f"), link("x/y/d", "../../sub"), link("x/y/e", "d/../../.."))
    refused(archive(*members), tmp_path, "'x/y/e' leads out")


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    refused(
        archive(file("a/f"), link("b", "a"), file("b/g")), tmp_path, "'b' is a directory and something else"
    )
    again = tmp_path / "again"
    (again / "deep" / "base").mkdir(parents=True)
    (again / "deep" / "base" / "b").symlink_to(tmp_path)  # as a container that starts again may find it
    with pytest.raises(ConfigError, match="something else"):
        taken(archive(file("b/g")), again)
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize(
    "kind", [tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE, b"Z"]
)
def test_only_files_directories_and_links_are_taken(kind: bytes, tmp_path: Path) -> None:
    if kind == tarfile.CONTTYPE:
        assert (taken(archive(special("f", kind)), tmp_path) / "f").read_bytes() == b""
    else:
        refused(archive(file("a"), special("f", kind, "a")), tmp_path, "neither a file nor a directory")


def test_a_file_where_a_directory_is_and_the_other_way_round(tmp_path: Path) -> None:
    refused(archive(file("a/b"), file("a")), tmp_path, "there already, as a directory")
    refused(archive(file("c"), file("c/d")), tmp_path, "'c' is a directory and something else")


def test_no_file_can_be_run_as_another_user_or_has_an_impossible_time(tmp_path: Path) -> None:
    base = taken(
        archive(file("a", mode=0o6777), file("b", mode=0o000, mtime=-5), file("c", mtime=1 << 60)), tmp_path
    )
    assert {p.name: p.stat().st_mode & 0o7777 for p in base.iterdir()} == {"a": 0o755, "b": 0o644, "c": 0o644}
    assert all(p.stat().st_uid == os.getuid() for p in base.iterdir())


def test_too_many_and_too_much_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST", 3)
    refused(archive(*(file(f"f{n}") for n in range(4))), tmp_path, "more than may go along")
    monkeypatch.setattr(limits, "LARGEST", 1000)
    refused(archive(file("a", bytes(600)), file("b", bytes(600))), tmp_path, "more than may go along")


def test_a_bomb_takes_neither_memory_nor_disk(tmp_path: Path) -> None:
    """A name, or a file, of which a few kilobytes become hundreds of megabytes."""
    name = tarfile.TarInfo("././@PaxHeader")
    name.type, name.size = tarfile.XHDTYPE, 1 << 29
    large = tarfile.TarInfo("f")
    large.size = 1 << 33
    sparse = tarfile.TarInfo("s")
    sparse.type, sparse.size = tarfile.GNUTYPE_SPARSE, 0
    for info in (name, large, sparse):
        data = zeros(info.tobuf(tarfile.GNU_FORMAT), 1 << 28)
        assert len(data) < 1 << 17
        tracemalloc.start()
        refused(data, tmp_path, "larger|more than may|neither|can't be unpacked")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 48 << 20, peak
        assert sum(p.lstat().st_size for p in (tmp_path / "deep").rglob("*") if p.is_file()) < 1 << 20


@pytest.mark.parametrize("cut", [1, 40, -8])
def test_what_is_torn_or_no_archive_is_refused(cut: int, tmp_path: Path) -> None:
    whole = archive(file("a", os.urandom(3000)))
    for data in (b"", b"no archive", squeeze(b"no tar" * 300), whole[:cut]):
        packed = tmp_path / "packed"
        packed.write_bytes(data)
        with pytest.raises(ConfigError, match="can't be unpacked"):
            unpack(packed, tmp_path / "out")


def test_a_directory_comes_out_as_it_was(tmp_path: Path) -> None:
    base = tmp_path / "evals"
    (base / "data").mkdir(parents=True)
    (base / "data" / "ünï.json").write_text("{}")
    os.link(base / "data" / "ünï.json", base / "same.json")
    (base / os.fsdecode(b"\xff.bin")).write_bytes(b"\0")
    (base / "in").symlink_to("data")
    (base / "roundabout").symlink_to("data/../data")
    (base / ".env").write_text("KEY=1")
    (base / "data" / ".gitignore").write_text("x")
    found = contents(base)
    assert (found.files, found.hidden, found.links) == (3, [".env"], ["roundabout"])
    first, second = io.BytesIO(), io.BytesIO()
    packed = pack(found, first)
    (base / "data" / "__pycache__").mkdir()
    (base / ".env").unlink()
    assert pack(contents(base), second) == packed
    assert first.getvalue() == second.getvalue()
    out = taken(first.getvalue(), tmp_path)
    assert sorted(os.listdir(out)) == sorted(["data", "in", "same.json", os.fsdecode(b"\xff.bin")])
    assert (out / "in" / "ünï.json").read_text() == (out / "same.json").read_text() == "{}"
    assert (out / "same.json").stat().st_mtime == (base / "same.json").stat().st_mtime


def test_why_a_file_stays_is_said(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "away").symlink_to("/")
    words = {
        ".env": "is hidden",
        ".h/x": "is in a hidden directory",
        "venv/x": "is in venv, which is made again where it is needed",
        "away": f"leads out of {tmp_path}",
        "away/etc": f"is behind away, a link out of {tmp_path}",
        "task.py": None,
    }
    assert {name: stays(Path(name), tmp_path) for name in words} == words
