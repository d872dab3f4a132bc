"""The archive reader against the standard library's, which is slower and makes an object for each member."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from hawk.bridge.archive import Archive, ArchiveError
from tests.bridge.conftest import Evaluation

pytestmark = pytest.mark.timeout(400)  # real evaluations start slowly on a loaded machine


def test_members_of_a_real_log_are_those_that_zipfile_reads(finished: Evaluation) -> None:
    import inspect_ai  # noqa: F401 - teaches zipfile the compression before Python 3.14

    with zipfile.ZipFile(finished.log) as theirs, Archive(finished.log) as ours:
        members = ours.members(lambda _: True)
        assert set(members) == set(theirs.namelist())
        for name, member in members.items():
            assert ours.read(member) == theirs.read(name), name
        assert set(ours.members(lambda name: name == b"header.json")) == {"header.json"}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_later_member_of_one_name_wins(tmp_path: Path, method: int) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("é.json", "old")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("é.json", "new" * 100)
        archive.comment = b"a comment"
    with Archive(path) as ours:
        assert ours.read(ours.members(lambda _: True)["é.json"]) == b"new" * 100


def test_more_members_than_the_old_format_counts(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(66_000):
            archive.writestr(f"samples/{number}.json", "")
        archive.writestr("header.json", "{}")
    with Archive(path) as ours:
        assert ours.read(ours.members(lambda name: name == b"header.json")["header.json"]) == b"{}"


def test_member_in_zip64_format_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive, archive.open("big", "w", force_zip64=True) as member:
        member.write(b"content")
    with Archive(path) as ours:
        assert ours.read(ours.members(lambda _: True)["big"]) == b"content"


def test_unknown_compression_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", "text")
    with Archive(path) as ours, pytest.raises(ArchiveError, match="compression method 14"):
        ours.read(ours.members(lambda _: True)["a"])
