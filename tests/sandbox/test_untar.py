"""Root file systems are unpacked as they were, by processes that can import nothing."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hawk.sandbox import syscalls
from hawk.sandbox.descent import OPEN_DIRECTORY
from hawk.sandbox.tarinput import Part
from hawk.sandbox.untar import extract
from tests.sandbox.archives import (
    folder,
    hardlink,
    member,
    saved,
    symlink,
    tar,
)
from tests.sandbox.forked import answered
from tests.sandbox.rooms import (
    FIRST_ID,
    SOMEBODY,
    as_somebody,
    in_own_namespace,
    names_in,
    needs_chroot,
    needs_root,
    own_mounts,
    picture,
    room,
    told,
    with_many_ids,
)
from tests.sandbox.unpacked import ROOTFS, target, unpack

__all__ = ["room", "target"]

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
}


@needs_root
@pytest.mark.parametrize("pipe", [False, True], ids=["file", "pipe"])
@pytest.mark.parametrize("packer", PACKERS)
def test_a_root_file_system_arrives_as_it_was(target: Path, packer: str, pipe: bool) -> None:
    result = unpack(target, PACKERS[packer](tar(*ROOTFS)), pipe=pipe)
    assert result.get("error") is None
    assert (result["files"], result["skipped"]) == (7, 2)
    assert result["bytes"] == 3_000_000 + len("suxodd")
    assert stat.S_IMODE((target / "bin/su").stat().st_mode) == 0o4755
    assert ((target / "bin/su").stat().st_uid, (target / "bin/su").stat().st_gid) == (0, 5)
    assert (target / "bin/su").samefile(target / "bin/su2")
    assert stat.S_IMODE((target / "tmp").stat().st_mode) == 0o1777
    assert (target / "tmp").stat().st_mtime == 1_500_000_000
    assert stat.S_IMODE((target / "closed").stat().st_mode) == 0
    assert (target / "closed/secret").stat().st_uid == 1000
    assert (target / "lib").readlink() == Path("usr/lib")
    assert (target / "lib").lstat().st_mtime == 1_600_000_000
    odd = Path(os.fsdecode(os.fsencode(target) + b"/odd\nname\xff"))
    assert odd.stat().st_mtime_ns == 1_600_000_000_123_456_789
    assert list((target / "dev").iterdir()) == list((target / "run").iterdir()) == []
    assert (target / "big").read_bytes() == b"0123456789" * 300_000


@needs_chroot
def test_what_gnu_tar_packs_arrives_in_every_format(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "source"
    (source / ("d" * 120) / ("e" * 120)).mkdir(parents=True)
    (source / ("d" * 120) / ("e" * 120) / ("f" * 200)).write_text("long")
    with (source / "sparse").open("wb") as f:
        f.seek(5 << 20)
        f.write(b"island")
        f.truncate(9 << 20)
    (source / "usr").mkdir()
    for number, options in enumerate((["--format=gnu", "-S"], ["--format=posix", "-S"], ["--format=gnu"])):
        room = target / str(number)
        room.mkdir()
        data = subprocess.run(
            ["tar", *options, "-C", str(source), "-c", "."], capture_output=True, check=True
        ).stdout
        assert unpack(room, data).get("error") is None
        assert picture(room) == picture(source)
        if "-S" in options:
            assert (room / "sparse").stat().st_blocks * 512 < 1 << 20


@needs_chroot
def test_without_many_ids_everything_belongs_to_the_current_user(target: Path) -> None:
    assert unpack(target, tar(*ROOTFS), all_ids=False).get("error") is None
    assert {path.lstat().st_uid for path in target.rglob("*")} == {os.geteuid()}
    assert stat.S_IMODE((target / "bin/su").stat().st_mode) == 0o4755


@needs_root
def test_owners_that_do_not_exist_here_become_nobody(target: Path) -> None:
    os.chown(target, FIRST_ID, FIRST_ID)
    target.parent.chmod(0o755)
    data = tar(
        folder("etc", uid=0),
        member("etc/a", "a", uid=1000, gid=1001),
        member("etc/b", "b", uid=10**6),
        symlink("c", "d", uid=2**40),
    )
    # The path to it is closed to others: the root is entered by its descriptor.
    root = os.open(target, OPEN_DIRECTORY)

    def work() -> dict[str, Any]:
        os.fchdir(root)
        os.chroot(".")
        with open_archive:
            return told(lambda: extract(open_archive.fileno(), all_ids=True))

    with tempfile.TemporaryFile() as open_archive:
        open_archive.write(data)
        open_archive.seek(0)
        result = with_many_ids(work)
    os.close(root)
    assert result.get("error") is None
    ids = {
        name: ((target / name).lstat().st_uid, (target / name).lstat().st_gid)
        for name in ("etc/a", "etc/b", "c")
    }
    nobody = (FIRST_ID + 65534,) * 2
    assert ids == {"etc/a": (FIRST_ID + 1000, FIRST_ID + 1001), "etc/b": nobody, "c": nobody}


@needs_root
def test_an_ordinary_user_unpacks_as_root_of_a_namespace_of_its_own(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryFile() as archive:
        os.chown(home, SOMEBODY, SOMEBODY)
        archive.write(tar(*ROOTFS))
        archive.seek(0)

        def work() -> dict[str, Any]:
            in_own_namespace()
            os.chroot(home)
            os.chdir("/")
            return told(lambda: extract(archive.fileno(), all_ids=False))

        result = as_somebody(work)
        assert result.get("error") is None
        assert result["files"] == 7
        assert {path.lstat().st_uid for path in Path(home).rglob("*")} == {SOMEBODY}
        assert stat.S_IMODE(Path(home, "closed").stat().st_mode) == 0


@needs_chroot
def test_a_deep_tree_and_a_path_longer_than_the_kernel_takes_arrive(room: Path) -> None:
    target = room
    path = "/".join(["d"] * 2200)
    assert unpack(target, tar(member(f"{path}/f", "deep"))).get("error") is None
    fd = os.open(target, OPEN_DIRECTORY)
    for _ in range(2200):
        below = os.open("d", OPEN_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    assert names_in(fd) == ["f"]
    os.close(fd)


@needs_chroot
def test_the_last_of_several_members_of_one_name_is_kept(target: Path) -> None:
    data = tar(
        member("etc/a", "first"),
        folder("etc/b"),
        member("etc/b/inside", "x"),
        symlink("etc/c", "a"),
        member("etc/a", "second"),
        member("etc/b", "now a file"),
        member("etc/c", "was a link"),
        folder("etc/a/"),
        member("etc/a/x", "now a directory"),
        hardlink("etc/c", "etc/c"),
    )
    assert unpack(target, data).get("error") is None
    assert (target / "etc/a/x").read_text() == "now a directory"
    assert (target / "etc/b").read_text() == "now a file"
    assert (target / "etc/c").read_text() == "was a link"
    assert not (target / "etc/c").is_symlink()


@needs_root
def test_a_full_disk_is_said_with_its_errno(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    archive = saved(tmp_path, tar(member("etc/large", bytes(3 << 20))))

    def work() -> dict[str, Any]:
        own_mounts()
        syscalls.mount("small", str(small), "tmpfs", 0, "size=1m")
        fd = os.open(archive, os.O_RDONLY)
        os.chroot(small)
        os.chdir("/")
        return told(lambda: extract(fd, all_ids=False))

    result = answered(work)
    assert result["errno"] == 28
    assert "etc/large" in result["error"]


def test_part_of_a_file_reads_no_further_than_its_length(tmp_path: Path) -> None:
    path = saved(tmp_path, b"0123456789")
    fd = os.open(path, os.O_RDONLY)
    part = io.BufferedReader(Part(fd, 2, 5))
    assert part.read() == b"23456"
    part.seek(-2, os.SEEK_END)
    assert part.read() == b"56"
    os.close(fd)
