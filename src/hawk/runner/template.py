"""A process that has imported everything once, and starts supervisors on request: in milliseconds, as a copy of it.

A request is one line of JSON (`Request`) with two descriptors: the supervisor's standard input and standard error.
The process forks a child, and that one a grandchild, which becomes the job's zygote (`hawk.runner.zygote`): it has
it all imported. The child then executes a fresh interpreter as the supervisor, which is small, never loads
Inspect, and is the zygote's parent. The connection tells its pid, later how it ended, and may be closed at any time.

It never starts a thread: threads do not survive a fork. It ends when its standard input does, which its owner
holds; supervisors run on. Whatever is wrong, it refuses, and supervisors are started as without it.

`python -m hawk.runner.template FD`, a listening socket.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import socket
import sys
import sysconfig
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import hawk
from hawk.runner import zygote
from hawk.runner.title import name_process

if TYPE_CHECKING:
    from hawk.bridge.preload import Preload

PATIENCE = 5.0
"""Seconds a connection may take to send its whole request, which it should have at hand."""
QUIET = 3.0
"""Seconds without further imports after a request: they must not compete with the start of the job."""
_OF_INTERPRETER = ("PYTHON", "LD_", "DYLD_", "LC_", "LANG", "TZ")
"""Beginnings of the names of variables that take effect as an interpreter starts."""


class Request(msgspec.Struct):
    """One supervisor to start.

    Attributes:
        version: `hawk.__version__` of who asks.
        python: The interpreter of who asks.
        package: The directory of its `hawk`.
        environ: The supervisor's whole environment.
    """

    version: str
    python: str
    package: str
    environ: dict[str, str]


class Told(msgspec.Struct, omit_defaults=True):
    """What a connection hears, a line each: the pid or why there is none, later how the supervisor ended.

    Attributes:
        status: Exit code; negative: the signal that killed it.
    """

    pid: int = 0
    error: str = ""
    status: int | None = None


class Template:
    """The loop: answers, reaps, and imports what is left while nobody asks."""

    def __init__(self, listener: socket.socket, preload: Preload) -> None:
        self._listener = listener
        self._preload = preload
        self._sources = Sources()
        self._sources.note()
        self._connections: dict[int, socket.socket] = {}
        self._busy_until = 0.0
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        listener.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)

    def serve(self) -> socket.socket | None:
        """Answer until the owner is gone.

        Returns:
            In a forked zygote: its end of the socket to its supervisor. In the template itself: None.
        """
        while True:
            ready = self._wait()
            if self._woken in ready:
                with contextlib.suppress(BlockingIOError):
                    while self._woken.recv(4096):
                        pass
                self._reap()
            if self._listener in ready:
                if (zygote_end := self._answer_all()) is not None:
                    return zygote_end
            elif sys.stdin in ready:
                return None
            for pid, connection in list(self._connections.items()):
                if connection in ready:  # nothing more is said on it: it was closed
                    self._connections.pop(pid).close()
            if not ready and not self._preload.done and time.monotonic() >= self._busy_until:
                self._preload.step()
                self._sources.note()

    def _wait(self) -> set[Any]:
        """What can be read; at once when there is something to import."""
        with selectors.PollSelector() as selector:
            for source in (self._woken, self._listener, sys.stdin, *self._connections.values()):
                selector.register(source, selectors.EVENT_READ)
            timeout = None if self._preload.done else max(self._busy_until - time.monotonic(), 0.0)
            return {key.fileobj for key, _ in selector.select(timeout)}

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                connection = self._connections.pop(ended[0], None)
                if connection is not None:
                    _tell(connection, Told(status=os.waitstatus_to_exitcode(ended[1])))
                    connection.close()

    def _answer_all(self) -> socket.socket | None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except (BlockingIOError, ConnectionError):
                return None
            self._preload.finish(worker=True)
            self._sources.note()
            try:
                started = self._answer(connection)
            except (OSError, ValueError, msgspec.MsgspecError) as ex:
                _tell(connection, Told(error=f"{type(ex).__name__}: {ex}"))
                started = None
            if isinstance(started, socket.socket):
                connection.detach()
                return started
            self._busy_until = time.monotonic() + QUIET
            if started is None:
                connection.close()
            else:
                self._connections[started] = connection
                _tell(connection, Told(pid=started))

    def _answer(self, connection: socket.socket) -> int | socket.socket:
        """Start a supervisor.

        Returns:
            Its pid; in the zygote: its end of the socket between them.

        Raises:
            OSError: It can't be started, or the request did not come.
            ValueError: It must not be started from here: the request says why.
        """
        connection.settimeout(PATIENCE)
        line, descriptors = _read(connection)
        with contextlib.ExitStack() as received:
            for fd in descriptors:
                received.callback(os.close, fd)
            request = msgspec.json.decode(line, type=Request)
            if (reason := self._refuses(request)) is not None:
                raise ValueError(reason)
            stdin, stderr = descriptors
            started = self._spawn(request.environ, stdin, stderr)
            if isinstance(started, socket.socket):
                received.pop_all()  # the zygote has closed them; their numbers may be its own
            return started

    def _refuses(self, request: Request) -> str | None:
        asked = (request.version, request.python, request.package)
        if asked != (hawk.__version__, sys.executable, package()):
            return f"another installation than {package()}, {hawk.__version__}, of {sys.executable}"
        if of_interpreter(request.environ) != of_interpreter(os.environ):
            return "another environment of the interpreter"
        if (changed := self._sources.changed()) is not None:
            return f"{changed} has changed since"
        return None

    def _spawn(self, environ: dict[str, str], stdin: int, stderr: int) -> int | socket.socket:
        gc.freeze()  # pages that the collector does not write to stay shared
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                return self._become(environ, stdin, stderr)
            except BaseException as ex:
                with contextlib.suppress(OSError):
                    os.write(write, f"{type(ex).__name__}: {ex}".encode())
                os._exit(70)
        os.close(write)
        with os.fdopen(read, "rb") as f:
            trouble = f.read()  # ends as the supervisor is executed
        if trouble:
            os.waitpid(pid, 0)
            raise OSError(trouble.decode(errors="replace"))
        return pid

    def _become(self, environ: dict[str, str], stdin: int, stderr: int) -> socket.socket:
        """In the child: become the supervisor, after forking the zygote, which alone returns."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(stderr, 2)
        os.dup2(null, 1)
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            ours.detach()
            return self._become_zygote(theirs, null, environ)
        os.dup2(stdin, 0)
        os.set_inheritable(ours.fileno(), True)
        command = [sys.executable, "-m", "hawk.runner.supervisor", "--told", str(ours.fileno())]
        os.execve(sys.executable, command, environ)  # noqa: S606  # no shell is wanted

    def _become_zygote(self, end: socket.socket, null: int, environ: dict[str, str]) -> socket.socket:
        """Keep nothing of the template's but what it has imported."""
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        os.dup2(null, 0)
        for held in (self._listener, self._wake, self._woken, *self._connections.values()):
            held.detach()  # their numbers may soon be somebody else's
        os.dup2(end.detach(), 3)
        for fd in list(Path("/dev/fd").iterdir()):
            if int(fd.name) > 3:
                with contextlib.suppress(OSError):  # the one that listed them
                    os.close(int(fd.name))
        os.environ.clear()
        os.environ.update(environ)
        name_process(zygote.__name__)
        return socket.socket(fileno=3)


def package() -> str:
    """The directory of this `hawk`."""
    return str(Path(hawk.__file__).parent)


def of_interpreter(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that took effect as the interpreter started: a copy of it can't have others."""
    return {name: value for name, value in environ.items() if name.startswith(_OF_INTERPRETER)}


class Sources:
    """The files that this process was made of: with others it would have become another."""

    def __init__(self) -> None:
        # installing or removing a package changes the entries of its directory
        installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        self._files = {path: _about(path) for path in installed}

    def note(self) -> None:
        """Take up what has been imported since."""
        ours = package() + os.sep
        for module in list(sys.modules.values()):
            path = getattr(module, "__file__", None)
            if isinstance(path, str) and path.startswith(ours) and path not in self._files:
                self._files[path] = _about(path)

    def changed(self) -> str | None:
        """One that is another now, or gone."""
        return next((path for path, about in self._files.items() if _about(path) != about), None)


def _about(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _read(connection: socket.socket) -> tuple[bytes, list[int]]:
    """A line, and the descriptors that came with it."""
    line, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 2)
    for fd in descriptors:
        os.set_inheritable(fd, False)
    parts = [line]
    while parts[-1] and not parts[-1].endswith(b"\n"):
        parts.append(connection.recv(1 << 16))
    return b"".join(parts), descriptors


def _tell(connection: socket.socket, told: Told) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        connection.sendall(msgspec.json.encode(told) + b"\n")


def _remove(listener: socket.socket) -> None:
    """Nobody can reach this process any more: its socket goes, and the directory made for it."""
    with contextlib.suppress(OSError):
        path = Path(listener.getsockname())
        path.unlink(missing_ok=True)
        path.parent.rmdir()


def main() -> None:
    os.umask(0o077)
    gc.disable()  # see `zygote.main`
    os.set_inheritable(int(sys.argv[1]), False)
    listener = socket.socket(fileno=int(sys.argv[1]))
    from hawk.bridge.preload import Preload
    from hawk.runner import worker  # noqa: F401  # what it imports is part of the image

    preload = Preload()
    end = Template(listener, preload).serve()
    if end is None:
        _remove(listener)
        os._exit(0)
    zygote.run(end, preload)


if __name__ == "__main__":
    main()
