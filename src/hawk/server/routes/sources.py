"""Files of eval sets, sent ahead by those whose disk the server does not see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from hawk.errors import HawkError, NotFoundError
from hawk.server.context import Context, Ctx
from hawk.server.services.uploads import MOST_PACKED
from hawk.server.wire import describe, reply

router = APIRouter(prefix="/sources", tags=["eval sets"])

Digest = Annotated[str, Path(json_schema_extra={"pattern": "^[0-9a-f]{64}$"})]
"""SHA-256 of the archive's bytes, in hexadecimal."""

AT_ONCE = 1 << 20
_BODY = {
    "required": True,
    "description": "A tar file, packed as one Zstandard frame: files, directories, and links within it.",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}


class Source(msgspec.Struct):
    """An archive that is there: `files` of `POST /eval_sets/` may name it."""

    digest: str
    bytes: int


@router.get("/{digest}", **describe(Source, errors=(400, 404)))
async def find(ctx: Ctx, digest: Digest) -> Response:
    """Whether you have sent this archive; it is kept for another hour then, and for as long as a job has it."""
    size = await asyncio.to_thread(ctx.uploads.size, ctx.user, digest)
    return reply(Source(digest, size))


@router.put("/{digest}", **describe(Source, status=201, errors=(400,)), openapi_extra={"requestBody": _BODY})
async def receive(ctx: Ctx, digest: Digest, request: Request) -> Response:
    """Send the archive of an eval set's files; it is looked into when a submit names it. Again: the same answer."""
    parts = request.stream()
    try:
        size = await _receive(ctx, digest, parts, _length(request))
    except HawkError:
        await _drain(parts)  # whoever sends reads the answer when all is sent
        raise
    return reply(Source(digest, size), 201)


async def _receive(ctx: Context, digest: str, parts: AsyncIterator[bytes], announced: int | None) -> int:
    loop = asyncio.get_running_loop()
    try:
        there = await loop.run_in_executor(ctx.threads, ctx.uploads.size, ctx.user, digest)
    except NotFoundError:
        pass
    else:
        await _drain(parts)
        return there
    upload = await loop.run_in_executor(ctx.threads, ctx.uploads.receive, ctx.user, digest, announced)
    try:
        waiting = bytearray()
        async for part in parts:
            waiting += part
            if len(waiting) >= AT_ONCE:
                await loop.run_in_executor(ctx.threads, upload.write, bytes(waiting))
                waiting.clear()
        await loop.run_in_executor(ctx.threads, upload.write, bytes(waiting))
        return await loop.run_in_executor(ctx.threads, upload.keep)
    finally:
        await asyncio.shield(loop.run_in_executor(ctx.threads, upload.close))


async def _drain(parts: AsyncIterator[bytes]) -> None:
    left = MOST_PACKED
    async for part in parts:
        left -= len(part)
        if left < 0:
            return


def _length(request: Request) -> int | None:
    text = request.headers.get("content-length", "")
    return int(text) if text.isdecimal() else None
