"""A worker that is killed: its pods go, whoever is left to delete them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hawk.sandbox.pod import leftovers
from tests.kube.fake import Fake
from tests.kube.test_api import kubeconfig

WORKER = """
import asyncio, time
from hawk.sandbox.pod import site as sites
from hawk.sandbox.pod.group import About, open_group
from hawk.sandbox.pod.options import PodConfig
async def main():
    await open_group(await sites.current(), PodConfig(), name="x", about=About(), say=lambda _: None)
    print("there", flush=True)
    time.sleep(300)
asyncio.run(main())
"""


def guards(runner: str) -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if runner in (p.info["cmdline"] or [])]


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_killed_worker(kube: Fake, tmp_path: Path, guarded: bool) -> None:
    home = tmp_path / "home"
    environ = {
        **os.environ,
        "HAWK_HOME": str(home),
        "KUBECONFIG": kubeconfig(tmp_path / "config", kube.url, {}),
    }
    worker = subprocess.Popen(  # noqa: ASYNC220  # it is to be killed
        [sys.executable, "-c", WORKER], env=environ, stdout=subprocess.PIPE
    )
    assert worker.stdout is not None
    assert await asyncio.to_thread(worker.stdout.readline) == b"there\n"
    assert len(kube.of("Pod")) == 1
    (note,) = (home / "sandbox" / "pods").glob("*.json")
    assert leftovers.sweep(home / "sandbox") == []
    if not guarded:
        doomed = guards(note.stem)
        for guard in doomed:
            guard.kill()
        psutil.wait_procs(doomed, timeout=60)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    worker.stdout.close()
    if not guarded:
        assert await asyncio.to_thread(leftovers.sweep, home / "sandbox") == [note.stem]
    until = time.monotonic() + 100
    while kube.of("Pod") or kube.of("NetworkPolicy") or guards(note.stem):
        assert time.monotonic() < until
        await asyncio.sleep(0.1)
    assert list((home / "sandbox" / "pods").iterdir()) == []
