"""What an agent left in a pod: read out of it, bounded and clean whatever the pod says, and put back into another."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.util import SandboxEnvironment

from hawk.core.zstd import pack, unpack
from hawk.errors import StorageError
from hawk.sandbox.export import Exported
from hawk.sandbox.pod import workspace
from hawk.sandbox.pod.provider import PodSandbox
from hawk.sandbox.pod.workspace import WorkspaceError
from hawk.sandbox.restore import RestoreError
from tests.kube.fake import Fake
from tests.sandbox.pod.conftest import Make

MANY = 1 << 24


def pod_of(environments: dict[str, SandboxEnvironment]) -> PodSandbox:
    return environments["default"].as_type(PodSandbox)


async def kept(
    environments: dict[str, SandboxEnvironment], target: Path, most: int = MANY, seconds: float = 60
) -> Exported:
    return await pod_of(environments).keep_workspace(target, max_bytes=most, seconds=seconds)


def members_of(target: Path) -> dict[str, tarfile.TarInfo]:
    data = unpack(target.read_bytes())
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {member.name: member for member in tar}


@pytest.fixture
def home(kube: Fake, tmp_path: Path) -> Path:
    """The directory where commands in the pod begin; what is asked of it is real."""
    found = tmp_path / "work dir"
    found.mkdir()
    kube.home = str(found)
    return found


async def test_a_tree_is_kept_and_put_back_as_it_was(make: Make, home: Path, tmp_path: Path) -> None:
    (home / "sub").mkdir()
    (home / "sub" / "a.txt").write_text("left")
    (home / "sub" / ("long" * 60)).write_bytes(os.urandom(300_000))
    (home / "run.sh").write_text("#!/bin/sh\n")
    (home / "run.sh").chmod(0o751)
    (home / "link").symlink_to("/etc/passwd")
    (home / "same").hardlink_to(home / "run.sh")
    (home / "é\udcff").write_text("odd")
    os.mkfifo(home / "pipe")
    target = tmp_path / "w.zst"
    async with make() as environments:
        done = await kept(environments, target)
        (home / "sub" / "a.txt").write_text("by the setup")
        (home / "deleted by the agent").write_text("by the setup")
        (home / "link").unlink()
        await pod_of(environments).put_back(target, whole=True, seconds=60)
    prefix = str(home).lstrip("/")
    assert (done.files, done.truncated) == (6, False)
    assert done.size == target.stat().st_size
    assert [text.rpartition("/")[2] for text in done.skipped] == [
        "pipe: it is neither a file, a directory nor a link"
    ]
    assert all(name == prefix or name.startswith(f"{prefix}/") for name in members_of(target))
    assert (home / "sub" / "a.txt").read_text() == "left"
    assert not (home / "deleted by the agent").exists()
    assert (home / "link").readlink() == Path("/etc/passwd")
    assert stat.S_IMODE((home / "run.sh").stat().st_mode) == 0o751
    assert (home / "same").samefile(home / "run.sh")
    assert (home / "é\udcff").read_text() == "odd"


async def test_what_does_not_fit_is_left_out_and_deletes_nothing_when_it_is_put_back(
    make: Make, home: Path, tmp_path: Path
) -> None:
    (home / "large").write_bytes(bytes(200_000))
    (home / "small").write_text("small")
    target = tmp_path / "w.zst"
    async with make() as environments:
        done = await kept(environments, target, 100_000)
        assert done.truncated
        assert any("large: it did not fit" in text for text in done.skipped)
        assert [Path(name).name for name in members_of(target)] == [home.name, "small"]
        (home / "small").unlink()
        await pod_of(environments).put_back(target, whole=False, seconds=60)
    assert sorted(path.name for path in home.iterdir()) == ["large", "small"]


async def test_without_tar_python_makes_the_archive_and_without_both_it_is_said(
    make: Make, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "a").write_text("left")
    target = tmp_path / "w.zst"
    monkeypatch.setattr(workspace, "_PACK", workspace._PACK.replace("command -v tar", "command -v no-tar"))
    monkeypatch.setattr(
        workspace, "_UNPACK", workspace._UNPACK.replace("command -v tar", "command -v no-tar")
    )
    async with make() as environments:
        assert (await kept(environments, target)).files == 1
        (home / "a").unlink()
        await pod_of(environments).put_back(target, whole=True, seconds=60)
        assert (home / "a").read_text() == "left"
        for name in ("_PACK", "_UNPACK"):
            monkeypatch.setattr(
                workspace, name, getattr(workspace, name).replace("python3 python", "no-python")
            )
        with pytest.raises(WorkspaceError, match="neither tar nor python"):
            await kept(environments, tmp_path / "none.zst")
        with pytest.raises(RestoreError, match="neither tar nor python"):
            await pod_of(environments).put_back(target, whole=True, seconds=60)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w.zst", home.name]


def archive(*members: tuple[str, dict[str, Any], bytes]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, fields, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for key, value in fields.items():
                setattr(member, key, value)
            tar.addfile(member, io.BytesIO(content))
    return data.getvalue()


@pytest.mark.parametrize(
    ("said", "names", "skipped"),
    [
        (
            archive(
                ("work/../etc/passwd", {}, b"x"),
                ("/etc/shadow", {}, b"x"),
                ("work/.wh.a", {}, b"x"),
                ("work/dev", {"type": tarfile.CHRTYPE}, b""),
                ("work/hard", {"type": tarfile.LNKTYPE, "linkname": "etc/shadow"}, b""),
                ("./work/good", {"uname": "root", "mode": 0o4755, "mtime": -5}, b"good"),
            ),
            ["work/good"],
            5,
        ),
        (archive(("work/a", {}, b"a" * 3000))[:2000], ["work/a"], 2),
        (archive(("work/a", {}, b"a"))[:1024], ["work/a"], 1),
        (b"no archive at all", [], 1),
        (b"", [], 1),
    ],
    ids=["names", "torn content", "no end mark", "garbage", "nothing"],
)
async def test_a_pod_that_lies(
    make: Make,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: bytes,
    names: list[str],
    skipped: int,
) -> None:
    (home / "said").write_bytes(said)
    monkeypatch.setattr(workspace, "_PACK", f"echo /work; cat {home.name!r}/said 2>/dev/null || cat said")
    target = tmp_path / "w.zst"
    async with make() as environments:
        done = await kept(environments, target)
    found = members_of(target)
    assert sorted(found) == names
    assert len(done.skipped) == skipped
    assert done.truncated is (skipped < 3)
    assert all(member.uname == "" and member.mtime >= 0 for member in found.values())


async def test_a_pod_that_never_stops_is_cut_off(
    make: Make, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "_PACK", "echo /work; while :; do cat said || exit; done")
    one = archive(("work/a", {}, bytes(50_000)))
    (home / "said").write_bytes(one[: 512 + 50_176])  # no end mark
    async with make() as environments:
        done = await kept(environments, tmp_path / "w.zst", 1_000_000)
    assert done.truncated
    assert "was not looked at" in done.skipped[-1] or "did not fit" in done.skipped[-1]


async def test_at_the_deadline_what_has_come_is_kept(
    make: Make, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "said").write_bytes(archive(("work/a", {}, b"first"), ("work/b", {}, b"second"))[:2048])
    monkeypatch.setattr(workspace, "_PACK", "echo /work; cat said; exec sleep 300")
    async with make() as environments:
        done = await kept(environments, tmp_path / "w.zst", seconds=4)
        assert (done.files, done.truncated) == (2, True)
        assert "had not come within" in done.skipped[-1]
        monkeypatch.setattr(workspace, "_PACK", "exec sleep 300")
        with pytest.raises(WorkspaceError, match="could not be kept within"):
            await kept(environments, tmp_path / "none.zst", seconds=0.2)


async def test_what_could_not_be_read_is_named(
    make: Make, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "a").write_text("x")
    monkeypatch.setattr(workspace, "_PACK", workspace._PACK.replace('-- "${d#/}"', '-- "${d#/}" not-there'))
    async with make() as environments:
        done = await kept(environments, tmp_path / "w.zst")
    assert (done.files, done.truncated) == (1, False)
    assert any("not-there" in text for text in done.skipped)


async def test_a_pod_that_ends_or_a_disk_that_is_full_leave_no_file(
    make: Make, kube: Fake, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "a").write_text("left")
    async with make() as environments:
        with pytest.raises(StorageError):
            await kept(environments, tmp_path / "not there" / "w.zst")
        monkeypatch.setattr(workspace, "_PACK", "echo /work; exec sleep 300")
        box = pod_of(environments).box
        await kube.end_pod(box.tracked.name)
        with pytest.raises(WorkspaceError, match="out of memory"):
            await kept(environments, tmp_path / "w.zst")
    assert [path.name for path in tmp_path.iterdir()] == [home.name]


async def test_a_damaged_file_is_not_put_back(make: Make, home: Path, tmp_path: Path) -> None:
    (tmp_path / "w.zst").write_bytes(pack(b"no archive"))
    async with make() as environments:
        with pytest.raises(RestoreError, match="can't be put back"):
            await pod_of(environments).put_back(tmp_path / "w.zst", whole=False, seconds=60)
        (tmp_path / "torn.zst").write_bytes(b"no frame")
        with pytest.raises(RestoreError, match="can't be put back"):
            await pod_of(environments).put_back(tmp_path / "torn.zst", whole=False, seconds=60)
