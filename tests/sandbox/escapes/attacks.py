"""Scripts that try to get out of a sandbox, and how they are run in one."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

from hawk.sandbox.box import Box
from hawk.sandbox.seccomp import SYSCALLS

SECRET = f"secret-{secrets.token_hex(16)}"
"""Of the host: in files, and in the worker's environment."""
THEIRS = f"theirs-{secrets.token_hex(16)}"
"""Of another sandbox."""


class Host(NamedTuple):
    """What there is to be had outside."""

    home: Path
    public: Path
    """A directory with a file, which everybody on the machine may read and write."""


_PRELUDE = """
import ctypes, errno, json, os, signal, socket, stat, sys, time

NUMBERS, GIVEN = json.loads(sys.argv[1]), json.loads(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)


def call(name, *args):
    "A system call: OK, or the name of its error."
    ctypes.set_errno(0)
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = libc.syscall(ctypes.c_long(NUMBERS[name]), *wide)
    return "OK" if result >= 0 else errno.errorcode[ctypes.get_errno()]


def attempt(what, *args, **kwargs):
    "What a function returns, or the name of its error."
    try:
        return what(*args, **kwargs)
    except OSError as ex:
        return errno.errorcode.get(ex.errno, str(ex))


def read(path, size=4096):
    with open(path, "rb") as f:
        return f.read(size).decode(errors="replace")


def write(path, text):
    with open(path, "w") as f:
        f.write(text)
    return "OK"


def processes():
    return sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())


def tell(result):
    print(json.dumps(result))

"""

_MORE = {"ptrace": (101, 117), "mknodat": (259, 33), "process_vm_readv": (310, 270), "keyctl": (250, 219)}


async def attack(box: Box, script: str, given: Any = None, **options: Any) -> Any:
    """What a Python script in the sandbox tells (`tell(…)`); it finds `given` in `GIVEN`."""
    column = ["x86_64", "aarch64"].index(os.uname().machine)
    numbers = {name: row[column] for name, row in {**SYSCALLS, **_MORE}.items() if row[column] is not None}
    argv = ["python3", "-c", _PRELUDE + textwrap.dedent(script), json.dumps(numbers), json.dumps(given)]
    done = await box.run(argv, timeout=150, **options)
    assert done.code == 0, done.stderr.decode()[-2000:]
    return json.loads(done.stdout)


async def output(box: Box, script: str, **options: Any) -> str:
    """What a shell script says, errors included."""
    done = await box.run(["sh", "-c", script], timeout=150, **options)
    return (done.stdout + done.stderr).decode(errors="replace")


async def gone(box: Box, script: str) -> None:
    """The script prints nothing any more: what was killed ends when it next gets a processor, and is seen until then."""
    async with asyncio.timeout(100):
        while await output(box, script) != "":
            await asyncio.sleep(0.02)


async def none_is(box: Box, name: str) -> None:
    """No process of this name is left in a sandbox."""
    await gone(box, f"cat /proc/[0-9]*/comm 2>/dev/null | grep {name}; true")


async def is_root(box: Box) -> bool:
    return (await output(box, "id -u")).strip() == "0"
