"""How worker and keeper talk: JSON messages over a socket pair, file descriptors beside them.

A message is four bytes of length (big endian), then JSON. File descriptors travel with its first byte and are
counted in its field `fds`, so that they find their message whatever the socket joins or splits. Standard library
only: the keeper uses it.
"""

from __future__ import annotations

import array
import collections
import json
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

LONGEST = 64 << 20
"""Bytes of the longest message: what comes from the other side is not believed to be sane."""

_MOST_FDS = 16


def pack(message: dict[str, Any], fds: Sequence[int] = ()) -> bytes:
    """The bytes of a message."""
    if fds:
        message = {**message, "fds": len(fds)}
    body = json.dumps(message, separators=(",", ":")).encode()
    return struct.pack(">I", len(body)) + body


def ancillary(fds: Sequence[int]) -> list[tuple[int, int, bytes]]:
    """What `sendmsg` takes beside the first byte."""
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())] if fds else []


class Unpacker:
    """Joins what was received to messages, each with its file descriptors."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._fds: collections.deque[int] = collections.deque()

    def receive(self, sock: socket.socket) -> bool:
        """Take what the socket has. False at its end.

        Raises:
            BlockingIOError: It has nothing now.
        """
        data, control, _, _ = sock.recvmsg(1 << 18, socket.CMSG_SPACE(_MOST_FDS * 4))
        for level, kind, payload in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i", payload[: len(payload) - len(payload) % 4])
                for fd in fds:
                    os.set_inheritable(fd, False)
                self._fds.extend(fds)
        self._buffer += data
        return bool(data)

    def messages(self) -> list[tuple[dict[str, Any], list[int]]]:
        """The messages that are complete.

        Raises:
            ValueError: The other side sends no messages.
        """
        result = []
        while len(self._buffer) >= 4:
            (length,) = struct.unpack_from(">I", self._buffer)
            if length > LONGEST:
                raise ValueError(f"a message of {length} bytes")
            if len(self._buffer) < 4 + length:
                break
            message = json.loads(self._buffer[4 : 4 + length])
            del self._buffer[: 4 + length]
            fds = [self._fds.popleft() for _ in range(message.pop("fds", 0))]
            result.append((message, fds))
        return result
