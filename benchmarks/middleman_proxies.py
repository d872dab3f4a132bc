"""The processes of one run: the fake provider, the bare pass-through, our middleman, and load generators."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.middleman_wire import Target, call_once, post
from benchmarks.processes import environment

ROOT = Path(__file__).parents[1]
HOST = "127.0.0.1"
COMPLETIONS = "/v1/chat/completions"
FILES = 16384  # a proxy of 2,000 streams has 4,000 open


def open_files() -> None:
    """Let the processes of the run open as many files as this machine lets them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def direct(port: int) -> Target:
    """Straight to the fake provider."""
    return Target(HOST, port, COMPLETIONS, "sk-provider")


@contextmanager
def provider() -> Iterator[int]:
    """The fake provider: its port."""
    with _module("benchmarks.middleman_upstream") as process:
        yield _port(process)


@contextmanager
def bare(provider_port: int) -> Iterator[tuple[Target, int]]:
    """The bare pass-through: where it is, and its process."""
    with _module("benchmarks.middleman_bare", f"http://{HOST}:{provider_port}") as process:
        yield Target(HOST, _port(process), COMPLETIONS, "sk-client"), process.pid


def load(kind: str, orders: Mapping[str, Any], timeout: float = 600) -> Any:
    """Run a load generator to its end; its last line.

    Raises:
        RuntimeError: It failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.middleman_load", kind],
        env=environment(),
        cwd=ROOT,
        input=json.dumps(orders) + "\n",
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode or not done.stdout:
        raise RuntimeError(f"load generator {kind}: {done.stderr.strip()[-600:]}")
    return json.loads(done.stdout.splitlines()[-1])


def post_once(goal: Target, path: str, value: Any) -> None:
    """Send one request and want 200.

    Raises:
        RuntimeError: Another status.
    """
    answer = asyncio.run(call_once(goal, post(goal, path, json.dumps(value).encode())))
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status} {answer.body.decode(errors='replace')[:200]}")


class Generator:
    """A load generator that goes on while something else is looked at."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def line(self) -> Any:
        """Its next line.

        Raises:
            RuntimeError: It ended.
        """
        assert self._process.stdout
        text = self._process.stdout.readline()
        if not text:
            raise RuntimeError("the load generator ended")
        return json.loads(text)

    def say(self, text: str = "") -> None:
        assert self._process.stdin
        self._process.stdin.write(text.encode() + b"\n")
        self._process.stdin.flush()


@contextmanager
def generator(kind: str, orders: Mapping[str, Any]) -> Iterator[Generator]:
    """A load generator until the block's end."""
    with _module("benchmarks.middleman_load", kind) as process:
        made = Generator(process)
        made.say(json.dumps(orders))
        yield made


@contextmanager
def _module(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", *words],
        env=environment(),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()


def _port(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended at its start")
    return int(line)
