"""A command of a sandbox as a tape: the same steps as `enter.become`, without a fork of the keeper.

Keeper side: standard library only. Only for a user whose account is known already: nothing of the sandbox can be read
on the way.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
from typing import Any

from hawk.sandbox import seccomp, syscalls
from hawk.sandbox.enter import (
    ROOT_CAPABILITIES,
    SYSTEM_PATH,
    Identity,
    candidates,
    environment,
    limits_within,
    namespaces,
)
from hawk.sandbox.executable import memory_file
from hawk.sandbox.tape import MAY_FAIL, REPORT, TRY, Tape

_PIDFD = 4  # descriptors in the started program: 0 to 2, the report, the door to the namespaces
_NEXT = 5  # what an open gives then

RESERVED = 10
"""Descriptors below are kept occupied in the keeper, so that none that is passed on lies where another is to go."""

_AT_FDCWD = -100
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITIES_VERSION = 0x20080522


def reserve() -> None:
    """Occupy the low descriptors of this process."""
    while (fd := os.open(os.devnull, os.O_RDONLY)) < RESERVED:
        pass
    os.close(fd)


def write_tape(job: dict[str, Any], who: Identity, join_files: list[str], *, own_network: bool) -> Tape:
    """The calls from the start of the program to the exec of the command."""
    tape = Tape()
    # What runs in the sandbox may see this process, and trace it once both may do the same: not before the exec.
    tape.call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)
    zero = tape.text("0")
    for path in join_files:
        tape.call("openat", _AT_FDCWD, tape.text(path), os.O_WRONLY, 0)
        tape.call("write", _NEXT, zero, 1)
        tape.call("close", _NEXT)
    tape.call("setns", _PIDFD, namespaces(own_network=own_network))
    # When the machine runs out of memory: rather this than the runner.
    tape.call("openat", _AT_FDCWD, tape.text("/proc/self/oom_score_adj"), os.O_WRONLY, 0, fails=MAY_FAIL)
    tape.call("write", _NEXT, tape.text("500"), 3, fails=MAY_FAIL)
    tape.call("close", _NEXT, fails=MAY_FAIL)
    tape.call("setsid")
    if job.get("tty"):
        tape.call("ioctl", 0, termios.TIOCSCTTY, 0)
    for number, soft, hard in limits_within(job["rlimits"]):
        tape.call("prlimit64", 0, number, tape.words([soft % (1 << 64), hard % (1 << 64)]), 0)
    _become(tape, who, many=not job["single"])
    for fd in (REPORT, _PIDFD):
        tape.call("fcntl", fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    # Whatever else was inheritable by mistake would lead out of the sandbox. Before Linux 5.11 there is no such call.
    tape.call("close_range", _NEXT, 0xFFFFFFFF, syscalls.CLOSE_RANGE_CLOEXEC, fails=MAY_FAIL)
    tape.call("umask", 0o022)
    tape.call("chdir", tape.text(job["cwd"]), stage="cwd")
    env = environment(job, who)
    argv = tape.texts(job["argv"])
    variables = tape.texts([f"{name}={value}" for name, value in env.items()])
    for path in candidates(job["argv"][0], env.get("PATH", SYSTEM_PATH)):
        tape.call("execve", tape.text(path), argv, variables, stage="exec", fails=TRY)
    return tape


def _become(tape: Tape, who: Identity, *, many: bool) -> None:
    """The user, without privileges but root's few, under the filter."""
    keep = ROOT_CAPABILITIES if who.uid == 0 else 0
    if who.uid == 0:  # nobody else gains anything by exec, for want of new privileges
        for number in range(syscalls.last_capability() + 1):
            if not keep >> number & 1:
                tape.call("prctl", _PR_CAPBSET_DROP, number, 0, 0, 0)
    if many:
        groups = tape.data(struct.pack(f"<{len(who.groups)}I", *who.groups))
        tape.call("setgroups", len(who.groups), groups)
        tape.call("setresgid", who.gid, who.gid, who.gid)
        if who.uid:
            tape.call("setresuid", who.uid, who.uid, who.uid)
    tape.call("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    low, high = keep & 0xFFFFFFFF, keep >> 32
    header = tape.data(struct.pack("<Ii", _CAPABILITIES_VERSION, 0))
    tape.call("capset", header, tape.data(struct.pack("<6I", low, low, 0, high, high, 0)))
    tape.call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    filter_ = seccomp.program()
    steps = tape.data(filter_)
    tape.call("prctl", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, tape.words([len(filter_) // 8, steps]), 0, 0)


def start(tape: Tape, fds: tuple[int, int, int], report: int, pidfd: int) -> int:
    """Start the program in the pid namespace for children: its pid.

    Raises:
        OSError: It could not be started.
    """
    program = memory_file("command", tape.build())
    try:
        actions = [(os.POSIX_SPAWN_DUP2, fd, i) for i, fd in enumerate((*fds, report, pidfd))]
        return os.posix_spawn(
            f"/proc/self/fd/{program}",
            ["command"],
            {},
            file_actions=actions,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
            setsigmask=[],
        )
    finally:
        os.close(program)


def explain(tape: Tape, report: bytes, *, name: str, cwd: str) -> dict[str, Any]:
    """Why the command did not start, as `enter` would tell it."""
    number, stage = tape.tell(report)
    detail = {"exec": name, "cwd": cwd}.get(stage, os.strerror(number))
    return {"errno": number, "stage": stage, "detail": detail[:500]}
