"""Root file systems: a directory, a tar, an image that was imported under a name."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import stat
import tarfile
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from hawk.errors import NotFoundError
from hawk.sandbox.base import UID, USER
from hawk.sandbox.boot import FIRST_ID
from hawk.sandbox.client import Keeper
from hawk.sandbox.config import Common
from hawk.sandbox.errors import KeeperRefusedError, SandboxError
from hawk.sandbox.layers import Layer, LayerStore

_NAMES = "images.json"

_log = logging.getLogger(__name__)


async def rootfs_layer(keeper: Keeper, store: LayerStore, options: Common) -> Layer:
    """The sealed layer of a configuration's `rootfs`.

    Raises:
        NotFoundError: No image of that name was imported.
        SandboxError: It could not be unpacked.
    """
    if options.rootfs_image is not None:
        key = names(store).get(options.rootfs_image)
        layer = store.find(key) if key is not None else None
        if layer is None:
            raise NotFoundError(
                f"There is no image {options.rootfs_image!r}.",
                remedy=f"hawk sandbox import {options.rootfs_image}; or write a path: ./{options.rootfs_image}",
            )
        return layer
    assert options.rootfs_path is not None
    return await import_rootfs(keeper, store, options.rootfs_path)


async def import_rootfs(keeper: Keeper, store: LayerStore, path: Path, *, description: str = "") -> Layer:
    """Unpack a directory or tar into a layer, unless that was done before.

    Raises:
        SandboxError: It can't be read or unpacked.
    """

    async def send(message: dict[str, Any]) -> None:
        if await asyncio.to_thread(path.is_dir):
            await _send_directory(keeper, message, path)
            return
        fd = os.open(path, os.O_RDONLY)
        try:
            await keeper.ask(message, [fd])
        finally:
            os.close(fd)

    try:
        key = await asyncio.to_thread(rootfs_key, path, id_mode(keeper))
        return await store.get_or_build(
            key,
            description or f"rootfs: {path}",
            lambda directory: _unpack(keeper, directory, f"The root file system {path}", send),
        )
    except OSError as ex:
        raise SandboxError(f"The root file system {path} can't be read: {ex.strerror or ex}") from ex


async def import_stream(
    keeper: Keeper,
    store: LayerStore,
    key: str,
    called: str,
    stream: Callable[[], AbstractContextManager[int]],
) -> Layer:
    """Unpack a tar that is made as it is read into a layer, unless there is one of that key.

    Args:
        called: What it is, for people.
        stream: Opens it: a descriptor.

    Raises:
        SandboxError: It can't be unpacked.
    """

    async def send(message: dict[str, Any]) -> None:
        with stream() as fd:
            await keeper.ask(message, [fd])

    return await store.get_or_build(
        key, f"rootfs: {called}", lambda directory: _unpack(keeper, directory, called, send)
    )


async def _unpack(
    keeper: Keeper, directory: Path, called: str, send: Callable[[dict[str, Any]], Awaitable[None]]
) -> None:
    _log.info("%s: unpacking", called)
    if not keeper.facts["single_id"]:
        os.chown(directory, FIRST_ID, FIRST_ID)
    try:
        await send({"op": "unpack", "directory": f"building/{directory.name}/root"})
    except KeeperRefusedError as ex:
        raise SandboxError(f"{called} could not be unpacked: {ex.detail}") from ex
    root = directory / "root"
    if not any((root / name).exists() or (root / name).is_symlink() for name in ("bin", "usr")):
        raise SandboxError(
            f"{called} holds no root file system: it has neither /bin nor /usr.",
            remedy="Give an unpacked image, a tar of one (docker export), or an image archive (docker save).",
        )
    _add_user(root)


async def _send_directory(keeper: Keeper, message: dict[str, object], path: Path) -> None:
    """Send a directory as a tar: the keeper could not read what only its owner may."""
    read, write = os.pipe()
    problem: list[BaseException] = []

    def send() -> None:
        try:
            with (
                os.fdopen(write, "wb") as f,
                tarfile.open(fileobj=f, mode="w|", format=tarfile.PAX_FORMAT) as tar,
            ):
                for entry in sorted(path.iterdir()):
                    tar.add(entry, entry.name)
        except BrokenPipeError:
            pass  # the keeper has stopped, and says why
        except OSError as ex:
            problem.append(ex)

    sender = threading.Thread(target=send, name="rootfs", daemon=True)
    sender.start()
    try:
        await keeper.ask(message, [read])
    finally:
        os.close(read)
        await asyncio.to_thread(sender.join)
    if problem:
        raise problem[0]


def _add_user(root: Path) -> None:
    """The account that commands run as, where the image has none of that number."""
    flags = (
        os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    )  # a link, as of `etc` itself, could lead out of the image
    with contextlib.suppress(OSError):
        etc = os.open(root / "etc", flags | os.O_DIRECTORY | os.O_RDONLY)
        try:
            for name, line in (
                ("passwd", f"{USER}:x:{UID}:{UID}::/home/{USER}:/bin/sh\n"),
                ("group", f"{USER}:x:{UID}:\n"),
            ):
                with contextlib.suppress(OSError):
                    _add_row(os.open(name, flags | os.O_RDWR | os.O_APPEND, dir_fd=etc), line)
        finally:
            os.close(etc)


def _add_row(fd: int, line: str) -> None:
    """Add a row to a table of accounts that has none of our user's number; closes the file."""
    with os.fdopen(fd, "r+b", buffering=0) as f:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return
        text = f.readall()
        if not any(row.split(b":")[2:3] == [b"%d" % UID] for row in text.splitlines()):
            f.write((b"" if not text or text.endswith(b"\n") else b"\n") + line.encode())


def names(store: LayerStore) -> dict[str, str]:
    """Key of the layer of each imported image, by name."""
    try:
        return dict(json.loads((store.directory / _NAMES).read_text()))
    except (OSError, ValueError):
        return {}


def set_name(store: LayerStore, name: str, key: str | None) -> None:
    """Call a layer by a name; None forgets the name."""
    known = names(store)
    if key is None:
        known.pop(name, None)
    else:
        known[name] = key
    path = store.directory / _NAMES
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(known, indent=1, sort_keys=True))
    temporary.replace(path)


def id_mode(keeper: Keeper) -> str:
    """How ids are mapped: the owners of a layer's files, and so a part of its key."""
    return "one" if keeper.facts["single_id"] else "many"


def rootfs_key(path: Path, mode: str) -> str:
    """By what the source is: for a file its place, size and time; for a directory those of all that is in it."""
    digest = hashlib.sha256(f"rootfs 1 {mode} {path.resolve()}".encode())
    info = path.stat()
    digest.update(f"{info.st_size if path.is_file() else 0} {info.st_mtime_ns}".encode())
    if path.is_dir():
        for directory, names_, files in os.walk(path):
            names_.sort()
            for name in sorted(files):
                found = os.lstat(os.path.join(directory, name))
                digest.update(
                    os.fsencode(f"{directory}/{name} {found.st_mode} {found.st_size} {found.st_mtime_ns}")
                )
    return digest.hexdigest()[:32]
