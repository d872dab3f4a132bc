"""The two sides of a conformance test: our server as a process, and the public client as a command."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.system import shared_template

TERMINAL = ("complete", "failed", "deleted")


def wait_until(what: str, condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Poll until the condition gives something true, and return that."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.1)
    return value


@dataclass(frozen=True)
class Server:
    """Our server, reached with the standard library: a second opinion beside the public client's."""

    url: str
    token: str
    home: Path

    def request(self, method: str, path: str, body: Any = None, *, authorized: bool = True) -> Any:
        """The decoded JSON of a response; HTTPError for what is not 2xx."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        if authorized:
            request.add_header("Authorization", f"Bearer {self.token}")
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def submit(self, name: str, task: str, base_dir: Path, **config: Any) -> str:
        """Start one task of the tiny eval from its file, as Hawk's own client does."""
        entry = {"file": "hawk_compat.py", "items": [{"name": task, "args": config.pop("args", {})}]}
        eval_set = {"name": name, "tasks": [entry], **config}
        body = {"eval_set_config": eval_set, "base_dir": str(base_dir)}
        return str(self.request("POST", "/eval_sets/", body)["eval_set_id"])

    def status(self, job: str) -> dict[str, Any]:
        status: dict[str, Any] = self.request("GET", f"/monitoring/jobs/{job}/eval-set-status")["data"]
        return status

    def wait(self, job: str, seconds: float = 120) -> dict[str, Any]:
        """The status of a job once it has ended."""

        def ended() -> dict[str, Any] | None:
            status = self.status(job)
            return status if status["status"] in TERMINAL else None

        result: dict[str, Any] = wait_until(f"job {job} ends", ended, seconds)
        return result

    def wait_running(self, job: str, attempts: int) -> dict[str, Any]:
        """The status of a job once so many attempts are in flight."""

        def running() -> dict[str, Any] | None:
            status = self.status(job)
            assert status["status"] not in TERMINAL, status
            return status if status["progress"]["running"] == attempts else None

        result: dict[str, Any] = wait_until(f"{attempts} attempts of {job} run", running)
        return result


@contextmanager
def serve(home: Path, **variables: str) -> Iterator[Server]:
    """Run the real server on a home of its own until the block ends; `variables` are added to its environment."""
    # The tests' environment may name another server or token; only the home is meant to count here.
    environ = {k: v for k, v in os.environ.items() if not k.startswith("HAWK_")} | {
        "HAWK_HOME": str(home),
        "HAWK_TEMPLATE": shared_template(),
        **variables,
    }
    log = home / "server.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "hawk.server", "--port", "0"], env=environ, stdout=sink, stderr=sink
        )
    try:
        found = home / "server.json"
        wait_until(
            f"server starts (log: {log.read_text()})", lambda: found.exists() or process.poll() is not None
        )
        assert process.poll() is None, log.read_text()
        url = json.loads(found.read_text())["url"]
        yield Server(url, (home / "token").read_text().strip(), home)
    finally:
        process.terminate()
        process.wait(30)


@dataclass(frozen=True)
class Following:
    """A running command of the public client."""

    process: "subprocess.Popen[bytes]"
    output: Path

    @property
    def text(self) -> str:
        return self.output.read_text("utf-8", "replace")

    def wait_for(self, text: str) -> None:
        """Wait until the command has printed a text."""

        def printed() -> bool:
            assert self.process.poll() is None or text in self.text, self.text
            return text in self.text

        wait_until(f"{text!r} is printed", printed)

    def finish(self) -> str:
        """Everything it printed, once it has ended."""
        self.process.wait(90)
        return self.text


@dataclass(frozen=True)
class PublicClient:
    """The public `hawk` command against one server, with a home directory of its own."""

    directory: Path
    server: Server
    home: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def command(self) -> str:
        return str(self.directory / "bin" / "hawk")

    def _environ(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "HAWK_API_URL": self.server.url,
            "HAWK_ACCESS_TOKEN": self.server.token,
            "HAWK_VERSION_CHECK": "off",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        } | self.environ

    def _start(self, args: tuple[str, ...], output: Path) -> "subprocess.Popen[bytes]":
        """Start a command; what a person would see, both streams, goes to a file."""
        with output.open("wb") as sink:
            return subprocess.Popen(
                [self.command, *args],
                env=self._environ(),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )

    def run(self, *args: str, code: int = 0) -> str:
        """Run a command to its end and return what a person sees; the exit code must be as given."""
        with self.follow(*args) as following:
            output = following.finish()
        assert following.process.returncode == code, f"hawk {' '.join(args)}:\n{output}"
        return output

    @contextmanager
    def follow(self, *args: str) -> Iterator[Following]:
        """A command that runs on until it ends by itself or the block ends."""
        output = self.home / "output.txt"
        process = self._start(args, output)
        try:
            yield Following(process, output)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def json(self, *args: str) -> Any:
        return json.loads(self.run(*args))

    def python(self, program: str, *args: str) -> Any:
        """Run a program in the client's own Python: its client library, its models. It prints JSON."""
        done = subprocess.run(
            [str(self.directory / "bin" / "python"), "-c", program, *args],
            env=self._environ(),
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
