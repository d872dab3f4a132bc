"""`hawk sandbox import`: a root file system under a name."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import click

from hawk.cli.context import note
from hawk.cli.text import clean, plural, size
from hawk.errors import ConflictError, NotFoundError, UsageError
from hawk.sandbox import docker, images, pool
from hawk.sandbox.layers import Layer
from hawk.sandbox.options import Common
from hawk.sandbox.prepare import layer_store
from hawk.sandbox.words import is_archive, is_path

DOCKER = "docker:"
SAID = 12  # settings of an image that are shown


def run(name: str, source: str | None) -> None:
    """Import and name; says what an image set that does not come along.

    Raises:
        HawkError: It can't be found, read or unpacked.
    """
    _check_name(name)
    began = time.time()
    image, path = _find(name, source)
    layer = asyncio.run(_import(name, image, path))
    images.set_name(layer_store(), name, layer.key)
    state = "unpacked" if layer.created >= began else "already there"
    facts = f"{plural(layer.files, 'file')}, {size(layer.bytes)}"
    click.echo(f"{name}: {clean(layer.description)}: {state} ({facts}, {layer.key[:8]})")
    note(f"In a sandbox's config:  rootfs: {name}")
    if image is not None and (said := docker.find_image(image).said):
        note(
            "What the image sets for its containers does not come along; write what is needed into the config:"
        )
        for line in said[:SAID]:
            note(f"  {clean(line)}")


def forget(name: str) -> None:
    """Forget a name; the layer goes unless it has another, or is in use.

    Raises:
        NotFoundError: There is no image of that name.
    """
    store = layer_store()
    key = images.names(store).get(name)
    if key is None:
        raise NotFoundError(f"There is no image {name!r}.", remedy="See which there are: hawk sandbox list")
    images.set_name(store, name, None)
    if key in images.names(store).values():
        note(f"Forgot {name}; the image has another name still.")
        return
    try:
        store.remove(key)
    except NotFoundError:
        pass
    except ConflictError:
        note(f"Forgot {name}; it is in use, and goes with 'hawk sandbox prune' later.")
        return
    note(f"Removed {name}.")


def _check_name(name: str) -> None:
    """What `rootfs` in a config would not take for an image's name can't be one."""
    from pydantic import ValidationError

    try:
        Common(rootfs=name)
        wrong = is_path(name)
    except ValidationError:
        wrong = True
    if wrong:
        raise UsageError(
            f"{name!r} can't be the name of an image: small letters, digits and ._- are allowed, and one tag "
            "after a colon.",
            remedy=f"hawk sandbox import NAME {name}",
        )


def _find(name: str, source: str | None) -> tuple[str | None, Path]:
    """(image of the docker engine, file or directory): the second is meant when there is no first."""
    given = source or name
    if given.startswith(DOCKER):
        return given.removeprefix(DOCKER), Path()
    path = Path(given).expanduser()
    if source is not None and path.exists():
        return None, path
    if given.startswith(("/", ".", "~")) or is_archive(given):
        raise UsageError(f"There is no file {given!r}.", remedy=f"An image of docker: {DOCKER}IMAGE")
    return given, path


async def _import(name: str, image: str | None, path: Path) -> Layer:
    store = layer_store()
    keeper = await pool.keeper()
    try:
        if image is None:
            return await images.import_rootfs(keeper, store, path, description=f"rootfs: {path}")
        return await docker.import_image(keeper, store, image, docker.find_image(image))
    finally:
        await pool.close()
