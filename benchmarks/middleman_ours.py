"""Our middleman as it is run: job tokens, limits, prices and spans, with a home of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.middleman_proxies import HOST, ROOT
from benchmarks.middleman_wire import Target
from benchmarks.processes import environment, until
from hawk.config.settings import load_settings
from hawk.config.token import ensure_token
from hawk.middleman.presence import Presence, living
from hawk.middleman.tokens import mint, signing_key

PATH = "/openai/v1/chat/completions"
WIDE = "{most: 4096, start: 4096}"  # where the limit is not what is measured
CONFIG = """\
providers:
  openai:
    base_url: {base}
    limits: {limits}
prices:
  openai/fake: {{input: 1.25, output: 10, cache_read: 0.125}}
  openai/flow: {{input: 1.25, output: 10, cache_read: 0.125}}
  openai/idle: {{input: 1.25, output: 10, cache_read: 0.125}}
  openai/storm: {{input: 1.25, output: 10, cache_read: 0.125}}
"""


class Ours:
    """A middleman that runs.

    Attributes:
        pid: Its process.
        admin: Where a person asks, with the person's token.
    """

    def __init__(self, home: Path, pid: int, port: int, person: str) -> None:
        self._home, self._port = home, port
        self.pid = pid
        self.admin = Target(HOST, port, "/admin", person)

    def job(self, name: str) -> Target:
        """Where a job asks, with its token; its run directory is there, so that its spans are written."""
        (self._home / "runs" / name).mkdir(parents=True, exist_ok=True)
        token = mint(signing_key(self._home), job=name, user="benchmark", models=("openai/*",))
        return Target(HOST, self._port, PATH, token)

    def spans(self, name: str) -> int:
        """How many spans of a job are on the disk."""
        file = self._home / "runs" / name / "spans" / "middleman.jsonl"
        return file.read_bytes().count(b"\n") if file.exists() else 0


@contextmanager
def ours(base: Path, provider: str, limits: str = WIDE, *before: str) -> Iterator[Ours]:
    """One of it, until the block's end.

    Args:
        base: Directory for its home and its log.
        provider: Base URL of the provider.
        limits: As `middleman.yaml` says them, for each of the provider's models.
        before: Words before `-m hawk.middleman`, instead of the Python: a profiler.
    """
    home = base / "home"
    env = environment(HAWK_HOME=str(home), OPENAI_API_KEY="sk-provider")
    settings = load_settings(env)
    settings.root.mkdir(parents=True, exist_ok=True)
    (home / "middleman.yaml").write_text(CONFIG.format(base=provider, limits=limits), "utf-8")
    person = ensure_token(settings)
    with (base / "middleman.log").open("ab") as log:
        process = subprocess.Popen(
            [
                *(before or (sys.executable,)),
                "-m",
                "hawk.middleman",
                "--host",
                HOST,
                "--port",
                "0",
                "--drain",
                "1",
            ],
            env=env,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        found = until("the middleman", lambda: _living(process, base, home), timeout=60)
        yield Ours(home, found.pid, int(found.url.rsplit(":", 1)[-1]), person)
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _living(process: subprocess.Popen[bytes], base: Path, home: Path) -> Presence | None:
    if process.poll() is not None:
        log = (base / "middleman.log").read_text("utf-8", "replace")
        raise RuntimeError(f"the middleman ended with {process.returncode}: {log[-800:]}")
    return living(home)
