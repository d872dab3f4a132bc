"""Archives that are hostile, damaged or cut short change nothing outside, and are not taken for whole ones."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hawk.sandbox.descent import OPEN_DIRECTORY
from hawk.sandbox.tarinput import TarInput
from hawk.sandbox.unpacking import Unpacker
from tests.sandbox.archives import (
    Member,
    folder,
    hardlink,
    member,
    symlink,
    tar,
)
from tests.sandbox.rooms import (
    MEMORY,
    names_in,
    needs_chroot,
    open_descriptors,
    picture,
)
from tests.sandbox.unpacked import ROOTFS, target, unpack, unpack_here

__all__ = ["target"]


OUTSIDE = "the outside is as it was"

ESCAPES: dict[str, tuple[Member, ...]] = {
    "dots": (member("../../outside/file", "evil"), member("a/../../../../../outside/file", "evil")),
    "absolute": (member("/outside/file", "evil"), member("{outside}/file", "evil")),
    "symlink to the outside, then a file through it": (
        symlink("door", "{outside}"),
        member("door/file", "evil"),
        member("door/new", "evil"),
    ),
    "relative symlink, then a file through it": (
        symlink("door", "../outside"),
        member("door/file", "evil"),
    ),
    "chain of symlinks": (
        symlink("a", "b/.."),
        symlink("b", "../../.."),
        symlink("c", "a/../{outside}"),
        member("c/file", "evil"),
    ),
    "symlink as the file": (symlink("link", "{outside}/file"), member("link", "evil")),
    "symlink as the directory": (
        symlink("link", "{outside}"),
        folder("link", mode=0o000),
        member("link/file", "evil"),
    ),
    "hard link to the outside": (hardlink("link", "{outside}/file"), member("link", "evil")),
    "hard link through a symlink": (
        symlink("door", "{outside}"),
        hardlink("link", "door/file"),
        member("link", "evil"),
    ),
    "hard link to a symlink": (
        symlink("link", "{outside}/file"),
        hardlink("other", "link"),
        member("other", "evil"),
    ),
    "deletion upwards": (member(".wh...", ""), member("a/.wh...", ""), member("a/../.wh..", "")),
    "deletion through a symlink": (
        symlink("door", "{outside}"),
        member("door/.wh.file", ""),
        member("door/.wh..wh..opq", ""),
    ),
}


@pytest.mark.parametrize("layer", [False, True], ids=["root file system", "layer"])
@pytest.mark.parametrize("members", ESCAPES.values(), ids=ESCAPES)
def test_nothing_leads_out_of_the_target_even_without_a_chroot(
    tmp_path: Path, target: Path, members: tuple[Member, ...], layer: bool
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text(OUTSIDE)
    before = picture(outside), outside.stat().st_mode
    for info, content in members:
        room = tmp_path / "target"
        filled = tarfile.TarInfo(info.name.format(outside=outside))
        filled.type, filled.size, filled.mode = info.type, info.size, info.mode
        filled.linkname = info.linkname.format(outside=outside)
        try:
            unpack_here(room, tar((filled, content)), layer=layer)
        except OSError:
            continue  # refusing is as good
    assert (picture(outside), outside.stat().st_mode) == before


NAMES = st.lists(st.sampled_from(["a", "b", "..", ".", "outside", ""]), min_size=1, max_size=5).map("/".join)


@st.composite
def hostile_members(draw: st.DrawFn) -> Member:
    name = draw(NAMES.map(lambda n: n.strip("\0") or "a"))
    match draw(st.sampled_from(["file", "dir", "symlink", "hardlink", "whiteout", "opaque"])):
        case "file":
            return member(name, "evil")
        case "dir":
            return folder(name)
        case "symlink":
            return symlink(name, draw(NAMES) or "a")
        case "hardlink":
            return hardlink(name, draw(NAMES))
        case "whiteout":
            return member(f"{name}/.wh.{draw(st.sampled_from(['a', 'b', '', '.', '..']))}")
    return member(f"{name}/.wh..wh..opq")


@settings(max_examples=100, deadline=None)
@given(st.lists(hostile_members(), min_size=1, max_size=12), st.booleans())
def test_no_sequence_of_members_touches_the_outside(members: list[Member], layer: bool) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        outside, target = Path(directory, "outside"), Path(directory, "target")
        for path in (outside, target):
            path.mkdir()
            (path / "a").write_text(OUTSIDE)
        root = os.open(target, OPEN_DIRECTORY)
        before = open_descriptors()
        unpacker = Unpacker(root, all_ids=False)
        for one in members:
            try:
                unpacker.unpack(TarInput(io.BytesIO(tar(one)), jumps=True), layer=layer)
            except OSError:
                continue
        assert open_descriptors() == before
        os.close(root)
        assert names_in(directory) == ["outside", "target"]
        assert names_in(outside) == ["a"]
        assert (outside / "a").read_text() == OUTSIDE
        assert (outside / "a").stat().st_nlink == 1


@needs_chroot
def test_a_symlink_inside_the_root_is_followed_inside_the_root(target: Path) -> None:
    data = tar(
        symlink("a/lib", "/usr/lib"),
        member("a/lib/one", "1"),
        symlink("usr/lib64", "../../../../../usr/lib"),
        member("usr/lib64/two", "2"),
        hardlink("three", "a/lib/two"),
    )
    assert unpack(target, data).get("error") is None
    assert sorted(path.name for path in (target / "usr/lib").iterdir()) == ["one", "two"]
    assert (target / "three").samefile(target / "usr/lib/two")


def claiming(size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A header that claims this size."""
    info = tarfile.TarInfo("etc/file")
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


DAMAGED = {
    "empty": b"",
    "no archive": b"this is not a tar file at all" * 100,
    "cut in a header": tar(*ROOTFS)[: 512 * 7 + 100],
    "cut in a file": tar(*ROOTFS)[:100_000],
    "cut between members": tar(folder("etc"), member("etc/a", "a"), end=False),
    "cut where one is skipped": tar(member("etc/dev", kind=tarfile.CHRTYPE))[:512] + b"rest",
    "garbage between members": tar(folder("etc"), end=False) + b"\x01" * 512 + tar(member("etc/a", "a")),
    "huge file": claiming(1 << 60) + b"little",
    "negative size": claiming(-512) + bytes(1024),
    "huge name": claiming(1 << 40, tarfile.GNUTYPE_LONGNAME) + bytes(4096),
    "huge extended header": claiming(1 << 40, tarfile.XHDTYPE) + bytes(4096),
    "half of gzip": gzip.compress(tar(*ROOTFS))[:5000],
    "half of xz": lzma.compress(os.urandom(10_000) + tar(*ROOTFS))[:5000],
    "half of bzip2": bz2.compress(os.urandom(1_000_000))[:50_000],
    "gzip with a wrong checksum": gzip.compress(tar(folder("etc"), member("etc/a", os.urandom(9000))))[:-8]
    + bytes(8),
    "zstd": b"\x28\xb5\x2f\xfd" + bytes(100),
}


@needs_chroot
@pytest.mark.parametrize("pipe", [False, True], ids=["file", "pipe"])
@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_archive_is_an_error_that_says_so(target: Path, data: bytes, pipe: bool) -> None:
    result = unpack(target, data, pipe=pipe)
    assert "error" in result, "it was taken for a whole archive"
    assert result["errno"] == 74, result["error"]
    assert result["error"]


@needs_chroot
def test_headers_without_end_are_refused_before_they_fill_memory(target: Path) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 5
    endless = (info.tobuf(tarfile.GNU_FORMAT) + b"name\0".ljust(512, b"\0")) * 3000
    result = unpack(target, gzip.compress(endless))
    assert result["errno"] == 74
    assert "header" in result["error"] or "recursion" in result["error"]


def test_a_hard_link_to_nothing_is_an_error_that_names_both(target: Path) -> None:
    with pytest.raises(OSError, match=r"etc/link: is a hard link to etc/gone, which is not there"):
        unpack_here(target, tar(hardlink("etc/link", "etc/gone")))


def test_a_hard_link_to_a_skipped_device_is_skipped_too(target: Path) -> None:
    unpack_here(target, tar(member("dev/a", kind=tarfile.BLKTYPE), hardlink("dev/b", "dev/a")))
    assert list((target / "dev").iterdir()) == []
