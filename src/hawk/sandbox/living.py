"""A sandbox that lives, and the commands that run in it, as the keeper sees them. Standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hawk.sandbox.enter import Identity, join

if TYPE_CHECKING:
    from hawk.sandbox.spawn import Spawning
    from hawk.sandbox.talk import Request


LOST = "its first process was killed"

LOOK = 5.0
"""Seconds between two looks at how much a sandbox has on disk: there is no hard limit to set."""

_EXITING = 4  # PF_EXITING in the flags of /proc/<pid>/stat


class Sandbox:
    """One sandbox.

    Attributes:
        label: Its name, unique to the keeper.
        workspace, environment: Where and with what its worker starts commands: for others who look into it.
        pid: Of its first process, as the keeper sees it.
        pidfd: Of the same; the door to its namespaces.
        upper_fd: Directory of what was written in it.
        next_look: Monotonic time of the next look at its disk usage; None while one is under way, or for memory.
        enter: Leads a child of its pid namespace into the rest of it.
        accounts: What is known of its users, by the name or number by which a command may ask for one.
        enter: Leads a child of its pid namespace into the rest of it, limits included.
        visit: The same without the limits: a killer needs its time and memory when those inside have used up theirs.
        deadline: Monotonic time at which it is ended; None never.
        reason: Why it ended, if we ended it: `wall_time`.
        destroyed_by: The requests for its end.
    """

    def __init__(self, message: dict[str, Any], pid: int, pidfd: int, spawning: Spawning) -> None:
        self.label: str = message["label"]
        self.uid: int = message["uid"]
        self.workspace: str = message["workspace"]
        self.environment: dict[str, str] = message.get("environment", {})
        self.pid, self.pidfd = pid, pidfd
        self.monitor = spawning.monitor
        self.upper_fd = spawning.upper_fd
        self.cgroup = spawning.cgroup
        self.own_network = message["network"] == "none"
        self.join_files = self.cgroup.join_files() if self.cgroup else []
        self.enter = join(pidfd, self.join_files, own_network=self.own_network)
        self.visit = join(pidfd, [], own_network=self.own_network)
        self.accounts = {who: Identity(**row) for who, row in message.get("accounts", {}).items()}
        self.storage = message["storage"]
        limits = message["limits"]
        self.rlimits: dict[str, int] = dict(limits["rlimits"])
        if self.cgroup is None:
            self.rlimits |= {"RLIMIT_DATA": limits["memory"], "RLIMIT_NPROC": limits["processes"]}
        wall = limits.get("wall_time")
        self.deadline = None if wall is None else time.monotonic() + wall
        self.next_look = time.monotonic() + LOOK if self.storage["kind"] == "disk" else None
        self.on_disk: int | None = None
        self.running: dict[tuple[int, int], Running] = {}
        self.born = time.monotonic()
        self.reason: str | None = None
        self.destroyed_by: list[Request] = []
        self._ooms = 0
        self._refused_forks = 0

    def account(self, job: dict[str, Any]) -> Identity | None:
        """Who a command is to run as, if that is known without a look at the sandbox's own tables.

        Root can change those, so that once a command of root's was run only root is known.
        """
        wanted = str(job["user"] if job.get("user") is not None else self.uid)
        who = self.accounts.get(wanted)
        if who is None or who.uid == 0:
            self.accounts = {name: known for name, known in self.accounts.items() if known.uid == 0}
        return who

    def kept_by(self) -> dict[str, str]:
        """Which mechanism keeps each limit."""
        how = "cgroup" if self.cgroup else "rlimit, per process"
        count = "cgroup" if self.cgroup else "rlimit, per user namespace"
        space = "tmpfs" if self.storage["kind"] == "memory" else "watched"
        return {"memory": how, "processes": count, "workspace": space}

    @property
    def ending(self) -> bool:
        """Whether pid 1 has ended or is about to, and everything with it."""
        if self.reason is not None:
            return True
        # Its pidfd would tell too late: pid 1 ends last, and what it takes with it is seen to end before.
        try:
            with open(f"/proc/{self.pid}/stat", "rb") as f:
                return bool(int(f.read().rpartition(b")")[2].split()[6]) & _EXITING)
        except OSError:
            return True

    def end(self, reason: str) -> None:
        self.deadline = None
        self.reason = reason
        self.kill()

    def measured(self, result: dict[str, Any]) -> None:
        """Take in how much it has on disk; too much is its end."""
        self.next_look = time.monotonic() + LOOK
        self.on_disk = result.get("bytes")
        if self.on_disk is not None and self.on_disk > self.storage["bytes"]:
            self.end("disk_full")

    def kill(self) -> None:
        """End pid 1, and with it everything."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def troubles(self, *, failed: bool) -> list[str]:
        """Which limits were hit since the last call: `oom_killed`, `too_many_processes`, `disk_full`."""
        found = []
        if self.cgroup is not None and failed:
            ooms, forks = self.cgroup.events()
            if ooms > self._ooms:
                found.append("oom_killed")
            if forks > self._refused_forks:
                found.append("too_many_processes")
            self._ooms, self._refused_forks = ooms, forks
        if failed and self.storage["kind"] == "memory":
            space = os.fstatvfs(self.upper_fd)
            if space.f_bavail * space.f_frsize < 65536 or space.f_favail == 0:
                found.append("disk_full")
        return found

    def usage(self) -> dict[str, Any]:
        space = os.fstatvfs(self.upper_fd)
        in_memory = (space.f_blocks - space.f_bfree) * space.f_frsize
        result: dict[str, Any] = {
            "workspace": in_memory if self.storage["kind"] == "memory" else self.on_disk,
            "commands": len(self.running),
        }
        if self.cgroup is not None:
            usage = self.cgroup.usage()
            result |= {
                "memory": usage.memory,
                "memory_peak": usage.memory_peak,
                "processes": usage.processes,
                "cpu_seconds": usage.cpu_seconds,
                "oom_kills": usage.oom_kills,
            }
        return result

    def close(self) -> str:
        """Let go of what is left; what could not be removed, in words."""
        os.close(self.pidfd)
        if self.upper_fd >= 0:
            os.close(self.upper_fd)
        if self.cgroup is not None:
            try:
                self.cgroup.remove()
            except OSError as ex:
                return str(ex)
        return ""


class Running:
    """A command that runs.

    Attributes:
        mark: Value of the environment variable that everything it starts inherits.
    """

    def __init__(
        self, pid: int, report: int, mark: str, explain: Callable[[bytes], Any] = json.loads
    ) -> None:
        self.pid, self.report, self.mark, self._explain = pid, report, mark, explain

    def outcome(self, sandbox: Sandbox, code: int) -> dict[str, Any]:
        """What to tell of its end; `code` as `waitstatus_to_exitcode` gives it."""
        os.set_blocking(self.report, False)
        refusal = b""
        with contextlib.suppress(BlockingIOError):
            refusal = os.read(self.report, 4096)
        os.close(self.report)
        if sandbox.ending and not sandbox.destroyed_by:
            return {"lost": sandbox.reason or LOST}
        result: dict[str, Any] = self._explain(refusal) if refusal else {"code": code}
        troubles = sandbox.troubles(failed=code != 0)
        if troubles:
            result["troubles"] = troubles
        return result
