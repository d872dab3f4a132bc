"""What sandboxes of one configuration share: their root file system and the layer that setup made.

Everything is made once, whoever asks and how many ask at the same time, and known by its content.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import os
import weakref
from dataclasses import dataclass
from pathlib import Path

from hawk.sandbox import pool
from hawk.sandbox.client import Keeper
from hawk.sandbox.config import BubblewrapConfig, Common, setup_key
from hawk.sandbox.images import id_mode, rootfs_layer
from hawk.sandbox.layers import Layer, LayerStore
from hawk.sandbox.registry import registry
from hawk.sandbox.setup import run_setup
from hawk.sandbox.tools import tools_layer

_FORMAT = "1"  # of the base layer: another one makes older layers useless


@dataclass(frozen=True)
class Lower:
    """Keys of the read-only layers below a sandbox, lowest first; without a rootfs this machine's /usr is the lowest."""

    layers: tuple[str, ...] = ()
    rootfs: str | None = None
    roots: tuple[Path, ...] = ()
    """Root directories of those that may have changed the accounts, uppermost first."""


_Known = dict[Common, "asyncio.Task[Lower]"]
_known: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Known] = weakref.WeakKeyDictionary()
_held: dict[str, object] = {}  # layers in use by this process, until it ends


async def prepare(config: BubblewrapConfig) -> dict[str, Lower]:
    """The lower layers of a configuration's sandboxes by name, made when they are missing.

    Raises:
        SandboxError: Something could not be made; says what the setup said.
    """
    wanted: dict[str, Common] = {"default": config, **config.services}
    lowers = await asyncio.gather(*(_lower(options) for options in wanted.values()))
    return dict(zip(wanted, lowers, strict=True))


async def _lower(options: Common) -> Lower:
    known = _known.setdefault(asyncio.get_running_loop(), {})
    task = known.get(options)
    if task is None or (task.done() and (task.cancelled() or task.exception())):
        task = known[options] = asyncio.create_task(_make(options))
    return await asyncio.shield(task)


async def _make(options: Common) -> Lower:
    keeper = await pool.keeper()
    store = layer_store()
    rootfs: str | None = None
    roots: tuple[Path, ...] = ()
    if options.rootfs is not None:
        with registry.working(options, f"unpacking its sandbox's root file system ({options.rootfs})"):
            unpacked = hold(store, await rootfs_layer(keeper, store, options))
        rootfs, roots = unpacked.key, (unpacked.root,)
    base = rootfs if rootfs is not None else host_key()
    layers: tuple[str, ...] = ()
    if options.inspect_tools:
        with registry.working(options, "putting Inspect's tools into a layer for its sandbox"):
            tools = await tools_layer(keeper, store, rootfs, base)
        layers = (hold(store, tools).key,) if tools is not None else ()
    key = await asyncio.to_thread(setup_key, options, id_mode(keeper), base)
    if key is None:
        return Lower(layers, rootfs, roots)
    what = describe(options)
    with registry.working(options, f"building its sandbox's setup layer ({what.removeprefix('setup: ')})"):
        layer = await store.get_or_build(
            key, what, lambda directory: run_setup(keeper, directory, options, Lower((), rootfs, roots))
        )
    return Lower((*layers, hold(store, layer).key), rootfs, (layer.root, *roots))


def layer_store() -> LayerStore:
    """The store of this user; the same object each time, which remembers what it has verified."""
    return _store(pool.store_directory())


@functools.cache
def _store(directory: Path) -> LayerStore:
    return LayerStore(directory)


def hold(store: LayerStore, layer: Layer) -> Layer:
    """Keep a layer from being pruned while this process lives."""
    if layer.key not in _held:
        handle = store.hold(layer.key)
        handle.__enter__()
        _held[layer.key] = handle
    return layer


def describe(options: Common) -> str:
    """What a setup does, in one line for lists."""
    setup = options.setup
    packages = [*setup.packages.apt, *setup.packages.apk, *setup.packages.pip]
    parts = []
    if setup.files:
        parts.append(f"{len(setup.files)} file{'s' if len(setup.files) != 1 else ''}")
    if packages:
        parts.append(f"packages {' '.join(packages)}")
    if setup.script_file is not None:
        parts.append(f"script {Path(setup.script_file).name}")
    elif setup.script:
        parts.append(f"script {setup.script.strip().splitlines()[0]}")
    return f"setup: {', '.join(parts)}"[:200]


def host_key() -> str:
    """What this machine's programs are: an upgrade makes layers on top of them doubtful."""
    digest = hashlib.sha256(_FORMAT.encode())
    for path in ("/usr/bin", "/usr/lib", "/etc/os-release"):
        try:
            info = os.stat(path)
        except OSError:
            continue
        digest.update(f"{path} {info.st_ino} {info.st_mtime_ns}".encode())
    return digest.hexdigest()[:32]


def describe_keeper(keeper: Keeper) -> str:
    """How sandboxes are isolated and limited here, in one line."""
    facts = keeper.facts
    users = "one user per sandbox" if facts["single_id"] else "65536 users per sandbox"
    limits = (
        f"limits by cgroup v{facts['cgroups']}"
        if facts["cgroups"]
        else f"limits by rlimit ({facts['without_cgroups']})"
    )
    return f"{users}; {limits}"
