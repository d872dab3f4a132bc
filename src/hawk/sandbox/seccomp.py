"""The system call filter of everything that runs in a sandbox.

Runs inside the keeper: imports only the standard library.

Namespaces and dropped capabilities bound what a command can reach. The filter closes what they leave open: nested
namespaces (a new user namespace hands out every capability again, and with them most of the kernel's attack
surface), kernel interfaces that are global whatever namespace the caller is in, and subsystems that have been the
way out before and that no evaluation needs. Everything else is allowed, calls that are newer than this list too.

A refused call fails with EPERM, as it would for want of a capability, so programs take the path they have for that.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import struct

Instruction = tuple[int, int, int, int]
"""A `struct sock_filter`: operation, instructions to skip when true, when false, constant."""

SYSCALLS: dict[str, tuple[int, int | None]] = {
    # Looked at more closely, by their arguments: see _EXAMINED.
    "ioctl": (16, 29),
    "socket": (41, 198),
    "clone": (56, 220),
    "clone3": (435, 435),
    "unshare": (272, 97),
    "socketpair": (53, 199),
    "personality": (135, 92),
    # Namespaces and mounts.
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    # Files by handle: a handle leads past every mount to anything on the same file system.
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "lookup_dcookie": (212, 18),
    # Keyrings: no namespace is around them.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # Subsystems with a history of escapes.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    # Other processes' insides, beyond what ptrace needs.
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # The machine as a whole.
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "syslog": (103, 116),
    "iopl": (172, None),
    "ioperm": (173, None),
    "nfsservctl": (180, 42),
    "vhangup": (153, 58),
}
"""Every call that the filter knows: name to its number on x86_64 and on aarch64 (None: there is no such call)."""

CLONE_NEW = {
    "NEWNS": 0x00020000,
    "NEWCGROUP": 0x02000000,
    "NEWUTS": 0x04000000,
    "NEWIPC": 0x08000000,
    "NEWUSER": 0x10000000,
    "NEWPID": 0x20000000,
    "NEWNET": 0x40000000,
}
"""Flags of clone that make a namespace. Its low byte is a signal, so it can't ask for a time namespace (0x80)."""

UNSHARE_OWN = {
    "VM": 0x00000100,
    "FS": 0x00000200,
    "FILES": 0x00000400,
    "SIGHAND": 0x00000800,
    "THREAD": 0x00010000,
    "SYSVSEM": 0x00040000,
}
"""Flags of unshare that make no namespace. The others are refused, known or not: newer kernels (7.1) have more."""

REFUSED_FAMILIES = {
    "AF_KEY": 15,
    "AF_PACKET": 17,
    "AF_ALG": 38,
    # Reaches the hypervisor, or the virtual machines of this host: its addresses belong to the machine, not to a
    # network namespace, so a sandbox without any network would still have this one.
    "AF_VSOCK": 40,
}
"""Domains of socket that are refused."""

REFUSED_IOCTLS = {
    "TIOCSTI": 0x5412,  # types into the terminal, which executes it after the sandbox is gone
    "TIOCLINUX": 0x541C,  # the same by the console's paste
    "TIOCSETD": 0x5423,  # loads a line discipline
}
"""Commands of ioctl that are refused."""

PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0x40000, 0xFFFFFFFF)
"""Plain, 32-bit uname, 2.6 uname, both, no address randomisation (debuggers), ask. The rest weakens protections."""

_WORD = 0xFFFFFFFF
_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K

_ALLOW: Instruction = (_RETURN, 0, 0, 0x7FFF0000)
_EPERM: Instruction = (_RETURN, 0, 0, 0x00050000 | errno.EPERM)
_ENOSYS: Instruction = (_RETURN, 0, 0, 0x00050000 | errno.ENOSYS)

# Offsets in struct seccomp_data.
_CALL: Instruction = (_LOAD, 0, 0, 0)
_ARCHITECTURE: Instruction = (_LOAD, 0, 0, 4)


def _argument(index: int, *, high: bool = False) -> Instruction:
    """Load the low (or high) word of an argument. The kernel takes an `int` from the low one and ignores the other."""
    return (_LOAD, 0, 0, 16 + 8 * index + (4 if high else 0))


def _when(comparison: int, constant: int, body: list[Instruction]) -> list[Instruction]:
    """`body` when the loaded word compares so with the constant, else on to what follows it."""
    return [(comparison, 0, len(body), constant), *body]


def _refuse(index: int, constants: dict[str, int]) -> list[Instruction]:
    tests = [step for constant in constants.values() for step in _when(_EQUAL, constant, [_EPERM])]
    return [_argument(index), *tests, _ALLOW]


_EXAMINED: dict[str, list[Instruction]] = {
    "ioctl": _refuse(1, REFUSED_IOCTLS),
    "socket": _refuse(0, REFUSED_FAMILIES),
    "socketpair": _refuse(0, REFUSED_FAMILIES),
    "clone": [_argument(0), *_when(_ANY_BIT, sum(CLONE_NEW.values()), [_EPERM]), _ALLOW],
    # Its flags lie in memory, out of a filter's sight. Told that there is no such call, libc uses clone.
    "clone3": [_ENOSYS],
    "unshare": [
        _argument(0),
        *_when(_ANY_BIT, _WORD & ~sum(UNSHARE_OWN.values()), [_EPERM]),
        _argument(0, high=True),
        *_when(_ANY_BIT, _WORD, [_EPERM]),
        _ALLOW,
    ],
    "personality": [
        _argument(0),
        *(step for value in PERSONALITIES for step in _when(_EQUAL, value, [_ALLOW])),
        _EPERM,
    ],
}
"""Call to what decides about it, always with a return at its end. Every other call of `SYSCALLS` is refused."""

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
_NO_CALL = 0xFFFFFFFF


@functools.cache
def program(machine: str | None = None) -> bytes:
    """The filter as an array of `struct sock_filter`: for `install`, and for the `--seccomp` of bwrap.

    Made once and remembered, so a keeper may call it ahead of its children.

    Args:
        machine: `x86_64` or `aarch64`, as `uname -m` names it; by default this machine.

    Raises:
        ValueError: There is no filter for that machine.
    """
    machine = os.uname().machine if machine is None else machine
    if machine not in _AUDIT_ARCH:
        raise ValueError(f"no system call filter for {machine!r}: known are {', '.join(_AUDIT_ARCH)}")
    column = list(_AUDIT_ARCH).index(machine)

    # Another architecture's numbers mean other calls: on x86_64, those of 32-bit programs and of x32.
    steps = [_ARCHITECTURE, (_EQUAL, 1, 0, _AUDIT_ARCH[machine]), _EPERM, _CALL]
    if machine == "x86_64":
        # -1 is no call: a tracer puts it there to skip one and supply the result itself.
        steps += _when(_AT_LEAST, _X32, [*_when(_EQUAL, _NO_CALL, [_ALLOW]), _EPERM])
    for name, numbers in SYSCALLS.items():
        number = numbers[column]
        if number is not None:
            steps += _when(_EQUAL, number, _EXAMINED.get(name, [_EPERM]))
    steps.append(_ALLOW)
    return b"".join(struct.pack("<HBBI", *step) for step in steps)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2

_prctl = ctypes.CDLL(None, use_errno=True).prctl
_prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
_prctl.restype = ctypes.c_int


def install(program: bytes) -> None:
    """Put the calling thread under the filter, for good: its children and what it executes inherit it.

    Also sets `no_new_privs`, without which an ordinary user may not install one. Meant for a forked child right
    before its exec; needs neither imports nor files.

    Raises:
        OSError: The kernel refused, with its errno.
    """
    fprog = _Program(len(program) // struct.calcsize("<HBBI"), program)
    for call in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(fprog), 0, 0),
    ):
        if _prctl(*call) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"cannot install the system call filter: {os.strerror(number)}")
