"""A process that has imported Inspect and forks workers on request.

Importing Inspect costs seconds of CPU; forking costs a few milliseconds. Each supervisor has one zygote (a copy of
the server's template, `hawk.runner.template`, or else a process of its own) and asks it for each worker over a
socket pair.
A worker is forked twice, so that it becomes a child of the supervisor, which is the nearest subreaper: exit
codes reach the supervisor, and the zygote may end while workers run on. The end of the socket ends the zygote.

`python -m hawk.runner.zygote FD`
"""

from __future__ import annotations

import gc
import os
import select
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from hawk.runner.title import name_process
from hawk.runner.wire import RUN, Forked, ForkRequest, receive, send
from hawk.store.rundir import RunDir

if TYPE_CHECKING:
    from hawk.bridge.preload import Preload

_SCRIPT = 1_000_000
"""Of a script that long, so many bytes are looked at for the names of models."""


def serve(sock: socket.socket, preload: Preload) -> ForkRequest | None:
    """Answer fork requests until the socket ends, importing while nobody asks.

    An enumeration is not kept waiting for all that workers need, which is imported once for all of them.

    Returns:
        In a forked worker: its request. In the zygote itself: None, when it is time to exit.
    """
    while True:
        while not preload.done and not _asked(sock):
            preload.step()
        request = receive(sock, ForkRequest)
        if request is None:
            return None
        preload.know(_job(request))
        preload.finish(worker=request.mode == RUN)
        gc.freeze()  # pages that the collector does not write to stay shared with the workers
        read, write = os.pipe()
        try:
            middle = os.fork()
        except OSError as ex:
            send(sock, Forked(error=f"fork failed: {ex.strerror}"))
            os.close(read)
            os.close(write)
            continue
        if middle == 0:
            os.close(read)
            pid = os.fork()
            if pid:
                os.write(write, str(pid).encode())
                os._exit(0)
            os.close(write)
            sock.close()
            return request
        os.close(write)
        with os.fdopen(read, "rb") as f:
            text = f.read()
        os.waitpid(middle, 0)
        send(sock, Forked(pid=int(text)) if text else Forked(error="the forked process died at once"))


def _job(request: ForkRequest) -> str:
    """Text that names the job's models: its specification, its script, the variable with Inspect's default."""
    text = [request.environ.get("INSPECT_EVAL_MODEL", "")]
    try:
        run_dir = RunDir(Path(request.run_dir))
        text.append(run_dir.spec_file.read_text())
        script = run_dir.read_spec().script
        if script is not None:
            with Path(script).open(errors="replace") as f:
                text.append(f.read(_SCRIPT))
    except Exception:  # noqa: S110  # the worker says what is wrong with them
        pass
    return "\n".join(text)


def _asked(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0])


def run(sock: socket.socket, preload: Preload) -> NoReturn:
    """Be the zygote, and in forked processes their worker, to the end of the process."""
    request = serve(sock, preload)
    if request is None:
        os._exit(0)  # taking the interpreter apart would take a second, for nothing
    from hawk.runner import worker

    which = str(request.index) if request.mode == RUN else request.mode
    name_process(worker.__name__, f"{which} of {Path(request.run_dir).name}")
    gc.enable()
    worker.main(request)


def main() -> None:
    gc.disable()  # imports make objects that stay: looking for garbage among them took a fifth of the time
    sock = socket.socket(fileno=int(sys.argv[1]))
    from hawk.bridge.preload import Preload
    from hawk.runner import worker  # noqa: F401  # before the fork, for all workers

    run(sock, Preload())


if __name__ == "__main__":
    main()
