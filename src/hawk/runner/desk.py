"""The supervisor's end of `store.desk`: a thread that answers while the supervisor does something else."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from hawk.core.recorder.stacks import StackRecord
from hawk.store.desk import Question
from hawk.store.sockets import listening

PATIENCE = 5.0
"""Seconds that who asks may take to say what, and to take the answer."""

Answer = Callable[[Question], list[StackRecord]]


class Desk:
    """Answers at a socket until it is closed, one question after another.

    Args:
        address: Of the socket; one that an earlier supervisor left is replaced.
        answer: Called on the desk's own thread.
    """

    def __init__(self, address: Path, answer: Answer) -> None:
        self._address, self._answer = address, answer
        self._listener: socket.socket | None = None

    def open(self) -> None:
        """Raises: OSError when there can't be a socket there."""
        self._address.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._address.parent.stat().st_uid != os.getuid():
            raise OSError(f"{self._address.parent} belongs to another user")
        self._listener = listener = listening(self._address)
        threading.Thread(target=self._serve, args=[listener], name="desk", daemon=True).start()

    def close(self) -> None:
        if self._listener is not None:
            self._address.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # closed
            with connection, contextlib.suppress(OSError, msgspec.DecodeError):
                connection.settimeout(PATIENCE)
                asked = b"".join(iter(lambda: connection.recv(1 << 12), b""))  # noqa: B023  # used at once
                question = msgspec.json.decode(asked, type=Question)
                connection.sendall(msgspec.json.encode(self._answer(question)))
