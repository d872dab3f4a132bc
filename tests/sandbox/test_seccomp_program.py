"""The filter as a program: its numbers against the kernel's headers, and what it answers on every machine."""

from __future__ import annotations

import errno
import os
import re
import signal
from pathlib import Path

import pytest

from hawk.sandbox import seccomp
from tests.sandbox.bpf import verdict

MACHINES = ("x86_64", "aarch64")
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
AUDIT_ARCH_I386 = 0x40000003
HEADERS = {
    "x86_64": [Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h")],
    "aarch64": [Path("/usr/include/asm-generic/unistd.h")],
}
EXAMINED = ("ioctl", "socket", "socketpair", "clone", "clone3", "unshare", "personality")
REFUSED = [name for name in seccomp.SYSCALLS if name not in EXAMINED]


def header(machine: str) -> dict[str, int]:
    for path in HEADERS[machine]:
        if path.exists():
            found = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", path.read_text(), re.MULTILINE)
            return {
                name: int(digits)
                for name, digits in found
                if name not in ("syscalls", "arch_specific_syscall")
            }
    pytest.skip(f"no kernel headers for {machine}")


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_are_those_of_the_kernel_headers(machine: str) -> None:
    kernel = header(machine)
    column = MACHINES.index(machine)
    ours = {name: numbers[column] for name, numbers in seccomp.SYSCALLS.items()}
    newest = max(kernel.values())
    older = {name: number for name, number in ours.items() if number is None or number <= newest}
    assert older == {name: kernel.get(name) for name in older}
    assert len(older) > 45


def test_calls_newer_than_the_headers_have_one_number_for_all_machines() -> None:
    # Since Linux 5.1 every architecture adds a new call under the same number.
    assert [name for name, (x86, arm) in seccomp.SYSCALLS.items() if x86 >= 424 and x86 != arm] == []


def test_without_an_argument_the_program_is_for_this_machine() -> None:
    if os.uname().machine not in MACHINES:
        pytest.skip("no filter for this machine")
    assert seccomp.program() == seccomp.program(os.uname().machine)


@pytest.mark.parametrize("machine", ["i686", "aarch64_be", "riscv64", ""])
def test_a_machine_without_a_filter_is_named(machine: str) -> None:
    with pytest.raises(ValueError, match=rf"'{machine}'.*x86_64, aarch64"):
        seccomp.program(machine)


@pytest.mark.parametrize("machine", MACHINES)
def test_exactly_the_listed_calls_are_refused(machine: str) -> None:
    program = seccomp.program(machine)
    column = MACHINES.index(machine)
    answers = {number: verdict(program, AUDIT_ARCH[machine], number) for number in range(1024)}
    refused = {number for name in REFUSED if (number := seccomp.SYSCALLS[name][column]) is not None}
    clone3 = seccomp.SYSCALLS["clone3"][column]
    assert {number for number, answer in answers.items() if answer == errno.EPERM} == refused
    assert [number for number, answer in answers.items() if answer == errno.ENOSYS] == [clone3]


@pytest.mark.parametrize("machine", MACHINES)
def test_arguments_decide_alike_on_every_machine(machine: str) -> None:
    program = seccomp.program(machine)

    def answer(name: str, *args: int) -> int:
        number = seccomp.SYSCALLS[name][MACHINES.index(machine)]
        assert number is not None
        return verdict(program, AUDIT_ARCH[machine], number, *args)

    high = 1 << 32
    for flag in seccomp.CLONE_NEW.values():
        assert answer("clone", flag | signal.SIGCHLD) == errno.EPERM
        assert answer("unshare", flag) == errno.EPERM
    assert answer("clone", 0x003D0F00) == 0  # what pthread_create asks for
    assert answer("clone", 0x01200011) == 0  # what fork asks for
    assert answer("clone", 0x00004111) == 0  # what vfork asks for
    assert answer("unshare", 0x00000080) == errno.EPERM  # a time namespace
    assert answer("unshare", 0x00100000) == errno.EPERM  # an empty mount namespace, Linux 7.1
    assert answer("unshare", high) == errno.EPERM
    assert answer("unshare", sum(seccomp.UNSHARE_OWN.values())) == 0
    for family in (15, 17, 38, 40):
        for name in ("socket", "socketpair"):
            assert answer(name, family, 1) == errno.EPERM
            assert answer(name, family | high, 1) == errno.EPERM
    for family in (1, 2, 10, 16):
        assert answer("socket", family, 1) == 0
    for command in (0x5412, 0x541C, 0x5423):
        assert answer("ioctl", 0, command) == errno.EPERM
        assert answer("ioctl", 0, command | high) == errno.EPERM
    assert answer("ioctl", 0x5412, 0x5413) == 0  # a descriptor that looks like a refused command
    assert answer("personality", 0x40000) == answer("personality", 0xFFFFFFFF) == 0
    assert answer("personality", 0x0400000) == errno.EPERM  # READ_IMPLIES_EXEC


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_another_architecture_are_refused_whatever_they_are(machine: str) -> None:
    program = seccomp.program(machine)
    for arch in {AUDIT_ARCH_I386, *AUDIT_ARCH.values()} - {AUDIT_ARCH[machine]}:
        assert {verdict(program, arch, number) for number in (0, 1, 20, 39, 172, 0xFFFFFFFF)} == {errno.EPERM}
