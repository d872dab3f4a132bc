"""The yardstick: an aiohttp pass-through that streams and does nothing else.

    python -m benchmarks.middleman_bare http://127.0.0.1:PORT

Prints its port and serves until it is ended.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

HOP = frozenset({"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host"})


def _passed(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in HOP)


def application(upstream: str, session: aiohttp.ClientSession) -> web.Application:
    """Every request goes to the upstream, its answer comes back piece by piece."""

    async def handle(request: web.Request) -> web.StreamResponse:
        async with session.request(
            request.method,
            upstream + request.path_qs,
            headers=_passed(request.headers),
            data=await request.read(),
            allow_redirects=False,
        ) as answer:
            response = web.StreamResponse(
                status=answer.status, reason=answer.reason, headers=_passed(answer.headers)
            )
            await response.prepare(request)
            async for data in answer.content.iter_any():
                await response.write(data)
            await response.write_eof()
            return response

    app = web.Application(client_max_size=0)
    app.router.add_route("*", "/{path:.*}", handle)
    return app


async def main(upstream: str) -> None:
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)  # that clients go away in mid-stream is no news
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
    ) as session:
        runner = web.AppRunner(application(upstream, session), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
        print(runner.addresses[0][1], flush=True)
        await ended.wait()
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
