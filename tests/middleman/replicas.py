"""Several real middlemen that share a database, behind one address as a cluster's Service is one."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.middleman.running import Middleman
from tests.system import until

KEY = "0123456789abcdef" * 4


@contextmanager
def replicas(base: Path, config: dict[str, Any], database: str, count: int = 2) -> Iterator[list[Middleman]]:
    """They know of each other, and none has a run directory of anybody's."""
    made = []
    try:
        for i in range(count):
            found = Middleman(base / f"replica-{i}", config, HAWK_MIDDLEMAN_DATABASE_URL=database)
            (found.home / "middleman.key").write_text(KEY)
            made.append(found)
        threads = [threading.Thread(target=found.start) for found in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(
            "they know of each other",
            lambda: all(found.status()["shared"]["replicas"] == count for found in made),
        )
        yield made
    finally:
        for found in made:
            if found.process is not None and found.process.poll() is None:
                found.stop()
    assert [leak for found in made for leak in found.leaks()] == []


@contextmanager
def one_address(behind: list[Middleman]) -> Iterator[str]:
    """A URL at which each connection is another one's of them, by turns."""
    turns = itertools.cycle([found.port for found in behind])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=[listener, turns], daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, turns: Iterator[int]) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        try:
            server = socket.create_connection(("127.0.0.1", next(turns)))
        except OSError:
            client.close()
            continue
        for one, other in ((client, server), (server, client)):
            threading.Thread(target=_carry, args=[one, other], daemon=True).start()


def _carry(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)
