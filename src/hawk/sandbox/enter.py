"""A forked child of the keeper becomes a command in a sandbox: namespaces, limits, user, no privileges, exec.

Keeper side: standard library only. The child can be looked at from inside as soon as it shares the sandbox's pid
namespace, so it is made undumpable before, and holds nothing that the sandbox may not have.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import stat
import termios
from collections.abc import Callable
from fcntl import ioctl
from typing import Any, NamedTuple, NoReturn

from hawk.sandbox import seccomp, syscalls
from hawk.sandbox.boot import restore_signals
from hawk.sandbox.untar import ArchiveError, extract, lay_over

_EVERYTHING = (
    syscalls.CLONE_NEWUSER
    | syscalls.CLONE_NEWNS
    | syscalls.CLONE_NEWNET
    | syscalls.CLONE_NEWIPC
    | syscalls.CLONE_NEWUTS
    | syscalls.CLONE_NEWCGROUP
)

# What root keeps inside, in the numbers of capabilities(7): chown, dac_override, fowner, fsetid, kill, setgid,
# setuid, setpcap, net_bind_service, sys_chroot, audit_write, setfcap. Nothing that mounts, traces or configures.
ROOT_CAPABILITIES = sum(1 << n for n in (0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 29, 31))

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_CHUNK = 1 << 20


class RefusedError(Exception):
    """Why a command did not start: an errno, and at which stage."""

    def __init__(self, number: int, stage: str, detail: str = "") -> None:
        super().__init__(number, stage, detail)
        self.number, self.stage, self.detail = number, stage, detail


def become(
    job: dict[str, Any], fds: tuple[int, int, int], report: int, enter: Callable[[], None]
) -> NoReturn:
    """Run `job` in the sandbox that `enter` leads into; never returns.

    Args:
        job: `kind` (exec, read, write, unpack, layer) with `argv` or `path`, and `cwd`, `env`, `user`, `uid`, `single`, `rlimits`.
        fds: Standard input, output and error.
        report: Pipe for `{errno, stage, detail}`; closed by a successful exec.
    """
    code = 126
    try:
        _settle(fds)
        enter()
        # A symlink through /proc/self/fd would lead to what the keeper has open: to other sandboxes, to the machine.
        syscalls.close_all_but(report)
        who = _identity(job)
        _restrict(job, who)
        os.umask(0o022)
        if job["kind"] == "exec":
            _exec(job, who)
        code = _file(job)
    except RefusedError as ex:
        _tell(report, ex.number, ex.stage, ex.detail)
    except OSError as ex:
        _tell(report, ex.errno or errno.EIO, "enter", f"{ex.filename}: {ex.strerror}")
    except BaseException as ex:
        _tell(report, errno.EIO, "enter", repr(ex))
    os._exit(code)


def namespaces(*, own_network: bool) -> int:
    """Which namespaces of a sandbox are entered, as flags."""
    # The machine's network can't be entered: we are in it.
    return _EVERYTHING if own_network else _EVERYTHING & ~syscalls.CLONE_NEWNET


def join(pidfd: int, join_files: list[str], *, own_network: bool) -> Callable[[], None]:
    """What leads a child of the sandbox's pid namespace into the rest of it."""

    def enter() -> None:
        for path in join_files:
            fd = os.open(path, os.O_WRONLY)
            os.write(fd, b"0")
            os.close(fd)
        syscalls.setns(pidfd, namespaces(own_network=own_network))
        try:
            fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
            os.write(fd, b"500")  # when the machine runs out of memory: rather this than the runner
            os.close(fd)
        except OSError:
            pass

    return enter


def _settle(fds: tuple[int, int, int]) -> None:
    restore_signals()
    # Above 2 first: one of the three may itself be 0, 1 or 2.
    high = [os.dup(fd) for fd in fds]
    for target, fd in enumerate(high):
        os.dup2(fd, target)
        os.close(fd)
    syscalls.close_on_exec(3)
    os.setsid()


class Identity(NamedTuple):
    """Who a command runs as, by the sandbox's own passwd and group files."""

    uid: int
    gid: int
    groups: list[int]
    name: str
    home: str


def _identity(job: dict[str, Any]) -> Identity:
    wanted = str(job["user"] if job.get("user") is not None else job["uid"])
    row = _account(wanted)
    if row is not None:
        who = Identity(
            int(row[2]), int(row[3]), _groups(row[0], int(row[3])), os.fsdecode(row[0]), _home(row[5])
        )
    elif wanted.isdecimal():
        who = Identity(int(wanted), int(wanted), [int(wanted)], wanted, "/")
    else:
        raise RefusedError(errno.ENOENT, "user", wanted)
    if job["single"] and who.uid != job["uid"]:
        raise RefusedError(errno.EPERM, "single", wanted)
    return who


def _home(path: bytes) -> str:
    return os.fsdecode(path) or "/"


def _account(wanted: str) -> list[bytes] | None:
    """The row of passwd(5) of a user by name or number."""
    name = os.fsencode(wanted)
    by_number = wanted.isdecimal()
    data = b"\n" + _table("/etc/passwd")
    # Searched before it is split: this runs for every command.
    at = data.find(b":%b:" % name if by_number else b"\n%b:" % name)
    while at >= 0:
        start = data.rfind(b"\n", 0, at + 1) + 1
        row = data[start : data.find(b"\n", start)].split(b":")
        if len(row) > 5 and row[2].isdigit() and row[3].isdigit() and row[2 if by_number else 0] == name:
            return row
        at = data.find(b":%b:" % name if by_number else b"\n%b:" % name, at + 1)
    return None


def _groups(name: bytes, gid: int) -> list[int]:
    data = _table("/etc/group")
    found = {gid}
    if data.count(name) > data.count(b"\n%b:" % name):  # it is somewhere a member
        for line in data.splitlines():
            row = line.split(b":")
            if len(row) > 3 and row[2].isdigit() and name in row[3].split(b","):
                found.add(int(row[2]))
    return sorted(found)


def _table(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.read(fd, 1 << 20) + b"\n"
    except OSError:
        return b""
    finally:
        os.close(fd)


def _restrict(job: dict[str, Any], who: Identity) -> None:
    uid, gid, groups = who.uid, who.gid, who.groups
    for number, soft, hard in limits_within(job["rlimits"]):
        resource.setrlimit(number, (soft, hard))
    keep = ROOT_CAPABILITIES if uid == 0 else 0
    if uid == 0:  # nobody else gains anything by exec, for want of new privileges
        syscalls.drop_bounding(keep)
    if not job["single"]:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        if uid:
            os.setresuid(uid, uid, uid)
    syscalls.keep_capabilities(keep)
    syscalls.no_new_privileges()
    seccomp.install(seccomp.program())


def limits_within(rlimits: dict[str, int]) -> list[tuple[int, int, int]]:
    """(number, soft, hard) of limits by name; the keeper can't raise what it was started with."""
    result = []
    for name, value in rlimits.items():
        number = getattr(resource, name)
        # Processor time: a signal that tells why at the limit, the end a little later.
        soft, hard = value, value + 5 if name == "RLIMIT_CPU" else value
        _, most = resource.getrlimit(number)
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        result.append((number, soft, hard))
    return result


def environment(job: dict[str, Any], who: Identity) -> dict[str, str]:
    """The variables of a command."""
    return {
        "PATH": SYSTEM_PATH,
        "HOME": who.home,
        "USER": who.name,
        "LOGNAME": who.name,
        "LANG": "C.UTF-8",
        **job["env"],
        "PWD": job["cwd"],
    }


def _exec(job: dict[str, Any], who: Identity) -> NoReturn:
    env = environment(job, who)
    try:
        os.chdir(job["cwd"])
    except OSError as ex:
        raise RefusedError(ex.errno or errno.EIO, "cwd", job["cwd"]) from ex
    if job.get("tty"):
        ioctl(0, termios.TIOCSCTTY, 0)
    argv = [os.fsencode(a) for a in job["argv"]]
    last = errno.ENOENT
    for path in candidates(job["argv"][0], env["PATH"]):
        try:
            os.execve(path, argv, env)
        except OSError as ex:
            if ex.errno not in (errno.ENOENT, errno.ENOTDIR):
                last = ex.errno or errno.EIO
                if last != errno.EACCES:
                    break
    raise RefusedError(last, "exec", job["argv"][0])


def candidates(name: str, path: str) -> list[str]:
    """Where a program may be, in order."""
    if "/" in name:
        return [name]
    return [f"{directory or '.'}/{name}" for directory in path.split(":")]


def _file(job: dict[str, Any]) -> int:
    """Read or write one file as the user would, through standard output or input."""
    path = os.path.join(job["cwd"], job["path"])
    try:
        if job["kind"] == "write":
            _write(path)
        elif job["kind"] == "unpack":
            extract(0, all_ids=not job["single"])
        elif job["kind"] == "layer":
            lay_over(0, all_ids=not job["single"])
        else:
            _read(path, job["limit"])
    except BrokenPipeError:
        return 0  # the reader has enough
    except ArchiveError as ex:
        raise RefusedError(ex.errno or errno.EBADMSG, "file", f"{job['path']}: {ex}") from ex
    except OSError as ex:
        raise RefusedError(ex.errno or errno.EIO, "file", job["path"]) from ex
    return 0


def _write(path: str) -> None:
    parent = os.path.dirname(path)
    if parent:
        os.makedirs(parent, exist_ok=True)
    # A pipe or device in the file's place must not hold the writer for ever.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, 0o644)
    if not stat.S_ISREG(os.fstat(fd).st_mode) and not stat.S_ISCHR(os.fstat(fd).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)  # it could be the pipe to the keeper
    while data := os.read(0, _CHUNK):
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
    os.close(fd)


def _read(path: str, limit: int) -> None:
    """The first `limit` bytes."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    mode = os.fstat(fd).st_mode
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    while limit > 0 and (data := os.read(fd, min(_CHUNK, limit))):
        limit -= len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]


def _tell(report: int, number: int, stage: str, detail: str) -> None:
    with contextlib.suppress(OSError):
        os.write(report, json.dumps({"errno": number, "stage": stage, "detail": detail[:500]}).encode())
