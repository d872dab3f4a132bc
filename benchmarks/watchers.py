"""Many watchers of one job's stream: reads and counts, so that the server's cost can be taken meanwhile.

    python -m benchmarks.watchers URL TOKEN_FILE WATCHERS [plain]

They ask for Zstandard, as `hawk watch` does. Prints `ready` when every watcher has its first status; ends when its
standard input is closed, with the least and the most statuses that a watcher saw.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from urllib.parse import urlsplit

from hawk.core.zstd import Unpacker

BUFFER = 1 << 18
STEP = 1 << 12
MARK = b"event: status\n"


class Watcher:
    def __init__(self, encoding: str) -> None:
        self.seen = 0
        self.first = asyncio.Event()
        self._encoding = encoding

    async def read(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=BUFFER)
        writer.write(
            f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n"
            f"Accept: text/event-stream\r\nAccept-Encoding: {self._encoding}\r\n\r\n".encode()
        )
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            packed = b"content-encoding: zstd" in head.lower()
            assert packed == (self._encoding == "zstd"), head
            # The server sends each event as one chunk.
            while size := int(await reader.readline(), 16):
                event = (await reader.readexactly(size + 2))[:-2]
                if (_beginning(event) if packed else event).startswith(MARK):
                    self.seen += 1
                    self.first.set()
        finally:
            writer.close()


def _beginning(event: bytes) -> bytes:
    """Enough of an event to know its kind: unpacking all of them would take the processor from the server."""
    unpacker, text = Unpacker(), b""
    for at in range(0, len(event), STEP):
        text += unpacker.feed(event[at : at + STEP])
        if len(text) >= len(MARK):
            break
    return text


async def main(url: str, token: str, count: int, encoding: str) -> None:
    watchers = [Watcher(encoding) for _ in range(count)]
    tasks = [asyncio.create_task(watcher.read(url, token)) for watcher in watchers]
    await asyncio.gather(*(watcher.first.wait() for watcher in watchers))
    for watcher in watchers:
        watcher.seen = 0
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    seen = [watcher.seen for watcher in watchers]
    print(min(seen), max(seen), flush=True)


if __name__ == "__main__":
    kind = "identity" if sys.argv[4:] == ["plain"] else "zstd"
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]).read_text().strip(), int(sys.argv[3]), kind))
