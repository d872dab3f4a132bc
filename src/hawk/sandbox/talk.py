"""Who talks to a keeper, and what each asks. Keeper side: standard library only."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass, field
from typing import Any

from hawk.sandbox.wire import Unpacker, ancillary, pack


@dataclass
class Conversation:
    """One peer: the worker, or a person's command that looks into a sandbox.

    Attributes:
        ended: It has closed its end, or sends what is no message.
    """

    sock: socket.socket
    ended: bool = False
    _unpacker: Unpacker = field(default_factory=Unpacker)

    def receive(self) -> list[tuple[dict[str, Any], list[int]]]:
        """The messages that have arrived, each with its file descriptors."""
        try:
            self.ended = not self._unpacker.receive(self.sock)
            return self._unpacker.messages()
        except (BlockingIOError, InterruptedError):
            return []
        except (OSError, ValueError, IndexError):
            self.ended = True
            return []

    def say(self, message: dict[str, Any]) -> None:
        data = pack(message)
        with contextlib.suppress(OSError):  # it has gone: its end is seen by the loop
            sent = self.sock.sendmsg([data], ancillary(()))
            if sent < len(data):
                self.sock.sendall(data[sent:])


@dataclass(frozen=True)
class Request:
    """One message and where its answer goes."""

    message: dict[str, Any]
    fds: list[int]
    peer: Conversation

    def __getitem__(self, name: str) -> Any:
        return self.message[name]

    def answer(self, **fields: Any) -> None:
        self.peer.say({"id": self.message["id"], **fields})

    def fail(self, number: int, stage: str, detail: str = "") -> None:
        self.answer(errno=number, stage=stage, detail=detail or os.strerror(number))
