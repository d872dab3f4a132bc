"""Layers are not removed while they are used, and removed wholly, whatever is in them."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hawk.errors import ConflictError, NotFoundError
from hawk.sandbox.descent import OPEN_DIRECTORY, remove_tree
from hawk.sandbox.layerdirs import LayerDirs
from hawk.sandbox.layers import LayerStore
from tests.sandbox.archives import member, tar
from tests.sandbox.forked import answered, ended, forked
from tests.sandbox.layering import KEY, Builder, again, build, left, store, until
from tests.sandbox.rooms import (
    as_somebody,
    needs_root,
    open_descriptors,
    picture,
    room,
)
from tests.sandbox.unpacked import unpack_here

__all__ = ["room", "store"]


# --- hostile trees


def fill_with_horrors(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    (root / "closed/inside/more").mkdir(parents=True)
    (root / "closed/inside/more/file").write_text("x")
    (root / "secret").write_text("secret")
    (root / "secret").chmod(0)
    os.link(root / "secret", root / "secret2")
    (root / "to-etc").symlink_to("/etc")
    (root / "to-itself").symlink_to("to-itself")
    (root / os.fsdecode(b"odd \xff\n\x1b[31m")).write_text("odd")
    (root / ("n" * 255)).mkdir()
    os.mkfifo(root / "fifo")
    unpack_here(root, tar(member("/".join(["d"] * 600) + "/f", "deep")))
    many = root / "many"
    many.mkdir()
    for number in range(3000):
        (many / str(number)).touch()
    if os.geteuid() == 0:
        os.mknod(root / "whiteout", stat.S_IFCHR, os.makedev(0, 0))
    for path in ("closed/inside/more", "closed/inside", "closed"):
        (root / path).chmod(0)


@needs_root
def test_hostile_trees_are_sealed_verified_and_removed_by_root_and_by_others(room: Path) -> None:
    victim = room / "victim"
    victim.mkdir()
    (victim / "keep").write_text("keep")
    before = picture(victim)
    room.chmod(0o777)

    async def work(directory: Path) -> None:
        fill_with_horrors(directory / "root")
        (directory / "root/to-victim").symlink_to(victim)
        (directory / "root/closed/inside").chmod(0o700) if os.geteuid() == 0 else None

    def whole_life(name: str) -> list[Any]:
        store = LayerStore(room / name)
        descriptors = open_descriptors()
        layer = build(store, builder=work)
        assert again(store).find(KEY) == layer
        problems = store.verify(KEY, deep=True)
        removed = [info.key for info in store.prune(0)]
        names = [left(store, part) for part in ("layers", "building", "damaged", "locks")]
        assert open_descriptors() == descriptors
        return [problems, removed, names, layer.files > 3000]

    expected = [[], [KEY], [[], [], [], []], True]
    assert answered(lambda: whole_life("of-root")) == expected
    assert as_somebody(lambda: whole_life("of-somebody")) == expected
    assert picture(victim) == before


@needs_root
def test_root_and_an_ordinary_user_come_to_the_same_digest(room: Path) -> None:
    room.chmod(0o777)

    async def work(directory: Path) -> None:
        root = directory / "root"
        (root / "closed").mkdir(parents=True)
        (root / "closed/file").write_text("x")
        (root / "secret").write_text("secret")
        (root / "secret").chmod(0)
        (root / "closed").chmod(0)
        for path in (root / "closed", root / "secret", root):
            os.utime(path, (1, 1_600_000_000))

    def digest() -> str:
        return build(LayerStore(room / f"of-{os.geteuid()}"), builder=work).digest

    assert answered(digest) == as_somebody(digest)


def test_a_symlink_in_the_place_of_a_tree_is_removed_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "keep").touch()
    (tmp_path / "tree").symlink_to(victim)
    fd = os.open(tmp_path, OPEN_DIRECTORY)
    remove_tree("tree", dir_fd=fd)
    remove_tree("never-there", dir_fd=fd)
    os.close(fd)
    assert not (tmp_path / "tree").is_symlink()
    assert (victim / "keep").exists()


def test_an_opaque_directory_is_part_of_what_is_verified(store: LayerStore) -> None:
    async def work(directory: Path) -> None:
        await Builder()(directory)
        os.setxattr(directory / "root/etc", "user.overlay.opaque", b"y")

    layer = build(store, builder=work)
    assert store.verify(KEY, deep=False) == []
    os.removexattr(layer.root / "etc", "user.overlay.opaque")
    assert store.verify(KEY, deep=False) != []


# --- use and removal


def age(store: LayerStore, key: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(store.directory / "locks" / f"{key}.use", (then, then))


def test_prune_removes_what_was_not_used_for_long_and_nothing_else(store: LayerStore) -> None:
    for key, seconds in (("old", 1000), ("older", 2000), ("new", 10), ("held", 3000)):
        build(store, key)
        age(store, key, seconds)
    with again(store).hold("held"):
        age(store, "held", 3000)
        listed = {info.key: info for info in store.list()}
        assert list(listed) == ["held", "older", "old", "new"]
        assert {key for key, info in listed.items() if info.in_use} == {"held"}
        assert 990 < time.time() - listed["old"].last_used < 1100
        would = store.prune(500, dry_run=True)
        assert len(left(store, "layers")) == 4
        assert store.prune(500) == would
        assert [info.key for info in would] == ["older", "old"]
        assert left(store, "layers") == ["held", "new"]
    assert [info.key for info in store.list()] == ["new", "held"]
    assert store.find("old") is None
    assert store.prune(500) == []


def test_asking_for_a_layer_counts_as_use(store: LayerStore) -> None:
    build(store)
    for use in (lambda: build(store), lambda: build(again(store)), lambda: store.hold(KEY).close()):
        age(store, KEY, 1000)
        use()
        assert time.time() - store.list()[0].last_used < 100


def test_a_layer_that_another_process_uses_is_not_removed_until_that_dies(store: LayerStore) -> None:
    build(store)
    ready, tell = os.pipe()

    def user() -> None:
        hold = store.hold(KEY)
        os.write(tell, b"1")
        signal.pause()
        hold.close()

    pid = forked(user)
    os.read(ready, 1)
    assert store.list()[0].in_use
    with pytest.raises(ConflictError, match=f"{KEY} is in use"):
        store.remove(KEY)
    assert store.prune(0) == []
    os.kill(pid, signal.SIGKILL)
    ended(pid)
    store.remove(KEY)
    assert left(store, "layers") == []
    with pytest.raises(NotFoundError):
        store.remove(KEY)
    with pytest.raises(NotFoundError):
        store.hold(KEY)
    os.close(ready)
    os.close(tell)


def test_holds_of_one_process_share_a_descriptor_that_does_not_outlive_exec(store: LayerStore) -> None:
    build(store)
    before = open_descriptors()
    holds = [store.hold(KEY) for _ in range(300)]
    assert open_descriptors() == before + 1
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    try:
        for hold in holds[1:]:
            hold.close()
            hold.close()
        assert store.list()[0].in_use
        holds[0].close()
        assert open_descriptors() <= before + 1  # the pipe to the child
        until(lambda: not store.list()[0].in_use)  # a child lets go a moment after it has begun
    finally:
        child.communicate(b"\n")


def test_a_stale_building_directory_is_pruned_and_one_at_work_is_not(store: LayerStore) -> None:
    pid = forked(lambda: build(store, "busy", Builder(600)))
    until(lambda: any(store.directory.glob("building/busy.*/root/etc/motd")))
    (store.directory / "building/dead.0123/root/deep").mkdir(parents=True)
    (store.directory / "building/nodot").mkdir()
    store.prune(10**9)
    assert [name.partition(".")[0] for name in left(store, "building")] == ["busy"]
    os.kill(pid, signal.SIGKILL)
    ended(pid)
    store.prune(10**9)
    assert left(store, "building") == left(store, "locks") == []


def test_a_layer_without_a_readable_seal_is_listed_and_can_be_pruned(store: LayerStore) -> None:
    layer = build(store)
    (layer.path / "layer.json").write_text("{")
    assert store.list()[0].description.startswith("damaged: ")
    assert store.prune(10**9) == []
    assert [info.key for info in store.prune(-1)] == [KEY]
    assert store.list() == []


def test_an_empty_store_has_nothing(store: LayerStore) -> None:
    assert store.list() == store.prune(0) == []
    assert store.find(KEY) is None
    assert not store.directory.exists()


def test_what_can_not_be_removed_does_not_keep_the_rest(
    store: LayerStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("bad", "good"):
        build(store, key)
    real = LayerDirs.remove_leftovers

    def failing(self: Any, part: str, key: str) -> None:
        if key == "bad":
            raise OSError(errno.EIO, "the disk is broken")
        real(self, part, key)

    monkeypatch.setattr(LayerDirs, "remove_leftovers", failing)
    assert [info.key for info in store.prune(-1)] == ["good"]
    assert "the disk is broken" in caplog.text


async def test_acquiring_and_pruning_at_the_same_time_never_loses_a_layer_in_use(store: LayerStore) -> None:
    stop = threading.Event()
    pruned: list[str] = []

    def prune() -> None:
        other = again(store)
        while not stop.is_set():
            pruned.extend(info.key for info in other.prune(-1))

    thread = threading.Thread(target=prune)
    thread.start()
    builder = Builder()
    deadline = time.monotonic() + 100
    try:
        count = 0
        while (len(pruned) < 10 or count < 50) and time.monotonic() < deadline:
            with await store.acquire(KEY, "x", builder) as hold:
                await asyncio.sleep(0.002)
                assert (hold.layer.root / "etc/motd").read_text() == "welcome"
            count += 1
            await asyncio.sleep(0.001)
    finally:
        stop.set()
        thread.join()
    assert len(pruned) >= 10, "nothing was pruned, so nothing was tested"


def test_the_seal_is_plain_data(store: LayerStore) -> None:
    layer = build(store)
    seal = json.loads((layer.path / "layer.json").read_text())
    assert seal["format"] == 1
    assert (seal["key"], seal["files"], seal["digest"]) == (KEY, 1, layer.digest)
    assert seal["stamp"] != seal["digest"]
