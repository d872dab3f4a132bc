"""One middleman, from the first look at its configuration to the last answer."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import secrets
import signal
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from hawk import __version__
from hawk.config.providers import Kind
from hawk.config.settings import Settings
from hawk.config.token import current_user, ensure_token, token_user
from hawk.errors import ConfigError, HawkError, ServerUnavailableError
from hawk.middleman.catalog import Catalog, addresses_of, load_catalog
from hawk.middleman.house import House
from hawk.middleman.keys import KeyStore
from hawk.middleman.listener import Listener
from hawk.middleman.liveness import Liveness
from hawk.middleman.own import OwnPaths
from hawk.middleman.presence import Presence, presence_file
from hawk.middleman.refusals import Refusal
from hawk.middleman.relay import Relay
from hawk.middleman.shared import Sharing
from hawk.middleman.shared_spans import SpanTable
from hawk.middleman.spans import SpanWriter
from hawk.middleman.tokens import Verifier, signing_key
from hawk.store.locks import holder
from hawk.store.rundir import write_json

LONELY = 60.0
"""Seconds after which an embedded middleman without server and job ends."""

JOB_KEYS = "HAWK_MIDDLEMAN_JOB_KEYS"
ADVERTISE = "HAWK_MIDDLEMAN_ADVERTISE"
"""Host at which other replicas reach this one."""

_log = logging.getLogger("hawk.middleman")


async def serve(settings: Settings, options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Everything from the first look at the configuration to the last answer.

    Raises:
        HawkError: The configuration is wrong, or the address is taken.
    """
    keys = KeyStore(settings.home, environ)

    listener = bind(options.host, options.port, any_free=options.embedded)
    port = listener.getsockname()[1]

    def load() -> Catalog:
        own = addresses_of(options.host, port)
        return load_catalog(settings.home, environ, keys, standalone=not options.embedded, own=own)

    catalog = load()
    token = ensure_token(settings)
    key = signing_key(settings.home)
    verifier = Verifier(
        key,
        person=token,
        user=token_user(token) or current_user(),
        revoked_file=settings.home / "middleman-revoked.json",
    )
    host = f"[{options.host}]" if ":" in options.host else options.host
    shared = Sharing(options.database_url, key, environ.get(ADVERTISE)) if options.database_url else None
    elsewhere = SpanTable(options.database_url, secrets.token_hex(8)) if options.database_url else None
    spans = SpanWriter(settings.root, elsewhere)
    given = given_keys(environ)
    house = House(
        catalog, verifier, spans, load=load, url=f"http://{host}:{port}", shared=shared, given=given
    )
    if shared is not None:
        await shared.start()
    relay = Relay(house, OwnPaths(house, keys).table)
    clients = Listener(relay, complaint)
    server = await house.loop.create_server(clients, sock=listener, backlog=2048, start_serving=False)
    writer = asyncio.create_task(spans.run())
    liveness = asyncio.create_task(Liveness(house).run())
    try:
        await server.start_serving()
        gc.collect()
        gc.freeze()
        write_json(
            presence_file(settings.home),
            Presence(url=house.url, pid=os.getpid(), instance=house.instance, version=__version__),
        )
        _log.info("hawk middleman %s listens on %s", __version__, house.url)
        await until_ended(house, settings, embedded=options.embedded)
        await drain(house, options.drain)
    finally:
        writer.cancel()
        liveness.cancel()
        server.close()
        clients.close_idle()
        await asyncio.sleep(0)  # what was written last goes out
        clients.abort()
        if shared is not None:
            await shared.close()
        house.close()
        await asyncio.to_thread(spans.flush)
    return 0


def given_keys(environ: Mapping[str, str]) -> dict[str, str]:
    """Keys of the one job that a middleman is for, which its runner never sees: a file of JSON, by variable.

    Raises:
        ConfigError: The file can't be read, or is none of that kind.
    """
    named = environ.get(JOB_KEYS)
    if not named:
        return {}
    try:
        return msgspec.json.decode(Path(named).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as ex:
        raise ConfigError(f"{JOB_KEYS}={named} holds no keys by variable.") from ex


def complaint(why: str) -> bytes:
    """What a client is told whose request can't be read."""
    return Refusal("hawk_bad_request", why).body(Kind.OPENAI)


async def until_ended(house: House, settings: Settings, *, embedded: bool) -> None:
    """Return at a signal, or when an embedded one has had nobody to serve for a while. SIGHUP reloads."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        house.loop.add_signal_handler(number, ended.set)
    house.loop.add_signal_handler(signal.SIGHUP, _reload, house)
    lonely_since: float | None = None
    while not ended.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), LONELY / 4)
        if not embedded or ended.is_set():
            continue
        if house.exchanges.count or await asyncio.to_thread(needed, settings):
            lonely_since = None
        elif lonely_since is None:
            lonely_since = house.loop.time()
        elif house.loop.time() - lonely_since >= LONELY:
            _log.info("no server and no job: ends")
            return


def needed(settings: Settings) -> bool:
    """Whether a server or a supervisor lives that may want it."""
    if _server_lives(settings):
        return True
    return any(holder(lock) is not None for lock in supervisor_locks(settings.root))


def supervisor_locks(root: Path) -> Iterator[Path]:
    return root.glob("*/supervisor.lock")


def _server_lives(settings: Settings) -> bool:
    import fcntl

    try:
        fd = os.open(settings.server_lock, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


async def drain(house: House, seconds: float) -> None:
    """Let requests on their way end; new ones are told to come again."""
    house.draining = True
    deadline = house.loop.time() + seconds
    _log.info("ends; %d requests on their way", house.exchanges.count)
    while house.exchanges.count and house.loop.time() < deadline:  # noqa: ASYNC110  # the data path sets no event
        await asyncio.sleep(0.02)


def bind(host: str, port: int, *, any_free: bool) -> socket.socket:
    """Listen there; on another port where that one is taken and any will do.

    Raises:
        ServerUnavailableError: The port is taken, or the address is not this machine's.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError:
            if not (any_free and port):
                raise
            _log.warning("port %d is taken: jobs that were started with it can't reach models", port)
            listener.bind((host, 0))
        listener.setblocking(False)
    except OSError as ex:
        raise ServerUnavailableError(
            f"The middleman can't listen on {host} port {port}: {ex.strerror or ex}.",
            remedy="Choose another port; 0 takes any free one.",
            url=f"http://{host}:{port}",
        ) from ex
    return listener


def _reload(house: House) -> None:
    try:
        house.reload()
        _log.info("configuration read again")
    except HawkError as ex:
        _log.error("the old configuration stays: %s", ex.message)
