"""A small process beside a worker of a machine that deletes its pods when it dies, however it dies.

On a cluster the runner's Job owns the pods, and the cluster removes them with it. Here nobody would: a worker that is
killed says nothing. So this one waits at the end of a pipe; it is no child of the worker and has none of its marks, else it
would be killed with it. It loads the cluster's client only when it is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

from hawk.sandbox.pod import leftovers
from hawk.sandbox.pod.names import Owner

_FINE = b"done"
_PATIENCE = 1800.0  # seconds for which a cluster that is away is tried again
_LATE = 3.0  # seconds after which a pod is there whose creation was under way


class Guard:
    """The worker's end.

    Args:
        owner: Whose pods are guarded.
        namespace: Where they are.
    """

    def __init__(self, owner: Owner, namespace: str) -> None:
        self._note = leftovers.note(owner, namespace)
        process = leftovers.start(namespace, owner.runner, self._note, {}, stdin=subprocess.PIPE)
        assert process.stdin is not None
        self._pipe = process.stdin
        process.wait()

    def release(self) -> None:
        """All is deleted: nothing is left to guard."""
        self._note.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it is gone already
            self._pipe.write(_FINE)
            self._pipe.close()


def main() -> None:
    """Wait for the end of the worker, then delete what it leaves. Arguments: see `leftovers.GUARD`."""
    if os.fork():
        os._exit(0)
    if sys.stdin.buffer.read() == _FINE:
        return
    until = time.monotonic() + _PATIENCE
    pause = 1.0
    while True:
        try:
            asyncio.run(_remove(*sys.argv[1:3]))
        except Exception:
            if time.monotonic() > until:
                return
            time.sleep(pause)
            pause = min(2 * pause, 60.0)
        else:
            Path(sys.argv[3]).unlink(missing_ok=True)
            return


async def _remove(namespace: str, runner: str) -> None:
    from hawk.kube.api import connect
    from hawk.sandbox.pod.sweep import remove_all

    async with await connect(namespace=namespace) as cluster:
        await remove_all(cluster, runner)
        await asyncio.sleep(_LATE)
        await remove_all(cluster, runner)
