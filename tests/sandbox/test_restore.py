"""A workspace that was kept is back in a fresh sandbox, as it was left, and nothing of it reaches this machine."""

from __future__ import annotations

import contextlib
import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from hawk.core import zstd
from hawk.sandbox.box import Box, BoxGoneError
from hawk.sandbox.export import export_workspace
from hawk.sandbox.restore import RestoreError, restore_workspace
from tests.sandbox.conftest import MakeBox

LOOK = r"""
find . -printf '%p|%y|%m|%U|%G|%l|%s\0' | LC_ALL=C sort -z | sed -z 's/|d|\(.*\)|[0-9]*$/|d|\1/' | tr '\0' '\n'
find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum
"""
BASE = {
    "setup": {
        "script": "mkdir -p /workspace/lib /workspace/old; cd /workspace; echo 1 > lib/a; echo 2 > lib/b; echo 3 > old/c"
    }
}
START = "echo task > start.txt; mkdir -p given/deep; echo x > given/deep/file; echo y > given/other; echo new > lib/c"
AGENT = r"""
rm start.txt; rm -r given/deep; rm lib/a; rm -r old; echo changed > lib/b; rm -r lib/c
mkdir old; echo back > old/d
echo secret > secret; chmod 000 secret; mkdir closed; echo in > closed/in; chmod 700 closed
printf x > "$(printf 'a\nb')"; printf y > "$(printf '\377\376')"; printf z > ' $(touch pwned) "q" '
ln -s /etc/passwd out; ln -s ../../../.. up; ln -s nowhere broken; echo run > tool; chmod 755 tool; ln tool hard
mkfifo pipe; mkdir -p -- -dash/--; echo d > -dash/--/-rf
"""


async def look(box: Box) -> bytes:
    single = box.keeper.facts["single_id"]
    done = await box.run(
        ["sh", "-c", f"{'chmod 400 secret;' if single else ''} {LOOK}"], user=None if single else "root"
    )
    assert done.code == 0, done.stderr
    return done.stdout


async def run(box: Box, script: str) -> None:
    done = await box.run(["sh", "-ec", script])
    assert done.code == 0, done.stderr


async def test_all_is_as_it_was_left(box: MakeBox, tmp_path: Path) -> None:
    first, second = await box(**BASE), await box(**BASE)
    for each in (first, second):
        await run(each, START)
    await run(first, AGENT)
    await export_workspace(first, tmp_path / "kept")
    await restore_workspace(second, tmp_path / "kept")
    await run(first, "rm pipe")  # what an archive has no place for
    assert await look(second) == await look(first)


async def test_what_the_archive_lacks_stays_when_it_is_not_whole(box: MakeBox, tmp_path: Path) -> None:
    first, second = await box(), await box()
    for each in (first, second):
        await run(each, "echo task > start.txt; echo more > more.txt")
    await run(first, "rm start.txt; echo changed > more.txt")
    await export_workspace(first, tmp_path / "kept")
    await restore_workspace(second, tmp_path / "kept", whole=False)
    assert (await second.read("start.txt", limit=100), await second.read("more.txt", limit=100)) == (
        b"task\n",
        b"changed\n",
    )


def archive(path: Path, *members: tarfile.TarInfo) -> Path:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    path.write_bytes(zstd.pack(buffer.getvalue()))
    return path


def a(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size, member.mode = kind, link, size, 0o755
    return member


async def test_names_that_lead_out_lead_nowhere(box: MakeBox, tmp_path: Path) -> None:
    mark = tmp_path / "outside"
    made = await box()
    evil = archive(
        tmp_path / "evil",
        a("workspace", tarfile.DIRTYPE),
        a(f"../../../../..{mark}", size=3),
        a("workspace/link", tarfile.SYMTYPE, "/proc/self/fd"),
        a("workspace/root", tarfile.SYMTYPE, "/proc/1/root/.."),
        a(f"workspace/root{mark}", size=3),
        a("workspace/device", tarfile.CHRTYPE),
        a("workspace/ok", size=4),
    )
    with contextlib.suppress(RestoreError):  # what can't be is said; what matters is where it went
        await restore_workspace(made, evil)
    assert not mark.exists()


async def test_damage_is_named_and_nothing_hangs(box: MakeBox, tmp_path: Path) -> None:
    made = await box()
    await run(made, "echo there > there.txt")
    whole = archive(tmp_path / "whole", a("workspace", tarfile.DIRTYPE), a("workspace/big", size=3 << 20))
    for name, content in {
        "cut": whole.read_bytes()[:-20],
        "noise": hashlib.sha256(b"").digest() * 1000,
        "empty": b"",
        "half": zstd.pack(zstd.unpack(whole.read_bytes())[: 2 << 20]),
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(RestoreError, match=str(tmp_path / name)):
            await restore_workspace(made, tmp_path / name)
    with pytest.raises(RestoreError, match="No such file"):
        await restore_workspace(made, tmp_path / "missing")
    await restore_workspace(made, whole)
    assert (await made.run(["stat", "-c", "%s", "big"])).stdout == b"3145728\n"


async def test_what_does_not_fit_is_an_error(box: MakeBox, tmp_path: Path) -> None:
    made = await box(limits={"workspace": "1m"})
    large = archive(tmp_path / "large", a("workspace", tarfile.DIRTYPE), a("workspace/big", size=8 << 20))
    with pytest.raises(RestoreError):
        await restore_workspace(made, large)


async def test_a_sandbox_that_is_gone_is_an_error(box: MakeBox, tmp_path: Path) -> None:
    made = await box()
    kept = archive(tmp_path / "kept", a("workspace", tarfile.DIRTYPE))
    await made.close()
    with pytest.raises(RestoreError):
        await restore_workspace(made, kept)
    with pytest.raises(BoxGoneError):
        await made.run(["true"])
