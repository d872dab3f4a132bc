"""Sends a timeline to an OpenTelemetry collector, or writes what would be sent into a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from hawk import __version__
from hawk.cli.text import clean
from hawk.core.timeline.model import SampleTimeline
from hawk.core.timeline.otlp import requests
from hawk.errors import HawkError, StorageError, UsageError
from hawk.transport import Connection

PATH = "/v1/traces"
TIMEOUT = 30.0
_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
"""Where OpenTelemetry's own tools look for headers, such as a key: `name=value,name=value`, percent-encoded."""


class _Partial(msgspec.Struct, rename="camel"):
    rejected_spans: int | str = 0
    error_message: str = ""


class _Answer(msgspec.Struct, rename="camel"):
    partial_success: _Partial | None = None


def export(timeline: SampleTimeline, target: str) -> str:
    """Deliver a timeline; returns where it went.

    Args:
        timeline: Of one attempt.
        target: A file, or an address; one without a path means its `/v1/traces`.

    Raises:
        UsageError: It is no address.
        HawkError: Nothing listens there, or it refuses.
        StorageError: The file can't be written.
    """
    bodies = map(msgspec.json.encode, requests(timeline, __version__))
    if "://" in target:
        return _post(target, bodies)
    path = Path(target)
    try:
        with path.open("wb") as f:
            f.writelines(body + b"\n" for body in bodies)
    except OSError as ex:
        raise StorageError(f"{path}: {ex.strerror or ex}.", remedy="Name another file.") from ex
    return str(path)


def _post(target: str, bodies: Iterator[bytes]) -> str:
    try:
        parts = urlsplit(target)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(
            f"{clean(target)!r} is not the address of a collector.",
            remedy="Give http(s)://host:port, such as http://localhost:4318.",
        )
    path = (parts.path if parts.path not in ("", "/") else PATH) + (f"?{parts.query}" if parts.query else "")
    where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path.partition('?')[0]}"
    for body in bodies:
        connection = None
        try:
            connection = Connection(host, port, tls=parts.scheme == "https", timeout=TIMEOUT)
            headers = {"Content-Type": "application/json", "User-Agent": f"hawk/{__version__}", **_headers()}
            response = connection.request("POST", path, headers, body)
            answer = response.read()
        except OSError as ex:
            raise _failed(where, ex) from ex
        finally:
            if connection is not None:
                connection.close()
        _check(where, response.status, answer)
    return where


def _check(where: str, status: int, body: bytes) -> None:
    """Raises: HawkError unless all spans were taken."""
    said = clean(body[:300].decode("utf-8", "replace"))
    if status == 404:
        raise HawkError(
            f"{where} knows no traces (HTTP 404).",
            remedy="A collector takes OTLP over HTTP at port 4318, path /v1/traces; an address with a path is used as it is.",
        )
    if status >= 300:
        raise HawkError(
            f"{where} refused the spans: HTTP {status} {said}".rstrip() + ".", remedy=_remedy(status)
        )
    try:
        partial = msgspec.json.decode(body or b"{}", type=_Answer).partial_success
    except (msgspec.DecodeError, UnicodeDecodeError):
        return  # it has taken them, whatever it says
    if partial is not None and int(partial.rejected_spans or 0):
        raise HawkError(
            f"{where} rejected {partial.rejected_spans} spans: {clean(partial.error_message)}".rstrip(": ")
            + ".",
            remedy="The collector's log says why.",
        )


def _remedy(status: int) -> str:
    if status in (401, 403):
        return f"Set {_HEADERS}, such as 'authorization=Bearer%20<key>'."
    return "The collector's log says why."


def _failed(where: str, ex: OSError) -> HawkError:
    why = "no answer in time" if isinstance(ex, TimeoutError) else ex.strerror or str(ex) or type(ex).__name__
    return HawkError(
        f"No collector answers at {where}: {why}.",
        remedy="Start it, or name its address; OTLP over HTTP is usually at port 4318.",
    )


def _headers() -> dict[str, str]:
    pairs = (pair.partition("=") for pair in os.environ.get(_HEADERS, "").split(","))
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs if name.strip()}
