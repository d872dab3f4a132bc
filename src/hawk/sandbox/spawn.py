"""Starting one sandbox: its upper directory, its user namespace, bwrap, and the wait until it is ready.

Keeper side: standard library only. What is to be done before bwrap is a tape (`tape.py`), which stops twice for the
keeper: for the map of its user ids, and for a look at its upper directory, which nobody can reach later.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from typing import Any

from hawk.sandbox import boot, seccomp, syscalls
from hawk.sandbox.cgroups import Cgroup
from hawk.sandbox.executable import memory_file
from hawk.sandbox.living import Sandbox
from hawk.sandbox.mounts import UPPER, Upper, arguments, upper_of
from hawk.sandbox.tape import MAY_FAIL, REPORT, Tape

# Descriptors in the started program, after 0 (where pid 1 says that it runs), 1 (nowhere) and 2 (what bwrap says).
_NOTIFY, _GO, _INFO, _INIT, _FILTER, _NETWORK = range(REPORT + 1, REPORT + 7)
_NEXT = _NETWORK + 1  # what an open gives then

_AT_FDCWD = -100


class Spawning:
    """A sandbox between start and readiness.

    Attributes:
        monitor: Pid of bwrap outside.
        notify: Readable when the tape has stopped, and at its end.
        ready: Readable once pid 1 runs; fails with the monitor.
    """

    def __init__(self, message: dict[str, Any], *, single_id: bool, cgroup: Cgroup | None) -> None:
        self.cgroup = cgroup
        self.started = time.monotonic()
        self._upper = upper_of(message["storage"])
        self._single_id = single_id
        self._mapped = single_id
        self.notify, self._tell_notify = os.pipe()
        self._wait_go, self._go = os.pipe()
        self.ready, self._tell_ready = os.pipe()
        self._info, self._tell_info = os.pipe()
        self._errors = os.memfd_create("bwrap-errors")
        self._report = os.memfd_create("report")
        self._filter = os.memfd_create("filter")
        os.write(self._filter, seccomp.program())
        os.lseek(self._filter, 0, os.SEEK_SET)
        self.upper_fd = -1
        self.monitor = -1
        self.tape = _tape(message, self._upper, cgroup, single_id=single_id)

    def start(self, init_fd: int, network: int | None) -> None:
        """Start the program; what it alone needs is closed here.

        Args:
            network: pidfd of a process whose network namespace it joins.

        Raises:
            OSError: It could not be started.
        """
        null, program = os.open(os.devnull, os.O_RDWR), -1
        ends = (self._tell_notify, self._wait_go, self._tell_ready, self._tell_info, self._filter)
        fds = {
            0: self._tell_ready,
            1: null,
            2: self._errors,
            REPORT: self._report,
            _NOTIFY: self._tell_notify,
        }
        fds |= {_GO: self._wait_go, _INFO: self._tell_info, _INIT: init_fd, _FILTER: self._filter}
        fds[_NETWORK] = null if network is None else network
        try:
            program = memory_file("sandbox", self.tape.build())
            self.monitor = os.posix_spawn(
                f"/proc/self/fd/{program}",
                ["sandbox"],
                {},
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in fds.items()],
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
                setsigmask=[],
            )
        finally:
            self._close(null, program, *ends)

    def step(self) -> bool:
        """Do what the tape has stopped for. False: it will not stop again.

        Raises:
            OSError: It can't be done; the tape waits for ever.
        """
        if not os.read(self.notify, 1):
            return False  # it has failed: the end of the process says why
        if not self._mapped:
            boot.map_ids(self.monitor, f"0 0 {boot.IDS}")
            self._mapped = True
            os.write(self._go, b"1")
            return True
        path = f"/proc/{self.monitor}/root{self._upper.upper}"
        self.upper_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.write(self._go, b"1")
        return False

    def finish(self, message: dict[str, Any]) -> Sandbox:
        """The sandbox, now that `ready` was readable.

        Raises:
            EOFError, ProcessLookupError: bwrap ends instead.
        """
        if not os.read(self.ready, 1):
            raise EOFError
        pid = json.loads(os.read(self._info, 4096))["child-pid"]
        sandbox = Sandbox(message, pid, os.pidfd_open(pid), self)
        self._close(self.notify, self._go, self.ready, self._info, self._errors, self._report)
        return sandbox

    def why(self) -> str:
        """What went wrong, in one line."""
        report = os.pread(self._report, 16, 0)
        if report:
            number, stage = self.tape.tell(report)
            return f"{stage}: {os.strerror(number)}"
        text = os.pread(self._errors, 4096, 0).decode(errors="replace")
        return " ".join(text.removeprefix("bwrap: ").split())

    def kill(self) -> None:
        """End what will not end by itself; it is reaped as any other child."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.monitor, signal.SIGKILL)

    def close(self) -> None:
        """Let go of everything: there will be no sandbox."""
        self._close(self.notify, self._go, self.ready, self._info, self._errors, self._report, self.upper_fd)
        if self.cgroup is not None:
            with contextlib.suppress(OSError):  # what is busy still goes with the keeper
                self.cgroup.remove()

    def _close(self, *fds: int) -> None:
        for fd in fds:
            if fd >= 0:
                os.close(fd)


def _tape(message: dict[str, Any], upper: Upper, cgroup: Cgroup | None, *, single_id: bool) -> Tape:
    """The calls from the start of the program to the exec of bwrap."""
    tape = Tape()
    if message.get("share"):
        # A network of another user namespace must be joined before one's own is made.
        tape.call("setns", _NETWORK, syscalls.CLONE_NEWNET, stage="network")
    tape.call("unshare", syscalls.CLONE_NEWNS | (0 if single_id else syscalls.CLONE_NEWUSER), stage="unshare")
    if not single_id:
        _stop(tape)
    zero = tape.text("0")
    for path in cgroup.join_files() if cgroup is not None else ():
        tape.call("openat", _AT_FDCWD, tape.text(path), os.O_WRONLY, 0, stage="cgroup")
        tape.call("write", _NEXT, zero, 1, stage="cgroup")
        tape.call("close", _NEXT)
    _make_upper(tape, message, upper, single_id=single_id)
    _stop(tape)
    for fd in (REPORT, _NOTIFY, _GO, _NETWORK):
        tape.call("fcntl", fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    # Whatever else was inheritable by mistake would lead out of the sandbox. Before Linux 5.11 there is no such call.
    tape.call("close_range", _NEXT, 0xFFFFFFFF, syscalls.CLOSE_RANGE_CLOEXEC, fails=MAY_FAIL)
    argv = ["bwrap", *arguments(message, upper, single_id=single_id), "--info-fd", str(_INFO)]
    argv += ["--seccomp", str(_FILTER), "--", f"/proc/self/fd/{_INIT}"]
    env = {**os.environ, "HAWK_SANDBOX": message["label"]}
    variables = tape.texts([f"{name}={value}" for name, value in env.items()])
    tape.call("execve", tape.text(boot.BWRAP), tape.texts(argv), variables, stage="bwrap")
    return tape


def _stop(tape: Tape) -> None:
    """Tell the keeper, and wait for its byte: it is spliced away, for nothing can be read into the tape."""
    tape.call("write", _NOTIFY, tape.text("1"), 1)
    tape.call("splice", _GO, 0, 1, 0, 1, stage="keeper")


def _make_upper(tape: Tape, message: dict[str, Any], upper: Upper, *, single_id: bool) -> None:
    storage = message["storage"]
    tape.call("umask", 0)
    if storage["kind"] == "memory":
        options = tape.text(f"mode=0755,size={storage['bytes']},nr_inodes={storage['inodes']}")
        flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
        tape.call(
            "mount", tape.text("hawk"), tape.text(UPPER), tape.text("tmpfs"), flags, options, stage="tmpfs"
        )
    for path in (upper.upper, upper.work, *(upper.usr or ())):
        _make_directories(tape, path, UPPER if storage["kind"] == "memory" else "")
        tape.call("fchmodat", _AT_FDCWD, tape.text(path), 0o755, stage=path)
    if message["workspace"] != "/":
        path = upper.upper + message["workspace"]
        _make_directories(tape, path, upper.upper)
        if not single_id:
            tape.call("fchownat", _AT_FDCWD, tape.text(path), message["uid"], message["uid"], stage=path)
    if message.get("names"):
        text = f"127.0.0.1 localhost {' '.join(message['names'])}\n::1 localhost\n".encode()
        path = f"{upper.upper}/etc/hosts"
        _make_directories(tape, os.path.dirname(path), upper.upper)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        tape.call("openat", _AT_FDCWD, tape.text(path), flags, 0o644, stage=path)
        tape.call("write", _NEXT, tape.data(text), len(text), stage=path)
        tape.call("close", _NEXT)


def _make_directories(tape: Tape, path: str, below: str) -> None:
    """Make a directory and those above it, up to `below`, which is there; that one is there already is fine."""
    made = below
    for name in path[len(below) :].strip("/").split("/"):
        made = f"{made}/{name}"
        tape.call("mkdirat", _AT_FDCWD, tape.text(made), 0o755, fails=MAY_FAIL)
