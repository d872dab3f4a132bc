"""The middleman beside a runner: it has the keys, and the runner a token. A real one, a real provider behind it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from hawk.config.settings import JobMiddleman, load_settings
from hawk.config.upstreams import URL_VARIABLE, upstreams_of
from hawk.errors import HawkError
from hawk.middleman.tokens import Upstream, mint
from hawk.runner import models
from hawk.runner.models import ModelAccess
from hawk.store.rundir import JobSpec, RunDir
from tests.middleman.provider import Provider
from tests.middleman.raw_client import ask
from tests.system import until

SIGNING, KEY, OWN = "s" * 64, "sk-of-the-server-1b2c", "sk-of-the-submitter-3d4e"


class Sidecar:
    """The container beside the runner's: its own home and keys, the runner's run root."""

    def __init__(self, base: Path, port: int, provider: str) -> None:
        keys = base / "keys"
        keys.mkdir()
        (keys / "signing-key").write_text(SIGNING)
        (keys / "OPENAI_API_KEY").write_text(KEY)
        (keys / "job-keys").write_bytes(msgspec.json.encode({"LOCAL_API_KEY": OWN}))
        (base / "home").mkdir()
        text = f"job_upstreams: any\nproviders: {{openai: {{base_url: '{provider}/v1'}}}}\n"
        (base / "home/middleman.yaml").write_text(text)
        self.environ = {
            **{
                k: v
                for k, v in os.environ.items()
                if not k.startswith("HAWK_") and not k.endswith("_API_KEY")
            },
            "HAWK_HOME": str(base / "home"),
            "HAWK_ROOT": str(base / "runs"),
            "HAWK_MIDDLEMAN_KEYS_DIR": str(keys),
            "HAWK_SIDECAR_PORT": str(port),
        }
        self.log = base / "log"
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "hawk.runner.sidecar"]
            self.process = subprocess.Popen(command, env=self.environ, stdout=log, stderr=log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as found:
        yield found


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture
def place(tmp_path: Path, free_port: int, provider: Provider) -> Iterator[tuple[Sidecar, int, RunDir]]:
    run = RunDir(tmp_path / "runs" / "j")
    run.create()
    sidecar = Sidecar(tmp_path, free_port, provider.url)
    yield sidecar, free_port, run
    sidecar.kill()


def config_of(provider: str) -> dict[str, Any]:
    local = {"name": "openai-api/local/x", "args": {"base_url": f"{provider}/v1"}}
    return {"models": [{"items": [{"name": "openai/gpt-4o"}]}, {"items": [local]}]}


def access(run: RunDir, port: int, provider: str, token: str | None = None) -> ModelAccess:
    """As the supervisor of a pod has it: no key, a token in its environment."""
    config = config_of(provider)
    upstreams = {
        u.name: Upstream(u.base_url, u.client.kind, u.client.prefix) for u in upstreams_of(config, {})
    }
    token = token or mint(SIGNING.encode(), job=run.job_id, user="ada", upstreams=upstreams)
    settings = replace(
        load_settings({"HAWK_HOME": str(run.path.parent / "home")}),
        job_middleman=JobMiddleman(f"http://127.0.0.1:{port}", token),
    )
    return ModelAccess(run, JobSpec(run.job_id, "/", config), {}, settings)


def test_requests_go_with_keys_that_the_runner_never_sees_and_spans_come_to_its_run_directory(
    place: tuple[Sidecar, int, RunDir], provider: Provider
) -> None:
    sidecar, port, run = place
    found = access(run, port, provider.url)  # it may come up after the runner
    found.open()
    try:
        environ = found.environment({"PATH": "/bin", "OPENAI_API_KEY": "inherited"})
        assert not {KEY, OWN, SIGNING, "inherited"} & set(environ.values())
        url, token = environ["OPENAI_BASE_URL"], environ["OPENAI_API_KEY"]
        named = upstreams_of(config_of(provider.url), {})[0].name
        local = f"{environ[URL_VARIABLE]}/{named}/v1"
        for address, model, key in ((url, "gpt-4o", KEY), (local, "x", OWN)):
            assert address.startswith(f"http://127.0.0.1:{port}/")
            _chat(address, token, model)
            assert _key_of(provider) == f"Bearer {key}"
        spans = run.path / "spans/middleman.jsonl"
        until("both are written down", lambda: spans.exists() and len(spans.read_text().splitlines()) == 2)
        until("they are counted", lambda: found.use is not None and found.use.requests == 2)
        sidecar.kill()
        until("it is missed", lambda: found.problem)
        sidecar.start()
        until("it is there again", lambda: found.problem is None)
        _chat(local, token, "x")
        assert _key_of(provider) == f"Bearer {OWN}"
    finally:
        found.close()
    assert "revoked" in _chat(url, token, "gpt-4o", status=401)
    log = sidecar.log.read_text()
    assert not any(secret in log for secret in (KEY, OWN, SIGNING, token))


def test_another_jobs_token_is_not_taken_and_a_middleman_that_is_not_there_is_named(
    place: tuple[Sidecar, int, RunDir], provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, port, run = place
    with pytest.raises(HawkError, match="401"):
        access(run, port, provider.url, mint(b"t" * 64, job="j", user="eve")).open()
    monkeypatch.setattr(models, "PATIENCE", 0.0)
    with pytest.raises(HawkError, match=r"127\.0\.0\.1:1 does not answer"):
        access(run, 1, provider.url).open()


def _chat(url: str, token: str, model: str, status: int = 200) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
    parts = urlsplit(url)
    reply = ask(f"{parts.scheme}://{parts.netloc}", f"{parts.path}/chat/completions", token, body)
    assert reply.status == status, reply
    return reply.body.decode()


def _key_of(provider: Provider) -> str:
    return provider.received[-1].header("authorization") or ""
