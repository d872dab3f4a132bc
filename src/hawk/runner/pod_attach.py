"""Joins standard input and output with the socket of the pod's link. Light: a server may start it again and again."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

from hawk.config.settings import Settings

APPEARING = 15.0
"""Seconds that the pod's command may take to open its socket."""

_AT_ONCE = 1 << 18


def socket_path(settings: Settings) -> Path:
    """Where the link of a pod that is not to dial waits."""
    return settings.run_base / "link.sock"


def attach(settings: Settings) -> int:
    """Carry bytes both ways until one side ends. Returns the exit code: 69 where nobody is there."""
    connection = _connected(socket_path(settings))
    if connection is None:
        return 69
    threading.Thread(target=_carry_in, args=[connection], daemon=True).start()
    while data := connection.recv(_AT_ONCE):
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]
    return 0


def _connected(path: Path) -> socket.socket | None:
    deadline = time.monotonic() + APPEARING
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(path))
            return connection
        except OSError:
            connection.close()
        if time.monotonic() > deadline:
            return None
        time.sleep(0.05)


def _carry_in(connection: socket.socket) -> None:
    try:
        while data := os.read(0, _AT_ONCE):
            connection.sendall(data)
    except OSError:
        pass
    finally:
        connection.shutdown(socket.SHUT_RDWR)
