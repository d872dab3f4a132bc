"""What a seccomp filter answers, worked out in Python: for machines that the tests don't run on."""

from __future__ import annotations

import struct

ALLOW = 0x7FFF0000
ERRNO = 0x00050000


def verdict(program: bytes, arch: int, number: int, *args: int) -> int:
    """Run a filter over one call, as the kernel would.

    Returns:
        The errno that the call fails with; 0 when it is allowed.
    """
    padded = [value & 0xFFFFFFFFFFFFFFFF for value in (*args, 0, 0, 0, 0, 0, 0)[:6]]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *padded)
    steps = list(struct.iter_unpack("<HBBI", program))
    word = at = 0
    while True:
        code, if_true, if_false, constant = steps[at]
        if code == 0x06:
            break
        if code == 0x20:
            (word,) = struct.unpack_from("<I", data, constant)
            at += 1
            continue
        holds = {0x15: word == constant, 0x35: word >= constant, 0x45: word & constant != 0}[code]
        at += 1 + (if_true if holds else if_false)
    if constant == ALLOW:
        return 0
    assert constant & 0xFFFF0000 == ERRNO
    return int(constant & 0xFFFF)
