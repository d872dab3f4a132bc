"""Sandboxes that use up, flood, swap and refuse: others, the keeper and the worker go on as before."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import secrets
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from hawk.sandbox.box import BoxGoneError
from hawk.sandbox.client import Keeper
from hawk.sandbox.errors import KeeperRefusedError
from tests.sandbox.conftest import MakeBox
from tests.sandbox.escapes.attacks import attack, gone, none_is, output
from tests.sandbox.programs import needs_python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(60),
    needs_python,
]

SECRET = f"secret-{secrets.token_hex(16)}"


@contextlib.asynccontextmanager
async def loop_runs_on(longest: float = 1.0) -> AsyncIterator[None]:
    """The event loop is never held for longer than that; memory stays as it is."""
    gaps = [0.0]

    async def tick() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.005)
            gaps.append(time.monotonic() - began)

    before = psutil.Process().memory_info().rss
    ticker = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticker.cancel()
    assert max(gaps) < longest
    assert psutil.Process().memory_info().rss - before < 100 << 20


async def test_a_flood_of_output_holds_neither_the_loop_nor_memory(make: MakeBox) -> None:
    sandbox = await make()
    async with loop_runs_on():
        flood = "yes 0123456789 & yes 9876543210 >&2 & wait"
        with pytest.raises(TimeoutError):
            await sandbox.run(["sh", "-c", flood], timeout=3)
        assert await output(sandbox, "echo on") == "on\n"


async def test_a_flood_from_the_background_holds_neither_the_loop_nor_memory(make: MakeBox) -> None:
    sandbox = await make()
    async with loop_runs_on():
        done = await sandbox.run(["sh", "-c", "yes & echo started"])
        assert b"started" in done.stdout or done.truncated
        until = time.monotonic() + 2
        while time.monotonic() < until:
            assert await output(sandbox, "echo on") == "on\n"
        await sandbox.close()


async def test_a_fork_bomb_is_killed_with_its_command(make: MakeBox) -> None:
    sandbox, other = await make(limits={"processes": 200}), await make()
    bomb = "import os\nwhile True:\n try: os.fork()\n except OSError: pass"
    running = asyncio.create_task(sandbox.run(["python3", "-c", bomb], timeout=2))
    slowest = 0.0
    while not running.done():
        began = time.monotonic()
        assert (await other.run(["true"])).code == 0
        slowest = max(slowest, time.monotonic() - began)
    with pytest.raises(TimeoutError):
        await running
    assert slowest < 10
    await none_is(sandbox, "python")


async def test_a_memory_bomb_of_many_processes_takes_only_its_own_sandbox(make: MakeBox) -> None:
    sandbox, other = await make(limits={"memory": "128m", "processes": 64}), await make()
    before = psutil.virtual_memory().available
    bomb = "for i in 1 2 3 4 5 6 7 8; do (head -c 400M /dev/zero | tail >/dev/null) & done; wait"
    await sandbox.run(["sh", "-c", bomb], timeout=30)
    assert (await other.run(["echo", "on"])).stdout == b"on\n"
    assert (await sandbox.run(["echo", "on"])).stdout == b"on\n"
    assert before - psutil.virtual_memory().available < 1 << 30


async def test_memory_written_to_files_is_limited_too(make: MakeBox) -> None:
    sandbox = await make(limits={"memory": "64m", "workspace": "32m"})
    script = "head -c 100M /dev/zero > /dev/shm/a; head -c 100M /dev/zero > /tmp/b; ls -s /dev/shm/a /tmp/b"
    sizes = [int(row.split()[0]) for row in (await output(sandbox, script)).splitlines() if row[:1].isdigit()]
    assert sum(sizes) < 100 << 10


async def test_an_inode_bomb_fills_only_its_own_sandbox(make: MakeBox) -> None:
    sandbox, other = await make(limits={"inodes": 2000}), await make()
    script = """
made = 0
try:
    while True:
        os.mkdir(f"/tmp/{made}")
        made += 1
except OSError as ex:
    tell([made, errno.errorcode[ex.errno]])
"""
    made, why = await attack(sandbox, script)
    assert made < 2000
    assert why == "ENOSPC"
    await other.write("file", b"x")


async def test_orphans_leave_no_zombies(make: MakeBox) -> None:
    sandbox = await make()
    script = """
for _ in range(1500):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.wait()
for _ in range(200):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(0.1)
        os._exit(0)
    os.wait()
tell(len(processes()))
"""
    await attack(sandbox, script)
    await none_is(sandbox, "python")
    count = "for p in /proc/[0-9]*; do cut -d' ' -f3 $p/stat; done 2>/dev/null | grep -c Z; true"
    assert await output(sandbox, count) == "0\n"


OTHERS = "for p in /proc/[0-9]*; do case $p in /proc/1|/proc/$$) ;; *) cat $p/cmdline; echo;; esac; done 2>/dev/null"
"""Every process but the sandbox's first and the shell that looks: it starts none of its own before it looks."""


async def test_a_command_that_stops_itself_and_refuses_signals_is_killed(make: MakeBox) -> None:
    sandbox = await make()
    script = "trap '' TERM INT HUP QUIT USR1; (trap '' TERM; kill -STOP $$) & kill -STOP $$; sleep 30"
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await sandbox.run(["sh", "-c", script], timeout=0.5)
    assert time.monotonic() - began < 5
    await gone(sandbox, OTHERS)


KILLER = """
while :; do
  for p in /proc/[0-9]*; do
    read name < $p/comm && case $name in python*) kill -9 ${p#/proc/};; esac
  done
done 2>/dev/null
"""


async def test_work_on_files_that_is_killed_is_not_taken_for_done(make: MakeBox) -> None:
    """What runs in a sandbox may kill what reads and writes there for the worker: it is the same user."""
    sandbox = await make()
    content = secrets.token_bytes(1 << 20) * 16
    await sandbox.write("whole", content)
    killer = asyncio.create_task(sandbox.run(["sh", "-c", KILLER], timeout=30))
    refused = 0
    async with asyncio.timeout(30):
        while refused < 4:
            try:
                assert await sandbox.read("whole", limit=1 << 30) == content
                await sandbox.write("copy", content)
                assert (await sandbox.run(["cmp", "whole", "copy"])).code == 0
            except KeeperRefusedError as ex:
                if ex.number != errno.EIO:
                    raise
                refused += 1
    killer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await killer
    assert await sandbox.read("whole", limit=1 << 30) == content


FOE = """
import os, signal, sys
if os.fork():
    os.wait()
os.setsid()  # out of reach for who stops the group of the command
while True:
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) not in (1, os.getpid(), os.getppid()):
            try:
                os.kill(int(name), signal.SIGKILL)
            except OSError:
                pass
"""


async def test_a_command_that_kills_whoever_comes_to_kill_it_is_killed_or_its_sandbox_ends(
    make: MakeBox,
) -> None:
    sandbox = await make()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await sandbox.run(["python3", "-c", FOE], timeout=1)
    assert time.monotonic() - began < 20
    if sandbox.lost is None:
        await gone(sandbox, OTHERS)
    else:
        with pytest.raises(BoxGoneError, match="could not be killed"):
            await sandbox.run(["true"])


async def test_what_waits_for_a_processor_is_killed_all_the_same(make: MakeBox) -> None:
    """A killed process ends once it gets a processor, which may take several periods of a cgroup's share."""
    sandbox = await make(limits={"cpus": 0.02})
    with pytest.raises(TimeoutError):
        await sandbox.run(
            ["sh", "-c", "for i in 1 2 3 4; do (while :; do :; done) & done; wait"], timeout=0.5
        )
    assert sandbox.lost is None
    assert (await sandbox.run(["true"], timeout=20)).code == 0


async def test_a_file_that_claims_to_be_endless_is_not_read_to_its_end(make: MakeBox) -> None:
    sandbox = await make()
    assert (await sandbox.run(["truncate", "-s", "1000G", "endless"])).code == 0
    async with asyncio.timeout(10), loop_runs_on():
        assert await sandbox.read("endless", limit=1 << 20) is None
    await none_is(sandbox, "python")


SWAPPER = """
RENAME_EXCHANGE = 2
public = GIVEN
os.chdir("/workspace")
os.makedirs("tree/inner", exist_ok=True)
for name, content in (("file", "mine"), ("tree/inner/file", "mine")):
    write(name, content)
os.symlink(f"{public}/file", "link")
os.symlink(public, "linked-tree")
os.symlink("/etc", "tree/linked-inner")
os.symlink("/etc/shadow", "shadow")
pairs = [(b"file", b"link"), (b"tree", b"linked-tree"), (b"tree/inner", b"tree/linked-inner"), (b"file", b"shadow")]
deadline = time.monotonic() + 4
turns = 0
while time.monotonic() < deadline:
    for a, b in pairs:
        libc.renameat2(-100, a, -100, b, RENAME_EXCHANGE)
        turns += 1
tell(turns)
"""


async def test_an_export_follows_no_link_out_however_it_is_swapped(make: MakeBox) -> None:
    with tempfile.TemporaryDirectory(prefix="hk-public-") as place:
        public = Path(place)
        public.chmod(0o755)
        (public / "file").write_text(SECRET)
        sandbox = await make()
        swapping = asyncio.create_task(attack(sandbox, SWAPPER, place))
        exports = []
        while not swapping.done():
            for prefix in ("workspace", "workspace/tree", "workspace/tree/inner", "workspace/file"):
                exports.append(await exported(sandbox.label, sandbox.keeper, prefix))
        assert await swapping > 1000
    assert len(exports) > 20
    contents = [content for files in exports for content in files.values()]
    assert b"mine" in contents
    assert {content for content in contents if content not in (b"mine", b"")} == set()


async def exported(label: str, keeper: Keeper, prefix: str) -> dict[str, bytes]:
    """Content of the files in an export."""
    with tempfile.TemporaryFile() as target:
        await keeper.ask(
            {"op": "export", "label": label, "prefix": prefix, "max_bytes": None}, [target.fileno()]
        )
        target.seek(0)
        data = target.read()
    assert SECRET.encode() not in data
    files = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            if member.isreg():
                content = tar.extractfile(member)
                assert content is not None
                files[member.name] = content.read().rstrip(b"\0")
    return files


async def test_a_sandbox_that_lives_no_more_takes_no_descriptors_with_it(
    make: MakeBox, keeper: Keeper
) -> None:
    before = set(os.listdir("/proc/self/fd"))
    for turn in range(5):
        sandbox = await make()
        await sandbox.run(["sh", "-c", "yes > /dev/null & sleep 60 & echo x"])
        if turn % 2:
            with pytest.raises(TimeoutError):
                await sandbox.run(["sleep", "60"], timeout=0.1)
        await sandbox.close()
        with pytest.raises(BoxGoneError):
            await sandbox.run(["true"])
    assert set(os.listdir("/proc/self/fd")) == before
