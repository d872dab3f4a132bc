"""Whether sandboxes work on this machine, found out by making some: in a store of its own, which goes again."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hawk.sandbox import pool
from hawk.sandbox.boot import FIRST_ID
from hawk.sandbox.box import Box, BoxGoneError, Done
from hawk.sandbox.client import Keeper
from hawk.sandbox.config import BubblewrapConfig, Limits
from hawk.sandbox.errors import SandboxError
from hawk.sandbox.group import create, create_message
from hawk.sandbox.prepare import Lower, describe_keeper
from hawk.sandbox.sweep import keepers, sweep

PATIENCE = 20.0
"""Seconds that all of it may take; it takes half of one on an idle machine, and that may be a busy one."""

SWEEP_PATIENCE = 3.0  # seconds that killed processes may take to be gone

_LIMITS = Limits(memory=64 << 20, processes=24, workspace=16 << 20)
_STARTS = 3
_LAYER = "checkup"
_SIGN = "/opt/hawk-checkup"

_LOOK = r"""
while read -r name _; do case $name in *:) echo "interface ${name%:}";; esac; done </proc/net/dev
while read -r _ address _; do case $address in *:"$PORT") echo listener;; esac; done </proc/net/tcp
set -- /proc/[0-9]*
echo "processes $#"
set -f
IFS='
'
for path in $PATHS; do [ -e "$path" ] && echo "path $path"; done
[ -e "$SIGN" ] && echo sign
exit 0
"""
"""What can be seen from inside, by means that every shell has built in."""

_TAKE_MEMORY = "head -c {bytes} /dev/zero | tail -c {bytes} >/dev/null"

_TAKE_PROCESSES = """
(i=0; while [ $i -lt {count} ]; do sleep 9 & i=$((i+1)); done; : >/tmp/all) 2>/tmp/refused &
while ! [ -s /tmp/refused ] && ! [ -e /tmp/all ]; do :; done
[ -s /tmp/refused ]
"""
"""Some shells go on trying for a long time when they may not fork: so another one watches what they say."""


@dataclass
class Checkup:
    """What was found.

    Attributes:
        summary: How sandboxes are here, in a line.
        exposed: What a sandbox can see or reach and should not: none of them is safe here then.
        lacking: What does not work as it should, though nothing is exposed.
        seconds: From asking for a sandbox to the end of its first command, the shortest of some.
    """

    summary: str = ""
    exposed: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    seconds: float = 0.0


async def check(near: Path, secrets: Sequence[Path] = ()) -> Checkup:
    """Make sandboxes, look out of them and at their limits, and remove them.

    Args:
        near: A directory on the file system that holds the store.
        secrets: Files of this machine that no sandbox may see, such as exist.

    Raises:
        SandboxError: This machine refuses them; says why, and what can be done.
    """
    with _store(near) as store:
        try:
            async with asyncio.timeout(PATIENCE):
                keeper = await pool.start(store)
        except TimeoutError:
            raise _too_slow("the process that makes sandboxes did not start") from None
        task = asyncio.create_task(_check(keeper, store, secrets))
        await asyncio.wait({task}, timeout=PATIENCE)
        slow = not task.done()
        keeper.close()  # with it ends whatever still waits for an answer
        if slow:
            await asyncio.to_thread(_sweep, store)  # it may have been killed before it could clean up
        try:
            result = await task
        except (SandboxError, BoxGoneError) as ex:
            if not slow:
                raise
            raise _too_slow("a sandbox did not do what it was asked") from ex
        result.lacking += [f"{path} is left behind" for path in _left(keeper, store)]
        return result


def _sweep(store: Path) -> None:
    """Until nothing is left, for nobody will find this store again."""
    deadline = time.monotonic() + SWEEP_PATIENCE
    while keepers(store) and time.monotonic() < deadline:
        sweep(store)
        time.sleep(0.05)


def _left(keeper: Keeper, store: Path) -> list[str]:
    """What should have gone with the keeper."""
    cgroups = (keeper.facts["delegation"] or {"directories": {}})["directories"].values()
    files = (path for part in ("keepers", "scratch") for path in (store / part).iterdir())
    return [path for path in (*dict.fromkeys(cgroups), *map(str, files)) if os.path.exists(path)]


def _too_slow(what: str) -> SandboxError:
    return SandboxError(f"After {PATIENCE:g} s, {what}.", remedy="Is the machine overloaded?")


@contextmanager
def _store(near: Path) -> Iterator[Path]:
    try:
        path = Path(tempfile.mkdtemp(prefix=".hawk-checkup-", dir=near))
    except OSError:
        path = Path(tempfile.mkdtemp(prefix="hawk-checkup-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


async def _check(keeper: Keeper, store: Path, secrets: Sequence[Path]) -> Checkup:
    result = Checkup()
    _lay(store, keeper)
    config = BubblewrapConfig(limits=_LIMITS)
    box = await _make(keeper, config, "looked-at", Lower((_LAYER,)))
    users = (None,) if keeper.facts["single_id"] else (None, "root")
    for user in users:
        await _look_out(box, user, store, secrets, result)
    await _try_limits(box, result)
    await box.close()
    result.seconds = min([await _time_start(keeper, config, f"timed{i}") for i in range(_STARTS)])
    how = describe_keeper(keeper).replace("; ", ", ")
    result.summary = f"{version()}, {how}, {result.seconds * 1000:.0f} ms to start"
    return result


async def _time_start(keeper: Keeper, config: BubblewrapConfig, label: str) -> float:
    began = time.perf_counter()
    box = await _make(keeper, config, label, Lower((_LAYER,)))
    await box.run(["/bin/true"])
    seconds = time.perf_counter() - began
    await box.close()
    return seconds


def version() -> str:
    """`bubblewrap 0.11.0`. Raises: SandboxUnsupportedError when there is none."""
    done = subprocess.run(
        [pool.find_bwrap(), "--version"], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return done.stdout.strip()[:40] or "bubblewrap"


def _lay(store: Path, keeper: Keeper) -> None:
    """A layer with one file: the store's file system must be good for it."""
    root = store / "layers" / _LAYER / "root"
    file = root / _SIGN.lstrip("/")
    file.parent.mkdir(parents=True)
    file.write_text("")
    if not keeper.facts["single_id"]:
        for path in (file, *(parent for parent in file.parents if parent.is_relative_to(store / "layers"))):
            os.chown(path, FIRST_ID, FIRST_ID)


async def _make(keeper: Keeper, config: BubblewrapConfig, label: str, lower: Lower) -> Box:
    return await create(keeper, create_message(config, lower, label, "none"), config)


async def _look_out(
    box: Box, user: str | None, store: Path, secrets: Sequence[Path], result: Checkup
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        env = {
            "PORT": f"{listener.getsockname()[1]:04X}",
            "PATHS": "\n".join(map(str, (store, *secrets))),
            "SIGN": _SIGN,
        }
        done = await box.run(["/bin/sh", "-c", _LOOK], env=env, user=user)
    if done.code != 0:
        result.lacking.append(f"a command could not be run in it: {_end(done)}")
        return
    who = f"as {user or 'its user'}"
    seen = [line.partition(" ") for line in done.stdout.decode(errors="replace").splitlines()]
    said = {word: [rest for other, _, rest in seen if other == word] for word, _, _ in seen}
    if more := [name for name in said.get("interface", ()) if name != "lo"]:
        result.exposed.append(f"network interfaces {who}: {', '.join(more)}")
    if "listener" in said:
        result.exposed.append(f"this machine's network {who}")
    if "path" in said:
        result.exposed.append(f"files of this machine {who}: {', '.join(said['path'])}")
    count = said.get("processes", ["?"])[0]
    if count not in ("2", "3"):  # its first one, and the shell that counts
        result.exposed.append(f"processes of others {who}: it sees {count}")
    if "sign" not in said:
        result.lacking.append("prepared layers are not seen in it: the store's file system can't serve them")


async def _try_limits(box: Box, result: Checkup) -> None:
    done = await box.run(["/bin/sh", "-c", _TAKE_MEMORY.format(bytes=_LIMITS.memory // 64)])
    if done.code != 0:
        result.lacking.append(f"its limits could not be tried: {_end(done)}")
        return
    done = await box.run(["/bin/sh", "-c", _TAKE_MEMORY.format(bytes=2 * _LIMITS.memory)])
    if done.code == 0:
        result.lacking.append(f"its memory is not limited ({box.kept_by['memory']})")
    done = await box.run(["/bin/sh", "-c", _TAKE_PROCESSES.format(count=2 * _LIMITS.processes)])
    if done.code != 0:
        result.lacking.append(f"its processes are not limited ({box.kept_by['processes']})")


def _end(done: Done) -> str:
    said = " ".join(done.stderr.decode(errors="replace").split())[-200:]
    return f"exit code {done.code}{': ' if said else ''}{said}"
