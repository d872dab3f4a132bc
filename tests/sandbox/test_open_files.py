"""What the machine's limit on open files does to sandboxes, in a process of its own: a limit can't be raised again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, resource, sys
from hawk.sandbox import pool
from hawk.sandbox.config import BubblewrapConfig
from hawk.sandbox.group import create, create_message
from hawk.sandbox.prepare import Lower

async def main(soft, hard, at_once):
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    keeper, config = await pool.keeper(), BubblewrapConfig()
    try:
        box = await create(keeper, create_message(config, Lower(), "box", "none"), config)
        command = ["sh", "-c", "ulimit -Sn; ulimit -Hn; sleep 0.5"]
        done = await asyncio.gather(*(box.run(command) for _ in range(at_once)))
        print(*{one.stdout.decode().replace(chr(10), " ") for one in done}, {one.code for one in done})
        await box.close()
    finally:
        await pool.close()

asyncio.run(main(*map(int, sys.argv[1:])))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "at_once", "seen"),
    [
        (512, 512, 1, "512 512"),
        (64, 4096, 40, "4096 4096"),
    ],
    ids=["less than a sandbox may have", "too few unless raised"],
)
def test_commands_run_under_the_machines_limit_on_open_files(
    home: Path, soft: int, hard: int, at_once: int, seen: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(soft), str(hard), str(at_once)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout.split() == [*seen.split(), "{0}"], done.stderr
