"""Attempts at processes: of the machine, of other sandboxes, and of the keeper's on their way in."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from hawk.sandbox.box import Box
from hawk.sandbox.client import Keeper
from tests.sandbox.escapes.attacks import SECRET, Host, attack, is_root, none_is, output
from tests.sandbox.programs import needs_python
from tests.sandbox.traces import keeper_processes, processes_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
    needs_python,
]


async def test_other_processes_can_be_neither_seen_nor_signalled(box: Box, other: Box) -> None:
    script = """
    mine = processes()
    for pid in range(2, 70000):
        if pid not in mine:
            assert attempt(os.kill, pid, signal.SIGKILL) == "ESRCH", pid
    tell([{pid: read(f"/proc/{pid}/cmdline") for pid in mine}, os.getpid()])
    """
    lines, me = await attack(box, script)
    assert str(me) in lines
    assert not any("sleep" in line or "hawk" in line or "bwrap" in line for line in lines.values())
    assert "sleep" in await output(other, "cat /proc/[0-9]*/comm")


async def test_a_kill_of_everything_leaves_the_sandbox(box: Box, other: Box) -> None:
    await output(box, "nohup sleep 7788 >/dev/null 2>&1 &")
    done = await box.run(
        ["sh", "-c", "trap '' TERM; kill -9 -1; kill -9 1; kill -STOP 1; kill -INT 1; echo on"]
    )
    assert done.stdout in (b"", b"on\n")  # the shell itself may be among the killed
    assert await output(box, "echo alive") == "alive\n"
    await none_is(box, "sleep")
    assert "sleep" in await output(other, "cat /proc/[0-9]*/comm")


async def test_the_first_process_gives_nothing_away(box: Box, host: Host) -> None:
    script = """
    PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
    told = {name: attempt(read, f"/proc/1/{name}") for name in ("environ", "cmdline", "maps", "mountinfo", "cgroup")}
    told["fds"] = attempt(lambda: {fd: attempt(os.readlink, f"/proc/1/fd/{fd}") for fd in os.listdir("/proc/1/fd")})
    told["root"] = attempt(os.listdir, "/proc/1/root/")
    tell([told, os.listdir("/")])
    """
    told, root = await attack(box, script)
    text = str(told)
    assert SECRET not in text
    assert str(host.home) not in text
    if isinstance(told["fds"], dict):
        assert not [t for t in told["fds"].values() if not re.match(r"/dev/null|/memfd:|E[A-Z]+$", t)]
    assert told["root"] in ("EACCES", "EPERM") or sorted(told["root"]) == sorted(root)


async def test_what_the_first_process_inherited_can_not_be_changed(box: Box) -> None:
    script = """
    tell({fd: attempt(lambda: os.write(os.open(f"/proc/1/fd/{fd}", os.O_RDWR), b"changed"))
          for fd in attempt(os.listdir, "/proc/1/fd") if "init" in str(attempt(os.readlink, f"/proc/1/fd/{fd}"))})
    """
    results = await attack(box, script) if await is_root(box) else {}
    assert set(results.values()) <= {"EPERM", "EACCES", "ETXTBSY"}


async def test_commands_that_enter_show_nothing_before_they_have_changed(box: Box) -> None:
    """A process of the keeper's becomes the command; meanwhile it may give away nothing of what it came from."""
    script = """
    seen, deadline, known = set(), time.monotonic() + 2, set(processes())
    while time.monotonic() < deadline or not any("bin/sleep" in text for text in seen):
        for pid in processes():
            if pid not in known:
                for name in ("environ", "maps"):
                    seen.add(str(attempt(read, f"/proc/{pid}/{name}")))
                for fd in attempt(os.listdir, f"/proc/{pid}/fd"):
                    seen.add(attempt(os.readlink, f"/proc/{pid}/fd/{fd}"))
                for name in ("cwd", "exe"):
                    seen.add(attempt(os.readlink, f"/proc/{pid}/{name}"))
                seen.add(" ".join(attempt(os.listdir, f"/proc/{pid}/root/")))
    tell(sorted(seen))
    """
    seen = "\n".join(await _meanwhile(box, script))
    assert "bin/sleep" in seen
    for word in (SECRET, "HAWK", "hawk", "site-packages", "python", "memfd", "pidfd", "eventpoll", "socket:"):
        assert word not in seen, [line for line in seen.split("\n") if word in line][:5]


async def test_commands_that_enter_can_not_be_traced_before_they_have_changed(box: Box) -> None:
    """Else a tracer had a process that is not under the filter yet."""
    script = """
    PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
    libc.ptrace.argtypes = [ctypes.c_long] * 4
    caught, deadline, last, turn = {}, time.monotonic() + 2, max(processes()), 0
    while time.monotonic() < deadline:
        turn += 1
        for pid in range(last + 1, last + 4):
            if libc.ptrace(PTRACE_SEIZE, pid, 0, 0) == 0:
                libc.ptrace(PTRACE_INTERRUPT, pid, 0, 0)
                attempt(os.waitpid, pid, 0)
                program = attempt(os.readlink, f"/proc/{pid}/exe")
                caught[program] = caught.get(program, 0) + 1
                libc.ptrace(PTRACE_DETACH, pid, 0, 0)
                last = max(last, pid)
        if turn % 50 == 0:
            last = max(processes())
    tell(caught)
    """
    caught = await _meanwhile(box, script)
    assert {program for program in caught if "bin/sleep" not in program} <= {"ENOENT"}  # which had ended


async def _meanwhile(box: Box, script: str) -> Any:
    """What an attack tells while commands enter its sandbox."""
    running = asyncio.create_task(attack(box, script))
    while not running.done():
        await box.run(["sleep", "0.01"])
        await box.write("x", b"x")
        await box.read("x", limit=10)
    return await running


async def test_only_the_three_standard_streams_are_inherited(box: Box) -> None:
    script = """
    fds = {int(fd): attempt(os.readlink, f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
    tell(sorted(fd for fd, target in fds.items() if target != "ENOENT"))
    """
    for options in ({}, {"stdin": b"x"}, {"user": "0" if await is_root(box) else "1000"}):
        assert await attack(box, script, **options) == [0, 1, 2]
    done = await box.run(["sh", "-c", "ls -l /proc/self/fd"])
    assert len(re.findall(r"^\S+ .* -> ", done.stdout.decode(), re.MULTILINE)) == 4  # and the listing itself


async def test_no_secret_of_the_worker_is_in_any_process(box: Box, keeper: Keeper) -> None:
    inside = await output(box, "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; env")
    assert SECRET not in inside
    looked_at = 0
    for process in (*keeper_processes(keeper.pid), *processes_of(keeper.pid, box.label)):
        for name in ("environ", "cmdline"):
            assert SECRET.encode() not in Path(f"/proc/{process.pid}/{name}").read_bytes()
        looked_at += _memory_lacks(process.pid, SECRET.encode())
    assert looked_at >= 3


def _memory_lacks(pid: int, secret: bytes) -> bool:
    """Whether all of a process's memory was looked at; fails when the secret is in it."""
    with Path(f"/proc/{pid}/maps").open() as maps:
        areas = [row.split()[:2] for row in maps if "[v" not in row]
    try:
        with Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
            for area, rights in areas:
                first, last = (int(number, 16) for number in area.split("-"))
                if rights.startswith("rw"):
                    memory.seek(first)
                    assert secret not in memory.read(last - first)
    except OSError:
        return False
    return bool(areas)
