"""A row of system calls, and a program of some hundred bytes that makes them and then becomes another program.

Keeper side: standard library only. A command needs some forty calls between its start and its exec (`command.py`), a
sandbox as many before it is bwrap's (`spawn.py`). A forked child of the keeper could make them, but a fork of a Python
process copies hundreds of pages on the way: five times the processor time of the command itself. This program is
started as any other, by `posix_spawn`, shares nothing with the keeper, and does what the tape says.

A row is eight words: the call's number, six arguments, and whether it may fail. The first call that fails and must not
is the end: where and why goes to descriptor 3, and the exit code is 126.
"""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import dataclass

from hawk.sandbox.executable import ADDRESS, HEADERS, executable

X86_64 = """
48 8d 1d 70 00 00 00  |         lea script(%rip), %rbx   | the first row
49 c7 c5 fe ff ff ff  |         mov $-2, %r13            | so far every program was missing (ENOENT)
48 8b 03              | next:   mov (%rbx), %rax         | its call,
48 8b 7b 08           |         mov 8(%rbx), %rdi        |
48 8b 73 10           |         mov 16(%rbx), %rsi       |
48 8b 53 18           |         mov 24(%rbx), %rdx       | its arguments
4c 8b 53 20           |         mov 32(%rbx), %r10       |
4c 8b 43 28           |         mov 40(%rbx), %r8        |
48 85 c0              |         test %rax, %rax          | a negative call is the end
78 28                 |         js last                  |
0f 05                 |         syscall                  |
48 3d 01 f0 ff ff     |         cmp $-4095, %rax         | -4095 to -1 is an error;
72 18                 |         jb done                  |
48 83 7b 38 01        |         cmpq $1, 56(%rbx)        | if it must not fail,
72 1a                 |         jb fail                  | that is the end;
74 0f                 |         je done                  | if it does not matter, go on;
48 83 f8 fe           |         cmp $-2, %rax            | a missing program (ENOENT)
74 09                 |         je done                  |
48 83 f8 ec           |         cmp $-20, %rax           | or a path through a file (ENOTDIR)
74 03                 |         je done                  | is no news;
49 89 c5              |         mov %rax, %r13           | anything else is told at the end
48 83 c3 40           | done:   add $64, %rbx            | the next row
eb bc                 |         jmp next                 |
4c 89 e8              | last:   mov %r13, %rax           | no program could be started
50                    | fail:   push %rax                | tell where and why
53                    |         push %rbx                | as two words:
b8 01 00 00 00        |         mov $1, %eax             | write(
bf 03 00 00 00        |         mov $3, %edi             | 3,
48 89 e6              |         mov %rsp, %rsi           | the two,
ba 10 00 00 00        |         mov $16, %edx            | 16)
0f 05                 |         syscall                  |
b8 e7 00 00 00        |         mov $231, %eax           | exit_group(
bf 7e 00 00 00        |         mov $126, %edi           | 126)
0f 05                 |         syscall                  |
"""
"""Machine code, GNU assembly, meaning. The call's number is in rax; arguments in rdi, rsi, rdx, r10, r8; result in rax."""

AARCH64 = """
f3 03 00 10           |         adr x19, script          | the first row
34 00 80 92           |         mov x20, #-2             | so far every program was missing (ENOENT)
68 02 40 f9           | next:   ldr x8, [x19]            | its call,
60 86 40 a9           |         ldp x0, x1, [x19, #8]    |
62 8e 41 a9           |         ldp x2, x3, [x19, #24]   | its arguments
64 16 40 f9           |         ldr x4, [x19, #40]       |
e8 01 f8 b7           |         tbnz x8, #63, last       | a negative call is the end
01 00 00 d4           |         svc #0                   |
1f fc 3f b1           |         cmn x0, #4095            | -4095 to -1 is an error;
43 01 00 54           |         b.cc done                |
69 1e 40 f9           |         ldr x9, [x19, #56]       | if it must not fail,
69 01 00 b4           |         cbz x9, fail             | that is the end;
3f 05 00 f1           |         cmp x9, #1               | if it does not matter,
c0 00 00 54           |         b.eq done                | go on;
1f 08 00 b1           |         cmn x0, #2               | a missing program (ENOENT)
80 00 00 54           |         b.eq done                |
1f 50 00 b1           |         cmn x0, #20              | or a path through a file (ENOTDIR)
40 00 00 54           |         b.eq done                | is no news;
f4 03 00 aa           |         mov x20, x0              | anything else is told at the end
73 02 01 91           | done:   add x19, x19, #64        | the next row
ee ff ff 17           |         b next                   |
e0 03 14 aa           | last:   mov x0, x20              | no program could be started
f3 03 bf a9           | fail:   stp x19, x0, [sp, #-16]! | tell where and why, as two words:
08 08 80 d2           |         mov x8, #64              | write(
60 00 80 d2           |         mov x0, #3               | 3,
e1 03 00 91           |         mov x1, sp               | the two,
02 02 80 d2           |         mov x2, #16              | 16)
01 00 00 d4           |         svc #0                   |
c8 0b 80 d2           |         mov x8, #94              | exit_group(
c0 0f 80 d2           |         mov x0, #126             | 126)
01 00 00 d4           |         svc #0                   |
"""
"""The same for aarch64: number in x8, arguments in x0 to x4, result in x0."""

LISTINGS = {"x86_64": X86_64, "aarch64": AARCH64}

CALLS = {
    "capset": (126, 91),
    "chdir": (80, 49),
    "close": (3, 57),
    "close_range": (436, 436),
    "execve": (59, 221),
    "fchmodat": (268, 53),
    "fchownat": (260, 54),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "mkdirat": (258, 34),
    "mount": (165, 40),
    "openat": (257, 56),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "setgroups": (116, 159),
    "setns": (308, 268),
    "setresgid": (119, 149),
    "setresuid": (117, 147),
    "setsid": (112, 157),
    "splice": (275, 76),
    "umask": (95, 166),
    "unshare": (272, 97),
    "write": (1, 64),
}
"""Numbers of the calls for x86_64 and aarch64, from the kernel's tables."""

REPORT = 3
"""Descriptor for where and why; `tell` reads what was written to it."""

MUST, MAY_FAIL, TRY = 0, 1, 2
"""What a failed call means: the end; nothing; another is tried, and the last reason but "missing" counts."""

_ROW = 64
_WORDS = 1 << 64


@dataclass(frozen=True)
class At:
    """A place among the tape's own data."""

    offset: int


class Tape:
    """Calls in order, with the data that they point to.

    Args:
        machine: As `uname -m` names it; by default this one.

    Raises:
        ValueError: There is no player for that machine.
    """

    def __init__(self, machine: str | None = None) -> None:
        self.machine = os.uname().machine if machine is None else machine
        if self.machine not in LISTINGS:
            raise ValueError(f"no player for {self.machine!r}: known are {', '.join(LISTINGS)}")
        self._column = list(LISTINGS).index(self.machine)
        self._rows: list[tuple[int | At, ...]] = []
        self._data = bytearray()
        self._pointers: list[tuple[int, At]] = []
        self._first = 0
        self.stages: list[str] = []

    def call(self, name: str, *arguments: int | At, stage: str = "enter", fails: int = MUST) -> None:
        """Add a call.

        Args:
            stage: What is told to have failed.
            fails: What its failure means.
        """
        row = (CALLS[name][self._column], *arguments, *([0] * (6 - len(arguments))), fails)
        self._rows.append(row)
        self.stages.append(stage)

    def data(self, content: bytes) -> At:
        """Add data, aligned to words."""
        self._data += bytes(-len(self._data) % 8)
        at = At(len(self._data))
        self._data += content
        return at

    def text(self, text: str) -> At:
        """Add a string, with the zero at its end."""
        return self.data(os.fsencode(text) + b"\0")

    def words(self, words: list[int | At]) -> At:
        """Add words, some of them pointers to other data."""
        numbers = [0 if isinstance(word, At) else word for word in words]
        at = self.data(struct.pack(f"<{len(words)}Q", *numbers))
        self._pointers += [(at.offset + 8 * i, word) for i, word in enumerate(words) if isinstance(word, At)]
        return at

    def texts(self, texts: list[str]) -> At:
        """Add strings, and a table of where they are with a null at its end, as for execve(2)."""
        return self.words([*(self.text(text) for text in texts), 0])

    def build(self) -> bytes:
        """The program, with the tape in it."""
        code = bytes.fromhex("".join(line.partition("|")[0] for line in LISTINGS[self.machine].splitlines()))
        self._first = ADDRESS + HEADERS + len(code)
        base = self._first + _ROW * (len(self._rows) + 1)
        rows = b"".join(
            struct.pack("<8Q", *((w.offset + base if isinstance(w, At) else w) % _WORDS for w in row))
            for row in [*self._rows, (-1, 0, 0, 0, 0, 0, 0, 0)]
        )
        data = bytearray(self._data)
        for offset, at in self._pointers:
            struct.pack_into("<Q", data, offset, at.offset + base)
        return executable(self.machine, code, rows + bytes(data))

    def tell(self, report: bytes) -> tuple[int, str]:
        """(errno, stage) of what was written to the report."""
        if len(report) < 16:
            return errno.EIO, "enter"
        place, result = struct.unpack_from("<Qq", report)
        row = (place - self._first) // _ROW
        stage = self.stages[row] if row < len(self.stages) else "exec"
        return (-result if -4096 < result < 0 else errno.EIO), stage
