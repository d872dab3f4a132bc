"""A layer with Inspect's in-sandbox tools, shared by all sandboxes on the same root file system.

Without it every attempt unpacks 31 MB of them into its own memory at the first bash_session, which takes a second of
processor time each: minutes and gigabytes, where hundreds of attempts run.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from pathlib import Path

from hawk.sandbox.boot import FIRST_ID
from hawk.sandbox.box import Box
from hawk.sandbox.client import Keeper
from hawk.sandbox.images import id_mode
from hawk.sandbox.layers import Layer, LayerStore
from hawk.sandbox.options import BubblewrapConfig

_LOG = logging.getLogger(__name__)
_PATIENCE = 120.0  # seconds; a download that hangs must not hold an eval


async def tools_layer(keeper: Keeper, store: LayerStore, rootfs: str | None, base: str) -> Layer | None:
    """The sealed layer; None where the tools can't be had, as for a system that Inspect has none for.

    Args:
        base: Key of the root file system that they are put on.
    """
    from hawk.bridge.sandboxtools import version

    try:
        return await store.get_or_build(
            tools_key(keeper, base),
            f"Inspect's tools, version {version()}",
            lambda directory: _build(keeper, directory, rootfs),
        )
    except Exception as ex:
        _LOG.warning("Inspect's tools are not prepared, and are put into each sandbox that uses them: %s", ex)
        return None


def tools_key(keeper: Keeper, base: str) -> str:
    """Key of the layer."""
    from hawk.bridge.sandboxtools import version

    return hashlib.sha256(f"tools 1 {version()} {id_mode(keeper)} {base}".encode()).hexdigest()[:32]


async def _build(keeper: Keeper, directory: Path, rootfs: str | None) -> None:
    from hawk.bridge.sandboxtools import SERVER_DIR, inject
    from hawk.sandbox.group import create, create_message
    from hawk.sandbox.prepare import Lower
    from hawk.sandbox.provider import BubblewrapSandbox

    _LOG.info("Inspect's tools: unpacking")
    if not keeper.facts["single_id"]:
        os.chown(directory, FIRST_ID, FIRST_ID)
    options = BubblewrapConfig(workspace="/tmp")
    building = f"building/{directory.name}"
    message = create_message(options, Lower((), rootfs), f"tools.{directory.name}", "none")
    message["storage"] = {"kind": "build", "directory": building}
    box: Box = await create(keeper, message, options)
    try:
        async with asyncio.timeout(_PATIENCE):
            await inject(BubblewrapSandbox(box))
    finally:
        await asyncio.shield(box.close())
    for left in (f"root{SERVER_DIR}", ".work"):
        await keeper.ask({"op": "remove", "directory": f"{building}/{left}"})
