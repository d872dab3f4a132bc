"""What every command needs: settings, the connection to the server, and which job is meant when none is named."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hawk import __version__
from hawk.config.settings import Settings, load_settings
from hawk.errors import AuthError, UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from hawk.cli.local_server import ServerRecord
    from hawk.client import HawkClient


class App:
    """The command's surroundings; everything in it is made when first used."""

    def __init__(self) -> None:
        self._warned = False

    @cached_property
    def settings(self) -> Settings:
        return load_settings()

    @cached_property
    def client(self) -> HawkClient:
        """A client of the server that the environment names, or of the local one, started if need be."""
        return self.connect()

    def reconnect(self) -> None:
        """Take a new connection for what comes next; the old one, and maybe its server, has gone."""
        self.__dict__.pop("client", None)

    def connect(self) -> HawkClient:
        """A new connection; the local server is looked for, and started, again.

        Raises:
            AuthError: There is no token for a server that someone else runs.
            ServerUnavailableError: The local server can't be started.
        """
        from hawk.cli import local_server
        from hawk.client import HawkClient

        settings = self.settings
        if settings.api_url is not None:
            return HawkClient(settings.api_url, self.token())
        # The connection is the probe: to ask a server first whether it answers takes as long as to ask it.
        record = local_server.recorded(settings)
        client = self._client_of(record) if record else None
        if client is None or not client.connects():
            client = self._client_of(local_server.ensure(settings))
        return client

    def _client_of(self, record: ServerRecord) -> HawkClient:
        from hawk.client import HawkClient

        self._warn_of_version(record.version)
        return HawkClient(record.url, self.token())

    def token(self) -> str:
        """The access token. That of the local server is never sent to another one.

        Raises:
            AuthError: HAWK_API_URL is set and HAWK_ACCESS_TOKEN is not.
        """
        from hawk.cli import local_server
        from hawk.config.token import ensure_token

        settings = self.settings
        if settings.access_token:
            return settings.access_token
        if settings.api_url is not None:
            record = local_server.read_record(settings)
            if record is None or record.url.rstrip("/") != settings.api_url:
                raise AuthError(
                    f"No access token for the server at {settings.api_url}.", remedy="Set HAWK_ACCESS_TOKEN."
                )
        return ensure_token(settings)

    @property
    def local(self) -> bool:
        return self.settings.api_url is None

    def _warn_of_version(self, version: str) -> None:
        if version != __version__ and not self._warned:
            self._warned = True
            note(
                f"The local server is version {version}, this command {__version__}. "
                "Restart it with 'hawk server stop'; jobs run on meanwhile."
            )

    # --- the job that is meant

    def job(self, given: str | None) -> str:
        """The id given, or the last job's. Raises: UsageError when there is none."""
        return given or self._last(self.settings.last_job_file, "job")

    def eval_set(self, given: str | None) -> str:
        """The id given, or the last eval set's. Raises: UsageError when there is none."""
        return given or self._last(self.settings.last_eval_set_file, "eval set")

    def remember_job(self, job_id: str) -> None:
        self._remember(self.settings.last_job_file, job_id)

    def remember_eval_set(self, eval_set_id: str) -> None:
        """An eval set is a job as well."""
        self._remember(self.settings.last_eval_set_file, eval_set_id)
        self._remember(self.settings.last_job_file, eval_set_id)

    def _last(self, path: Path, what: str) -> str:
        try:
            last = path.read_text().strip()
        except OSError:
            last = ""
        if not last:
            raise UsageError(
                f"No id given, and no last {what} is known.",
                remedy="Name one ('hawk list eval-sets' shows them), or start one with 'hawk eval-set CONFIG'.",
            )
        return last

    def _remember(self, path: Path, value: str) -> None:
        """Best effort: a command that worked does not fail because its memory can't be written."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        with suppress(OSError):
            temporary.write_text(value + "\n")
            temporary.replace(path)


pass_app = click.make_pass_decorator(App, ensure=True)


def note(text: str) -> None:
    """A line for the person, apart from the output."""
    from hawk.cli.text import clean

    click.echo(clean(text, lines=True), err=True)


@contextmanager
def job_runs_on(job_id: str) -> Iterator[None]:
    """Where Ctrl-C ends the command and not the job: says so, and how to stop the job."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"\n{job_id} runs on.  Watch it: hawk watch {job_id}   Stop it: hawk stop {job_id}")
        raise


def write_bytes(data: bytes) -> None:
    """Write bytes as they are, and a line end. All of them: unbuffered (PYTHONUNBUFFERED), one write may be short."""
    sys.stdout.flush()
    rest = memoryview(data + b"\n")
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def on_terminal() -> bool:
    """Whether the output is a terminal that can move its cursor."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def complete_job(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Ids for shell completion, from the run directories on this machine: no server is asked or started."""
    try:
        with os.scandir(load_settings().root) as entries:
            found = [
                (entry.stat().st_mtime, entry.name)
                for entry in entries
                if entry.name.startswith(incomplete) and entry.is_dir() and not entry.name.startswith(".")
            ]
    except OSError:
        return []
    return [name for _, name in sorted(found, reverse=True)[:100]]


def complete_sandbox(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Labels of sandboxes that live on this machine, and files."""
    from click.shell_completion import CompletionItem

    from hawk.sandbox.door import look_around
    from hawk.sandbox.names import store_path

    rows = [row for look in look_around(store_path()) for row in look.sandboxes]
    labels = [CompletionItem(row["label"]) for row in rows if row["label"].startswith(incomplete)]
    return [*labels, CompletionItem(incomplete, type="file")]


def complete_image(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of imported images."""
    from hawk.sandbox.images import names
    from hawk.sandbox.layers import LayerStore
    from hawk.sandbox.names import store_path

    return [name for name in names(LayerStore(store_path())) if name.startswith(incomplete)]
