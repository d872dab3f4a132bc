"""The sandboxes of one attempt: the default one, and its services in the same network."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field

from hawk.core.snapshot import SandboxFacts
from hawk.sandbox import pool
from hawk.sandbox.accounts import known, number_of
from hawk.sandbox.box import Box
from hawk.sandbox.client import Keeper
from hawk.sandbox.config import BubblewrapConfig, Common, Service
from hawk.sandbox.errors import KeeperGoneError, KeeperRefusedError, SandboxError
from hawk.sandbox.prepare import Lower, prepare
from hawk.sandbox.troubles import TEXTS

_SHM = 64 << 20  # bytes of /dev/shm, as containers have it
_POLL = 0.1  # seconds between two looks at whether a service is ready


@dataclass
class Group:
    """Sandboxes by name, `default` first."""

    boxes: dict[str, Box] = field(default_factory=dict)
    _background: list[asyncio.Task[object]] = field(default_factory=list)

    def facts(self) -> SandboxFacts:
        """What there is to say about them, as one."""
        boxes = list(self.boxes.values())
        troubles: Counter[str] = Counter()
        for box in boxes:
            troubles.update(box.troubles.copy())  # another thread may be asking
        lost = next((box.lost for box in boxes if box.lost is not None), None)
        why = None if lost is None else TEXTS.get(lost, lost)
        return SandboxFacts(boxes[0].label, dict(troubles), dict(boxes[0].kept_by), why)

    async def close(self) -> None:
        """End all of them."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        # The first owns the network, which the others are in.
        await asyncio.gather(*(box.close() for box in reversed(list(self.boxes.values()))))


async def open_group(config: BubblewrapConfig, *, name: str) -> Group:
    """Make the sandboxes of one attempt and wait until its services are ready.

    Args:
        name: Unique to this process.

    Raises:
        SandboxError: One could not be made, or a service did not become ready.
    """
    keeper = await pool.keeper()
    lowers = await prepare(config)
    group = Group()
    names = (
        ["sandbox", *([config.hostname] if config.hostname else []), *config.services]
        if config.services
        else []
    )
    try:
        group.boxes["default"] = await _open(
            keeper, config, lowers["default"], f"{name}.default", config.network, names
        )
        for service, options in config.services.items():
            share = f"{name}.default"
            group.boxes[service] = await _open(
                keeper, options, lowers[service], f"{name}.{service}", config.network, names, share
            )
        for service, options in config.services.items():
            await _run(group, service, options)
    except BaseException:
        await asyncio.shield(group.close())
        raise
    return group


async def _open(
    keeper: Keeper,
    options: Common,
    lower: Lower,
    label: str,
    network: str,
    names: list[str],
    share: str | None = None,
) -> Box:
    message = create_message(options, lower, label, network)
    message |= {"names": names, "share": share}
    if share is not None:
        message["hostname"] = options.hostname or label.rpartition(".")[2]
    return await create(keeper, message, options)


async def create(keeper: Keeper, message: dict[str, object], options: Common) -> Box:
    """Ask the keeper for a sandbox.

    Raises:
        SandboxError: It could not be made; says what bwrap or the kernel said.
    """
    label = str(message["label"])
    box = Box(keeper, label, options.workspace, dict(options.environment))
    try:
        reply = await keeper.ask(message)
    except (KeeperRefusedError, KeeperGoneError) as ex:
        keeper.forget(label)
        raise SandboxError(
            f"The sandbox {label} could not be made: {ex.message}", remedy="hawk doctor"
        ) from ex
    box.kept_by = reply["limits"]
    return box


def create_message(options: Common, lower: Lower, label: str, network: str) -> dict[str, object]:
    """The keeper's `create` request for a configuration."""
    limits, uid = options.limits, number_of(options.user, list(lower.roots))
    storage: dict[str, object] = {"kind": options.storage, "bytes": limits.workspace, "inodes": limits.inodes}
    rlimits = {"RLIMIT_NOFILE": limits.open_files, "RLIMIT_CORE": 0}
    if limits.file_size is not None or options.storage == "disk":
        rlimits["RLIMIT_FSIZE"] = min(limits.file_size or limits.workspace, limits.workspace)
    if limits.cpu_time is not None:
        rlimits["RLIMIT_CPU"] = max(1, round(limits.cpu_time))
    return {
        "op": "create",
        "label": label,
        "layers": lower.layers,
        "rootfs": lower.rootfs,
        "storage": storage,
        "network": network,
        "hostname": options.hostname or "sandbox",
        "workspace": options.workspace,
        "environment": dict(options.environment),
        "uid": uid,
        "accounts": known(uid, list(lower.roots)),
        "shm": min(_SHM, limits.memory),
        "limits": {
            "memory": limits.memory,
            "processes": limits.processes,
            "cpus": limits.cpus,
            "wall_time": limits.wall_time,
            "rlimits": rlimits,
        },
    }


async def _run(group: Group, name: str, service: Service) -> None:
    box = group.boxes[name]
    if service.command is not None:
        task = asyncio.create_task(box.run(_argv(service.command)), name=f"service {name}")
        group._background.append(task)
    if service.ready is None:
        return
    said = ""
    try:
        async with asyncio.timeout(service.ready_timeout):
            while (done := await box.run(_argv(service.ready))).code != 0:
                said = done.stderr.decode(errors="replace").strip()[-300:]
                started = group._background[-1] if service.command is not None else None
                if started is not None and started.done():
                    raise SandboxError(f"The service {name} ended before it was ready: {_end_of(started)}")
                await asyncio.sleep(_POLL)
    except TimeoutError:
        raise SandboxError(
            f"The service {name} was not ready after {service.ready_timeout:g} s: {said or 'its check failed'}",
            remedy="Look at its `command`, or raise `ready_timeout`.",
        ) from None


def _end_of(task: asyncio.Task[object]) -> str:
    with contextlib.suppress(Exception):
        done = task.result()
        stderr = getattr(done, "stderr", b"").decode(errors="replace").strip()[-300:]
        return f"exit code {getattr(done, 'code', '?')}. {stderr}".strip()
    return str(task.exception())


def _argv(command: list[str] | str) -> list[str]:
    return ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
