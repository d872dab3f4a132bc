"""Directories are copied as they are."""

from __future__ import annotations

import os
import resource
import tempfile
from pathlib import Path
from typing import Any

import pytest

from hawk.sandbox import syscalls
from hawk.sandbox.descent import OPEN_DIRECTORY
from hawk.sandbox.untar import copy_tree
from tests.sandbox.archives import (
    member,
    tar,
)
from tests.sandbox.forked import answered
from tests.sandbox.rooms import (
    SOMEBODY,
    as_somebody,
    in_own_namespace,
    needs_chroot,
    needs_root,
    own_mounts,
    picture,
    room,
    rooted,
    told,
)
from tests.sandbox.unpacked import files_in, target, unpack_here

__all__ = ["room", "target"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    for name in ("bin", "closed", "empty"):
        (path / name).mkdir(parents=True)
    (path / "bin/tool").write_text("tool")
    (path / "bin/tool").chmod(0o4711)
    os.link(path / "bin/tool", path / "closed/tool")
    os.utime(path / "bin/tool", ns=(1, 1_500_000_000_123_456_789))
    (path / "bin/link").symlink_to("/etc/shadow")
    os.link(path / "bin/link", path / "bin/link2", follow_symlinks=False)
    os.mkfifo(path / "fifo")
    Path(os.fsdecode(os.fsencode(path) + b"/odd\n\xff")).write_bytes(bytes(range(256)) * 9000)
    (path / "closed").chmod(0)
    os.utime(path / "empty", (1, 1_400_000_000))
    return path


def copied(source: Path, target: Path) -> dict[str, Any]:
    fd = os.open(source, OPEN_DIRECTORY)
    try:
        return rooted(target, lambda: copy_tree(fd))
    finally:
        os.close(fd)


@needs_root
def test_a_directory_is_copied_as_it_is(source: Path, target: Path) -> None:
    result = copied(source, target)
    assert (result["files"], result["skipped"]) == (5, 1)
    assert result["bytes"] == 256 * 9000 + 4
    assert result["examples"] == ["fifo: a device, fifo or socket"]
    (source / "fifo").unlink()
    os.utime(source, ns=(1, target.stat().st_mtime_ns))
    assert picture(target) == picture(source)
    assert (target / "bin/tool").stat().st_mtime_ns == 1_500_000_000_123_456_789
    assert (target / "bin/tool").samefile(target / "closed/tool")
    assert (target / "bin/link").lstat().st_ino == (target / "bin/link2").lstat().st_ino


@needs_chroot
def test_a_directory_that_holds_the_target_is_not_copied_into_itself(source: Path) -> None:
    target = source / "store/target"
    target.mkdir(parents=True)
    result = copied(source, target)
    assert any("where the copy goes" in example for example in result["examples"])
    assert (target / "bin/tool").read_text() == "tool"
    assert list((target / "store").iterdir()) == []


@needs_root
def test_mounts_in_a_directory_are_left_out(source: Path, target: Path) -> None:
    def work() -> dict[str, Any]:
        own_mounts()
        syscalls.mount("x", str(source / "empty"), "tmpfs")
        (source / "empty/inside").write_text("x")
        fd = os.open(source, OPEN_DIRECTORY)
        os.chroot(target)
        return told(lambda: copy_tree(fd))

    assert "empty: another file system" in answered(work)["examples"]
    assert not (target / "empty").exists()


@needs_root
def test_what_an_ordinary_user_may_not_read_is_skipped_and_counted() -> None:
    with tempfile.TemporaryDirectory() as room:
        target, source = Path(room, "target"), Path(room, "source")
        for path in (target, source, source / "closed", source / "etc"):
            path.mkdir()
        Path(room).chmod(0o755)
        (source / "etc/shadow").write_text("secret")
        (source / "etc/shadow").chmod(0o600)
        (source / "etc/passwd").write_text("public")
        (source / "closed").chmod(0o700)
        os.chown(target, SOMEBODY, SOMEBODY)
        fd = os.open(source, OPEN_DIRECTORY)

        def work() -> dict[str, Any]:
            in_own_namespace()
            os.chroot(target)
            return told(lambda: copy_tree(fd))

        result = as_somebody(work)
        os.close(fd)
        assert sorted(result["examples"]) == ["closed: Permission denied", "etc/shadow: Permission denied"]
        assert files_in(target) == {"etc/passwd"}


@needs_chroot
def test_a_deep_directory_is_copied_with_few_descriptors(room: Path) -> None:
    source, target = room / "source", room / "target"
    source.mkdir()
    target.mkdir()
    unpack_here(source, tar(member("/".join(["d"] * 1000) + "/f", "deep")))
    fd = os.open(source, OPEN_DIRECTORY)

    few = max(map(int, os.listdir("/proc/self/fd"))) + 100  # beside those that this process has open already

    def work() -> Any:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))
        return copy_tree(fd)

    assert rooted(target, work)["files"] == 1
    os.close(fd)
