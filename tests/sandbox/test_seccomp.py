"""The filter in the kernel: what still works in a process under it, and what no longer does."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hawk
from tests.sandbox.test_seccomp_program import MACHINES, REFUSED

HERE = os.uname().machine

confinable = pytest.mark.skipif(
    sys.platform != "linux" or HERE not in MACHINES, reason="no filter for this machine"
)


def filtered_already() -> bool:
    status = Path("/proc/self/status")
    return status.exists() and "\nSeccomp:\t0\n" not in status.read_text()


unfiltered = pytest.mark.skipif(filtered_already(), reason="a container's own filter would answer too")

PRELUDE = """
import ctypes, errno, json, os, signal, socket, subprocess, sys, threading
from hawk.sandbox import seccomp

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
column = list(("x86_64", "aarch64")).index(os.uname().machine)

def number(name):
    return seccomp.SYSCALLS[name][column]

def call(number, *args):
    "The errno of a call, 0 when it succeeds."
    ctypes.set_errno(0)
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in (number, *args)]
    return ctypes.get_errno() if libc.syscall(*words) == -1 else 0
"""
INSTALL = "seccomp.install(seccomp.program())\n"


def run(code: str) -> Any:
    """Run a script in a session of its own; what it leaves in `result`, by way of JSON."""
    done = subprocess.run(
        [sys.executable, "-c", f"{PRELUDE}\n{code}\nprint(json.dumps(result))"],
        env={**os.environ, "PYTHONPATH": str(Path(hawk.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=240,
        start_new_session=True,
    )
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"
    return json.loads(done.stdout)


def confined(code: str) -> Any:
    """The same, under the filter."""
    return run(INSTALL + code)


@confinable
def test_every_listed_call_fails_with_eperm() -> None:
    # -1 everywhere: were one let through, it would fail for its arguments instead of doing something.
    answers = confined(f"""
names = [name for name in {REFUSED} if number(name) is not None]
result = {{name: call(number(name), *[-1] * 6) for name in names}}
""")
    assert set(answers.values()) == {errno.EPERM}
    assert {
        "mount",
        "setns",
        "keyctl",
        "bpf",
        "io_uring_setup",
        "open_by_handle_at",
        "reboot",
    } <= answers.keys()


@confinable
@unfiltered
@pytest.mark.skipif(os.geteuid() != 0, reason="anybody but root is refused most of them anyway")
def test_without_the_filter_root_would_get_further() -> None:
    answers = run("""
result = {n: call(number(n), *[-1] * 6) for n in ("mount", "umount2", "setns", "add_key", "keyctl", "unshare")}
""")
    assert errno.EPERM not in answers.values()


@confinable
@unfiltered
def test_no_way_of_making_a_namespace_works() -> None:
    result = confined("""
def clone(flags):
    ctypes.set_errno(0)
    pid = libc.syscall(ctypes.c_long(number("clone")), ctypes.c_long(flags), *[ctypes.c_long(0)] * 4)
    if pid == 0:
        os._exit(0)
    if pid > 0:
        os.waitpid(pid, 0)
    return ctypes.get_errno() if pid == -1 else 0

flags = seccomp.CLONE_NEW
result = {
    "unshare": [call(number("unshare"), flag) for flag in (*flags.values(), 0x80)],
    "clone": [clone(flag | signal.SIGCHLD) for flag in flags.values()],
    "clone3": call(number("clone3"), ctypes.create_string_buffer(88), 88),
    "harmless": [call(number("unshare"), seccomp.UNSHARE_OWN["FILES"]), clone(signal.SIGCHLD)],
}
""")
    assert set(result["unshare"]) == set(result["clone"]) == {errno.EPERM}
    assert result["clone3"] == errno.ENOSYS
    assert result["harmless"] == [0, 0]


@confinable
def test_sockets_that_pass_by_network_namespaces_are_refused() -> None:
    result = confined("""
def attempt(make, *args):
    try:
        for made in [made] if not isinstance(made := make(*args), tuple) else made:
            made.close()
        return 0
    except OSError as e:
        return e.errno

refused = [(family, kind) for family in (15, 17, 38, 40) for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)]
result = {
    "socket": [attempt(socket.socket, *pair) for pair in refused],
    "socketpair": [attempt(socket.socketpair, *pair) for pair in refused],
    "ordinary": [
        attempt(socket.socket, socket.AF_INET, socket.SOCK_STREAM),
        attempt(socket.socket, socket.AF_UNIX, socket.SOCK_DGRAM),
        attempt(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW),
        attempt(socket.socketpair, socket.AF_UNIX, socket.SOCK_STREAM),
    ],
}
""")
    assert set(result["socket"]) == set(result["socketpair"]) == {errno.EPERM}
    assert result["ordinary"] == [0, 0, 0, 0]


@confinable
def test_nothing_can_be_typed_into_a_terminal() -> None:
    result = confined("""
import fcntl, termios
controller, terminal = os.openpty()
fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
letter = ctypes.create_string_buffer(b"x")
commands = (0x5412, 0x541C, 0x5423, 1 << 32 | 0x5412)
result = {
    "refused": [call(number("ioctl"), terminal, command, letter) for command in commands],
    "size": len(fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8))),
}
""")
    assert result == {"refused": [errno.EPERM] * 4, "size": 8}


@confinable
@unfiltered
def test_only_harmless_personalities_can_be_taken_on() -> None:
    result = confined("""
own = libc.syscall(ctypes.c_long(number("personality")), ctypes.c_long(0xFFFFFFFF))
allowed = [call(number("personality"), value) for value in (0x40000, 0x20000, 0x20008, 0x8, 0x0)]
result = [own, allowed, [call(number("personality"), value) for value in (0x0400000, 0x0200000, 0x0440000, 0x6)]]
""")
    assert result == [0, [0] * 5, [errno.EPERM] * 4]


@confinable
@pytest.mark.skipif(HERE != "x86_64", reason="x32 belongs to x86_64")
def test_x32_calls_are_refused_and_a_call_that_a_tracer_cancelled_is_not() -> None:
    result = "result = [call(0x40000000 | 39), call(0x40000000 | 520), call(-1), call(39)]"
    assert confined(result) == [errno.EPERM, errno.EPERM, errno.ENOSYS, 0]


I386 = """
import mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("b814000000" "cd80" "c3"))  # mov $20, %eax; int $0x80; ret: getpid of i386
getpid = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
result = [getpid() == os.getpid()]
"""


@confinable
@pytest.mark.skipif(HERE != "x86_64", reason="i386 belongs to x86_64")
def test_32_bit_calls_are_refused_and_kill_nobody() -> None:
    try:
        assert run(I386) == [True]
    except AssertionError as e:
        if f"exit {-signal.SIGSEGV}" in str(e):
            pytest.skip("this kernel has no 32-bit calls")
        raise
    assert confined(I386.replace("getpid() == os.getpid()", "getpid()")) == [-errno.EPERM]


@confinable
def test_what_a_confined_process_starts_is_confined() -> None:
    result = confined("""
inner = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); print(libc.unshare(0x10000000), ctypes.get_errno())"
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
result = [
    subprocess.run([sys.executable, "-c", inner], capture_output=True, text=True).stdout.split(),
    subprocess.run(["/bin/sh", "-c", "grep -E '^Seccomp:' /proc/self/status"], capture_output=True, text=True).stdout.split(),
    status["NoNewPrivs"].strip(),
]
""")
    assert result == [["-1", str(errno.EPERM)], ["Seccomp:", "2"], "1"]


@confinable
def test_ordinary_work_goes_on() -> None:
    result = confined("""
import asyncio, concurrent.futures, multiprocessing, select, tempfile

pid = os.fork()
if pid == 0:
    os._exit(7)
result = {"fork": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}

box = []
threads = [threading.Thread(target=box.append, args=(n,)) for n in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
result["threads"] = sorted(box)

with socket.create_server(("127.0.0.1", 0)) as server:
    client = socket.create_connection(server.getsockname())
    peer = server.accept()[0]
    client.sendall(b"hello")
    result["loopback"] = peer.recv(5).decode()
    client.close(), peer.close()

with tempfile.TemporaryDirectory() as d:
    path = os.path.join(d, "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
    result["files"] = os.listdir(d)

result["pipe"] = subprocess.run("echo a b | tr a-z A-Z", shell=True, capture_output=True, text=True).stdout
result["spawn"] = os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 5"], {}), 0)[1])

async def shout():
    process = await asyncio.create_subprocess_exec("/bin/sh", "-c", "echo async", stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0].decode()

result["asyncio"] = asyncio.run(shout())

pid = os.fork()
if pid == 0:
    os.execv("/bin/sh", ["sh", "-c", "exit 3"])
result["exec"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
""")
    assert result == {
        "fork": 7,
        "threads": list(range(8)),
        "loopback": "hello",
        "files": ["s"],
        "pipe": "A B\n",
        "spawn": 5,
        "asyncio": "async\n",
        "exec": 3,
    }


@confinable
def test_a_program_that_the_kernel_refuses_is_an_error_with_its_errno() -> None:
    result = run("""
result = []
for program in (b"", bytes(8)):
    try:
        seccomp.install(program)
    except OSError as e:
        result.append([e.errno, str(e)])
""")
    assert [number for number, _ in result] == [errno.EINVAL, errno.EINVAL]
    assert "system call filter: Invalid argument" in result[0][1]
