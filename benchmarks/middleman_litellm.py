"""The rival: LiteLLM's proxy in an environment of its own, made once and kept, set up as its documentation advises."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.middleman_wire import Target
from benchmarks.processes import environment
from benchmarks.reference import cache

VERSION = "1.108.7"
VARIABLE = "HAWK_BENCHMARK_LITELLM"  # an environment that has it already
PATIENCE = 180  # seconds until it answers
KEY = "sk-benchmark-master"
CONFIG = """\
model_list:
  - model_name: fake
    litellm_params:
      model: openai/fake
      api_base: {base}
      api_key: sk-provider
general_settings:
  master_key: {key}
litellm_settings:
  set_verbose: false
  telemetry: false
  request_timeout: 600
"""


def installed(given: Path | None) -> Path:
    """Its environment: the given one, the one that the variable names, else one in the benchmarks' cache.

    Raises:
        RuntimeError: It can't be installed here.
    """
    if given := given or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None):
        return given
    home = cache() / f"litellm-{VERSION}"
    if not (home / ".installed").exists():
        print(f"Installing LiteLLM {VERSION} into {home} (once) …", file=sys.stderr, flush=True)
        _run(sys.executable, "-m", "venv", home)
        _run(home / "bin" / "python", "-m", "pip", "install", "-qq", f"litellm[proxy]=={VERSION}")
        (home / ".installed").touch()
    return home


def version(home: Path) -> str:
    """Of the LiteLLM that is there."""
    script = "import importlib.metadata as m; print(m.version('litellm'))"
    done = subprocess.run([home / "bin" / "python", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@contextmanager
def litellm(base: Path, home: Path, provider: str) -> Iterator[tuple[Target, int]]:
    """One worker of it, until the block's end: where it is, and its process.

    Args:
        base: Directory for its configuration and its log.
        home: Its environment.
        provider: Base URL of the provider.
    """
    config = base / "litellm.yaml"
    config.write_text(CONFIG.format(base=provider, key=KEY), "utf-8")
    port = _free_port()
    env = environment(LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_LOG="ERROR", LITELLM_MODE="PRODUCTION")
    env.pop("DATABASE_URL", None)
    # Its own Python: another one's modules must not get in.
    env.pop("PYTHONPATH", None)
    command: list[str | Path] = [
        home / "bin" / "litellm",
        "--config",
        config,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    command += ["--num_workers", "1", "--telemetry", "False"]
    with (base / "litellm.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env=env,
            cwd=base,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _await(process, f"http://127.0.0.1:{port}/health/liveliness", base / "litellm.log")
        yield Target("127.0.0.1", port, "/v1/chat/completions", KEY), process.pid
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.3)
    raise RuntimeError(f"LiteLLM did not start: {log.read_text('utf-8', 'replace')[-600:]}")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _run(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"installing LiteLLM {VERSION} failed: {done.stderr.strip()[-400:]}")
