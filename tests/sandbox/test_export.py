"""What an attempt left is written into one file, whole or not at all."""

from __future__ import annotations

import asyncio
import io
import tarfile
import threading
from pathlib import Path

import pytest

from hawk.core import zstd
from hawk.errors import StorageError
from hawk.sandbox import export
from hawk.sandbox.box import Box
from hawk.sandbox.config import load
from hawk.sandbox.errors import KeeperGoneError, KeeperRefusedError
from hawk.sandbox.export import export_workspace
from hawk.sandbox.group import open_group
from tests.sandbox.conftest import MakeBox
from tests.system import until

NOISE = "dd if=/dev/urandom of={} bs=1M count={} status=none"


async def make(box: MakeBox, script: str) -> Box:
    made = await box(inspect_tools=False)
    done = await made.run(["sh", "-ec", script])
    assert done.code == 0, done.stderr
    return made


def contents(path: Path) -> dict[str, bytes | str | None]:
    """Names in an exported file: content of files, target of links, None for directories."""
    with tarfile.open(fileobj=io.BytesIO(zstd.unpack(path.read_bytes()))) as tar:
        found: dict[str, bytes | str | None] = {}
        for member in tar:
            file = tar.extractfile(member) if member.isreg() else None
            found[member.name] = file.read() if file else member.linkname if member.issym() else None
        return found


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_what_is_in_the_workspace_is_in_the_file(box: MakeBox, tmp_path: Path) -> None:
    left = await make(
        box, "mkdir -p a/b; echo hello > a/b/c; ln -s a/b/c link; touch empty; echo no > /tmp/else"
    )
    told = await export_workspace(left, tmp_path / "workspace.tar.zst")
    assert contents(tmp_path / "workspace.tar.zst") == {
        "workspace": None,
        "workspace/a": None,
        "workspace/a/b": None,
        "workspace/a/b/c": b"hello\n",
        "workspace/link": "a/b/c",
        "workspace/empty": b"",
    }
    assert (told.files, told.bytes, told.skipped, told.truncated) == (3, 6, (), False)
    assert told.size == (tmp_path / "workspace.tar.zst").stat().st_size
    assert names(tmp_path) == ["workspace.tar.zst"]


async def test_everything_is_what_was_changed_anywhere(box: MakeBox, tmp_path: Path) -> None:
    left = await make(box, "echo here > a; echo there > /var/tmp/b")
    await export_workspace(left, tmp_path / "x", everything=True)
    found = contents(tmp_path / "x")
    assert (found["workspace/a"], found["var/tmp/b"]) == (b"here\n", b"there\n")


async def test_of_a_group_it_is_the_default_sandbox(home: Path, keeper: object, tmp_path: Path) -> None:
    config = load({"inspect_tools": False, "services": {"db": {"inspect_tools": False}}})
    group = await open_group(config, name="g")
    try:
        await group.boxes["default"].write("mine", b"1")
        await group.boxes["db"].write("its", b"2")
        await export_workspace(group, tmp_path / "x")
    finally:
        await group.close()
    assert {name for name in contents(tmp_path / "x") if name != "workspace"} == {"workspace/mine"}


async def test_no_more_is_written_than_allowed(box: MakeBox, tmp_path: Path) -> None:
    left = await make(box, f"{NOISE.format('large', 3)}; echo small > small")
    told = await export_workspace(left, tmp_path / "x", max_bytes=1 << 20)
    assert told.truncated
    assert contents(tmp_path / "x") == {"workspace": None, "workspace/small": b"small\n"}
    assert told.size < 1 << 16


async def test_a_lot_of_noise_arrives_as_it_was(box: MakeBox, tmp_path: Path) -> None:
    left = await make(box, NOISE.format("noise", 20))
    told = await export_workspace(left, tmp_path / "x")
    assert told.bytes == 20 << 20
    assert contents(tmp_path / "x")["workspace/noise"] == await left.read("noise", limit=30 << 20)


async def test_what_can_not_be_kept_is_named_however_long_and_much(box: MakeBox, tmp_path: Path) -> None:
    deep = "for i in $(seq 15); do mkdir $(printf d%0200d $i); cd $(printf d%0200d $i); done"
    left = await make(box, f"{deep}; for i in $(seq 150); do mkfifo $i; done")
    told = await export_workspace(left, tmp_path / "x")
    assert len(told.skipped) == 100
    assert all(note.endswith(": a fifo") for note in told.skipped)


@pytest.fixture
def go_on(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Until it is set, nothing that is exported is packed, so that an export of many bytes does not end."""
    event = threading.Event()

    class Held(export.Packer):
        def feed(self, data: bytes) -> bytes:
            assert event.wait(100)
            return super().feed(data)

    monkeypatch.setattr(export, "Packer", Held)
    return event


async def test_the_loop_turns_meanwhile(box: MakeBox, tmp_path: Path, go_on: threading.Event) -> None:
    left = await make(box, NOISE.format("noise", 20))
    exporting = asyncio.create_task(export_workspace(left, tmp_path / "x"))
    await asyncio.to_thread(until, "it is being written", lambda: any(names(tmp_path)))
    assert not exporting.done()
    go_on.set()
    assert (await exporting).bytes == 20 << 20


async def test_an_old_file_is_replaced(box: MakeBox, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    await export_workspace(await make(box, "echo new > a"), tmp_path / "x")
    assert contents(tmp_path / "x")["workspace/a"] == b"new\n"


async def test_a_directory_that_is_not_there_is_said(box: MakeBox, tmp_path: Path) -> None:
    left = await make(box, NOISE.format("noise", 20))
    with pytest.raises(StorageError, match="No such file or directory"):
        await export_workspace(left, tmp_path / "nowhere" / "x")


async def test_a_sandbox_that_is_gone_leaves_the_old_file(box: MakeBox, tmp_path: Path) -> None:
    left = await make(box, "echo new > a")
    (tmp_path / "x").write_text("old")
    await left.close()
    with pytest.raises(KeeperRefusedError):
        await export_workspace(left, tmp_path / "x")
    assert (names(tmp_path), (tmp_path / "x").read_text()) == (["x"], "old")


async def test_one_that_is_lost_meanwhile_leaves_nothing(
    box: MakeBox, tmp_path: Path, go_on: threading.Event
) -> None:
    left = await make(box, NOISE.format("noise", 20))
    exporting = asyncio.create_task(export_workspace(left, tmp_path / "x"))
    await asyncio.to_thread(until, "it is being written", lambda: any(names(tmp_path)))
    left.keeper.close()
    go_on.set()
    with pytest.raises(KeeperGoneError):
        await exporting
    assert names(tmp_path) == []


async def test_a_cancelled_export_leaves_nothing(
    box: MakeBox, tmp_path: Path, go_on: threading.Event
) -> None:
    left = await make(box, NOISE.format("noise", 20))
    exporting = asyncio.create_task(export_workspace(left, tmp_path / "x"))
    await asyncio.to_thread(until, "it is being written", lambda: any(names(tmp_path)))
    exporting.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await exporting
    assert names(tmp_path) == []
