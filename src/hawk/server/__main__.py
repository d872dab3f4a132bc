"""`python -m hawk.server`: one server for one HAWK_HOME."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import ipaddress
import logging
import os
import signal
import socket
import sys
from datetime import UTC, datetime
from types import FrameType

import uvicorn
from fastapi import FastAPI

from hawk import __version__
from hawk.config.settings import Settings, load_settings
from hawk.errors import ConflictError, HawkError
from hawk.server.app import create_app, stop_streams
from hawk.store.database import open_database
from hawk.store.importer import reindex
from hawk.store.rundir import storage_error, write_json

GRACE = 10  # seconds that open requests have to end after SIGTERM


class PortTakenError(HawkError):
    """Another program listens there. Fields: `host`, `port`."""


class Server(uvicorn.Server):
    """Tells streams to end before it waits for them, and the starter when it listens."""

    def __init__(
        self, config: uvicorn.Config, app: FastAPI, settings: Settings, url: str, ready_fd: int | None
    ) -> None:
        super().__init__(config)
        self._app = app
        self._settings = settings
        self._url = url
        self._ready_fd = ready_fd

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            _calm_collector()
            record = {
                "url": self._url,
                "pid": os.getpid(),
                "version": __version__,
                "started_at": datetime.now(UTC).isoformat(),
            }
            write_json(self._settings.server_file, record)
            logging.getLogger("hawk.server").info("hawk %s listens on %s", __version__, self._url)
            if self._ready_fd is not None:
                os.write(self._ready_fd, self._url.encode() + b"\n")
                os.close(self._ready_fd)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        stop_streams(self._app)


def main(arguments: list[str] | None = None) -> int:
    """Run until a signal or, if so configured, until idle. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="hawk.server", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=None, help="0 takes any free one (default: HAWK_PORT)")
    parser.add_argument(
        "--ready-fd", type=int, default=None, help="descriptor that gets the URL once it listens"
    )
    parser.add_argument("--reindex", action="store_true", help="rebuild the database instead of serving")
    parser.add_argument("--migrate", action="store_true", help="bring the database to this version, and end")
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        settings = load_settings()
        if options.reindex:
            return rebuild(settings)
        if options.migrate:
            open_database(settings.database_url).close()
            sys.stdout.write(f"The database has the schema of Hawk {__version__}.\n")
            return 0
        port = settings.port if options.port is None else options.port
        return run(settings, options.host, port, options.ready_fd)
    except HawkError as ex:
        print(f"hawk server: {ex.render()}", file=sys.stderr)  # noqa: T201
        return ex.exit_code


def rebuild(settings: Settings) -> int:
    """Rebuild the index, say what was found. Returns 1 when something could not be read."""
    report = reindex(settings)
    sys.stderr.writelines(f"{name}: {why}\n" for name, why in report.errors.items())
    sys.stdout.write(f"Indexed {report.jobs} jobs, {report.logs} logs, {report.samples} samples.\n")
    return 1 if report.errors else 0


def run(settings: Settings, host: str, port: int, ready_fd: int | None = None) -> int:
    """Bind, start, serve, clean up.

    Raises:
        ConflictError: A server runs for this HAWK_HOME.
        PortTakenError: The port is taken.
        StorageError: HAWK_HOME can't be written, or the database can't be used.
    """
    lock = _lock(settings)
    try:
        listener = _bind(host, port)
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{listener.getsockname()[1]}"
        database = open_database(settings.database_url)
        app = create_app(settings, database=database, loopback=_is_loopback(host))
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE,
            lifespan="on",
        )
        server = Server(config, app, settings, url, ready_fd)
        for number in (signal.SIGTERM, signal.SIGINT):
            # uvicorn raises the signal again when it is done; by default that would skip the clean-up below
            signal.signal(number, lambda *_: None)
        server.run([listener])
        return 0 if server.started else 1
    finally:
        with contextlib.suppress(OSError):
            settings.server_file.unlink()
        os.close(lock)


def _lock(settings: Settings) -> int:
    path = settings.server_lock
    try:
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as ex:
        raise storage_error(path, ex) from ex
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as ex:
        os.close(fd)
        raise ConflictError(
            f"A server runs already for {settings.home}.",
            remedy="hawk server status, or set HAWK_HOME to another directory.",
        ) from ex
    return fd


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError as ex:
        raise PortTakenError(
            f"Can't listen on {host} port {port}: {ex.strerror or ex}.",
            remedy="Choose another with --port or HAWK_PORT; 0 takes any free one.",
            host=host,
            port=port,
        ) from ex
    return listener


def _calm_collector() -> None:
    """Let the garbage collector look less often, and not at what is there for good.

    A snapshot of 10,000 attempts is 50,000 objects without a cycle; by default the collector would walk all of
    them several times while they are made, with the event loop waiting.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


if __name__ == "__main__":
    sys.exit(main())
