"""Static executables that we write ourselves. Keeper side: standard library only."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct

MACHINES = {"x86_64": 62, "aarch64": 183}
"""Machine to its number in ELF."""

ADDRESS = 0x400000
"""Where the file lies in memory."""

_ALIGNMENT = 0x10000  # the largest page of any kernel for these machines
_ELF_HEADER = "<16sHHIQQQIHHHHHH"
_PROGRAM_HEADER = "<IIQQQQQQ"
_MFD_EXEC = 0x10

HEADERS = struct.calcsize(_ELF_HEADER) + struct.calcsize(_PROGRAM_HEADER)
"""Bytes before the code."""


def executable(machine: str, code: bytes, data: bytes = b"") -> bytes:
    """An ELF file with one segment that can be read and executed: the headers, the code, its data."""
    header = struct.pack(
        _ELF_HEADER,
        b"\x7fELF\x02\x01\x01",  # 64 bits, little endian, version 1, System V
        2,  # an executable at fixed addresses
        MACHINES[machine],
        1,
        ADDRESS + HEADERS,  # where it starts
        struct.calcsize(_ELF_HEADER),  # where the program header is
        0,  # no sections
        0,
        struct.calcsize(_ELF_HEADER),
        struct.calcsize(_PROGRAM_HEADER),
        1,
        0,
        0,
        0,
    )
    size = HEADERS + len(code) + len(data)
    segment = struct.pack(_PROGRAM_HEADER, 1, 0b101, 0, ADDRESS, ADDRESS, size, size, _ALIGNMENT)
    return header + segment + code + data


def memory_file(name: str, content: bytes) -> int:
    """A descriptor of a program in memory, to execute as `/proc/self/fd/<n>`; not inheritable.

    It is sealed: one that could be written to would let who inherits it change what others start.

    Raises:
        OSError: The kernel refused: with EACCES when `vm.memfd_noexec` is 2.
    """
    flags = os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC
    try:
        fd = os.memfd_create(name, flags | _MFD_EXEC)
    except OSError as ex:
        if ex.errno != errno.EINVAL:  # Linux before 6.3 does not know MFD_EXEC, and needs none
            raise
        fd = os.memfd_create(name, flags)
    with contextlib.ExitStack() as on_error:
        on_error.callback(os.close, fd)
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        fcntl.fcntl(
            fd,
            fcntl.F_ADD_SEALS,
            fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE,
        )
        on_error.pop_all()
    return fd
