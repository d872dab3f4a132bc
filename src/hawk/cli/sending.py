"""Submitting to a server that does not see this disk: the files of the eval set go along, once for the same content."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from hawk.cli.context import App, note
from hawk.cli.text import plural, size
from hawk.errors import ConfigError, HawkError, NotFoundError, ServerUnavailableError, StorageError

if TYPE_CHECKING:
    from hawk.client import HawkClient
    from hawk.parcel.contents import Contents
    from hawk.parcel.packing import Packed
    from hawk.replies import Submitted

TRIES = 3
PAUSE = 1.0  # seconds before the second try, doubling
IN_MEMORY = 8 * 2**20
PART = 1 << 18
SHOWN = 5  # names in one line
QUIET = 1.5  # seconds of sending before something is said of it


class Answer(NamedTuple):
    """What the server answered, and one line about the files; None: none went along."""

    submitted: Submitted
    files: str | None


def submit(app: App, body: dict[str, Any], upload: bool | None) -> Answer:
    """Submit, with the files that the eval set needs where the server does not see them.

    Args:
        body: As `POST /eval_sets/` takes it from a command on the server's own machine.
        upload: Whether they go along; None: where the server is elsewhere.

    Raises:
        ConfigError: A file that the eval set names can't go along, or there is too much.
        StorageError: A file can't be read here, or the server has no room.
    """
    client = app.client
    if not body.get("base_dir") or not _elsewhere(app, client, upload):
        return Answer(client.submit(body), None)
    body, needed = _portable(body, upload=upload is True)
    if not needed:
        return Answer(client.submit(body), None)
    base = Path(body.pop("base_dir"))
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as archive:
        found, packed = _packed(base, archive)
        sent = _deliver(client, archive, packed)
        body = {**body, "files": packed.digest}
        try:
            submitted = client.submit(body)
        except NotFoundError as ex:
            if ex.fields.get("files") != packed.digest:  # they went away meanwhile
                raise
            _send(client, archive, packed)
            submitted = client.submit(body)
    return Answer(submitted, _said(found, packed, sent=sent))


def _elsewhere(app: App, client: HawkClient, upload: bool | None) -> bool:
    """Whether the server does not see the files of this machine, or is to be treated so."""
    from hawk.config.place import place

    if upload is not None or app.local:
        return bool(upload)
    there = client.place()
    return there is not None and there != place(app.settings.home)


def _portable(body: dict[str, Any], *, upload: bool) -> tuple[dict[str, Any], bool]:
    """The body with paths relative to the directory that goes along, and whether any goes.

    Raises:
        ConfigError: A file that it names can't go along.
    """
    from hawk.config.paths import existing_paths, made_relative

    base = Path(body["base_dir"])
    if body["script"] is not None:
        return {**body, "script": Path(body["script"]).relative_to(base).as_posix()}, True
    config = made_relative(body["eval_set_config"], base)
    body = {**body, "eval_set_config": config}
    needed = _required(config, base)
    others = [path for path in existing_paths(config, base) if path not in needed]
    for path in others:
        why = _why_not(path, base)
        if why is not None:
            note(f"Warning: {path} does not go along to the server: it {why}.")
    if needed or others or upload:
        return body, True
    return {**body, "base_dir": None}, False


def _required(config: dict[str, Any], base: Path) -> list[str]:
    """Files and directories without which the eval set can't be loaded.

    Raises:
        ConfigError: One of them can't go along.
    """
    from hawk.config.eval_set import EvalSetConfig
    from hawk.config.paths import named_paths
    from hawk.config.problems import field_path

    named = list(named_paths(EvalSetConfig.model_validate(config)))
    wrong = [
        f"{field_path(field)}: {path} does not go along to the server: it {why}."
        for field, path in named
        if (why := _why_not(path, base)) is not None
    ]
    if wrong:
        raise ConfigError(
            "\n".join(wrong),
            remedy=f"Move it into {base} (what is hidden there stays here), or put it into a package.",
            problems=[],
        )
    return [path for _, path in named]


def _why_not(path: str, base: Path) -> str | None:
    from hawk.config.paths import leads_out
    from hawk.parcel.contents import stays

    if leads_out(path):
        return f"is not in {base}"
    if not (base / path).exists():
        return "is not there"
    return stays(PurePosixPath(path), base)


def _packed(base: Path, archive: IO[bytes]) -> tuple[Contents, Packed]:
    from hawk.parcel.contents import contents
    from hawk.parcel.packing import pack

    try:
        found = contents(base)
        packed = pack(found, archive)
    except OSError as ex:
        path = str(ex.filename or base)
        raise StorageError(f"{path}: {ex.strerror or ex}.", remedy="Let it be read.", path=path) from ex
    if found.hidden:
        note(
            f"Hidden files stay here: {_some(found.hidden)}. "
            "Secrets go with --secrets-file; what else a task needs, under another name."
        )
    if found.links:
        note(f"Links out of {base} stay here: {_some(found.links)}.")
    return found, packed


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f", … {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _deliver(client: HawkClient, archive: IO[bytes], packed: Packed) -> bool:
    """Let the server have an archive. Returns whether it had to be sent."""
    if client.has_source(packed.digest):
        return False
    _send(client, archive, packed)
    return True


def _send(client: HawkClient, archive: IO[bytes], packed: Packed) -> None:
    for n in range(1, TRIES + 1):
        try:
            client.send_source(packed.digest, _parts(archive, packed.size), packed.size)
        except ServerUnavailableError as ex:
            if n == TRIES:
                raise
            note(f"{ex.message} Sending the files again.")
            time.sleep(PAUSE * 2 ** (n - 1))
        except HawkError as ex:
            if ex.message != "The server answered 413.":
                raise
            raise HawkError(
                f"Something between here and the server at {client.url} takes no body of {size(packed.size)}.",
                remedy="Let it take more (nginx: client_max_body_size), or submit from a smaller directory.",
            ) from ex
        else:
            return


def _parts(archive: IO[bytes], whole: int) -> Iterator[bytes]:
    """An archive from its beginning, and now and then a word about how far it is."""
    archive.seek(0)
    live = sys.stderr.isatty()
    done, due, shown = 0, time.monotonic() + QUIET, False
    while part := archive.read(PART):
        yield part
        done += len(part)
        if time.monotonic() < due:
            continue
        if live:
            sys.stderr.write(f"\rSending files: {size(done)} of {size(whole)} ")
            sys.stderr.flush()
            due = time.monotonic() + 0.25
        else:
            note(f"Sending files: {size(whole)} …")
            due = float("inf")
        shown = True
    if shown and live:
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()


def _said(found: Contents, packed: Packed, *, sent: bool) -> str:
    files = f"{plural(found.files, 'file')}, {size(found.bytes)}"
    if not sent:
        return f"{files}: the server has them already"
    return f"Sent {files}" + (f" ({size(packed.size)} packed)" if packed.size < found.bytes else "")
