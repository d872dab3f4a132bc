"""Sockets between processes of one user on one machine: bound to a path, one question and one answer."""

from __future__ import annotations

import socket
from pathlib import Path


def listening(path: Path, backlog: int = 16) -> socket.socket:
    """A socket that listens at a path, for this user alone. One that was left there is replaced.

    Raises:
        OSError: There can't be one: the path is too long, or its directory refuses.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


def asked(path: Path, question: bytes, patience: float) -> bytes:
    """What is answered at a path to one question; its end is the end of what is sent.

    Args:
        patience: Seconds that nothing may come for.

    Raises:
        OSError: Nobody listens; TimeoutError: nothing came in time.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(patience)
        connection.connect(str(path))
        connection.sendall(question)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))
