"""The keeper: the process that makes sandboxes and runs commands in them, for one worker.

Keeper side: standard library only, one thread, everything imported before `settle` (`keeperstart.py`) takes the
host's file system out of reach. It answers requests over a socket (`wire.py`); the end of the socket is its end,
and its end is the end of every sandbox: bwrap dies with it, and all processes of a sandbox die with its pid 1.

Requests: `create`, `destroy`, `exec`, `kill`, `usage`, `list`, and the chores. Each is answered by one message with its
`id`. A sandbox that ends without being asked to is told of by an event.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from hawk.sandbox import boot, command, init, killing, seccomp, syscalls
from hawk.sandbox.chores import CHORES, run_chore
from hawk.sandbox.enter import Identity, become
from hawk.sandbox.living import LOST, Running, Sandbox
from hawk.sandbox.presence import Presence
from hawk.sandbox.spawn import Spawning
from hawk.sandbox.talk import Conversation, Request


class Keeper:
    """Serves one worker until its socket ends."""

    def __init__(self, sock: socket.socket, place: boot.Place, presence: Presence) -> None:
        self._place = place
        self._scratch = presence.name
        self._poll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._sandboxes: dict[str, Sandbox] = {}
        self._children: dict[int, Callable[[int], None]] = {}
        self._own_pid_ns = os.open("/proc/self/ns/pid", os.O_RDONLY)
        self._init = init.memfd()
        os.set_inheritable(self._init, False)  # for bwrap alone
        self._wakeup, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        seccomp.program()  # compiled once, for all children
        self._watch(self._wakeup, self._reap)
        self._talk(sock, master=True)
        self._door = presence.door
        self._watch(self._door.fileno(), self._let_in)

    def serve(self) -> None:
        while True:
            for fd, _ in self._poll.poll(self._until_deadline()):
                handler = self._handlers.get(fd)
                if handler is not None:
                    handler()
            self._enforce_deadlines()

    # --- messages

    def _talk(self, sock: socket.socket, *, master: bool) -> None:
        conversation = Conversation(sock)
        self._watch(sock.fileno(), lambda: self._receive(conversation, master))

    def _let_in(self) -> None:
        """Somebody who may read the store's directory wants to look into a sandbox."""
        with contextlib.suppress(OSError):
            self._talk(self._door.accept()[0], master=False)

    def _receive(self, peer: Conversation, master: bool) -> None:
        for message, fds in peer.receive():
            self._answer(message, fds, peer)
        if peer.ended:
            if master:
                os._exit(0)  # the worker has gone: everything of ours goes with us
            self._unwatch(peer.sock.fileno())
            peer.sock.close()
            self._abandon(peer)

    def _abandon(self, peer: Conversation) -> None:
        """Kill what still runs for somebody who has gone, and could not say so: it was killed itself, or interrupted."""
        for sandbox in self._sandboxes.values():
            for owner, number in list(sandbox.running):
                if owner == id(peer):
                    self._answer({"op": "kill", "id": 0, "label": sandbox.label, "target": number}, [], peer)

    def _answer(self, message: dict[str, Any], fds: list[int], peer: Conversation) -> None:
        request = Request(message, fds, peer)
        operation = getattr(self, f"_do_{message['op']}", None)
        try:
            if operation is not None:
                operation(request)
            elif message["op"] in CHORES:
                self._do_chore(request)
            else:
                raise OSError(errno.ENOSYS, "no such request", message["op"])
        except OSError as ex:
            request.fail(ex.errno or errno.EIO, str(ex.filename or ""), ex.strerror or str(ex))
        except KeyError as ex:
            request.fail(errno.ENOENT, "sandbox", f"no such sandbox: {ex}")
        finally:
            for fd in fds:
                os.close(fd)

    # --- sandboxes

    def _do_create(self, request: Request) -> None:
        label = request["label"]
        if label in self._sandboxes:
            raise OSError(errno.EEXIST, "there is one of that name", label)
        request["storage"].setdefault("directory", f"{self._scratch}/{label}")
        share = request.message.get("share")
        network = self._sandboxes[share].pidfd if share else None
        cgroup, limits = None, request["limits"]
        if self._place.cgroups is not None:
            cgroup = self._place.cgroups.create(
                label, memory=limits["memory"], processes=limits["processes"], cpus=limits.get("cpus")
            )
        spawning = Spawning(request.message, single_id=self._place.single_id, cgroup=cgroup)
        try:
            spawning.start(self._init, network)
        except OSError:
            spawning.close()
            raise
        self._children[spawning.monitor] = lambda _: self._ended(spawning, request)
        self._watch(spawning.notify, lambda: self._step(spawning))
        self._watch(spawning.ready, lambda: self._ready(spawning, request))

    def _step(self, spawning: Spawning) -> None:
        """What is started has stopped on its way, for something that only the keeper can do."""
        try:
            more = spawning.step()
        except OSError:
            more = False
            spawning.kill()
        if not more:
            self._unwatch(spawning.notify)

    def _ready(self, spawning: Spawning, request: Request) -> None:
        self._unwatch(spawning.ready)
        try:
            sandbox = spawning.finish(request.message)
        except (EOFError, ProcessLookupError):
            return  # bwrap is ending: `_ended` will say why
        self._sandboxes[sandbox.label] = sandbox
        self._children[spawning.monitor] = lambda _: None
        self._watch(sandbox.pidfd, lambda: self._died(sandbox, request.peer))
        request.answer(ok=True, limits=sandbox.kept_by())

    def _ended(self, spawning: Spawning, request: Request) -> None:
        """bwrap ended before the sandbox was there."""
        self._unwatch(spawning.notify)
        self._unwatch(spawning.ready)
        request.fail(errno.EIO, "create", spawning.why() or "bwrap ended at once")
        self._kill_strays()
        spawning.close()

    def _kill_strays(self) -> None:
        """A bwrap that was killed early leaves a child that waits for it for ever. It is ours then: we are pid 1."""
        for pid, row in killing.processes().items():
            if row.parent == os.getpid() and pid not in self._children:
                os.kill(pid, signal.SIGKILL)

    def _died(self, sandbox: Sandbox, owner: Conversation) -> None:
        """Pid 1 has ended: by our doing, or the sandbox is lost."""
        self._unwatch(sandbox.pidfd)
        self._sandboxes.pop(sandbox.label, None)
        left = sandbox.close()

        def tell(result: dict[str, Any]) -> None:
            for request in sandbox.destroyed_by:
                request.answer(ok=True, left=left or result.get("detail", ""))

        if not sandbox.destroyed_by:
            reason = sandbox.reason or LOST
            owner.say({"event": "dead", "label": sandbox.label, "reason": reason})
        if sandbox.storage["kind"] == "disk":
            directory = f"scratch/{sandbox.storage['directory']}"
            self._work({"op": "remove", "directory": directory}, [], None, tell)
        else:
            tell({})

    def _do_destroy(self, request: Request) -> None:
        sandbox = self._sandboxes[request["label"]]
        sandbox.destroyed_by.append(request)
        sandbox.kill()

    def _do_usage(self, request: Request) -> None:
        request.answer(ok=True, **self._sandboxes[request["label"]].usage())

    def _do_list(self, request: Request) -> None:
        rows = [
            {
                "label": s.label,
                "age": time.monotonic() - s.born,
                "workspace_directory": s.workspace,
                "environment": s.environment,
                **s.usage(),
            }
            for s in self._sandboxes.values()
        ]
        request.answer(ok=True, sandboxes=rows)

    # --- commands

    def _do_exec(self, request: Request) -> None:
        sandbox = self._sandboxes[request["label"]]
        single = self._place.single_id
        job = {**request.message, "uid": sandbox.uid, "single": single, "rlimits": sandbox.rlimits}
        who = sandbox.account(job)
        quick = job["kind"] == "exec" and who is not None and not (single and who.uid != sandbox.uid)
        report, told = os.pipe()
        try:
            if quick and who is not None:
                running = self._play(sandbox, job, who, request, (report, told))
            else:
                running = self._fork(sandbox, job, request, (report, told))
        except ProcessLookupError:
            os.close(report)
            request.answer(lost=sandbox.reason or LOST)
            return
        finally:
            os.close(told)
        key = (id(request.peer), request["id"])
        sandbox.running[key] = running

        def ended(code: int) -> None:
            sandbox.running.pop(key, None)
            request.answer(**running.outcome(sandbox, code))

        self._children[running.pid] = ended

    def _play(
        self, sandbox: Sandbox, job: dict[str, Any], who: Identity, request: Request, pipe: tuple[int, int]
    ) -> Running:
        """Start a command without forking the keeper."""
        tape = command.write_tape(job, who, sandbox.join_files, own_network=sandbox.own_network)
        syscalls.setns(sandbox.pidfd, syscalls.CLONE_NEWPID)
        try:
            fds = (request.fds[0], request.fds[1], request.fds[2])
            pid = command.start(tape, fds, pipe[1], sandbox.pidfd)
        finally:
            syscalls.setns(self._own_pid_ns, syscalls.CLONE_NEWPID)
        explain = functools.partial(command.explain, tape, name=job["argv"][0], cwd=job["cwd"])
        return Running(pid, pipe[0], job.get("mark", ""), explain)

    def _fork(
        self, sandbox: Sandbox, job: dict[str, Any], request: Request, pipe: tuple[int, int]
    ) -> Running:
        """Do a command's work, or become it, in a fork of the keeper: that can look around in the sandbox first."""
        pid = self._fork_into(sandbox)
        if pid == 0:
            os.close(pipe[0])
            become(job, (request.fds[0], request.fds[1], request.fds[2]), pipe[1], sandbox.enter)
        return Running(pid, pipe[0], job.get("mark", ""))

    def _do_kill(self, request: Request) -> None:
        """Kill a command with everything that it started."""
        sandbox = self._sandboxes[request["label"]]
        running = sandbox.running.get((id(request.peer), request["target"]))
        if running is None:
            request.answer(ok=True)
            return
        # From here nobody can hinder it: the killer is seen by those inside, who may be faster than it is.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGSTOP)
        self._kill(sandbox, killing.inner_pid(running.pid), running.mark, request, killing.TRIES)

    def _kill(self, sandbox: Sandbox, session: int, mark: str, request: Request, tries: int) -> None:
        try:
            pid = self._fork_into(sandbox)
        except OSError:
            request.answer(ok=sandbox.ending)
            return
        if pid == 0:
            killing.run(sandbox.visit, session, mark)

        def ended(code: int) -> None:
            if code < 0 and tries > 1 and not sandbox.ending:
                self._kill(sandbox, session, mark, request, tries - 1)
            else:
                request.answer(ok=code == 0 or sandbox.ending)

        self._children[pid] = ended

    def _fork_into(self, sandbox: Sandbox) -> int:
        """Fork a child of the sandbox's pid namespace; it is still outside in every other way."""
        syscalls.set_dumpable(False)  # what runs in the sandbox may see the child before it has changed
        try:
            syscalls.setns(sandbox.pidfd, syscalls.CLONE_NEWPID)
            return os.fork()
        finally:
            if os.getpid() == 1:  # the keeper, not the child
                syscalls.setns(self._own_pid_ns, syscalls.CLONE_NEWPID)
                syscalls.set_dumpable(True)

    def _do_chore(self, request: Request) -> None:
        sandbox = self._sandboxes.get(request.message.get("label", ""))
        self._work(request.message, request.fds, sandbox, lambda result: request.answer(**result))

    def _work(
        self,
        chore: dict[str, Any],
        fds: list[int],
        sandbox: Sandbox | None,
        tell: Callable[[dict[str, Any]], None],
    ) -> None:
        """Work on files, which may take long: in a child."""
        report = os.memfd_create("report")  # a pipe would hold only 64 KiB while nobody reads
        pid = os.fork()
        if pid == 0:
            run_chore(chore, fds, report, sandbox, self._place.single_id)

        def ended(code: int) -> None:
            with os.fdopen(report, "rb") as f:
                f.seek(0)
                text = f.read()
            broken = {"errno": errno.EIO, "stage": chore["op"], "detail": f"its process ended with {code}"}
            tell(json.loads(text) if text else broken)

        self._children[pid] = ended

    # --- the loop

    def _watch(self, fd: int, handler: Callable[[], None]) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, select.EPOLLIN)

    def _unwatch(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            handler = self._children.pop(pid, None)
            if handler is not None:
                handler(os.waitstatus_to_exitcode(status))

    def _until_deadline(self) -> float | None:
        deadlines = [
            at for s in self._sandboxes.values() for at in (s.deadline, s.next_look) if at is not None
        ]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def _enforce_deadlines(self) -> None:
        now = time.monotonic()
        for sandbox in list(self._sandboxes.values()):
            if sandbox.deadline is not None and sandbox.deadline <= now:
                sandbox.end("wall_time")
            elif sandbox.next_look is not None and sandbox.next_look <= now:
                sandbox.next_look = None
                self._work({"op": "measure"}, [], sandbox, sandbox.measured)
