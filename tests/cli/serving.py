"""A real HTTP server that speaks the documented API from canned data."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from hawk.core.snapshot import Snapshot, StatusResponse
from hawk.errors import HawkError, NotFoundError

TOKEN = "test-token"
Route = Callable[[dict[str, Any]], Any]


class Canned:
    """What the server answers, and what it was asked.

    `snapshots` are streamed one after the other as `advance` lets them go; the last one is the current one.
    """

    def __init__(self, *snapshots: Snapshot) -> None:
        self.snapshots = list(snapshots)
        self.routes: dict[str, Any] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self.break_streams = False
        self._changed = threading.Condition()

    def show(self, snapshot: Snapshot) -> None:
        with self._changed:
            self.snapshots.append(snapshot)
            self._changed.notify_all()

    def drop_streams(self) -> None:
        with self._changed:
            self.break_streams = True
            self._changed.notify_all()

    def after(self, index: int) -> Snapshot | None:
        """The snapshot at an index once there is one; None when streams are to break."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.snapshots) > index or self.break_streams, timeout=60)
            return None if self.break_streams else self.snapshots[index]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    canned: Canned

    def do_GET(self) -> None:
        self._serve(None)

    def do_POST(self) -> None:
        self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def do_DELETE(self) -> None:
        self._serve(None)

    def log_message(self, format: str, *args: object) -> None:
        return

    def _serve(self, body: Any) -> None:
        url = urlsplit(self.path)
        self.canned.requests.append((self.command, self.path, body))
        if url.path == "/health/live":
            self._send(200, {"status": "ok"})
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, {"code": "auth", "detail": "No token.", "remedy": "hawk login"})
        elif url.path.endswith("/eval-set-status/stream"):
            self._stream()
        elif f"{self.command} {url.path}" in self.canned.routes:
            answer = self.canned.routes[f"{self.command} {url.path}"]
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            try:
                self._send(200, answer(query) if callable(answer) else answer)
            except HawkError as ex:
                self._send(ex.http_status, ex.envelope())
        elif url.path.endswith("/eval-set-status") and self.canned.snapshots:
            self._send(200, StatusResponse(self.canned.snapshots[-1], "e"))
        else:
            self._send(404, NotFoundError("No such thing.", remedy="hawk list eval-sets").envelope())

    def _send(self, status: int, body: Any) -> None:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Hawk-Server-Version", "9.9.9")
        self.end_headers()
        self.wfile.write(data)

    def _stream(self) -> None:
        if not self.canned.snapshots:
            self._send(404, NotFoundError("No such job.", remedy="hawk list eval-sets").envelope())
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._chunk(b": ping\n\n")
        index = len(self.canned.snapshots) - 1
        while (snapshot := self.canned.after(index)) is not None:
            self._chunk(
                b"event: status\ndata: " + msgspec.json.encode(StatusResponse(snapshot, str(index))) + b"\n\n"
            )
            if snapshot.status.terminal:
                self._chunk(b"")
                return
            index += 1
        self.close_connection = True

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


@contextmanager
def serving(canned: Canned, port: int = 0) -> Iterator[str]:
    """Serve on a port of this machine; the address."""
    handler = type("CannedHandler", (Handler,), {"canned": canned})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        canned.drop_streams()
        server.shutdown()
        server.server_close()
        thread.join()
