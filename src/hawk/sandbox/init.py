"""The first process of a sandbox: a static program of some 200 bytes that we write ourselves.

Runs inside the keeper: imports only the standard library.

Pid 1 keeps the sandbox's namespaces alive and is given the orphans of every command. It must not end (all processes
would be killed with it), need nothing of the sandbox's files (which may hold no shell and no libc), and cost next to
nothing: hundreds of sandboxes run at once. This one sets SIGCHLD to SIG_IGN, at which the kernel itself reaps each
child as it exits, whether SIGCHLD is blocked or not; reaps what died before that; says on its standard input that it
runs (who started bwrap waits for that); and sleeps for ever. It handles no
signal, so none that is sent from inside the sandbox reaches it, SIGKILL included: see pid_namespaces(7).
"""

from __future__ import annotations

import os

from hawk.sandbox.executable import executable, memory_file

X86_64 = """
b8 0d 00 00 00                     |         mov $13, %eax          | rt_sigaction(
bf 11 00 00 00                     |         mov $17, %edi          |   SIGCHLD,
48 8d 35 4b 00 00 00               |         lea action(%rip), %rsi |   &action,
31 d2                              |         xor %edx, %edx         |   NULL,
41 ba 08 00 00 00                  |         mov $8, %r10d          |   size of a signal set)
0f 05                              |         syscall                |
b8 3d 00 00 00                     | reap:   mov $61, %eax          | wait4(
bf ff ff ff ff                     |         mov $-1, %edi          |   any child,
31 f6                              |         xor %esi, %esi         |   NULL,
ba 01 00 00 00                     |         mov $1, %edx           |   WNOHANG,
45 31 d2                           |         xor %r10d, %r10d       |   NULL)
0f 05                              |         syscall                |
85 c0                              |         test %eax, %eax        |
7f e6                              |         jg reap                | as long as there was one
b8 01 00 00 00                     |         mov $1, %eax           | write(
31 ff                              |         xor %edi, %edi         |   standard input: where the keeper listens,
48 8d 35 19 00 00 00               |         lea action(%rip), %rsi |   any byte,
ba 01 00 00 00                     |         mov $1, %edx           |   one of it)
0f 05                              |         syscall                |
b8 03 00 00 00                     |         mov $3, %eax           | close(
31 ff                              |         xor %edi, %edi         |   the same)
0f 05                              |         syscall                |
b8 22 00 00 00                     | wait:   mov $34, %eax          | pause()
0f 05                              |         syscall                |
eb f7                              |         jmp wait               | for ever
01 00 00 00 00 00 00 00            | action: .quad 1                | SIG_IGN,
00 00 00 00 00 00 00 00            |         .quad 0                | no flags,
00 00 00 00 00 00 00 00            |         .quad 0                | no restorer,
00 00 00 00 00 00 00 00            |         .quad 0                | no mask
"""
"""Machine code, GNU assembly, meaning. The call's number is in rax; arguments in rdi, rsi, rdx, r10; result in rax."""

AARCH64 = """
20 02 80 d2                        |         mov x0, #17            | rt_sigaction(SIGCHLD,
81 03 00 10                        |         adr x1, action         |   &action,
02 00 80 d2                        |         mov x2, #0             |   NULL,
03 01 80 d2                        |         mov x3, #8             |   size of a signal set)
c8 10 80 d2                        |         mov x8, #134           |
01 00 00 d4                        |         svc #0                 |
00 00 80 92                        | reap:   mov x0, #-1            | wait4(any child,
01 00 80 d2                        |         mov x1, #0             |   NULL,
22 00 80 d2                        |         mov x2, #1             |   WNOHANG,
03 00 80 d2                        |         mov x3, #0             |   NULL)
88 20 80 d2                        |         mov x8, #260           |
01 00 00 d4                        |         svc #0                 |
1f 00 00 f1                        |         cmp x0, #0             |
2c ff ff 54                        |         b.gt reap              | as long as there was one
00 00 80 d2                        |         mov x0, #0             | write(standard input: where the keeper listens,
c1 01 00 10                        |         adr x1, action         |   any byte,
22 00 80 d2                        |         mov x2, #1             |   one of it)
08 08 80 d2                        |         mov x8, #64            |
01 00 00 d4                        |         svc #0                 |
00 00 80 d2                        |         mov x0, #0             | close(the same)
28 07 80 d2                        |         mov x8, #57            |
01 00 00 d4                        |         svc #0                 |
00 00 80 d2                        | wait:   mov x0, #0             | ppoll(no files,
01 00 80 d2                        |         mov x1, #0             |   none of them,
02 00 80 d2                        |         mov x2, #0             |   no end,
03 00 80 d2                        |         mov x3, #0             |   the mask as it is)
28 09 80 d2                        |         mov x8, #73            |
01 00 00 d4                        |         svc #0                 |
fa ff ff 17                        |         b wait                 | for ever
01 00 00 00 00 00 00 00            | action: .quad 1                | SIG_IGN,
00 00 00 00 00 00 00 00            |         .quad 0                | no flags,
00 00 00 00 00 00 00 00            |         .quad 0                | no restorer,
00 00 00 00 00 00 00 00            |         .quad 0                | no mask
"""
"""The same for aarch64, which has no pause: number in x8, arguments in x0 to x3, result in x0."""

_LISTINGS = {"x86_64": X86_64, "aarch64": AARCH64}


def elf(machine: str | None = None) -> bytes:
    """The program as an executable file.

    Args:
        machine: `x86_64` or `aarch64`, as `uname -m` names it; by default this machine.

    Raises:
        ValueError: There is no program for that machine.
    """
    machine = os.uname().machine if machine is None else machine
    if machine not in _LISTINGS:
        raise ValueError(f"no sandbox init for {machine!r}: known are {', '.join(_LISTINGS)}")
    listing = _LISTINGS[machine]
    return executable(
        machine, bytes.fromhex("".join(line.partition("|")[0] for line in listing.splitlines()))
    )


def memfd(machine: str | None = None) -> int:
    """A descriptor of the program in memory, to execute as `/proc/self/fd/<n>`; inheritable, the caller closes it.

    Pid 1 inherits it, so it is sealed: a sandbox can't change the program that the next one starts.

    Raises:
        ValueError: There is no program for that machine.
        OSError: The kernel refused: with EACCES when `vm.memfd_noexec` is 2.
    """
    fd = memory_file("init", elf(machine))
    os.set_inheritable(fd, True)
    return fd
