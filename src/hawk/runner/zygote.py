"""A process that has imported Inspect and forks workers on request.

Importing Inspect costs 1.4 s of CPU; forking costs a few milliseconds. The supervisor starts one zygote (the
server keeps one ready before a job is even submitted) and asks it for each worker over a socket pair.
A worker is forked twice, so that it becomes a child of the supervisor, which is the nearest subreaper: exit
codes reach the supervisor, and the zygote may end while workers run on. The end of the socket ends the zygote.

`python -m hawk.runner.zygote FD`
"""

from __future__ import annotations

import collections
import gc
import os
import select
import socket
import sys
from collections.abc import Iterator

from hawk.runner.wire import RUN, Forked, ForkRequest, receive, send

_DONE = object()


def serve(sock: socket.socket, imports: Iterator[None]) -> ForkRequest | None:
    """Answer fork requests until the socket ends, importing while nobody asks.

    Args:
        imports: Each step imports a little more of what workers need. An enumeration is not kept waiting for
            it: it needs little. Workers need all of it, which is imported once for all of them.

    Returns:
        In a forked worker: its request. In the zygote itself: None, when it is time to exit.
    """
    ready = False
    while True:
        while not ready and not _asked(sock):
            ready = next(imports, _DONE) is _DONE
            if ready:
                _share_memory()
        request = receive(sock, ForkRequest)
        if request is None:
            return None
        if request.mode == RUN and not ready:
            collections.deque(imports, maxlen=0)
            _share_memory()
            ready = True
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


def _share_memory() -> None:
    """Keep the collector off what is imported: pages that it does not write to stay shared with the workers."""
    gc.collect()
    gc.freeze()


def _asked(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0])


def main() -> None:
    sock = socket.socket(fileno=int(sys.argv[1]))
    from hawk.bridge.preload import preload
    from hawk.runner import worker

    request = serve(sock, preload())
    if request is None:
        os._exit(0)  # taking the interpreter apart would take a second, for nothing
    worker.main(request)


if __name__ == "__main__":
    main()
