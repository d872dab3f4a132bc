"""What the layer store holds, and removing what nobody uses."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator

import msgspec

from hawk.errors import ConflictError
from hawk.sandbox.layerdirs import (
    BUILD,
    BUILDING,
    DAMAGED,
    LAYERS,
    LOCKS,
    USE,
    Layer,
    LayerDirs,
    LayerInfo,
    unknown,
)
from hawk.sandbox.layerlocks import ALONE, is_held, take
from hawk.sandbox.layerseal import SEAL, read_seal

_log = logging.getLogger(__name__)


def infos(dirs: LayerDirs) -> list[LayerInfo]:
    """All layers, the least recently used first. Damaged ones say so instead of their description."""
    found = []
    for path in dirs.all(LAYERS):
        key = path.name
        try:
            layer = dirs.describe(read_seal(path))
        except (OSError, ValueError) as ex:
            try:
                made = path.stat().st_mtime
            except OSError:
                continue  # removed just now
            layer = Layer(key, path, f"damaged: {SEAL} can't be read: {ex}", 0, 0, made, "")
        found.append(
            LayerInfo(
                *msgspec.structs.astuple(layer),
                last_used=dirs.last_used(key, layer.created),
                in_use=is_held(dirs.lock(key, USE)),
            )
        )
    return sorted(found, key=lambda info: (info.last_used, info.key))


def remove(dirs: LayerDirs, key: str) -> None:
    """Remove one layer.

    Raises:
        NotFoundError: There is no such layer.
        ConflictError: It is in use, or being built.
        StorageError: It can't be removed.
    """
    if not dirs.layer(key).is_dir():
        raise unknown(key)
    with dirs.saying(f"removing layer {key}"):
        removed = _remove_unused(dirs, key, lambda: True)
    if not removed:
        raise ConflictError(
            f"Layer {key} is in use.", remedy="Wait until the eval sets that use it have ended.", key=key
        )


def prune(
    dirs: LayerDirs, older_than_seconds: float, *, keep: Collection[str] = (), dry_run: bool
) -> list[LayerInfo]:
    """Remove layers that nobody uses and that were not used for so long, and what killed processes left.

    What can't be removed is a warning in the log, and the others are removed all the same.

    Returns:
        What was removed, or would be.
    """
    before = time.time() - older_than_seconds
    chosen = [
        info for info in infos(dirs) if not info.in_use and info.last_used <= before and info.key not in keep
    ]
    if dry_run or not dirs.directory.is_dir():
        return chosen
    removed = []
    for info in chosen:

        def still_unused(info: LayerInfo = info) -> bool:
            return dirs.last_used(info.key, info.created) <= before

        with _noting_failure(f"Layer {info.key}"):
            if _remove_unused(dirs, info.key, still_unused):
                removed.append(info)
    remove_leftovers(dirs)
    return removed


def remove_leftovers(dirs: LayerDirs) -> None:
    """Remove what processes left that were killed while they built or removed a layer."""
    if not (dirs.directory / LOCKS).is_dir():
        return
    for part in (BUILDING, DAMAGED):
        for key in {path.name.rpartition(".")[0] for path in dirs.all(part)}:
            with _noting_failure(f"What is left of layer {key} in {dirs.directory / part}"):
                _remove_leftovers(dirs, part, key)
    _remove_locks(dirs)


def _remove_unused(dirs: LayerDirs, key: str, wanted: Callable[[], bool]) -> bool:
    """Remove a layer if nobody uses or builds it, and it is still to go once that is sure."""
    dirs.prepare()
    with _locked(dirs, key, BUILD) as alone:
        if not alone:
            return False
        with _locked(dirs, key, USE) as unused:
            if not unused or not wanted():
                return False
            # From here on it is not there; who finds that waits with a new build until the old tree is gone.
            with contextlib.suppress(FileNotFoundError):
                dirs.layer(key).rename(dirs.new(BUILDING, key))
            dirs.lock(key, USE).unlink()
        dirs.remove_leftovers(BUILDING, key)
        dirs.lock(key, BUILD).unlink()
    return True


def _remove_leftovers(dirs: LayerDirs, part: str, key: str) -> None:
    with _locked(dirs, key, BUILD) as alone:
        if alone and not (part == DAMAGED and is_held(dirs.lock(key, USE))):
            dirs.remove_leftovers(part, key)


def _remove_locks(dirs: LayerDirs) -> None:
    """Remove the lock files of keys that are not there any more."""
    for path in (dirs.directory / LOCKS).iterdir():
        key, _, kind = path.name.rpartition(".")
        if not _is_layer(dirs, key):
            with _locked(dirs, key, kind) as alone:
                if alone and not _is_layer(dirs, key):
                    path.unlink()


def _is_layer(dirs: LayerDirs, key: str) -> bool:
    return key != "" and (dirs.directory / LAYERS / key).exists()


@contextlib.contextmanager
def _locked(dirs: LayerDirs, key: str, kind: str) -> Iterator[bool]:
    """Hold a lock alone, if that can be had at once."""
    fd = take(dirs.lock(key, kind), ALONE)
    try:
        yield fd is not None
    finally:
        if fd is not None:
            os.close(fd)


@contextlib.contextmanager
def _noting_failure(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as ex:
        _log.warning("%s can't be removed: %s", what, ex)
