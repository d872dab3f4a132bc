"""What a machine must and may have, each check on its own. None of them leaves anything behind or starts a server."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import msgspec

from hawk import __version__
from hawk.cli import local_server
from hawk.cli.text import clean, plural, size
from hawk.client import HawkClient
from hawk.config.settings import Settings
from hawk.errors import HawkError

TIMEOUT = 10.0  # seconds one outside command may take
PYTHON = ((3, 11), (3, 14))
SOCKET_PATH = 107  # bytes: sockaddr_un.sun_path without its end
SOCKET_TAIL = 64  # what a worker's data directory and Inspect add to HAWK_RUN_BASE
LITTLE_DISK = 2 * 1024**3
NO_DISK = 100 * 1024**2
FEW_FILES = 1024  # a worker with hundreds of sandboxes and connections holds as many
LITTLE_MEMORY = 2 * 1024**3
HOME_ENTRIES = 20  # of the home directory, that are looked for in a sandbox


class State(StrEnum):
    OK = "ok"
    WARN = "warn"  # something that Hawk can do without
    MISSING = "missing"  # something that is needed


class Check(msgspec.Struct, frozen=True):
    """One finding: what was looked at, how it is, and how to mend it."""

    name: str
    state: State
    detail: str
    remedy: str | None = None


def run_checks(settings: Settings) -> list[Check]:
    """All findings. A check that itself fails is a finding too."""
    return [_guarded(name, check, settings) for name, check in CHECKS.items()]


def _guarded(name: str, check: Callable[[Settings], Check], settings: Settings) -> Check:
    try:
        return check(settings)
    except (OSError, HawkError, subprocess.SubprocessError, ValueError) as ex:
        return Check(name, State.WARN, f"could not be checked: {clean(ex)}")


def python(settings: Settings) -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    low, high = (".".join(map(str, v)) for v in PYTHON)
    if PYTHON[0] <= sys.version_info[:2] <= PYTHON[1]:
        return Check("python", State.OK, version)
    return Check("python", State.MISSING, f"{version} at {sys.executable}", f"Use Python {low} to {high}.")


def inspect(settings: Settings) -> Check:
    wanted = _pinned("inspect-ai")
    try:
        found = importlib.metadata.version("inspect-ai")
    except importlib.metadata.PackageNotFoundError:
        found = None
    remedy = f"pip install 'inspect-ai{f'=={wanted}' if wanted else ''}'"
    if found is None:
        return Check("inspect-ai", State.MISSING, "not installed", remedy)
    if wanted and found != wanted:
        return Check("inspect-ai", State.MISSING, f"{found}; this Hawk is made for {wanted}", remedy)
    return Check("inspect-ai", State.OK, found)


def _pinned(package: str) -> str | None:
    """The exact version that Hawk's own metadata asks for."""
    try:
        requires = importlib.metadata.requires("hawk-evals") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = (re.match(rf"{re.escape(package)}\s*==\s*([\w.]+)", line) for line in requires)
    return next((match.group(1) for match in found if match), None)


def home(settings: Settings) -> Check:
    for path in dict.fromkeys((settings.home, settings.root)):
        there = _nearest(path)
        try:
            with tempfile.TemporaryFile(dir=there):
                pass
        except OSError as ex:
            variable = "HAWK_HOME" if path == settings.home else "HAWK_ROOT"
            return Check(
                "home",
                State.MISSING,
                f"{path}: {ex.strerror}",
                f"Set {variable} to a directory that you can write.",
            )
    return Check("home", State.OK, f"{settings.home} is writable")


def disk(settings: Settings) -> Check:
    free = shutil.disk_usage(_nearest(settings.root)).free
    detail = f"{size(free)} free for {settings.root}"
    remedy = "Free some space, or set HAWK_ROOT to another disk."
    if free < NO_DISK:
        return Check("disk", State.MISSING, detail, remedy)
    return (
        Check("disk", State.WARN, detail, remedy) if free < LITTLE_DISK else Check("disk", State.OK, detail)
    )


def memory(settings: Settings) -> Check:
    import psutil

    available = psutil.virtual_memory().available
    detail = f"{size(available)} available, {os.cpu_count() or 1} cores"
    if available < LITTLE_MEMORY:
        return Check("memory", State.WARN, detail, "Lower HAWK_WORKERS, or run fewer attempts at once.")
    return Check("memory", State.OK, detail)


def sockets(settings: Settings) -> Check:
    base = settings.run_base.absolute()
    length = len(os.fsencode(base))
    detail = f"{base} ({length} bytes)"
    remedy = "Set HAWK_RUN_BASE to a short directory that you can write, e.g. /tmp/h."
    if length + SOCKET_TAIL > SOCKET_PATH:
        return Check("sockets", State.MISSING, f"{detail} is too long for socket paths", remedy)
    if not os.access(_nearest(base), os.W_OK):
        return Check("sockets", State.MISSING, f"{detail} can't be written", remedy)
    return Check("sockets", State.OK, detail)


def files(settings: Settings) -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft > FEW_FILES:
        return Check(
            "open files", State.OK, "no limit" if soft == resource.RLIM_INFINITY else f"{soft} allowed"
        )
    high = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    return Check("open files", State.WARN, f"only {soft} allowed", f"ulimit -n {high}")


def installer(settings: Settings) -> Check:
    if uv := shutil.which("uv"):
        return Check("installer", State.OK, f"uv at {uv}")
    if importlib.util.find_spec("pip") or importlib.util.find_spec("ensurepip"):
        return Check("installer", State.OK, "pip (uv would be faster)")
    return Check(
        "installer", State.WARN, "neither uv nor pip: eval sets with packages can't run", "Install uv."
    )


def sandboxes(settings: Settings) -> Check:
    """Makes one, in a store of its own, and looks out of it."""
    import asyncio

    from hawk.sandbox.checkup import check

    try:
        found = asyncio.run(check(_nearest(settings.home), _private(settings)))
    except HawkError as ex:
        return Check("sandboxes", State.WARN, f"none of bubblewrap: {clean(ex.message)}", ex.remedy)
    if found.exposed:
        return Check(
            "sandboxes",
            State.MISSING,
            f"isolation fails: {'; '.join(found.exposed)}",
            "Run nothing in sandboxes here that you don't trust; docs/sandboxes.md says what they need.",
        )
    if found.lacking:
        detail = f"{found.summary}; but {'; '.join(found.lacking)}"
        return Check("sandboxes", State.WARN, detail, "See docs/sandboxes.md for what they need.")
    return Check("sandboxes", State.OK, found.summary)


def _private(settings: Settings) -> list[Path]:
    """Files and directories of this user that a sandbox must not see; some are enough."""
    home = Path.home()
    try:
        entries = sorted(home.iterdir())[:HOME_ENTRIES]
    except OSError:
        entries = []
    return [path for path in (settings.token_file, settings.root, *entries) if os.path.lexists(path)]


def sandbox_store(settings: Settings) -> Check:
    from hawk.sandbox.layers import LayerStore
    from hawk.sandbox.names import store_path
    from hawk.sandbox.sweep import keepers

    directory = store_path(settings)
    layers = LayerStore(directory).list()
    detail = f"{plural(len(layers), 'layer')}, {size(sum(layer.bytes for layer in layers))}"
    dead = [keeper for keeper in keepers(directory) if not keeper.alive]
    if dead:
        detail += f"; {plural(len(dead), 'keeper')} of sandboxes died and left things behind"
        return Check("sandbox store", State.WARN, detail, "hawk sandbox sweep")
    return Check("sandbox store", State.OK, detail)


def docker(settings: Settings) -> Check:
    path = shutil.which("docker")
    if path is None:
        return Check(
            "docker", State.WARN, "not installed: no docker sandboxes", "Install docker, if you use it."
        )
    done = subprocess.run(
        [path, "version", "--format", "{{.Server.Version}}"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    if done.returncode != 0:
        why = clean(done.stderr)[:120] or "no answer"
        return Check(
            "docker", State.WARN, f"the daemon does not answer: {why}", "Start docker, if you use it."
        )
    return Check("docker", State.OK, clean(done.stdout))


def server(settings: Settings) -> Check:
    if settings.api_url is not None:
        return _remote(settings, settings.api_url)
    record = local_server.find(settings)
    if record is None:
        return Check("server", State.OK, "not running; it is started when needed")
    if record.version != __version__:
        detail = f"{record.url} is version {record.version}, this command {__version__}"
        return Check(
            "server", State.WARN, detail, "hawk server stop; jobs run on, the next command starts a new one."
        )
    return Check("server", State.OK, f"{record.url} (process {record.pid})")


def middleman(settings: Settings) -> Check:
    """Where the way to models stands, and which keys it has."""
    if not settings.middleman:
        return Check("middleman", State.OK, "off (HAWK_MIDDLEMAN): workers reach models with their own keys")
    from hawk.middleman import presence
    from hawk.middleman.keys import KeyStore

    found = presence.living(settings.home)
    where = (
        f"{found.url} (process {found.pid})"
        if found is not None
        else "not running; it starts with the server"
    )
    keys = KeyStore(settings.home, os.environ).list()
    if not keys:
        remedy = "hawk middleman keys set PROVIDER, unless your models need none."
        return Check("middleman", State.WARN, f"{where}; it has no key of any provider", remedy)
    return Check("middleman", State.OK, f"{where}; keys: {', '.join(sorted({key.provider for key in keys}))}")


def _remote(settings: Settings, url: str) -> Check:
    try:
        with HawkClient(url, settings.access_token, timeout=TIMEOUT) as client:
            version = client.version()
            client.eval_sets(limit=1)
    except HawkError as ex:
        return Check("server", State.MISSING, ex.message, "Check HAWK_API_URL and HAWK_ACCESS_TOKEN.")
    return Check("server", State.OK, f"{url}, version {version}")


def stacks(settings: Settings) -> Check:
    """Whether threads of a process can be seen from outside: what `hawk stacktrace` has while C code holds a worker."""
    from hawk import pyspy

    child = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()  # it has begun
        seen = pyspy.dump(child.pid)
    finally:
        child.kill()
        child.communicate()
    if isinstance(seen, str):
        detail = f"await chains only, no threads of a worker that C code holds: {clean(seen)}"
        return Check("stacks", State.WARN, detail, "Allow ptrace of own child processes, or run as root.")
    return Check("stacks", State.OK, "await chains, and threads from outside by py-spy")


def _nearest(path: Path) -> Path:
    """The path itself, or the closest ancestor that exists: where it would be made."""
    return next(p for p in (path, *path.parents) if p.exists())


CHECKS: dict[str, Callable[[Settings], Check]] = {
    "python": python,
    "inspect-ai": inspect,
    "home": home,
    "disk": disk,
    "memory": memory,
    "sockets": sockets,
    "open files": files,
    "installer": installer,
    "sandboxes": sandboxes,
    "sandbox store": sandbox_store,
    "docker": docker,
    "stacks": stacks,
    "server": server,
    "middleman": middleman,
}
