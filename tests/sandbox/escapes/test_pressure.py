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
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from hawk.sandbox.box import Box, BoxGoneError
from hawk.sandbox.client import Keeper
from hawk.sandbox.errors import KeeperRefusedError
from tests.sandbox.conftest import MakeBox
from tests.sandbox.escapes.attacks import attack, gone, none_is, output
from tests.sandbox.programs import needs_python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
    needs_python,
]

SECRET = f"secret-{secrets.token_hex(16)}"
PAUSE = 0.005


@contextlib.asynccontextmanager
async def loop_runs_on(longest: float = 1.0) -> AsyncIterator[None]:
    """The event loop is never held for longer than that; memory stays as it is.

    Neither by what takes the processor, nor by what waits: meanwhile a thread goes on, unless all of this process has to
    wait, for which the loop can do nothing.
    """
    turns, busy, held = 0, [0.0], [0.0]
    over = threading.Event()

    async def tick() -> None:
        nonlocal turns
        while True:
            began = time.thread_time()
            await asyncio.sleep(PAUSE)
            busy.append(time.thread_time() - began)
            turns += 1

    def look() -> None:
        seen, since = -1, 0
        while not over.wait(PAUSE):
            seen, since = turns, since + 1 if turns == seen else 0
            held.append(since * PAUSE)

    before = psutil.Process().memory_info().rss
    looking = threading.Thread(target=look)
    looking.start()
    ticker = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticker.cancel()
        over.set()
        looking.join()
    assert max(busy) < longest
    assert max(held) < longest
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


async def killed(sandbox: Box, script: str) -> None:
    """The script prints nothing any more; or else the sandbox was ended, as one is in which a kill takes too long."""
    if sandbox.lost is None:
        await gone(sandbox, script)
    else:
        with pytest.raises(BoxGoneError, match="could not be killed"):
            await sandbox.run(["true"])


async def test_a_fork_bomb_is_killed_with_its_command(make: MakeBox) -> None:
    sandbox, other = await make(limits={"processes": 200}), await make()
    bomb = "import os\nwhile True:\n try: os.fork()\n except OSError: pass"
    running = asyncio.create_task(sandbox.run(["python3", "-c", bomb], timeout=2))
    while not running.done():
        assert (await other.run(["true"])).code == 0
    with pytest.raises(TimeoutError):
        await running
    await killed(sandbox, "cat /proc/[0-9]*/comm 2>/dev/null | grep python; true")


async def test_a_memory_bomb_of_many_processes_takes_only_its_own_sandbox(make: MakeBox) -> None:
    sandbox, other = await make(limits={"memory": "128m", "processes": 64}), await make()
    bomb = "for i in 1 2 3 4 5 6 7 8; do (head -c 400M /dev/zero | tail >/dev/null) & done; wait"
    await sandbox.run(["sh", "-c", bomb], timeout=150)
    assert (await other.run(["echo", "on"])).stdout == b"on\n"
    assert (await sandbox.run(["echo", "on"])).stdout == b"on\n"
    assert (await sandbox.usage()).get("memory_peak", 0) <= 128 << 20
    await none_is(sandbox, "tail")


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
    await gone(sandbox, "for p in /proc/[0-9]*; do cut -d' ' -f3 $p/stat; done 2>/dev/null | grep Z; true")


OTHERS = "for p in /proc/[0-9]*; do case $p in /proc/1|/proc/$$) ;; *) cat $p/cmdline; echo;; esac; done 2>/dev/null"
"""Every process but the sandbox's first and the shell that looks: it starts none of its own before it looks."""


async def test_a_command_that_stops_itself_and_refuses_signals_is_killed(make: MakeBox) -> None:
    sandbox = await make()
    script = "trap '' TERM INT HUP QUIT USR1; (trap '' TERM; kill -STOP $$) & kill -STOP $$; sleep 3600"
    with pytest.raises(TimeoutError):
        await sandbox.run(["sh", "-c", script], timeout=0.5)
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
    killer = asyncio.create_task(sandbox.run(["sh", "-c", KILLER]))
    refused = 0
    async with asyncio.timeout(150):
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
    with pytest.raises(TimeoutError):
        await sandbox.run(["python3", "-c", FOE], timeout=1)
    await killed(sandbox, OTHERS)


async def test_what_waits_for_a_processor_is_killed_all_the_same(make: MakeBox) -> None:
    """A killed process ends once it gets a processor, which may take several periods of a cgroup's share."""
    sandbox = await make(limits={"cpus": 0.02})
    with pytest.raises(TimeoutError):
        await sandbox.run(
            ["sh", "-c", "for i in 1 2 3 4; do (while :; do :; done) & done; wait"], timeout=0.5
        )
    assert sandbox.lost is None
    assert (await sandbox.run(["true"], timeout=150)).code == 0


async def test_a_file_that_claims_to_be_endless_is_not_read_to_its_end(make: MakeBox) -> None:
    sandbox = await make()
    assert (await sandbox.run(["truncate", "-s", "1000G", "endless"])).code == 0
    async with asyncio.timeout(150), loop_runs_on():
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
turns = 0
while turns < 1000 or not os.path.exists("enough"):
    for a, b in pairs:
        libc.renameat2(-100, a, -100, b, RENAME_EXCHANGE)
        turns += 1
    if turns == 100:
        write("turning", "")
tell(turns)
"""


async def test_an_export_follows_no_link_out_however_it_is_swapped(make: MakeBox) -> None:
    with tempfile.TemporaryDirectory(prefix="hk-public-") as place:
        public = Path(place)
        public.chmod(0o755)
        (public / "file").write_text(SECRET)
        sandbox = await make()
        swapping = asyncio.create_task(attack(sandbox, SWAPPER, place))
        while (await sandbox.run(["test", "-e", "turning"])).code != 0:
            assert not swapping.done(), swapping.result()
        contents: list[bytes] = []
        exports, until = 0, time.monotonic() + 4
        while exports <= 20 or b"mine" not in contents or time.monotonic() < until:
            for prefix in ("workspace", "workspace/tree", "workspace/tree/inner", "workspace/file"):
                contents += (await exported(sandbox.label, sandbox.keeper, prefix)).values()
                exports += 1
        await sandbox.write("enough", b"")
        assert await swapping >= 1000
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
    async with asyncio.timeout(60):
        while set(os.listdir("/proc/self/fd")) != before:
            await asyncio.sleep(0.01)
