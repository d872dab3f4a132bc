"""Making a configuration's layers ahead of time: what a person asks for by hand, one build and one report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from hawk.errors import NotFoundError
from hawk.sandbox import pool
from hawk.sandbox.client import Keeper
from hawk.sandbox.config import BubblewrapConfig, Common, setup_key
from hawk.sandbox.images import id_mode, names, rootfs_key
from hawk.sandbox.layers import Layer, LayerStore
from hawk.sandbox.prepare import host_key, layer_store, prepare
from hawk.sandbox.tools import tools_key


@dataclass(frozen=True)
class Part:
    """A layer of a sandbox.

    Attributes:
        sandbox: `default`, or the name of a service.
        new: It was made just now.
    """

    sandbox: str
    layer: Layer
    new: bool


async def build(configs: Sequence[BubblewrapConfig], *, rebuild: bool = False) -> list[Part]:
    """Make the layers of configurations that are missing.

    Args:
        rebuild: Remove those that are there first; imported images stay, for only who imported them can do it again.

    Raises:
        SandboxError: A step failed; says which, and how its output ended.
        ConflictError: A layer that is to be rebuilt is in use.
    """
    store = layer_store()
    started = time.time()
    try:
        if rebuild:
            await _remove(await pool.keeper(), store, configs)
        parts: dict[tuple[str, str], Part] = {}
        for config in configs:
            for sandbox, lower in (await prepare(config)).items():
                for key in (lower.rootfs, *lower.layers):
                    layer = await store.afind(key) if key is not None else None
                    if layer is not None:
                        parts[sandbox, layer.key] = Part(sandbox, layer, layer.created >= started)
        return list(parts.values())
    finally:
        await pool.close()


async def _remove(keeper: Keeper, store: LayerStore, configs: Sequence[BubblewrapConfig]) -> None:
    wanted: list[Common] = [options for config in configs for options in (config, *config.services.values())]
    keys = {key: None for options in wanted for key in await _own_keys(keeper, store, options)}
    for key in keys:
        try:
            await asyncio.to_thread(store.remove, key)
        except NotFoundError:
            continue


async def _own_keys(keeper: Keeper, store: LayerStore, options: Common) -> list[str]:
    """Keys of the layers that building a configuration makes."""
    mode = id_mode(keeper)
    base = host_key()
    own: list[str] = []
    if options.rootfs_path is not None:
        base = await asyncio.to_thread(rootfs_key, options.rootfs_path, mode)
        own = [base]
    elif options.rootfs_image is not None:
        base = names(store).get(options.rootfs_image, "")
    if options.inspect_tools:
        own.append(tools_key(keeper, base))
    key = await asyncio.to_thread(setup_key, options, mode, base)
    return [*own, key] if key is not None else own
