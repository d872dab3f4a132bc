"""Whether the server is well, which version it is, and the schema of what people write. No token is asked for."""

from __future__ import annotations

import os

import msgspec
from fastapi import APIRouter
from fastapi.responses import Response

from hawk import __version__
from hawk.errors import HawkError
from hawk.server.context import Ctx
from hawk.server.wire import answered, describe, reply

router = APIRouter(tags=["health"])


class Live(msgspec.Struct):
    status: str = "ok"


class Check(msgspec.Struct):
    """One part of the server: ok, or why not."""

    ok: bool
    detail: str | None = None


class Health(msgspec.Struct):
    """ok, or degraded with the checks that say why."""

    status: str
    checks: dict[str, Check]


class Version(msgspec.Struct):
    """The server's version, and which disk it sees: a command that makes another `place` of its own sends files along."""

    version: str
    place: str | None = None


@router.get("/health/live", **describe(Live))
async def live() -> Response:
    """The server answers."""
    return reply(Live())


@router.get("/health", **describe(Health, also={503: answered(Health, "Something is wrong.")}))
def health(ctx: Ctx) -> Response:
    """The server can do its work: 200, or 503 with what is wrong."""
    checks = {"database": Check(ok=True), "storage": Check(ok=True)}
    try:
        ctx.database.ping()
    except HawkError as ex:
        checks["database"] = Check(ok=False, detail=ex.message)
    if not os.access(ctx.settings.root, os.W_OK | os.X_OK):
        checks["storage"] = Check(ok=False, detail=f"{ctx.settings.root} can't be written")
    if ctx.mirror is not None:
        checks["bucket"] = Check(ok=ctx.mirror.problem is None, detail=ctx.mirror.problem)
    well = all(check.ok for check in checks.values())
    return reply(Health("ok" if well else "degraded", checks), 200 if well else 503)


@router.get("/version", **describe(Version))
async def version(ctx: Ctx) -> Response:
    """The server's version, and where it is."""
    return reply(Version(__version__, ctx.place))


@router.get("/schemas/eval-set.json", **describe(content={"application/schema+json": {"type": "object"}}))
def eval_set_schema() -> Response:
    """JSON Schema of the eval-set YAML, for editors."""
    from hawk.config.schema import json_schema

    return Response(msgspec.json.encode(json_schema()), media_type="application/schema+json")
