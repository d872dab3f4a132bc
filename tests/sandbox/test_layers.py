"""Layers are built once, however many ask, and noticed when they are damaged."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hawk.errors import NotFoundError, StorageError, UsageError
from hawk.sandbox import syscalls
from hawk.sandbox.layerlocks import take
from hawk.sandbox.layers import Layer, LayerStore
from hawk.sandbox.layerseal import differences
from tests.sandbox.forked import answered, ended, forked
from tests.sandbox.layering import KEY, Builder, again, build, left, store, until
from tests.sandbox.rooms import (
    SOMEBODY,
    as_somebody,
    needs_root,
    own_mounts,
)

__all__ = ["store"]


# --- building


def test_a_layer_says_what_is_in_it(store: LayerStore) -> None:
    layer = build(store)
    assert layer.root == store.directory / "layers" / KEY / "root"
    assert layer.usr is None
    assert (layer.root / "etc/motd").read_text() == "welcome"
    assert (layer.key, layer.description, layer.files, layer.bytes) == (KEY, "a small one", 1, 7)
    assert abs(layer.created - time.time()) < 60
    assert len(layer.digest) == 64
    assert store.find(KEY) == again(store).find(KEY) == layer
    assert left(store, "building") == []
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700


async def test_five_hundred_askers_share_one_build(store: LayerStore) -> None:
    builder = Builder(0.05)
    found = await asyncio.gather(*(store.get_or_build(KEY, "x", builder) for _ in range(500)))
    assert builder.builds == 1
    assert len({id(layer) for layer in found}) == 1
    assert await store.get_or_build(KEY, "x", builder) is found[0]
    assert builder.builds == 1


def test_several_processes_with_many_askers_share_one_build(store: LayerStore, tmp_path: Path) -> None:
    log = tmp_path / "builds"

    async def ask() -> None:
        async def work(directory: Path) -> None:
            with log.open("a") as f:
                f.write(f"{os.getpid()}\n")
            await Builder(0.2)(directory)

        found = await asyncio.gather(*(store.get_or_build(KEY, "x", work) for _ in range(50)))
        assert {layer.root.joinpath("etc/motd").read_text() for layer in found} == {"welcome"}

    children = [forked(lambda: asyncio.run(ask())) for _ in range(6)]
    assert [ended(pid) for pid in children] == [0] * 6
    assert len(log.read_text().split()) == 1


async def test_different_layers_are_built_at_the_same_time(store: LayerStore) -> None:
    one, two = Builder(60), Builder()
    task = asyncio.create_task(store.get_or_build("one", "x", one))
    await one.began.wait()
    assert (await store.get_or_build("two", "x", two)).key == "two"
    task.cancel()


async def test_a_failed_build_leaves_nothing_and_all_who_wait_get_its_error(store: LayerStore) -> None:
    builder = Builder(0.02, ValueError("no network"))
    found = await asyncio.gather(
        *(store.get_or_build(KEY, "x", builder) for _ in range(20)), return_exceptions=True
    )
    assert {str(ex) for ex in found} == {"no network"}
    assert builder.builds == 1
    assert left(store, "building") == left(store, "layers") == []
    builder.error = None
    assert (await store.get_or_build(KEY, "x", builder)).files == 1
    assert builder.builds == 2


async def test_a_cancelled_asker_does_not_end_the_build_of_the_others(store: LayerStore) -> None:
    builder = Builder(0.1)
    first = asyncio.create_task(store.get_or_build(KEY, "x", builder))
    second = asyncio.create_task(store.get_or_build(KEY, "x", builder))
    await builder.began.wait()
    first.cancel()
    assert (await second).files == 1
    assert first.cancelled()
    assert builder.builds == 1


async def test_a_build_that_nobody_waits_for_any_more_is_there_for_the_next(store: LayerStore) -> None:
    builder = Builder(0.1)
    asker = asyncio.create_task(store.get_or_build(KEY, "x", builder))
    await builder.began.wait()
    asker.cancel()
    assert (await store.get_or_build(KEY, "x", builder)).files == 1
    assert builder.builds == 1


def test_a_build_ends_with_the_event_loop_and_leaves_nothing(store: LayerStore) -> None:
    builder = Builder(600)

    async def ask() -> None:
        task = asyncio.create_task(store.get_or_build(KEY, "x", builder))
        await builder.began.wait()
        task.cancel()

    asyncio.run(ask())
    assert left(store, "building") == left(store, "layers") == []
    assert build(store).files == 1


def test_a_failure_that_nobody_waits_for_makes_no_noise(
    store: LayerStore, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask() -> None:
        builder = Builder(0.05, ValueError("late"))
        task = asyncio.create_task(store.get_or_build(KEY, "x", builder))
        await builder.began.wait()
        task.cancel()
        await asyncio.wait([task for task in asyncio.all_tasks() if task.get_name() == f"layer {KEY}"])

    asyncio.run(ask())
    assert caplog.records == []


async def test_the_event_loop_runs_on_while_another_process_builds(store: LayerStore) -> None:
    await store.get_or_build("other", "x", Builder())
    lock = take(store.directory / "locks" / f"{KEY}.build", fcntl.LOCK_EX)
    assert lock is not None
    asker = asyncio.create_task(store.get_or_build(KEY, "x", Builder()))
    for _ in range(20):
        await asyncio.sleep(0.005)
    assert not asker.done()
    os.close(lock)
    assert (await asker).key == KEY


def test_who_waits_for_another_process_says_for_which(
    store: LayerStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hawk.sandbox")
    pid = forked(lambda: build(store, builder=Builder(600)))
    until(lambda: any(store.directory.glob("building/*/root/etc/motd")))

    async def ask() -> Layer:
        asker = asyncio.create_task(store.get_or_build(KEY, "x", Builder()))
        while "waiting for process" not in caplog.text:
            await asyncio.sleep(0.005)
        os.kill(pid, signal.SIGKILL)
        return await asker

    assert asyncio.run(ask()).key == KEY
    assert ended(pid) == -signal.SIGKILL
    assert f"waiting for process {pid} (layer {KEY}: a small one)" in caplog.text


def test_a_killed_builder_is_followed_by_another_and_its_leftovers_go(store: LayerStore) -> None:
    pid = forked(lambda: build(store, builder=Builder(600)))
    until(
        lambda: (
            (store.directory / "building").is_dir() and any(store.directory.glob("building/*/root/etc/motd"))
        )
    )
    waiter = forked(lambda: build(store))
    os.kill(pid, signal.SIGKILL)
    assert ended(pid) == -signal.SIGKILL
    assert ended(waiter) == 0
    assert left(store, "building") == []
    assert store.find(KEY) is not None


async def test_a_build_without_a_root_is_an_error(store: LayerStore) -> None:
    async def nothing(directory: Path) -> None:
        (directory / "root").symlink_to("/")

    with pytest.raises(StorageError, match="left no root directory"):
        await store.get_or_build(KEY, "an empty one", nothing)
    assert left(store, "building") == []


async def test_what_is_no_part_of_a_layer_is_not_kept(store: LayerStore) -> None:
    async def work(directory: Path) -> None:
        await Builder()(directory)
        (directory / "usr/bin").mkdir(parents=True)
        (directory / ".work/work").mkdir(parents=True)
        (directory / ".work/work").chmod(0)
        (directory / "download").write_text("x")

    layer = await store.get_or_build(KEY, "x", work)
    assert layer.usr == layer.path / "usr"
    assert sorted(path.name for path in layer.path.iterdir()) == ["layer.json", "root", "usr"]


def test_a_description_may_name_a_file_with_an_odd_name(store: LayerStore) -> None:
    asyncio.run(store.get_or_build(KEY, "copy of /tmp/\udcff", Builder()))
    assert store.list()[0].description == "copy of /tmp/\\udcff"


@pytest.mark.parametrize("key", ["", ".", "..", "../x", "a/b", ".hidden", "a\n", "x" * 200])
def test_a_key_that_could_lead_elsewhere_is_refused(store: LayerStore, key: str) -> None:
    for use in (
        store.find,
        store.hold,
        store.remove,
        lambda key: store.verify(key, deep=False),
        lambda key: build(store, key),
    ):
        with pytest.raises(UsageError):
            use(key)
    assert not store.directory.exists()


def write_for_ever(path: Path) -> None:
    with path.open("wb", buffering=0) as f:
        while True:
            f.write(bytes(4096))


@needs_root
def test_a_full_disk_is_an_error_that_says_where_and_what_to_do(tmp_path: Path) -> None:
    async def too_much(directory: Path) -> None:
        (directory / "root").mkdir()
        write_for_ever(directory / "root/large")

    async def too_many(directory: Path) -> None:
        for number in range(10_000):
            (directory / "root" / str(number)).mkdir(parents=True)

    async def to_the_brim(directory: Path) -> None:
        (directory / "root").mkdir()
        (directory / "root/file").touch()
        with pytest.raises(OSError, match="No space left"):
            write_for_ever(directory.parent.parent.parent / "filler")

    def work() -> list[Any]:
        own_mounts()
        results: list[Any] = []
        for builder in (too_much, too_many, to_the_brim):
            syscalls.mount("small", str(tmp_path), "tmpfs", 0, "size=1m,nr_inodes=200")
            store = LayerStore(tmp_path / "sandbox")
            try:
                build(store, builder=builder)
            except StorageError as ex:
                results.append([ex.message, ex.remedy, left(store, "building"), left(store, "layers")])
            (tmp_path / "filler").unlink(missing_ok=True)
            results.append(build(store).files)
        return results

    place = tmp_path / "sandbox"
    refused = [
        f"No room is left in {place} for a small one.",
        "Free space there, remove unused layers, or set HAWK_HOME to a directory on a larger disk.",
        [],
        [],
    ]
    assert answered(work) == [refused, 1] * 3


@needs_root
def test_a_store_that_may_not_be_written_is_an_error_that_says_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    def work() -> str:
        os.environ["HOME"] = "/"
        with pytest.raises(StorageError) as caught:
            build(LayerStore(tmp_path / "sandbox"))
        return caught.value.render()

    text = as_somebody(work)
    assert f"{tmp_path}/sandbox can't be used for a small one: Permission denied" in text
    assert "HAWK_HOME" in text


def owner(path: Path) -> int:
    return path.stat().st_uid


@needs_root
def test_directories_belong_to_whom_the_store_was_given(store: LayerStore) -> None:
    store.directory.mkdir()
    os.chown(store.directory, SOMEBODY, SOMEBODY)
    builder = Builder()
    owners: list[int] = []

    async def work(directory: Path) -> None:
        owners.extend(map(owner, (directory, directory.parent)))
        await builder(directory)

    layer = build(store, builder=work)
    assert owners == [SOMEBODY, SOMEBODY]
    assert owner(layer.path.parent) == SOMEBODY


# --- damage


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda layer: (layer.root / "etc/motd").unlink(), "0 files instead of 1"),
        (lambda layer: (layer.root / "etc/motd").write_text("longer than it was"), "18 bytes instead of 7"),
        (lambda layer: (layer.root / "etc").chmod(0o711), "modes"),
        (lambda layer: os.utime(layer.root / "etc/motd", (1, 1)), "times"),
        (lambda layer: (layer.root / "etc/motd").rename(layer.root / "etc/mots"), "names"),
        (lambda layer: (layer.path / "layer.json").unlink(), "layer.json can't be read"),
        (lambda layer: (layer.path / "layer.json").write_text('{"format": 1'), "layer.json can't be read"),
        (lambda layer: os.truncate(layer.path / "layer.json", 0), "layer.json can't be read"),
    ],
    ids=["missing", "size", "mode", "time", "name", "no seal", "half a seal", "empty seal"],
)
def test_a_damaged_layer_is_set_aside_and_built_again(
    store: LayerStore, caplog: pytest.LogCaptureFixture, damage: Callable[[Layer], object], words: str
) -> None:
    damage(build(store))
    assert again(store).find(KEY) is None
    assert words in caplog.text
    caplog.clear()
    fresh = again(store)
    builder = Builder()
    assert build(fresh, builder=builder).files == 1
    assert builder.builds == 1
    assert fresh.find(KEY) is not None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert KEY in caplog.text
    assert words in caplog.text
    assert len(left(store, "damaged")) == 1
    store.prune(10**9)
    assert left(store, "damaged") == []


def test_a_layer_that_became_damaged_is_kept_while_it_is_used(store: LayerStore) -> None:
    layer = build(store)
    with store.hold(KEY):
        (layer.root / "etc/motd").write_text("changed length")
        build(again(store))
        store.prune(0)
        assert len(left(store, "damaged")) == 1
    store.prune(10**9)
    assert left(store, "damaged") == []


def test_a_change_that_keeps_size_and_time_is_found_by_reading_everything(store: LayerStore) -> None:
    layer = build(store)
    motd = layer.root / "etc/motd"
    times = motd.stat().st_mtime_ns
    motd.write_text("WELCOME")
    os.utime(motd, ns=(times, times))
    assert store.verify(KEY, deep=False) == []
    assert store.verify(KEY, deep=True) == ["contents are others, with the same sizes and times"]
    motd.write_text("welcome")
    os.utime(motd, ns=(times, times))
    assert store.verify(KEY, deep=True) == []
    with pytest.raises(NotFoundError):
        store.verify("never-built", deep=False)


def test_a_layer_is_walked_once_per_process(store: LayerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    build(store)
    fresh = again(store)
    walks: list[Path] = []

    def counted(directory: Path, *args: Any, **kwargs: Any) -> list[str]:
        walks.append(directory)
        return differences(directory, *args, **kwargs)

    monkeypatch.setattr("hawk.sandbox.layers.differences", counted)
    for _ in range(3):
        assert fresh.find(KEY) is not None
        assert asyncio.run(fresh.afind(KEY)) is not None
        build(fresh)
    assert len(walks) == 1


def test_a_layer_that_was_removed_and_built_elsewhere_is_looked_at_again(store: LayerStore) -> None:
    first = build(store)
    other = again(store)
    other.remove(KEY)
    assert store.find(KEY) is None
    second = build(other)
    assert store.find(KEY) == second
    assert second.created > first.created
