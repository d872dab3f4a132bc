"""The store of layers: directory trees that are built once, sealed, and from then on only read.

Any number of processes use one store. The key says everything that a layer depends on, so a layer never changes;
one that does was damaged, which a walk over its tree shows once per process, and is built again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

from hawk.errors import NotFoundError, StorageError
from hawk.sandbox import layertidy
from hawk.sandbox.descent import OPEN_DIRECTORY
from hawk.sandbox.layerdirs import (
    BUILD,
    BUILDING,
    DAMAGED,
    FULL,
    USE,
    Layer,
    LayerDirs,
    LayerInfo,
    unknown,
)
from hawk.sandbox.layerlocks import SharedLocks, take_in_turn
from hawk.sandbox.layerseal import SEAL, Seal, differences, read_seal, seal

__all__ = ["Build", "Hold", "Layer", "LayerInfo", "LayerStore"]

Build = Callable[[Path], Awaitable[None]]
"""Fills `root/`, and `usr/` if it likes, of the directory that it is given; whatever else is in it goes."""

_P = ParamSpec("_P")
_T = TypeVar("_T")

_log = logging.getLogger(__name__)


class Hold:
    """A layer in use: nobody removes it until `close`, or until this process ends."""

    def __init__(self, layer: Layer, locks: SharedLocks, path: Path) -> None:
        self.layer = layer
        self._locks = locks
        self._path: Path | None = path

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let it go. A second time does nothing."""
        path, self._path = self._path, None
        if path is not None:
            self._locks.release(path)


class LayerStore:
    """The layers of one machine. One object per process and directory: it remembers what it has verified.

    Args:
        directory: `<HAWK_HOME>/sandbox`; made when something is to be written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._dirs = LayerDirs(directory)
        self._locks = SharedLocks()
        self._verified: dict[str, tuple[tuple[int, int], Layer]] = {}
        self._flights: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Task[Layer]] = {}

    async def get_or_build(self, key: str, description: str, build: Build) -> Layer:
        """The layer; if it is not there, it is built, once, however many ask in however many processes.

        A build goes on when those who wait for it are cancelled, for they will ask again; it ends with the event
        loop.

        Args:
            key: Of everything that the layer depends on: letters, digits and `._-`.
            description: What it is made of, for people.
            build: Called in the first asker's context. If it fails, nothing is left, all who wait get its error,
                and whoever asks next tries again.

        Raises:
            StorageError: The disk is full, or the store can't be written.
        """
        if key in self._verified:
            self._touch(key)  # before the look: whoever prunes sees it, or has already taken the layer away
        current = self._current(key)
        if current is not None:
            return current
        flight = asyncio.get_running_loop(), key
        task = self._flights.get(flight)
        if task is None:
            task = asyncio.create_task(self._obtain(key, description, build), name=f"layer {key}")
            self._flights[flight] = task
            task.add_done_callback(lambda done: self._landed(flight, done))
        return await asyncio.shield(task)

    async def acquire(self, key: str, description: str, build: Build) -> Hold:
        """As `get_or_build`, and held: no one can remove it between the two."""
        while True:
            await self.get_or_build(key, description, build)
            with contextlib.suppress(NotFoundError):
                return self.hold(key)

    def find(self, key: str) -> Layer | None:
        """The layer if it is there and, as a walk shows once per process, undamaged.

        The walk takes a second for a hundred thousand files: `afind` in an event loop.
        """
        layer, problem = self._look(key)
        if problem:
            _log.warning("Layer %s is damaged and will be built again: %s", key, problem)
        return layer

    async def afind(self, key: str) -> Layer | None:
        """As `find`, in a thread."""
        return await _in_thread(self.find, key)

    def verify(self, key: str, deep: bool) -> list[str]:
        """Look for damage now.

        Args:
            deep: Read every file.

        Returns:
            What is wrong; nothing if all is well.

        Raises:
            NotFoundError: There is no such layer.
        """
        path = self._dirs.layer(key)
        if not path.is_dir():
            raise unknown(key)
        try:
            return differences(path, read_seal(path), content=deep)
        except (OSError, ValueError) as ex:
            return [f"{SEAL} can't be read: {ex}"]

    def hold(self, key: str) -> Hold:
        """Keep a layer from being removed. As many times as wanted; it costs one descriptor per layer.

        Raises:
            NotFoundError: There is no such layer (any more).
            StorageError: The lock file can't be made.
        """
        path, use = self._dirs.layer(key), self._dirs.lock(key, USE)
        with self._dirs.saying("locks"):
            self._dirs.prepare()
            self._locks.acquire(use)
        try:
            layer = self._current(key) or self._dirs.describe(read_seal(path))
        except (OSError, ValueError) as ex:
            self._locks.release(use)
            raise unknown(key) from ex
        return Hold(layer, self._locks, use)

    def prune(
        self, older_than_seconds: float, *, keep: Collection[str] = (), dry_run: bool = False
    ) -> list[LayerInfo]:
        """Remove layers that nobody uses and that were not used for so long, and what killed processes left.

        Args:
            keep: Keys of layers that stay all the same: imported images, which nobody could make again.

        Returns:
            What was removed, or would be.
        """
        return layertidy.prune(self._dirs, older_than_seconds, keep=keep, dry_run=dry_run)

    def remove(self, key: str) -> None:
        """Remove a layer.

        Raises:
            NotFoundError: There is no such layer.
            ConflictError: It is in use, or being built.
            StorageError: It can't be removed.
        """
        layertidy.remove(self._dirs, key)

    def list(self) -> list[LayerInfo]:
        """All layers, the least recently used first, without a look at their trees."""
        return layertidy.infos(self._dirs)

    # --- building

    async def _obtain(self, key: str, description: str, build: Build) -> Layer:
        with self._dirs.saying(description):
            layer, _ = await _in_thread(self._look, key)
            self._dirs.prepare()
            if layer is None:
                lock = await take_in_turn(self._dirs.lock(key, BUILD), f"layer {key}: {description}")
        if layer is None:
            try:
                layer = await self._build_unless_there(key, description, build)
            finally:
                os.close(lock)
        self._touch(key)
        return layer

    async def _build_unless_there(self, key: str, description: str, build: Build) -> Layer:
        """With the lock: another process may have built it while we waited."""
        with self._dirs.saying(description):
            await _in_thread(self._dirs.remove_leftovers, BUILDING, key)
            layer, problem = await _in_thread(self._look, key)
            if layer is not None:
                return layer
            if problem:
                _log.warning("Layer %s is damaged and is built again: %s", key, problem)
                self._dirs.layer(key).rename(self._dirs.new(DAMAGED, key))
            directory = self._dirs.new(BUILDING, key)
            directory.mkdir(0o700)
        try:
            found = await self._build(directory, key, description, build)
        except BaseException:
            with contextlib.suppress(OSError):  # then the next one removes it
                await _in_thread(self._dirs.remove_leftovers, BUILDING, key)
            raise
        return self._remember(found)

    async def _build(self, directory: Path, key: str, description: str, build: Build) -> Seal:
        with self._dirs.saying(description):
            self._dirs.give(directory)
        try:
            await build(directory)
        except OSError as ex:
            if ex.errno in FULL:
                raise self._dirs.error(description, ex) from ex
            raise
        root = directory / "root"
        if root.is_symlink() or not root.is_dir():
            raise StorageError(f"Building {description} left no root directory.", path=str(directory))
        with self._dirs.saying(description):
            found = await _in_thread(seal, directory, key, description, time.time())
            _put(directory, self._dirs.layer(key))
        return found

    def _landed(self, flight: tuple[asyncio.AbstractEventLoop, str], done: asyncio.Task[Layer]) -> None:
        self._flights.pop(flight, None)
        if not done.cancelled():
            done.exception()  # who asked may all be gone: nobody has to hear that it was never looked at

    def _touch(self, key: str) -> None:
        with contextlib.suppress(OSError):
            self._locks.acquire(self._dirs.lock(key, USE))
            self._locks.release(self._dirs.lock(key, USE))

    # --- looking

    def _look(self, key: str) -> tuple[Layer | None, str]:
        """The layer, or what is wrong with it; neither when there is none."""
        current = self._current(key)
        if current is not None:
            return current, ""
        path = self._dirs.layer(key)
        if not path.is_dir():
            return None, ""
        try:
            found = read_seal(path)
        except (OSError, ValueError) as ex:
            return None, f"{SEAL} can't be read: {ex}"
        problems = differences(path, found, content=False)
        if problems:
            return None, "; ".join(problems)
        return self._remember(found), ""

    def _current(self, key: str) -> Layer | None:
        """A layer that this process has verified, if it is still the same."""
        identity = self._identity(key)
        known = self._verified.get(key)
        return known[1] if known is not None and known[0] == identity else None

    def _remember(self, found: Seal) -> Layer:
        layer = self._dirs.describe(found)
        identity = self._identity(found.key)
        if identity is not None:
            self._verified[found.key] = identity, layer
        return layer

    def _identity(self, key: str) -> tuple[int, int] | None:
        try:
            status = (self._dirs.layer(key) / SEAL).stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns


async def _in_thread(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Do it in a thread; when cancelled, still wait for its end: it must not go on behind the back of others."""
    # Not a task: those are all cancelled when a loop ends, and the thread would go on alone.
    thread = asyncio.get_running_loop().run_in_executor(None, functools.partial(work, *args, **kwargs))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait([thread])
        if not thread.cancelled():
            thread.exception()
        raise


def _put(built: Path, place: Path) -> None:
    """Put a sealed layer where it is found, for good."""
    built.rename(place)
    fd = os.open(place.parent, OPEN_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
