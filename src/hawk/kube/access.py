"""Who we are to a cluster: address, certificates, tokens that are renewed. By kubernetes_asyncio's loaders.

Importing that package as it is loads every generated model: 0.7 s of processor time and 37 MiB in each worker, for
classes that nobody here uses. So its loaders are imported alone (0.06 s, 3 MiB).
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import ssl
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hawk.errors import ClusterError
from hawk.kube.problems import Reason, error

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
TOKEN_CHECK = 60.0
"""Seconds after which a token that lies in a file, or comes from a program, is looked at again."""

_PACKAGE = "kubernetes_asyncio"
# It raises what it logs: at a terminal that would be said twice.
logging.getLogger(_PACKAGE).addHandler(logging.NullHandler())
_lock = threading.Lock()
_loaders: SimpleNamespace | None = None
_made: ContextVar[list[str] | None] = ContextVar("hawk_key_files", default=None)
"""Files that the load that is going on has made."""


@dataclass
class Access:
    """How requests reach a cluster.

    Attributes:
        host: `https://address:port`, without a slash at the end.
        namespace: The one that is meant when none is named.
        ssl: For `https`.
        proxy: Address of an HTTP proxy.
        server_name: The name that the server's certificate must have, when it is not the host's.
    """

    host: str
    namespace: str
    ssl: ssl.SSLContext | None = None
    proxy: str | None = None
    server_name: str | None = None
    _loader: Any = None
    _settings: Any = None
    _checked: float = field(default_factory=time.monotonic)

    async def headers(self) -> dict[str, str]:
        """The headers that say who we are; a token is looked at again each minute."""
        if time.monotonic() - self._checked > TOKEN_CHECK:
            await self.renew()
        token = self._settings.api_key.get("BearerToken") if self._settings is not None else None
        return {"Authorization": token.strip()} if token else {}

    async def renew(self) -> bool:
        """Read token and certificates again. Returns whether there is anything to renew."""
        self._checked = time.monotonic()
        if self._loader is None:
            return False
        before = dict(self._settings.api_key), self._settings.cert_file
        # a token that can't be renewed now may be good for a while yet
        with contextlib.suppress(Exception), _key_files():
            await _load(self._loader, self._settings)
            if self._settings.cert_file != before[1] or self.ssl is None:
                self.ssl = _context(self._settings)
        return True


async def find_access(context: str | None = None, namespace: str | None = None) -> Access:
    """The cluster that KUBECONFIG, `~/.kube/config` or the pod around us name, in this order.

    Args:
        context: Of the kubeconfig; HAWK_KUBE_CONTEXT, else its current one, when left out.
        namespace: Wins over HAWK_KUBE_NAMESPACE, which wins over the context's or the pod's.

    Raises:
        ClusterError: There is no configuration, or it can't be used (`reason`: not-installed, no-config).
    """
    environ = os.environ
    context = context or environ.get("HAWK_KUBE_CONTEXT") or None
    chosen = namespace or environ.get("HAWK_KUBE_NAMESPACE") or None
    loaders = load_loaders()
    settings = _Settings()
    files = environ.get("KUBECONFIG") or str(Path.home() / ".kube/config")
    try:
        if _any_file(files):
            loader, own = _from_files(loaders, files, context)
        elif environ.get("KUBERNETES_SERVICE_HOST") and not context and "KUBECONFIG" not in environ:
            loader, own = _from_pod(loaders, environ)
        else:
            raise error(Reason.NO_CONFIG, f"There is no kubeconfig: {files} is not there.")
        with _key_files():
            await _load(loader, settings)
            tls = _context(settings) if settings.host.startswith("https") else None
    except ClusterError:
        raise
    except Exception as ex:
        raise error(Reason.NO_CONFIG, f"The cluster's configuration can't be used: {_said(ex)}") from ex
    return Access(
        settings.host.rstrip("/"),
        chosen or own or "default",
        tls,
        settings.proxy or None,
        settings.tls_server_name or None,
        loader,
        settings,
    )


def _said(ex: Exception) -> str:
    # the loaders' own words for a program that is missing
    if isinstance(ex, FileNotFoundError) and ex.filename:
        return f"the program {ex.filename}, which it signs in with, is not here"
    return str(ex) or type(ex).__name__


def _any_file(files: str) -> bool:
    return any(Path(name).expanduser().is_file() for name in files.split(os.pathsep) if name)


class _Settings:
    """What the loaders fill in: the part of `Configuration` that they know."""

    def __init__(self) -> None:
        self.host = ""
        self.api_key: dict[str, str] = {}
        self.refresh_api_key_hook: Any = None
        self.ssl_ca_cert: str | None = None
        self.cert_file: str | None = None
        self.key_file: str | None = None
        self.verify_ssl = True
        self.tls_server_name: str | None = None
        self.proxy: str | None = None


def load_loaders() -> SimpleNamespace:
    """`kube_config` and `incluster_config` of kubernetes_asyncio, without its models.

    Raises:
        ClusterError: The package is not installed.
    """
    global _loaders
    with _lock:
        if _loaders is None:
            _loaders = _import_loaders()
        return _loaders


def _import_loaders() -> SimpleNamespace:
    if f"{_PACKAGE}.client" in sys.modules:  # somebody paid for it already
        return _modules()
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise error(
            Reason.NOT_INSTALLED,
            "Kubernetes needs the Python package kubernetes-asyncio, which is not installed.",
        )
    root = spec.submodule_search_locations[0]
    stand_in, client = types.ModuleType(_PACKAGE), types.ModuleType(f"{_PACKAGE}.client")
    stand_in.__path__ = [root]
    client.__dict__.update(ApiClient=object, Configuration=_Settings)
    sys.modules[_PACKAGE], sys.modules[client.__name__] = stand_in, client
    try:
        return _modules()
    finally:
        # whoever imports the package later gets the real one
        for name in [name for name in sys.modules if name == _PACKAGE or name.startswith(f"{_PACKAGE}.")]:
            del sys.modules[name]


def _modules() -> SimpleNamespace:
    names = ("kube_config", "incluster_config")
    found = SimpleNamespace(**{name: importlib.import_module(f"{_PACKAGE}.config.{name}") for name in names})
    files = found.kube_config.FileOrData
    files._create_temp_file_with_content = _writer(files._create_temp_file_with_content)
    return found


def _from_files(loaders: SimpleNamespace, files: str, context: str | None) -> tuple[Any, str | None]:
    known = loaders.kube_config
    try:
        merged = known.KubeConfigMerger(files)
    except (TypeError, AttributeError, KeyError) as ex:
        # what it does with a file that is empty, or is something else
        raise error(Reason.NO_CONFIG, f"{files} is no kubeconfig.") from ex
    _check_context(merged.config.value, files, context)
    loader = known.KubeConfigLoader(
        config_dict=merged.config,
        active_context=context,
        config_base_path=None,
        config_persister=lambda _: merged.save_changes(),  # a refresh token is good for one use
    )
    namespace = ((loader.current_context or {}).get("context") or {}).get("namespace")
    return loader, namespace


def _check_context(config: Mapping[str, Any], files: str, context: str | None) -> None:
    """Raises: ClusterError when no context of a kubeconfig has that name, with the names that there are."""
    wanted = context or config.get("current-context")
    known = [str(one.value["name"]) for one in config["contexts"]]
    if wanted in known:
        return
    there = f"it has {', '.join(known)}" if known else "it has none"
    lacks = f"has no context {wanted}" if wanted else "has no current context"
    raise error(Reason.NO_CONFIG, f"The kubeconfig {files} {lacks}: {there}.")


def _from_pod(loaders: SimpleNamespace, environ: Mapping[str, str]) -> tuple[Any, str | None]:
    known = loaders.incluster_config
    loader = known.InClusterConfigLoader(
        token_filename=known.SERVICE_TOKEN_FILENAME,
        cert_filename=known.SERVICE_CERT_FILENAME,
        environ=environ,
    )
    namespace = None
    with contextlib.suppress(OSError):
        namespace = NAMESPACE_FILE.read_text().strip()
    return loader, namespace


async def _load(loader: Any, settings: _Settings) -> None:
    """Fill in address, files and token, as they are now."""
    done = loader.load_and_set(settings)
    if done is not None:
        await done


def _context(settings: _Settings) -> ssl.SSLContext:
    tls = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    tls.verify_flags &= (
        ~ssl.VERIFY_X509_STRICT
    )  # clusters' own authorities lack extensions; kubectl takes them too
    if not settings.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    if settings.cert_file:
        tls.load_cert_chain(settings.cert_file, settings.key_file)
    return tls


@contextlib.contextmanager
def _key_files() -> Iterator[None]:
    """Remove the files that a load makes as soon as it is done: a killed process would leave the kubeconfig's keys."""
    made: list[str] = []
    outer = _made.set(made)
    try:
        yield
    finally:
        _made.reset(outer)
        for name in made:
            with contextlib.suppress(OSError):
                Path(name).unlink()


def _writer(theirs: Callable[[Any, str | bytes], str]) -> Callable[[Any, str | bytes], str]:
    """Makes the loaders write a load's keys into files of its own.

    By themselves they share them in the whole process, and one thread would remove what another is about to read.
    """

    def write(data: Any, content: str | bytes) -> str:
        made = _made.get()
        if made is None:  # somebody else uses the package
            return theirs(data, content)
        name: str
        descriptor, name = tempfile.mkstemp(dir=data._temp_file_path)
        made.append(name)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        return name

    return write
