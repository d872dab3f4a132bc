"""A person's way to a keeper that another process owns: asked over its socket, one question at a time."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from hawk.errors import NotFoundError
from hawk.sandbox.errors import KeeperGoneError, KeeperRefusedError
from hawk.sandbox.presence import FOLDER
from hawk.sandbox.sweep import KeeperInfo, keepers
from hawk.sandbox.wire import Unpacker, ancillary, pack

PATIENCE = 3.0
"""Seconds that a keeper may take for an answer: it has one thread, which never works long."""


class Door:
    """The conversation with one keeper.

    Args:
        store: `<HAWK_HOME>/sandbox`.
        name: Of the keeper.

    Raises:
        KeeperGoneError: It does not listen.
    """

    def __init__(self, store: Path, name: str) -> None:
        self._name = name
        self._numbers = itertools.count(1)
        self._unpacker = Unpacker()
        self._replies: list[dict[str, Any]] = []
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.settimeout(PATIENCE)
        try:
            self._connect(store / FOLDER)
        except OSError as ex:
            self._sock.close()
            raise self._gone(ex.strerror or str(ex)) from ex

    def _connect(self, folder: Path) -> None:
        # By a descriptor: the path of a socket may have some hundred bytes, and the store may lie deep.
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._sock.connect(f"/proc/self/fd/{fd}/{self._name}.sock")
        finally:
            os.close(fd)

    def __enter__(self) -> Door:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._sock.close()

    def fileno(self) -> int:
        """For `select`: readable when an answer may have come."""
        return self._sock.fileno()

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> int:
        """Ask without waiting: the number of the request, which its answer carries as `id`.

        Raises:
            KeeperGoneError: It has ended.
        """
        number = next(self._numbers)
        data = pack({**message, "id": number}, fds)
        try:
            sent = self._sock.sendmsg([data], ancillary(fds))
            self._sock.sendall(data[sent:])
        except OSError as ex:
            raise self._gone(ex.strerror or str(ex)) from ex
        return number

    def receive(self, *, timeout: float | None = PATIENCE) -> dict[str, Any]:
        """The next answer.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            KeeperGoneError: It has ended, or does not answer in time.
        """
        self._sock.settimeout(timeout)
        try:
            while not self._replies:
                if not self._unpacker.receive(self._sock):
                    raise self._gone("it has ended")
                for message, fds in self._unpacker.messages():
                    for fd in fds:
                        os.close(fd)
                    self._replies.append(message)
        except TimeoutError as ex:
            raise self._gone(f"no answer in {timeout:g} s") from ex
        except (OSError, ValueError) as ex:
            raise self._gone(str(ex)) from ex
        return self._replies.pop(0)

    def ask(self, message: dict[str, Any], fds: Sequence[int] = ()) -> dict[str, Any]:
        """Ask and wait.

        Raises:
            KeeperRefusedError: It could not.
            KeeperGoneError: It has ended, or does not answer.
        """
        number = self.send(message, fds)
        reply = self.receive()
        while reply.get("id") != number:
            reply = self.receive()
        if "errno" in reply:
            raise KeeperRefusedError(reply["errno"], reply["stage"], reply.get("detail", ""))
        return reply

    def _gone(self, why: str) -> KeeperGoneError:
        return KeeperGoneError(f"The keeper {self._name} does not answer: {why}.", remedy="hawk sandbox list")


@dataclass(frozen=True)
class Look:
    """What a keeper said of its sandboxes.

    Attributes:
        sandboxes: `label`, `age` (seconds), `workspace_directory`, `environment`, `workspace` (bytes), `commands`; with
            cgroups also `memory`, `memory_peak`, `processes`, `cpu_seconds`, `oom_kills`.
        silent: Why it did not answer.
    """

    keeper: KeeperInfo
    sandboxes: list[dict[str, Any]]
    silent: str | None = None


def look_around(store: Path) -> Iterator[Look]:
    """What every living keeper of a store has, one after the other."""
    for keeper in keepers(store):
        if not keeper.alive:
            continue
        try:
            with Door(store, keeper.name) as door:
                yield Look(keeper, door.ask({"op": "list"})["sandboxes"])
        except (KeeperGoneError, KeeperRefusedError) as ex:
            yield Look(keeper, [], ex.message)


@contextlib.contextmanager
def door_of(store: Path, wanted: str) -> Iterator[tuple[Door, dict[str, Any]]]:
    """The keeper that has a sandbox, and what it says of it.

    Args:
        wanted: The label, or the part before the dot for the default sandbox of a sample.

    Raises:
        NotFoundError: There is no such sandbox.
    """
    for look in look_around(store):
        row = next((row for row in look.sandboxes if row["label"] in (wanted, f"{wanted}.default")), None)
        if row is not None:
            with Door(store, look.keeper.name) as door:
                yield door, row
            return
    raise NotFoundError(f"There is no sandbox {wanted!r}.", remedy="See which there are: hawk sandbox list")
