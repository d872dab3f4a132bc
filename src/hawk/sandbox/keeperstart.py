"""How a process becomes a keeper, and what is cleaned up behind it.

Keeper side: standard library only. With `keeper` everything is imported that is needed after `settle` has taken the
host's file system out of reach.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import socket
import time
import traceback
from typing import Any, NoReturn

from hawk.sandbox import boot, command, syscalls
from hawk.sandbox.cgroups import Delegation
from hawk.sandbox.keeper import Keeper
from hawk.sandbox.presence import Presence
from hawk.sandbox.wire import Unpacker, pack

_PATIENCE = 4.0
"""Seconds for the processes of a keeper that was killed to go; less than the worker waits for its end."""


def main(fd: int) -> None:
    """Become a keeper for the worker at the other end of `fd`.

    Three processes: the first stays what it was and cleans up behind the others; the second gives up the host;
    the third is pid 1 of a pid namespace, so that the kernel itself kills whatever is left when it ends.
    """
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)  # as it had to be until here
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    unpacker = Unpacker()
    while not (hello := unpacker.messages()):
        if not unpacker.receive(sock):
            return
    message = hello[0][0]
    presence = Presence(message["store"], message["name"])
    presence.announce(message["about"])
    place = boot.reserve(message["name"])
    go, tell = os.pipe()
    second = os.fork()
    if second == 0:
        os.close(tell)
        if not os.read(go, 1):
            os._exit(1)
        _settle(sock, message, place, presence, go)
    os.close(go)
    sock.close()
    if place.cgroups is not None:
        with contextlib.suppress(OSError):
            place.cgroups.adopt_keeper(second)
    os.write(tell, b"1")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends with the others
    os.waitpid(second, 0)
    if place.cgroups is None or _removed(place.cgroups):
        presence.withdraw()  # else what is left can be found by its file, and swept


def _removed(cgroups: Delegation) -> bool:
    """Remove the keeper's cgroups. When it was killed, the kernel takes a moment to kill what is in them."""
    deadline = time.monotonic() + _PATIENCE
    while not cgroups.remove():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _settle(
    sock: socket.socket, message: dict[str, Any], place: boot.Place, presence: Presence, life: int
) -> NoReturn:
    """`life`: ends with the first process."""
    try:
        boot.settle(place, message["store"], message["bwrap"])
        syscalls.unshare(syscalls.CLONE_NEWPID)
        mine, held = os.pipe()
        third = os.fork()
        if third == 0:
            os.close(held)
            os.close(life)
            syscalls.die_with_parent(mine)
            syscalls.mount(
                "proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
            )
            os.chdir("/")
            command.reserve()
            gc.disable()  # a collection in a child would copy every page that it looks at
            gc.freeze()
            keeper = Keeper(sock, place, presence)
            sock.sendall(pack({"id": message["id"], "ok": True, **place.facts()}))
            keeper.serve()
    except OSError as ex:
        sock.sendall(
            pack({"id": message["id"], "errno": ex.errno, "stage": str(ex.filename), "detail": ex.strerror})
        )
        os._exit(1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os.close(mine)
    syscalls.die_with_parent(life)
    sock.close()
    os.waitpid(third, 0)
    os._exit(0)
