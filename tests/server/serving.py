"""The real application on a real socket, in a thread of the test's process."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import uvicorn

from hawk.config.settings import Settings
from hawk.config.token import ensure_token
from hawk.engine.protocol import Engine
from hawk.server.app import create_app, stop_streams

T = TypeVar("T")

CONFIG: dict[str, Any] = {
    "tasks": [{"package": "some-package", "name": "some_package", "items": [{"name": "t"}]}]
}


def until(probe: Callable[[], T], timeout: float = 60.0) -> T:
    """Poll until the probe gives something true, and return that."""
    end = time.monotonic() + timeout
    while not (value := probe()):
        assert time.monotonic() < end, "timed out"
        time.sleep(0.02)
    return value


@dataclass
class Service:
    """A running server and a client of it."""

    url: str
    token: str
    client: httpx.Client
    app: Any

    @property
    def context(self) -> Any:
        return self.app.state.context

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.client.get(path, **options)

    def submit(self, job_id: str | None = None, config: Any = CONFIG, **fields: Any) -> httpx.Response:
        body = {"eval_set_config": config, "eval_set_id": job_id, **fields}
        return self.client.post("/eval_sets/", json=body)

    def status(self, job_id: str) -> dict[str, Any]:
        answer = self.get(f"/monitoring/jobs/{job_id}/eval-set-status")
        assert answer.status_code == 200, answer.text
        data: dict[str, Any] = answer.json()["data"]
        return data

    def until_status(self, job_id: str, status: str) -> dict[str, Any]:
        return until(lambda: data if (data := self.status(job_id))["status"] == status else None)


@contextmanager
def serving(settings: Settings, engine: Engine) -> Iterator[Service]:
    app = create_app(settings, engine, end=lambda: setattr(server, "should_exit", True))
    config = uvicorn.Config(app, port=0, log_config=None, access_log=False, timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started or not thread.is_alive())
    assert server.started
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    token = ensure_token(settings)
    headers = {"authorization": f"Bearer {token}"}
    try:
        # Without certificates: nobody needs them here, and loading them takes longer than most tests.
        with httpx.Client(base_url=url, headers=headers, timeout=30, trust_env=False, verify=False) as client:
            yield Service(url, token, client, app)
    finally:
        server.should_exit = True
        server.servers[0].get_loop().call_soon_threadsafe(stop_streams, app)
        thread.join(30)
        assert not thread.is_alive()
