"""Running a setup once, in a sandbox whose changes become a layer."""

from __future__ import annotations

import asyncio
import functools
import io
import logging
import os
import posixpath
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

from hawk.sandbox.base import UID
from hawk.sandbox.boot import FIRST_ID
from hawk.sandbox.box import Box, BoxGoneError
from hawk.sandbox.client import Keeper
from hawk.sandbox.config import Common, SetupFile
from hawk.sandbox.errors import KeeperRefusedError, SandboxError

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from hawk.sandbox.prepare import Lower

_SHOWN = 1500  # characters of the end of a failed step's output

_APT = """export DEBIAN_FRONTEND=noninteractive
apt-get -qq update && apt-get -qq -y --no-install-recommends install "$@" && rm -rf /var/lib/apt/lists/*"""
_APK = 'apk add --no-cache "$@"'
_PIP = 'exec python3 -m pip install --no-cache-dir --disable-pip-version-check --break-system-packages "$@"'
_PIP_USER = _PIP.replace("install", "install --user", 1)

_INSTALLERS = ("apt", "apk", "pip")

_HOSTS_PACKAGES = ("/var/lib/dpkg", "/etc/apt", "/etc/dpkg")
"""What apt must know of the packages in this machine's /usr."""


async def run_setup(keeper: Keeper, directory: Path, options: Common, below: Lower) -> None:
    """Fill a layer under construction: `root/`, and `usr/` where packages went into this machine's /usr.

    Raises:
        SandboxError: A step failed; says which, and how its output ended.
    """
    from hawk.sandbox.group import create, create_message

    setup = options.setup
    single = keeper.facts["single_id"]
    if setup.packages.apt and below.rootfs is None and not keeper.facts["mapped_usr"]:
        raise SandboxError(
            "apt packages can't be installed on top of this machine's /usr here: "
            + (
                "that needs root." if single else "its file system can't show other owners (idmapped mounts)."
            ),
            remedy="Give a `rootfs:`, or install them on the machine.",
        )
    if not single:
        os.chown(directory, FIRST_ID, FIRST_ID)
    name = directory.name
    message = create_message(options, below, f"setup.{name}", setup.network)
    message["storage"] = {
        "kind": "build",
        "directory": f"building/{name}",
        "usr": below.rootfs is None and keeper.facts["mapped_usr"],
    }
    box = await create(keeper, message, options)
    box.environment = {**options.environment, **setup.environment}
    try:
        async with asyncio.timeout(setup.timeout):
            await _steps(box, options, single=single, host=below.rootfs is None)
    except TimeoutError:
        raise SandboxError(
            f"The sandbox's setup took longer than {setup.timeout:g} s.", remedy="Raise `setup.timeout`."
        ) from None
    except BoxGoneError as ex:
        raise SandboxError(f"The sandbox was lost during its setup: {ex}") from ex
    finally:
        await asyncio.shield(box.close())
    for part in (".work", ".usr-work"):
        if (directory / part).exists():
            await keeper.ask({"op": "remove", "directory": f"building/{name}/{part}"})


async def _steps(box: Box, options: Common, *, single: bool, host: bool) -> None:
    setup = options.setup
    root = None if single else "root"
    if setup.files:
        _log.info("setup: files")
        owner = UID if options.user == "user" else 0
        entries = {options.place(place): file for place, file in setup.files.items()}
        archive = await asyncio.to_thread(_archive, entries, 0 if single else owner, options.workspace)
        await _unpack(box, archive, root)
    packages = setup.packages
    if packages.apt:
        if host:
            await _unpack(box, await asyncio.to_thread(_archive_of_host, _HOSTS_PACKAGES), root)
        await _step(box, "apt", ["/bin/sh", "-c", _APT, "sh", *packages.apt], root)
    if packages.apk:
        await _step(box, "apk", ["/bin/sh", "-c", _APK, "sh", *packages.apk], root)
    if packages.pip:
        await _step(box, "pip", ["/bin/sh", "-c", _PIP_USER if single else _PIP, "sh", *packages.pip], root)
    script = setup.script
    if setup.script_file is not None:
        script = await asyncio.to_thread(Path(setup.script_file).read_text)
    if script:
        user = None if setup.user == "user" or single else "root"
        await _step(box, "the script", ["/bin/sh", "-e", "-c", script], user)
    if not single and options.user == "user":
        # What root made in the workspace is the user's, who is to work with it.
        await _step(box, "chown", ["chown", "-hR", f"{UID}:{UID}", options.workspace], root)


async def _unpack(box: Box, archive: bytes, user: str | None) -> None:
    try:
        await box.unpack(archive, user=user)
    except KeeperRefusedError as ex:
        raise SandboxError(f"The setup's files could not be put into the sandbox: {ex.message}") from ex


async def _step(box: Box, what: str, argv: list[str], user: str | None) -> None:
    _log.info("setup: %s", " ".join([what, *argv[4:]]) if what in _INSTALLERS else what)
    try:
        done = await box.run(argv, user=user)
    except KeeperRefusedError as ex:
        raise SandboxError(f"The sandbox's setup failed: {what}: {ex.message}") from ex
    if done.code != 0:
        said = (done.stdout + b"\n" + done.stderr).decode(errors="replace").strip()[-_SHOWN:]
        hit = f" ({', '.join(done.troubles)})" if done.troubles else ""
        raise SandboxError(
            f"The sandbox's setup failed: {what} ended with exit code {done.code}{hit}:\n{said}",
            remedy="Correct `setup`, and try it with: hawk sandbox build",
        )


def _archive(entries: dict[str, SetupFile], owner: int, workspace: str) -> bytes:
    """A tar of the setup's files, at their places."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for place, file in entries.items():
            inside = (
                owner
                if place.startswith(workspace.rstrip("/") + "/") or place.startswith("/home/user/")
                else 0
            )
            name = place.lstrip("/")
            if file.text is not None:
                content = file.text.encode()
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(content), int(file.mode or "0644", 8)
                info.uid = info.gid = inside
                tar.addfile(info, io.BytesIO(content))
            else:
                assert file.path is not None
                tar.add(file.path, name, filter=functools.partial(_owned, inside))
    return buffer.getvalue()


def _owned(owner: int, info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = owner
    info.uname = info.gname = ""
    return info


def _archive_of_host(paths: tuple[str, ...]) -> bytes:
    """A tar of what everybody may read below `paths`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in paths:
            if Path(path).is_dir():
                tar.add(path, posixpath.relpath(path, "/"), filter=lambda i: i if i.mode & 0o004 else None)
    return buffer.getvalue()
