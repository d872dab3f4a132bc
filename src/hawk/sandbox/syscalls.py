"""The Linux calls that sandboxes need and Python 3.11 lacks. Keeper side: standard library only.

Each raises OSError with the kernel's errno. Sources: clone(2), setns(2), mount(2), mount_setattr(2), prctl(2),
capabilities(7).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys

CLONE_NEWTIME = 0x00000080
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4

_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
_SYS_OPEN_TREE, _SYS_MOVE_MOUNT, _SYS_MOUNT_SETATTR = 428, 429, 442  # the same number on every machine
_SYS_CLOSE_RANGE, CLOSE_RANGE_CLOEXEC = 436, 4  # the same
_LAST_FD = 0xFFFFFFFF
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = 1, 4
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_IDMAP = 1, 0x00100000

_libc = ctypes.CDLL(None, use_errno=True)
# Forking below Python needs the interpreter's lock to be held throughout: CDLL would let go of it.
_locked = ctypes.PyDLL(None, use_errno=True)


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return int(result)


def _syscall(what: str, number: int, *args: object) -> int:
    return _check(_libc.syscall(ctypes.c_long(number), *args), what)


def unshare(flags: int) -> None:
    """Leave namespaces behind for new ones."""
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int, flags: int) -> None:
    """Enter namespaces of `fd`: one namespace, or those of the process behind a pidfd (Linux 5.8)."""
    _check(_libc.setns(fd, flags), "setns")


def clone(flags: int) -> int:
    """Fork with namespace flags: 0 in the child. The caller must have one thread only."""
    number, zero = ctypes.c_long(_SYS_CLONE[os.uname().machine]), ctypes.c_long(0)
    with_signal = ctypes.c_ulong(flags | signal.SIGCHLD)
    return _check(_locked.syscall(number, with_signal, zero, zero, zero, zero), "clone")


def mount(source: str, target: str, kind: str | None, flags: int = 0, options: str | None = None) -> None:
    """mount(2)."""
    encode = os.fsencode
    _check(
        _libc.mount(
            encode(source),
            encode(target),
            None if kind is None else kind.encode(),
            ctypes.c_ulong(flags),
            None if options is None else encode(options),
        ),
        f"mount {target}",
    )


def unmount(target: str) -> None:
    """Detach a mount, lazily."""
    _check(_libc.umount2(os.fsencode(target), 2), f"umount {target}")


def bind_mapped(source: str, target: str, userns_fd: int) -> None:
    """Bind `source` read-only on `target` with its owners shown as `userns_fd` maps them (Linux 5.12).

    Needs CAP_SYS_ADMIN where the file system was mounted, and a file system that can do it.
    """
    tree = _syscall(
        f"open_tree {source}",
        _SYS_OPEN_TREE,
        ctypes.c_int(_AT_FDCWD),
        os.fsencode(source),
        ctypes.c_uint(_OPEN_TREE_CLONE | os.O_CLOEXEC),
    )
    try:
        attr = _MountAttr(_MOUNT_ATTR_IDMAP | _MOUNT_ATTR_RDONLY, 0, 0, userns_fd)
        _syscall(
            f"mount_setattr {source}",
            _SYS_MOUNT_SETATTR,
            ctypes.c_int(tree),
            b"",
            ctypes.c_uint(_AT_EMPTY_PATH),
            ctypes.byref(attr),
            ctypes.c_size_t(ctypes.sizeof(attr)),
        )
        _syscall(
            f"move_mount {target}",
            _SYS_MOVE_MOUNT,
            ctypes.c_int(tree),
            b"",
            ctypes.c_int(_AT_FDCWD),
            os.fsencode(target),
            ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH),
        )
    finally:
        os.close(tree)


def _prctl(option: int, *args: int) -> None:
    padded = [ctypes.c_ulong(a) for a in (*args, 0, 0, 0, 0)[:4]]
    _check(_libc.prctl(option, *padded), f"prctl {option}")


def close_on_exec(first: int) -> None:
    """Let no program that is executed have descriptors from this one on, whoever left them inheritable."""
    if not _close_range(first, _LAST_FD, CLOSE_RANGE_CLOEXEC):
        for fd in _open_fds():
            if fd >= first:
                with contextlib.suppress(OSError):
                    os.set_inheritable(fd, False)


def close_all_but(keep: int) -> None:
    """Close every descriptor but the three standard ones and this one."""
    if not (_close_range(3, keep - 1, 0) and _close_range(keep + 1, _LAST_FD, 0)):
        for fd in _open_fds():
            if fd > 2 and fd != keep:
                with contextlib.suppress(OSError):
                    os.close(fd)


def _close_range(first: int, last: int, flags: int) -> bool:
    """Whether the kernel could do it (Linux 5.9, and 5.11 for a flag)."""
    if first > last:
        return True
    try:
        _syscall("close_range", _SYS_CLOSE_RANGE, *map(ctypes.c_uint, (first, last, flags)))
    except OSError:
        return False
    return True


def _open_fds() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd")]


def die_with_parent(life: int) -> None:
    """Get SIGKILL when the parent's thread ends; end at once where it has ended before this was asked for.

    A change of ids makes the kernel forget it: to be called after that.

    Args:
        life: What is read from a pipe whose other end the parent alone holds, and writes nothing more to. It is closed.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    ended = select.poll()
    ended.register(life, select.POLLIN)
    if ended.poll(0):
        os._exit(1)
    os.close(life)


def set_dumpable(on: bool) -> None:
    """Whether other processes of the same user may look into this one (ptrace, /proc/<pid>)."""
    _prctl(_PR_SET_DUMPABLE, int(on))


def no_new_privileges() -> None:
    """No exec gains privileges any more, for this process and all it starts."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def keep_capabilities(keep: int) -> None:
    """Give up every capability that is not in the bit mask `keep`."""
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = _CapHeader(0x20080522, 0)
    low, high = keep & 0xFFFFFFFF, keep >> 32
    data = (_CapData * 2)(_CapData(low, low, 0), _CapData(high, high, 0))
    _check(_libc.capset(ctypes.byref(header), data), "capset")


def drop_bounding(keep: int) -> None:
    """No exec gives a capability that is not in `keep`; needs CAP_SETPCAP."""
    for number in range(last_capability() + 1):
        if not keep >> number & 1:
            _prctl(_PR_CAPBSET_DROP, number)


def last_capability() -> int:
    """The highest number of a capability that this kernel knows."""
    global _last
    if _last < 0:
        try:
            with open("/proc/sys/kernel/cap_last_cap", "rb") as f:
                _last = int(f.read())
        except OSError:
            _last = 40
    return _last


_last = -1


def supported() -> str | None:
    """Why this machine can't have sandboxes at all; None when nothing is known against it."""
    if sys.platform != "linux":
        return f"{sys.platform} has no namespaces"
    if os.uname().machine not in _SYS_CLONE:
        return f"{os.uname().machine} is not supported: {' and '.join(_SYS_CLONE)} are"
    return None
