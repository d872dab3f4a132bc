"""Log files for the public client, which fetches them from addresses that carry their own permission.

It asks for an address with its token, and reads that address without one: by range for a single transcript,
whole for many. The signature in the query stands in for the token: for one file, for a quarter of an hour.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import time
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field

from hawk.config.ids import check_id
from hawk.errors import AuthError, NotFoundError, UsageError
from hawk.server.context import Context, Ctx
from hawk.server.parameters import BAD_ID, LOG_NAME, JobIdQuery, LogName
from hawk.server.wire import failures
from hawk.store.rundir import RunDir

DOWNLOAD = "/view/logs/download/"
"""Prefix of the signed addresses: the token is not asked for there."""

VALID_SECONDS = 15 * 60

router = APIRouter(tags=["public client"])


class LogFile(BaseModel):
    """One log, named `<eval set id>/<file>`."""

    name: str
    size: int
    mtime: float


class LogFiles(BaseModel):
    """The logs of an eval set."""

    log_dir: str
    files: list[LogFile]


class SignedFile(BaseModel):
    """Where a log can be read without a token, and what it is called."""

    url: str
    filename: str


_BYTES = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
_TEXT = {"content": {"text/plain": {"schema": {"type": "string"}}}}
_PROBLEM = failures(400)[400]["content"]
_DOWNLOADED: dict[str, Any] = {
    "response_class": FileResponse,
    "responses": {
        200: {"description": "All of it.", **_BYTES},
        206: {"description": "The range.", **_BYTES},
        **failures(401, 404),
        400: {"description": "No log's name, or no range.", "content": {**_PROBLEM, **_TEXT["content"]}},
        416: {"description": "There is no such range.", **_TEXT},
    },
    "openapi_extra": {
        "security": [],
        "parameters": [
            {
                "name": "range",
                "in": "header",
                "schema": {"type": "string", "pattern": "^bytes=[0-9]+-[0-9]*$"},
            }
        ],
    },
}


class SignedFiles(BaseModel):
    urls: list[SignedFile]


class LogNames(BaseModel):
    logs: list[Annotated[str, Field(json_schema_extra=LOG_NAME)]]


@router.get("/view/logs/logs", responses=failures(*BAD_ID))
def list_logs(ctx: Ctx, log_dir: JobIdQuery) -> LogFiles:
    """The logs of an eval set, oldest first."""
    eval_set_id = check_id(log_dir)
    files = []
    for path in sorted(_run(ctx, eval_set_id).logs.glob("*.eval")):
        with contextlib.suppress(FileNotFoundError):  # a restart moves logs aside
            stat = path.stat()
            files.append(LogFile(name=f"{eval_set_id}/{path.name}", size=stat.st_size, mtime=stat.st_mtime))
    return LogFiles(log_dir=eval_set_id, files=files)


@router.get("/view/logs/log-download-url/{name:path}", responses=failures(*BAD_ID))
def sign_log(ctx: Ctx, request: Request, name: LogName) -> SignedFile:
    """Where one log can be read from for the next quarter of an hour."""
    return _sign(ctx, request, name)


@router.post("/view/logs/log-download-urls", responses=failures(*BAD_ID))
def sign_logs(ctx: Ctx, request: Request, names: LogNames) -> SignedFiles:
    """The same for many logs."""
    return SignedFiles(urls=[_sign(ctx, request, name) for name in names.logs])


@router.head(DOWNLOAD + "{name:path}", include_in_schema=False)
@router.get(DOWNLOAD + "{name:path}", **_DOWNLOADED)
def download_log(ctx: Ctx, name: LogName, expires: int, signature: str) -> FileResponse:
    """A log's bytes, or the range of them that was asked for. The signature stands in for the token."""
    if expires < time.time():
        raise AuthError("This download address has expired.", remedy="Ask for the log again.")
    if not hmac.compare_digest(signature.encode(), _signature(ctx, name, expires).encode()):
        raise AuthError("This download address is not valid.", remedy="Ask for the log again.")
    path = _log(ctx, name)
    return FileResponse(path, media_type="application/octet-stream", filename=path.name)


def _sign(ctx: Context, request: Request, name: str) -> SignedFile:
    path = _log(ctx, name)
    expires = int(time.time()) + VALID_SECONDS
    query = f"expires={expires}&signature={_signature(ctx, name, expires)}"
    base = str(request.base_url).rstrip("/")
    return SignedFile(url=f"{base}{DOWNLOAD}{quote(name)}?{query}", filename=path.name)


def _signature(ctx: Context, name: str, expires: int) -> str:
    message = f"download\n{name}\n{expires}".encode()
    return hmac.new(ctx.token.encode(), message, hashlib.sha256).hexdigest()


def _log(ctx: Context, name: str) -> Path:
    """The file that `<eval set id>/<file>` names; nothing outside that run's logs can be named.

    Raises:
        NotFoundError: There is no such log.
        UsageError: It is not a name of that form.
    """
    eval_set_id, _, file = name.partition("/")
    if not file.endswith(".eval") or Path(file).name != file:
        raise UsageError(f"{name!r} is not a log's name: <eval set id>/<file>.eval.")
    path = _run(ctx, check_id(eval_set_id)).logs / file
    with contextlib.suppress(OSError):  # a name that no file system takes
        if path.is_file():
            return path
    raise NotFoundError(f"No log {name!r}.", remedy=f"hawk list evals {eval_set_id}")


def _run(ctx: Context, eval_set_id: str) -> RunDir:
    run = RunDir(ctx.settings.root / eval_set_id)
    if not run.spec_file.exists():
        raise NotFoundError(f"No eval set {eval_set_id!r}.", remedy="hawk list eval-sets")
    return run
