"""Starting one sandbox: its upper directory, its user namespace, bwrap, and the wait until it is ready.

Keeper side: standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from typing import Any, NoReturn

from hawk.sandbox import boot, seccomp, syscalls
from hawk.sandbox.cgroups import Cgroup
from hawk.sandbox.living import Sandbox
from hawk.sandbox.mounts import UPPER, Upper, arguments, upper_of


class Spawning:
    """A sandbox between fork and readiness.

    Attributes:
        monitor: Pid of bwrap outside.
        ready: Readable once pid 1 runs; fails with the monitor.
    """

    def __init__(self, monitor: int, ready: int, info: int, errors: int, cgroup: Cgroup | None) -> None:
        self.monitor, self.ready = monitor, ready
        self._info, self._errors, self.cgroup = info, errors, cgroup
        self.upper_fd = -1
        self.started = time.monotonic()

    def finish(self, message: dict[str, Any]) -> Sandbox:
        """The sandbox, now that `ready` was readable.

        Raises:
            EOFError: bwrap ends instead.
        """
        if not os.read(self.ready, 1):
            raise EOFError
        pid = json.loads(os.read(self._info, 4096))["child-pid"]
        os.close(self._info)
        sandbox = Sandbox(message, pid, os.pidfd_open(pid), self)
        os.close(self.ready)
        os.close(self._errors)
        return sandbox

    def why(self) -> str:
        """What bwrap said, in one line."""
        text = os.pread(self._errors, 4096, 0).decode(errors="replace")
        return " ".join(text.removeprefix("bwrap: ").split())

    def close(self) -> None:
        for fd in (self.ready, self._info, self._errors, self.upper_fd):
            if fd >= 0:
                os.close(fd)
        if self.cgroup is not None:
            self.cgroup.remove()


def spawn(
    message: dict[str, Any], single_id: bool, cgroup: Cgroup | None, init_fd: int, network: int | None
) -> Spawning:
    """Fork bwrap for a `create` request.

    Args:
        network: pidfd of a process whose network namespace it joins.
    """
    ready, tell_ready = os.pipe()
    info, tell_info = os.pipe()
    errors = os.memfd_create("bwrap-errors")
    ours, theirs = socket.socketpair()
    go, tell_go = os.pipe()
    flags = syscalls.CLONE_NEWNS | (0 if single_id else syscalls.CLONE_NEWUSER)
    # A network of another user namespace must be joined before one's own is made.
    monitor = syscalls.clone(0 if network is not None else flags)
    if monitor == 0:
        os.close(tell_go)  # ours would keep `go` open when the keeper is killed now
        ours.close()
        try:
            if network is not None:
                syscalls.setns(network, syscalls.CLONE_NEWNET)
                syscalls.unshare(flags)
                theirs.send(b"n")
        except OSError as ex:
            os.write(errors, f"network: {ex}".encode())
            os._exit(1)
        _child(message, single_id, cgroup, (tell_ready, tell_info, errors, init_fd), theirs, go)
    for fd in (tell_ready, tell_info, go):
        os.close(fd)
    theirs.close()
    spawning = Spawning(monitor, ready, info, errors, cgroup)
    try:
        if network is not None and not ours.recv(1):
            return spawning  # it has said why
        if not single_id:
            boot.map_ids(monitor, f"0 0 {boot.IDS}")
        os.write(tell_go, b"1")
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
        if fds:
            os.set_inheritable(fds[0], False)  # it leads out of the sandbox
            spawning.upper_fd = fds[0]
    except BaseException:
        os.kill(monitor, signal.SIGKILL)
        os.waitpid(monitor, 0)
        spawning.close()
        raise
    finally:
        os.close(tell_go)
        ours.close()
    return spawning


def _child(
    message: dict[str, Any],
    single_id: bool,
    cgroup: Cgroup | None,
    fds: tuple[int, int, int, int],
    theirs: socket.socket,
    go: int,
) -> NoReturn:
    tell_ready, tell_info, errors, init_fd = fds
    try:
        if os.read(go, 1) != b"1":
            os._exit(1)
        if cgroup is not None:
            for path in cgroup.join_files():
                with open(path, "wb", 0) as f:
                    f.write(b"0")
        upper = upper_of(message["storage"])
        _make_upper(message, upper, single_id)
        fd = os.open(upper.upper, os.O_RDONLY | os.O_DIRECTORY)
        socket.send_fds(theirs, [b"u"], [fd])
        args = [*arguments(message, upper, single_id=single_id), "--info-fd", str(tell_info)]
        args += ["--", f"/proc/self/fd/{init_fd}"]
        filter_fd = os.memfd_create("filter", 0)
        os.write(filter_fd, seccomp.program())
        os.lseek(filter_fd, 0, os.SEEK_SET)
        args[-2:-2] = ["--seccomp", str(filter_fd)]
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(errors, 2)
        os.dup2(tell_ready, 0)  # pid 1 says on it that it runs
        syscalls.close_on_exec(3)
        for keep in (tell_info, init_fd, filter_fd):
            os.set_inheritable(keep, True)
        boot.restore_signals()
        os.execve(boot.BWRAP, ["bwrap", *args], {**os.environ, "HAWK_SANDBOX": message["label"]})
    except BaseException as ex:
        os.write(errors, f"{type(ex).__name__}: {ex}".encode())
    os._exit(1)


def _make_upper(message: dict[str, Any], upper: Upper, single_id: bool) -> None:
    storage = message["storage"]
    if storage["kind"] == "memory":
        options = f"mode=0755,size={storage['bytes']},nr_inodes={storage['inodes']}"
        syscalls.mount("hawk", UPPER, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
    for path in (upper.upper, upper.work, *(upper.usr or ())):
        os.makedirs(path, mode=0o755, exist_ok=True)
        os.chmod(path, 0o755)
    workspace = upper.upper + message["workspace"]
    if message["workspace"] != "/":
        os.makedirs(workspace, exist_ok=True)
        if not single_id:
            os.chown(workspace, message["uid"], message["uid"])
    if message.get("names"):
        os.makedirs(f"{upper.upper}/etc", exist_ok=True)
        with open(f"{upper.upper}/etc/hosts", "w", encoding="utf-8") as f:
            f.write(f"127.0.0.1 localhost {' '.join(message['names'])}\n::1 localhost\n")
