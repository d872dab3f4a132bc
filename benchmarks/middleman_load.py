"""The load generator, a process of its own: `python -m benchmarks.middleman_load KIND`.

Its orders come as JSON on the first line of standard input, its results go as JSON lines to standard output.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import Awaitable, Callable

from benchmarks.middleman_load_rate import rate, turns
from benchmarks.middleman_load_storm import storm
from benchmarks.middleman_load_streams import hold, revoke, streams
from benchmarks.middleman_wire import Orders

KINDS: dict[str, Callable[[Orders], Awaitable[None]]] = {
    "rate": rate,
    "turns": turns,
    "streams": streams,
    "hold": hold,
    "revoke": revoke,
    "storm": storm,
}


async def main(kind: str, orders: Orders) -> None:
    gc.freeze()
    gc.disable()  # its pauses would be taken for the proxy's
    await KINDS[kind](orders)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.stdin.readline())))
