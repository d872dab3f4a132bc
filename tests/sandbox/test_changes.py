"""What changed in a sandbox is exported truly, and nothing else is, whatever the sandbox does meanwhile."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import stat
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hawk.sandbox import syscalls
from hawk.sandbox.changes import Changes, write_changes
from hawk.sandbox.descent import OPEN_DIRECTORY, Descent, usage
from hawk.sandbox.taroutput import plain_header
from hawk.sandbox.untar import extract
from tests.sandbox.archives import docker_image, member, saved, tar
from tests.sandbox.forked import answered
from tests.sandbox.rooms import (
    as_somebody,
    names_in,
    needs_root,
    open_descriptors,
    own_mounts,
    picture,
    room,
    rooted,
    told,
)
from tests.sandbox.unpacked import unpack_here

__all__ = ["room"]

SHADOW = Path("/etc/shadow")


@pytest.fixture
def upper(tmp_path: Path) -> Path:
    path = tmp_path / "upper"
    path.mkdir()
    return path


def export(upper: Path, **options: Any) -> tuple[Changes, dict[str, tarfile.TarInfo], dict[str, bytes]]:
    """The result, and members and contents by name."""
    with tempfile.TemporaryFile() as f:
        fd = os.open(upper, OPEN_DIRECTORY)
        before = open_descriptors()
        try:
            changes = write_changes(fd, f.fileno(), **options)
            assert open_descriptors() == before
        finally:
            os.close(fd)
        assert f.tell() % 512 == 0
        f.seek(0)
        return changes, *read(f)


def read(f: Any) -> tuple[dict[str, tarfile.TarInfo], dict[str, bytes]]:
    """Members and contents; an archive that is not whole is an error."""
    with tarfile.open(fileobj=f, mode="r:", errorlevel=2) as archive:
        members = {info.name: info for info in archive}
        contents = {}
        for name, info in members.items():
            if info.isreg():
                part = archive.extractfile(info)
                assert part is not None
                contents[name] = part.read()
                assert len(contents[name]) == info.size
        f.seek(archive.offset)
        assert f.read() == bytes(1024)
    return members, contents


# --- real overlays


@dataclass
class Mounted:
    """An overlay that was changed: what was exported, and what it looked like."""

    changes: dict[str, Any]
    archive: Path
    lower: Path
    merged: Path


def mounted(
    place: Path, prepare: Callable[[Path], object], change: Callable[[Path], object], **options: Any
) -> Mounted:
    """Mount an overlay as sandboxes have it, change it, export it and copy it, all in a child."""
    lower, upper, work, merged, copy = (place / x for x in ("lower", "upper", "work", "merged", "copy"))
    for path in (lower, upper, work, merged):
        path.mkdir()
    prepare(lower)
    archive = place / "changes.tar"

    def child() -> dict[str, Any]:
        own_mounts()
        syscalls.mount(
            "overlay",
            str(merged),
            "overlay",
            0,
            f"lowerdir={lower},upperdir={upper},workdir={work},userxattr",
        )
        change(merged)
        fd = os.open(upper, OPEN_DIRECTORY)
        out = os.open(archive, os.O_WRONLY | os.O_CREAT, 0o600)
        result = told(lambda: write_changes(fd, out, **options))
        subprocess.run(["cp", "-a", f"{merged}/.", copy], check=True)
        return result

    result = answered(child)
    assert result.get("error") is None
    return Mounted(result, archive, lower, copy)


def small_system(lower: Path) -> None:
    for name in (
        "etc/keep",
        "etc/change",
        "etc/gone",
        "old/a",
        "old/sub/b",
        "replaced/x",
        "gone/deep/y",
        "usr/z",
    ):
        path = lower / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"lower {name}")
    (lower / "link").symlink_to("etc/keep")
    (lower / "becomes-dir").write_text("file")
    (lower / "becomes-file/inside").mkdir(parents=True)


def work_of_an_agent(root: Path) -> None:
    (root / "etc/change").write_text("changed")
    (root / "etc/change").chmod(0o4750)
    os.chown(root / "etc/change", 1000, 1001)
    (root / "etc/gone").unlink()
    shutil.rmtree(root / "old")
    (root / "old").mkdir()
    (root / "old/new").write_text("new")
    shutil.rmtree(root / "gone")
    shutil.rmtree(root / "replaced")
    (root / "replaced").symlink_to("/etc/shadow")
    (root / "becomes-dir").unlink()
    (root / "becomes-dir/sub").mkdir(parents=True)
    shutil.rmtree(root / "becomes-file")
    (root / "becomes-file").write_text("now")
    (root / "link").unlink()
    (root / "link").symlink_to("somewhere/else" * 20)
    (root / "usr").chmod(0o711)
    work = root / "workspace"
    work.mkdir()
    (work / "a").write_bytes(os.urandom(3_000_000))
    os.link(work / "a", work / "b")
    os.link(work / "link", work / "link2", follow_symlinks=False) if (work / "link").is_symlink() else None
    (work / os.fsdecode(b"odd \xff\n\x1b[31m")).write_text("odd")
    (work / ("long" * 60)).mkdir()
    (work / ("long" * 60) / ("longer" * 40)).write_text("x")
    (work / "ünïcödé").write_text("ü")
    (work / "empty").touch()
    (work / "closed").mkdir(mode=0)
    os.utime(work / "empty", (-5, -5))
    os.utime(work / "a", (2**33, 2**33))


@needs_root
def test_an_overlay_is_the_lower_tree_with_the_exported_changes(tmp_path: Path) -> None:
    done = mounted(tmp_path, small_system, work_of_an_agent)
    assert done.changes["skipped"] == []
    assert not done.changes["truncated"]
    packed = subprocess.run(["tar", "-C", str(done.lower), "-c", "."], capture_output=True, check=True).stdout
    image = saved(tmp_path, tar(*docker_image(packed, done.archive.read_bytes())))
    again = tmp_path / "again"
    again.mkdir()
    fd = os.open(image, os.O_RDONLY)
    assert rooted(again, lambda: extract(fd, all_ids=True)).get("error") is None
    os.close(fd)
    assert picture(again) == picture(done.merged)
    assert (again / "workspace/a").samefile(again / "workspace/b")
    with done.archive.open("rb") as f:
        members, _ = read(f)
    assert ".wh.gone" in members
    assert "old/.wh..wh..opq" in members
    assert "etc/.wh.gone" in members
    assert "etc/keep" not in members
    listed = subprocess.run(["tar", "-tf", str(done.archive)], capture_output=True, check=True).stdout
    assert listed.count(b"\n") == len(members)


@needs_root
@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        ("workspace", {"workspace", "workspace/new"}),
        ("/workspace//", {"workspace", "workspace/new"}),
        ("a/b/c", {"a/b/c", "a/b/c/deep"}),
        ("untouched", set()),
        ("never/there", set()),
        ("deleted/sub", {".wh.deleted"}),
        ("replaced/sub", {"replaced"}),
        ("again/kept", {"again/kept", "again/kept/.wh..wh..opq"}),
        ("again/lost/deep", {"again/lost/.wh.deep"}),
    ],
)
def test_a_prefix_limits_the_export_and_deletions_above_it_count(
    tmp_path: Path, prefix: str, names: set[str]
) -> None:
    def prepare(lower: Path) -> None:
        for name in ("untouched", "deleted/sub", "replaced/sub", "again/kept", "again/lost/deep"):
            (lower / name).mkdir(parents=True)

    def change(root: Path) -> None:
        (root / "workspace").mkdir()
        (root / "workspace/new").touch()
        (root / "a/b/c").mkdir(parents=True)
        (root / "a/b/c/deep").touch()
        (root / "a/beside").touch()
        for name in ("deleted", "replaced", "again"):
            shutil.rmtree(root / name)
        (root / "replaced").symlink_to("/etc")
        (root / "again/kept").mkdir(parents=True)

    done = mounted(tmp_path, prepare, change, prefix=prefix)
    with done.archive.open("rb") as f:
        assert set(read(f)[0]) == names


def test_a_prefix_that_leads_upwards_is_refused(upper: Path) -> None:
    with pytest.raises(ValueError, match="upwards"):
        export(upper, prefix="a/../..")


# --- kinds of files


def test_what_can_not_be_stored_is_skipped_and_noted(upper: Path) -> None:
    os.mkfifo(upper / "fifo")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(upper / "socket"))
    (upper / ".wh.evil").write_text("would delete something")
    (upper / ".wh..wh..opq").mkdir()
    (upper / "fine").write_text("fine")
    changes, members, _ = export(upper)
    assert list(members) == ["fine"]
    assert sorted(changes.skipped) == [
        ".wh..wh..opq: its name would say that something was deleted",
        ".wh.evil: its name would say that something was deleted",
        "fifo: a fifo",
        "socket: a socket",
    ]
    assert (changes.files, changes.bytes) == (1, 4)


@needs_root
def test_devices_are_skipped_but_for_whiteouts(upper: Path) -> None:
    os.mknod(upper / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(upper / "gone", stat.S_IFCHR, os.makedev(0, 0))
    changes, members, _ = export(upper)
    assert list(members) == [".wh.gone"]
    assert changes.skipped == ["null: a device"]


def test_the_attribute_form_of_a_whiteout_is_one_too(upper: Path) -> None:
    (upper / "gone").touch()
    (upper / "empty").touch()
    os.setxattr(upper / "gone", "user.overlay.whiteout", b"")
    assert set(export(upper)[1]) == {".wh.gone", "empty"}


def test_odd_names_in_notes_can_not_reach_a_terminal(upper: Path) -> None:
    os.mkfifo(upper / "\x1b]0;title\x07\n\udcff")
    assert export(upper)[0].skipped == ["\\x1b]0;title\\x07\\n\\xff: a fifo"]


def test_many_notes_are_counted_not_kept(upper: Path) -> None:
    for number in range(1500):
        os.mkfifo(upper / str(number))
    skipped = export(upper)[0].skipped
    assert len(skipped) == 1000
    assert skipped[-1] == "… and 501 more"


def test_owners_are_mapped(upper: Path) -> None:
    (upper / "a").touch()
    (upper / "d").mkdir()
    _, members, _ = export(upper, owner=lambda uid, gid: (uid + 5, 2**31))
    assert {(info.uid, info.gid) for info in members.values()} == {(os.geteuid() + 5, 2**31)}


def test_a_deep_tree_is_exported_with_few_descriptors(room: Path) -> None:
    upper = room
    unpack_here(upper, tar(member("/".join(["d"] * 2200) + "/f", "deep"), member("d/d/beside", "x")))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_descriptors() + 50, limits[1]))
    try:
        changes, members, _ = export(upper)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert changes.files == 2
    assert len(members) == 2202


def test_a_path_beyond_all_reason_is_left_out(room: Path) -> None:
    upper = room
    fd = os.open(upper, OPEN_DIRECTORY)
    for _ in range(140):
        os.mkdir("n" * 250, dir_fd=fd)
        below = os.open("n" * 250, OPEN_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    changes, members, _ = export(upper)
    assert len(members) == 130
    assert len(changes.skipped) == 1
    assert changes.skipped[0].endswith("its path is too long")


@needs_root
def test_what_may_not_be_read_is_noted() -> None:
    with tempfile.TemporaryDirectory() as directory:
        upper = Path(directory, "upper")
        (upper / "closed").mkdir(parents=True)
        (upper / "secret").touch(mode=0o600)
        (upper / "open").touch()
        (upper / "closed").chmod(0o700)
        Path(directory).chmod(0o755)
        fd = os.open(upper, OPEN_DIRECTORY)

        def work() -> Any:
            null = os.open(os.devnull, os.O_WRONLY)
            return told(lambda: write_changes(fd, null))

        result = as_somebody(work)
        os.close(fd)
    assert result["files"] == 1
    assert sorted(result["skipped"]) == ["closed: Permission denied", "secret: Permission denied"]


NUMBERS = st.one_of(
    st.integers(0, 70_000),
    st.sampled_from([-1, 8**7 - 1, 8**7, 8**11 - 1, 8**11, 2**40]),
    st.integers(-5, 2**63),
)


@settings(deadline=None)
@given(
    st.one_of(st.text("ab/.é\n\udcff", min_size=1), st.integers(90, 110).map("n".__mul__)),
    st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE]),
    st.one_of(st.just(""), st.integers(98, 102).map("l".__mul__)),
    st.lists(NUMBERS, min_size=4, max_size=4),
    st.integers(0, 0o7777),
)
def test_the_fast_way_to_write_a_header_says_the_same_as_the_slow_one(
    name: str, kind: bytes, link: str, numbers: list[int], mode: int
) -> None:
    info = tarfile.TarInfo(name.rstrip("/") or "x")
    info.type, info.linkname, info.mode = kind, link, mode
    info.uid, info.gid, info.size, info.mtime = numbers
    fast = plain_header(info)
    slow = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    assert (fast is None) == (len(slow) > 512)
    if fast is not None:
        assert len(fast) == 512
        for header in (fast, slow):
            read_back = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
            read_back.chksum = 0
            assert read_back.get_info() == info.get_info()


# --- limits


def test_the_stream_never_exceeds_its_limit_and_small_files_still_fit(upper: Path) -> None:
    (upper / "large").write_bytes(bytes(100_000))
    for number in range(20):
        (upper / f"small{number}").write_bytes(bytes(100))
    for limit in (0, 512, 1024, 1536, 2048, 10_000, 22_000, 60_000, 110_000, 1 << 20):
        with tempfile.TemporaryFile() as f:
            fd = os.open(upper, OPEN_DIRECTORY)
            changes = write_changes(fd, f.fileno(), max_bytes=limit)
            os.close(fd)
            size = f.tell()
            f.seek(0)
            members, _ = read(f)
        assert size <= max(limit, 1024)
        assert changes.truncated == (limit < 1 << 20)
        assert len(members) == changes.files
        if limit == 60_000:
            assert "large" not in members
            assert changes.files == 20


def test_things_that_do_not_fit_can_not_keep_the_export_busy_for_ever(upper: Path) -> None:
    for number in range(100):
        (upper / f"{number:03}").mkdir()
        (upper / f"{number:03}/large").write_bytes(bytes(50_000))
    changes, members, _ = export(upper, max_bytes=20_000)
    assert changes.truncated
    assert len(members) < 40


def test_sparse_files_cost_no_more_than_a_bounded_amount_of_zeros(upper: Path) -> None:
    with (upper / "honest").open("wb") as f:
        f.truncate(3 << 20)
    with (upper / "monster").open("wb") as f:
        f.truncate(1 << 40)
    changes, members, contents = export(upper)
    assert list(members) == ["honest"]
    assert contents["honest"] == bytes(3 << 20)
    assert changes.skipped == [f"monster: a sparse file that claims {1 << 40} bytes"]


def test_a_file_beyond_what_old_tar_can_say_has_its_size_in_the_header(upper: Path) -> None:
    with (upper / "large").open("wb") as f:
        f.truncate((8 << 30) + 1)
    ours, theirs = os.pipe()
    fd = os.open(upper, OPEN_DIRECTORY)
    running = Export(fd, theirs)
    running.start()
    with os.fdopen(ours, "rb") as pipe:
        info = tarfile.open(fileobj=pipe, mode="r|").next()  # noqa: SIM115
    with pytest.raises(BrokenPipeError):
        running.finish()
    os.close(fd)
    assert info is not None
    assert info.size == (8 << 30) + 1


class Export(threading.Thread):
    """An export that runs while the test does its worst."""

    def __init__(self, fd: int, out: int, **options: Any) -> None:
        super().__init__(daemon=True)
        self._call = fd, out
        self._options = options
        self._error: BaseException | None = None
        self.changes = Changes()

    def run(self) -> None:
        try:
            self.changes = write_changes(*self._call, **self._options)
        except BaseException as ex:
            self._error = ex
        finally:
            os.close(self._call[1])

    def __enter__(self) -> Export:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        self.join(120)
        assert not self.is_alive()
        error, self._error = self._error, None
        if error is not None:
            raise error


# --- a sandbox that runs on


def while_half_read(upper: Path, disturb: Callable[[], object]) -> tuple[Changes, bytes]:
    """Export with `disturb` after the first file's header was read, and most of its content was not."""
    ours, theirs = os.pipe()
    fd = os.open(upper, OPEN_DIRECTORY)
    with Export(fd, theirs) as running, os.fdopen(ours, "rb") as pipe:
        head = pipe.read(512)
        disturb()
        data = head + pipe.read()
        running.finish()
    os.close(fd)
    return running.changes, data


def test_a_file_that_shrinks_is_padded_and_one_that_grows_is_cut(upper: Path) -> None:
    size = 8 << 20
    for disturb, words in (
        (lambda: os.truncate(upper / "file", 100), "it shrank while it was read"),
        (lambda: os.truncate(upper / "file", 2 * size), "it grew while it was read"),
    ):
        (upper / "file").write_bytes(b"x" * size)
        changes, data = while_half_read(upper, disturb)
        path = saved(upper.parent, data)
        with path.open("rb") as f:
            members, contents = read(f)
        assert members["file"].size == size
        assert contents["file"].strip(b"\0").strip(b"x") == b""
        assert len(changes.skipped) == 1
        assert words in changes.skipped[0]


def churn(stop: threading.Event, step: Callable[[], None]) -> threading.Thread:
    def work() -> None:
        while not stop.is_set():
            step()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@needs_root
def test_a_file_swapped_for_a_symlink_never_gives_away_what_it_points_to(upper: Path) -> None:
    secret = SHADOW.read_bytes()
    assert secret
    (upper / "d").mkdir()
    (upper / "real").write_text("harmless")
    (upper / "evil").symlink_to(SHADOW)
    (upper / "real-d").mkdir()
    (upper / "real-d/shadow").write_text("harmless")
    (upper / "evil-d").symlink_to("/etc")
    os.mkfifo(upper / "fifo")

    def swap() -> None:
        for name, other in (("real", "evil"), ("real", "fifo"), ("real-d", "evil-d")):
            os.rename(upper / name, upper / "swap")  # noqa: PTH104
            os.rename(upper / other, upper / name)  # noqa: PTH104
            os.rename(upper / "swap", upper / other)  # noqa: PTH104

    stop = threading.Event()
    thread = churn(stop, swap)
    wanted = {
        f"{name} {kind!r}"
        for name, kinds in (
            ("real", (tarfile.REGTYPE, tarfile.SYMTYPE)),
            ("real-d", (tarfile.DIRTYPE, tarfile.SYMTYPE)),
        )
        for kind in kinds
    }
    seen: set[str] = set()
    notes: set[str] = set()
    changed = "it changed into something else meanwhile"
    deadline = time.monotonic() + 120
    rounds = 0
    try:
        while rounds < 300 or not (wanted <= seen and changed in notes):
            assert time.monotonic() < deadline, "the swaps were not seen, so nothing was tested"
            rounds += 1
            changes, members, contents = export_quietly(upper)
            assert all(content == b"harmless" for content in contents.values())
            seen.update(f"{name} {info.type!r}" for name, info in members.items())
            notes.update(note.partition(": ")[2] for note in changes.skipped)
    finally:
        stop.set()
        thread.join()


def export_quietly(upper: Path) -> tuple[Changes, dict[str, tarfile.TarInfo], dict[str, bytes]]:
    """As `export`, without counting descriptors: other threads use some."""
    with tempfile.TemporaryFile() as f:
        fd = os.open(upper, OPEN_DIRECTORY)
        try:
            changes = write_changes(fd, f.fileno())
        finally:
            os.close(fd)
        f.seek(0)
        return changes, *read(f)


def test_trees_that_are_moved_while_they_are_walked_do_not_confuse_the_walk(upper: Path) -> None:
    for top in ("a", "b"):
        unpack_here(upper, tar(*(member(f"{top}/{'x/' * level}f", top) for level in range(0, 120, 3))))

    def swap() -> None:
        middle = "/".join(["x"] * 40)
        os.rename(upper / "a" / middle, upper / "moved")  # noqa: PTH104
        os.rename(upper / "b" / middle, upper / "a" / middle)  # noqa: PTH104
        os.rename(upper / "moved", upper / "b" / middle)  # noqa: PTH104

    stop = threading.Event()
    thread = churn(stop, swap)
    before = open_descriptors()
    try:
        for _ in range(12):
            _, members, contents = export_quietly(upper)
            assert set(contents.values()) <= {b"a", b"b"}
            assert all(name.partition("/")[0] in ("a", "b", "moved") for name in members)
    finally:
        stop.set()
        thread.join()
    assert open_descriptors() == before


def test_the_space_that_is_used_can_be_asked_for_while_trees_are_moved(upper: Path) -> None:
    for top in ("a", "b"):
        (upper / top / "/".join(["x"] * 100)).mkdir(parents=True)
        (upper / top / "file").write_bytes(bytes(1 << 20))
    middle = "/".join(["x"] * 40)

    def swap() -> None:
        os.rename(upper / "a" / middle, upper / "b/moved")  # noqa: PTH104
        os.rename(upper / "b/moved", upper / "a" / middle)  # noqa: PTH104

    stop = threading.Event()
    thread = churn(stop, swap)
    before = open_descriptors()
    fd = os.open(upper, OPEN_DIRECTORY)
    try:
        for _ in range(100):
            assert usage(fd) >= 2 << 20
    finally:
        stop.set()
        thread.join()
        os.close(fd)
    assert open_descriptors() == before


def test_the_way_back_out_of_a_moved_directory_is_the_nearest_one_still_held(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * 60)
    deep.mkdir(parents=True)
    fd = os.open(tmp_path, OPEN_DIRECTORY)
    with Descent(fd) as way:
        for _ in range(60):
            way.down("d")
        tmp_path.joinpath(*["d"] * 30).rename(tmp_path / "elsewhere")
        went = []
        while way.depth:
            went.append(way.up())
        assert sum(went) == 60
        assert max(went) > 1
        assert names_in(way.fd) == ["d", "elsewhere"]
    os.close(fd)


def test_an_export_goes_through_a_pipe_that_does_not_block(upper: Path) -> None:
    (upper / "file").write_bytes(os.urandom(1 << 20))
    ours, theirs = os.pipe2(os.O_NONBLOCK)
    os.set_blocking(ours, True)
    fd = os.open(upper, OPEN_DIRECTORY)
    with Export(fd, theirs), os.fdopen(ours, "rb") as pipe:
        data = pipe.read()
    os.close(fd)
    with saved(upper.parent, data).open("rb") as f:
        assert read(f)[1]["file"] == (upper / "file").read_bytes()
