"""The local docker engine, asked by its command: images to import, containers that were left behind."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from hawk.errors import NotFoundError
from hawk.sandbox.client import Keeper
from hawk.sandbox.errors import SandboxError
from hawk.sandbox.imagearchive import machine
from hawk.sandbox.images import id_mode, import_stream
from hawk.sandbox.layers import Layer, LayerStore

PATIENCE = 60.0
"""Seconds that one question to the engine may take; `docker create` may have to copy a large image."""


def ask(*args: str, timeout: float = PATIENCE) -> str:
    """What `docker ARGS` prints.

    Raises:
        SandboxError: There is no docker, it does not answer, or it says no.
    """
    if shutil.which("docker") is None:
        raise SandboxError("There is no docker on this machine.", remedy="Install docker, or do without it.")
    try:
        done = subprocess.run(
            ["docker", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        raise SandboxError(
            f"docker {args[0]} took longer than {timeout:g} s.", remedy="Look after the docker daemon."
        ) from None
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[:500] or f"exit code {done.returncode}"
        raise SandboxError(f"docker {args[0]}: {said}", remedy="Try the same by hand; is the daemon running?")
    return done.stdout


@dataclass(frozen=True)
class Image:
    """An image in the engine.

    Attributes:
        said: What it sets for its containers and an import leaves behind, for people: `ENV PATH=…`, `USER 1000`.
    """

    id: str
    said: tuple[str, ...]


def find_image(name: str) -> Image:
    """An image of the local engine.

    Raises:
        NotFoundError: It has none of that name.
        SandboxError: It does not answer, or the image is for other machines.
    """
    try:
        found = json.loads(ask("image", "inspect", "--", name))[0]
    except SandboxError as ex:
        if "no such image" not in ex.message.lower():
            raise
        raise NotFoundError(
            f"The docker engine has no image {name!r}.",
            remedy=f"docker pull {name}; or give a tar file or a directory.",
        ) from ex
    if found["Architecture"] not in (machine(), ""):
        raise SandboxError(
            f"The image {name} is for {found['Architecture']}, and this machine is {machine()}.",
            remedy=f"docker pull --platform linux/{machine()} {name}",
        )
    config = found.get("Config") or {}
    said = [f"ENV {line}" for line in config.get("Env") or () if not line.startswith("PATH=")]
    said += [f"{word.upper()} {config[field]}" for word, field in _LEFT if config.get(field)]
    return Image(found["Id"], tuple(said))


_LEFT = (("user", "User"), ("workdir", "WorkingDir"))


async def import_image(keeper: Keeper, store: LayerStore, name: str, image: Image) -> Layer:
    """Unpack an image of the local engine, unless the same one was unpacked before.

    Raises:
        SandboxError: It can't be exported or unpacked.
    """
    key = hashlib.sha256(f"docker 1 {id_mode(keeper)} {image.id}".encode()).hexdigest()[:32]
    return await import_stream(keeper, store, key, f"docker image {name}", lambda: _exported(image.id))


@contextlib.contextmanager
def _exported(image: str) -> Iterator[int]:
    """What a container of the image would see, as a tar that is read from a descriptor."""
    container = ask("create", "--network", "none", image, "true").strip()
    command = ["docker", "export", container]
    try:
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
            ) as export,
        ):
            assert export.stdout is not None
            try:
                yield export.stdout.fileno()
                while export.stdout.read(1 << 16):
                    pass  # a tar may go on behind its end; who writes it must not find the door closed
                code = export.wait(PATIENCE)
            finally:
                export.kill()
            if code != 0:
                errors.seek(0)
                said = " ".join(errors.read(2000).decode(errors="replace").split())
                raise SandboxError(f"docker export: {said or f'exit code {code}'}")
    finally:
        ask("rm", "--force", "--volumes", container)
