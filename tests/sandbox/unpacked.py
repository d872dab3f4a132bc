"""Unpacking for tests: in a child that has the target as its root, or here without that fence."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest

from hawk.sandbox.descent import OPEN_DIRECTORY
from hawk.sandbox.tarinput import TarInput
from hawk.sandbox.unpacking import Unpacker
from hawk.sandbox.untar import extract
from tests.sandbox.archives import (
    folder,
    hardlink,
    member,
    symlink,
)
from tests.sandbox.rooms import (
    rooted,
)

ROOTFS = (
    folder("./", mode=0o755),
    folder("./bin", mode=0o755),
    member("./bin/su", "su", mode=0o4755, uid=0, gid=5),
    folder("./tmp", mode=0o1777, mtime=1_500_000_000),
    folder("./closed", mode=0o000),
    member("./closed/secret", "x", mode=0o000, uid=1000, gid=1000),
    symlink("./lib", "usr/lib"),
    symlink("./absolute", "/bin/su"),
    hardlink("./bin/su2", "./bin/su"),
    member("./odd\nname\udcff", "odd", pax_headers={"mtime": "1600000000.123456789"}),
    member("./dev/null", kind=tarfile.CHRTYPE, devmajor=1, devminor=3),
    member("./run/fifo", kind=tarfile.FIFOTYPE),
    member("./big", b"0123456789" * 300_000),
)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target"
    path.mkdir()
    return path


def unpack(
    target: Path, data: bytes, *, pipe: bool = False, all_ids: bool = os.geteuid() == 0
) -> dict[str, Any]:
    """Extract in a child that has the target as its root; the fields of the result or the error."""
    with tempfile.TemporaryFile() as f:
        f.write(data)
        f.seek(0)
        if not pipe:
            return rooted(target, lambda: extract(f.fileno(), all_ids=all_ids))
        with subprocess.Popen(["cat"], stdin=f, stdout=subprocess.PIPE) as cat:
            assert cat.stdout is not None
            fd = cat.stdout.fileno()
            return rooted(target, lambda: extract(fd, all_ids=all_ids))


def unpack_here(target: Path, data: bytes, *, layer: bool = False) -> None:
    """The same without a chroot: only our own care keeps it inside."""
    root = os.open(target, OPEN_DIRECTORY)
    try:
        Unpacker(root, all_ids=False).unpack(TarInput(io.BytesIO(data), jumps=True), layer=layer)
    finally:
        os.close(root)


def files_in(target: Path) -> set[str]:
    return {str(p.relative_to(target)) for p in target.rglob("*") if p.is_symlink() or not p.is_dir()}
