"""Archives are unpacked inside the root, whole or not at all, by processes that can import nothing."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import resource
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hawk.sandbox import syscalls
from hawk.sandbox.descent import OPEN_DIRECTORY
from hawk.sandbox.imagearchive import machine
from hawk.sandbox.tarinput import Part, TarInput
from hawk.sandbox.unpacking import Unpacker
from hawk.sandbox.untar import copy_tree, extract
from tests.sandbox.archives import (
    Layout,
    Member,
    docker_image,
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
    needs_root,
    open_descriptors,
    own_mounts,
    picture,
    rooted,
    told,
    with_many_ids,
)

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
}

ROOTFS = (
    folder("./", mode=0o755),
    folder("./bin", mode=0o755),
    member("./bin/su", "su", mode=0o4755, uid=0, gid=5),
    folder("./tmp", mode=0o1777, mtime=1_500_000_000),
    folder("./closed", mode=0o000),
    member("./closed/secret", "x", mode=0o000, uid=1000, gid=1000),
    symlink("./lib", "usr/lib"),
    symlink("./absolute", "/bin/su"),
    hardlink("./bin/su2", "./bin/su"),
    member("./odd\nname\udcff", "odd", pax_headers={"mtime": "1600000000.123456789"}),
    member("./dev/null", kind=tarfile.CHRTYPE, devmajor=1, devminor=3),
    member("./run/fifo", kind=tarfile.FIFOTYPE),
    member("./big", b"0123456789" * 300_000),
)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target"
    path.mkdir()
    return path


def unpack(target: Path, data: bytes, *, pipe: bool = False, all_ids: bool = True) -> dict[str, Any]:
    """Extract in a child that has the target as its root; the fields of the result or the error."""
    with tempfile.TemporaryFile() as f:
        f.write(data)
        f.seek(0)
        if not pipe:
            return rooted(target, lambda: extract(f.fileno(), all_ids=all_ids))
        with subprocess.Popen(["cat"], stdin=f, stdout=subprocess.PIPE) as cat:
            assert cat.stdout is not None
            fd = cat.stdout.fileno()
            return rooted(target, lambda: extract(fd, all_ids=all_ids))


def unpack_here(target: Path, data: bytes, *, layer: bool = False) -> None:
    """The same without a chroot: only our own care keeps it inside."""
    root = os.open(target, OPEN_DIRECTORY)
    try:
        Unpacker(root, all_ids=False).unpack(TarInput(io.BytesIO(data), jumps=True), layer=layer)
    finally:
        os.close(root)


# --- root file systems


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


@needs_root
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


@needs_root
def test_without_many_ids_everything_belongs_to_the_current_user(target: Path) -> None:
    assert unpack(target, tar(*ROOTFS), all_ids=False).get("error") is None
    assert {path.lstat().st_uid for path in target.rglob("*")} == {0}
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
    with tempfile.TemporaryDirectory() as room, tempfile.TemporaryFile() as archive:
        os.chown(room, SOMEBODY, SOMEBODY)
        archive.write(tar(*ROOTFS))
        archive.seek(0)

        def work() -> dict[str, Any]:
            in_own_namespace()
            os.chroot(room)
            os.chdir("/")
            return told(lambda: extract(archive.fileno(), all_ids=False))

        result = as_somebody(work)
        assert result.get("error") is None
        assert result["files"] == 7
        assert {path.lstat().st_uid for path in Path(room).rglob("*")} == {SOMEBODY}
        assert stat.S_IMODE(Path(room, "closed").stat().st_mode) == 0


@needs_root
def test_a_deep_tree_and_a_path_longer_than_the_kernel_takes_arrive(target: Path) -> None:
    path = "/".join(["d"] * 3000)
    assert unpack(target, tar(member(f"{path}/f", "deep"))).get("error") is None
    fd = os.open(target, OPEN_DIRECTORY)
    for _ in range(3000):
        below = os.open("d", OPEN_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    assert names_in(fd) == ["f"]
    os.close(fd)
    subprocess.run(["rm", "-rf", str(target)], check=True)  # pytest's own way of removing it would recurse


@needs_root
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


# --- hostile archives

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


@settings(max_examples=150, deadline=None)
@given(st.lists(hostile_members(), min_size=1, max_size=12), st.booleans())
def test_no_sequence_of_members_touches_the_outside(members: list[Member], layer: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
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


@needs_root
def test_a_symlink_inside_the_root_is_followed_inside_the_root(target: Path) -> None:
    data = tar(
        symlink("lib", "/usr/lib"),
        member("lib/one", "1"),
        symlink("usr/lib64", "../../../../../usr/lib"),
        member("usr/lib64/two", "2"),
        hardlink("three", "lib/two"),
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


@needs_root
@pytest.mark.parametrize("pipe", [False, True], ids=["file", "pipe"])
@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_archive_is_an_error_that_says_so(target: Path, data: bytes, pipe: bool) -> None:
    result = unpack(target, data, pipe=pipe)
    assert "error" in result, "it was taken for a whole archive"
    assert result["errno"] == 74, result["error"]
    assert result["error"]


@needs_root
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


# --- images

BASE = tar(
    folder("bin"),
    member("bin/sh", "sh"),
    folder("etc", mode=0o700),
    member("etc/keep", "base"),
    member("etc/gone", "base"),
    folder("opt"),
    member("opt/a", "a"),
    folder("opt/sub"),
    member("opt/sub/b", "b"),
    folder("srv"),
    folder("srv/old"),
    member("srv/old/file", "x"),
    symlink("sbin", "bin"),
)
CHANGES = tar(
    member("etc/.wh.gone"),
    member("etc/.wh.never-there"),
    member("opt/new", "new"),
    folder("opt/sub"),
    member("opt/sub/new", "new"),
    member("opt/.wh..wh..opq"),
    member("srv/.wh.old"),
    member("srv/old", "now a file"),
    member("sbin/init", "init"),
    folder("etc", mode=0o755),
    member(".wh..wh.plnk", ""),
)
AFTER = {"bin/sh", "bin/init", "etc/keep", "opt/new", "opt/sub/new", "srv/old", "sbin"}


def files_in(target: Path) -> set[str]:
    return {str(p.relative_to(target)) for p in target.rglob("*") if p.is_symlink() or not p.is_dir()}


def oci(compress: bool) -> bytes:
    layout = Layout()
    digest = layout.image(BASE, CHANGES, compress=compress)
    return layout.tar({"digest": digest})


IMAGES = {
    "docker": tar(*docker_image(BASE, CHANGES)),
    "docker, gzip": gzip.compress(tar(*docker_image(BASE, CHANGES))),
    "docker, layers compressed": tar(*docker_image(gzip.compress(BASE), lzma.compress(CHANGES))),
    "docker, below ./": tar(folder("./"), *docker_image(BASE, CHANGES)),
    "oci": oci(compress=False),
    "oci, layers compressed": oci(compress=True),
}


@needs_root
@pytest.mark.parametrize("data", IMAGES.values(), ids=IMAGES)
def test_the_layers_of_an_image_are_applied_in_order(target: Path, data: bytes) -> None:
    result = unpack(target, data)
    assert result.get("error") is None
    assert files_in(target) == AFTER
    assert (target / "srv/old").read_text() == "now a file"
    assert stat.S_IMODE((target / "etc").stat().st_mode) == 0o755
    assert (target / "etc").stat().st_mtime == 1_600_000_000


@needs_root
def test_an_archive_is_read_from_where_its_descriptor_stands(target: Path) -> None:
    with tempfile.TemporaryFile() as f:
        f.write(b"prefix" + IMAGES["docker"])
        f.seek(len("prefix"))
        result = rooted(target, lambda: extract(f.fileno(), all_ids=False))
    assert result.get("error") is None
    assert files_in(target) == AFTER


@needs_root
def test_a_layer_that_is_used_twice_is_applied_twice(target: Path) -> None:
    again = tar(member("etc/gone", "again"))
    assert unpack(target, tar(*docker_image(again, CHANGES, again))).get("error") is None
    assert (target / "etc/gone").read_text() == "again"


@needs_root
def test_of_several_images_the_one_for_this_machine_is_taken(target: Path) -> None:
    layout = Layout()
    other = layout.image(tar(member("etc/other")), architecture="s390x")
    ours = layout.image(tar(member("etc/ours")))
    note = layout.json({"config": {"digest": layout.json({})}, "layers": []})
    inner = layout.json(
        {
            "manifests": [
                {"digest": other, "platform": {"architecture": "s390x"}},
                {"digest": ours, "platform": {"architecture": machine()}},
                {"digest": note, "platform": {"architecture": "unknown", "os": "unknown"}},
                {"digest": "sha256:" + "0" * 64, "platform": {"architecture": "riscv64"}},
            ]
        }
    )
    assert unpack(target, layout.tar({"digest": inner})).get("error") is None
    assert files_in(target) == {"etc/ours"}


@needs_root
def test_the_only_image_is_taken_whatever_its_machine(target: Path) -> None:
    data = tar(*docker_image(tar(member("etc/other")), architecture="s390x"))
    assert unpack(target, data).get("error") is None
    assert files_in(target) == {"etc/other"}


@needs_root
def test_several_images_for_this_machine_are_an_error_that_names_them(target: Path) -> None:
    layout = Layout()
    entries = [
        {
            "digest": layout.image(tar(member(f"etc/{name}"))),
            "annotations": {"org.opencontainers.image.ref.name": name},
        }
        for name in ("first:1", "second:2")
    ]
    result = unpack(target, layout.tar(*entries))
    assert "first:1" in result["error"]
    assert "second:2" in result["error"]
    assert files_in(target) == set()


@needs_root
def test_an_image_through_a_pipe_is_an_error_that_says_what_to_do(target: Path) -> None:
    assert "must come from a file" in unpack(target, IMAGES["docker"], pipe=True)["error"]


@needs_root
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (tar(member("manifest.json", "[{")), "valid JSON"),
        (
            tar(member("manifest.json", '[{"Layers": 7, "Config": "c"}]'), member("c", "{}")),
            "not as it should be",
        ),
        (tar(member("manifest.json", '[{"Layers": ["../x"], "Config": "c"}]'), member("c", "{}")), "lacks x"),
        (tar(member("manifest.json", "[" * 100_000)), "valid JSON"),
        (tar(*docker_image(BASE[:3000])), "cut short"),
        (
            tar(
                symlink("a", "b"),
                symlink("b", "a"),
                member("manifest.json", '[{"Layers": [], "Config": "a"}]'),
            ),
            "lacks a",
        ),
        (
            tar(member("oci-layout", "{}"), member("index.json", '{"manifests": [{"digest": "../x"}]}')),
            "digest",
        ),
    ],
    ids=["json", "types", "upwards", "deep json", "cut layer", "links in a circle", "digest"],
)
def test_a_damaged_image_is_an_error_that_says_so(target: Path, data: bytes, words: str) -> None:
    assert words in unpack(target, data).get("error", "")


# --- directories


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


@needs_root
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


@needs_root
def test_a_deep_directory_is_copied_with_few_descriptors(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "deep"
    source.mkdir()
    unpack_here(source, tar(member("/".join(["d"] * 2000) + "/f", "deep")))
    fd = os.open(source, OPEN_DIRECTORY)

    def work() -> Any:
        resource.setrlimit(resource.RLIMIT_NOFILE, (120, 120))
        return copy_tree(fd)

    assert rooted(target, work)["files"] == 1
    os.close(fd)
    subprocess.run(["rm", "-rf", str(target), str(source)], check=True)


def test_part_of_a_file_reads_no_further_than_its_length(tmp_path: Path) -> None:
    path = saved(tmp_path, b"0123456789")
    fd = os.open(path, os.O_RDONLY)
    part = io.BufferedReader(Part(fd, 2, 5))
    assert part.read() == b"23456"
    part.seek(-2, os.SEEK_END)
    assert part.read() == b"56"
    os.close(fd)
