"""The real middleman in a process of its own, in a home of its own, with scriptable providers behind it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import psutil
import yaml

from hawk.middleman.tokens import mint, signing_key
from tests.middleman.raw_client import Reply, ask
from tests.system import until

KEYS = {
    "OPENAI_API_KEY": "sk-upstream-openai-4f1d",
    "ANTHROPIC_API_KEY": "sk-ant-upstream-77aa",
    "GEMINI_API_KEY": "AIza-upstream-90c2",
    "LOCAL_API_KEY": "local-upstream-1b3e",
}
"""What no one but the provider may ever see."""

_MAY_HOLD_SECRETS = ("token", "middleman.key", "middleman-keys.json")


def settings(url: str, **more: Any) -> dict[str, Any]:
    """The content of `middleman.yaml` for one provider at `url` (without a path) that speaks every dialect."""
    providers = {
        "openai": {"base_url": f"{url}/v1"},
        "anthropic": {"base_url": url},
        "gemini": {"base_url": url},
        "local": {"base_url": f"{url}/v1", "accounts": [{"variable": "LOCAL_API_KEY"}]},
    }
    return {**more, "providers": {**providers, **more.get("providers", {})}}


class Middleman:
    """One middleman and its home.

    Args:
        home: `HAWK_HOME`.
        config: What `middleman.yaml` says.
        environ: More variables.
    """

    def __init__(self, home: Path, config: dict[str, Any], **environ: str) -> None:
        self.home = home
        self.log = home / "stdout-and-stderr"
        self.environ = {
            **{
                k: v
                for k, v in os.environ.items()
                if not k.startswith("HAWK_") and not k.endswith("_API_KEY")
            },
            "HAWK_HOME": str(home),
            "HAWK_ROOT": str(home / "runs"),
            **KEYS,
            **environ,
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.tokens: list[str] = []
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.configure(config)

    def configure(self, config: dict[str, Any]) -> None:
        """Write `middleman.yaml`; it counts at the next start or reload."""
        (self.home / "middleman.yaml").write_text(yaml.safe_dump(config))

    # --- life -----------------------------------------------------------------------------------------

    def start(self, port: int = 0) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "hawk.middleman", "--port", str(port)],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        pid = self.process.pid
        until(
            "the middleman is up",
            lambda: self._died() or (self.record().get("pid") == pid and self._answers()),
        )

    def _died(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(
                f"the middleman exited with {self.process.returncode}:\n{self.log.read_text()}"
            )
        return False

    def _answers(self) -> bool:
        try:
            return ask(self.url, "/health/live", None).status == 200
        except OSError:
            return False

    def record(self) -> dict[str, Any]:
        """What `middleman.json` says; empty until it is there."""
        try:
            return msgspec.json.decode((self.home / "middleman.json").read_bytes(), type=dict[str, Any])
        except (OSError, msgspec.DecodeError):
            return {}

    @property
    def url(self) -> str:
        return str(self.record()["url"])

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1].strip("/"))

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, timeout: float = 20.0) -> int | None:
        """End it politely; returns its exit status."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("the middleman did not end by SIGTERM") from None

    def peak_memory(self) -> int:
        """Most bytes that it ever had in memory (VmHWM)."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    def memory(self) -> int:
        assert self.process is not None
        return int(psutil.Process(self.process.pid).memory_info().rss)

    # --- asking it ------------------------------------------------------------------------------------

    def token(self, job: str = "job-1", **claims: Any) -> str:
        """A token for a job."""
        (self.home / "runs" / job).mkdir(parents=True, exist_ok=True)  # what it did is noted there
        token = mint(signing_key(self.home), job=job, user="me", **claims)
        self.tokens.append(token)
        return token

    def person(self) -> str:
        """The person's access token."""
        return (self.home / "token").read_text().strip()

    def ask(self, target: str, body: Any = None, *, token: str | None = None, **more: Any) -> Reply:
        """One request, with a job's token unless another one is given."""
        return ask(self.url, target, token or self.token(), body, **more)

    def admin(self, target: str, body: Any = None, *, method: str | None = None) -> Any:
        """An admin request with the person's token; its decoded answer."""
        reply = ask(self.url, target, self.person(), body, method=method)
        assert reply.status == 200, (reply.status, reply.body)
        return reply.json()

    def status(self) -> dict[str, Any]:
        """The status document."""
        found: dict[str, Any] = self.admin("/admin/status")
        return found

    def lane(self, model: str) -> dict[str, Any]:
        """What the status says about one model; empty when it has not been asked for."""
        return next((lane for lane in self.status()["lanes"] if lane["model"] == model), {})

    def spans(self, job: str = "job-1") -> list[dict[str, Any]]:
        """What is noted of a job's requests, in the order in which they ended."""
        try:
            text = (self.home / "runs" / job / "spans" / "middleman.jsonl").read_bytes()
        except FileNotFoundError:
            return []
        return [msgspec.json.decode(line) for line in text.splitlines()]

    def errors(self, model: str, job: str = "job-1") -> list[str]:
        """The errors that are noted of a model."""
        return [span["error"] for span in self.spans(job) if span["model"] == model and span.get("error")]

    def quiet(self) -> bool:
        """No request is open, and no place is taken."""
        status = self.status()
        return not status["requests"] and not any(lane["in_flight"] for lane in status["lanes"])

    # --- leaks ----------------------------------------------------------------------------------------

    def leaks(self) -> list[str]:
        """Files below its home that hold a key or a token, with what they hold."""
        secrets = [*KEYS.values(), *self.tokens]
        secrets += [p.read_text().strip() for name in _MAY_HOLD_SECRETS if (p := self.home / name).exists()]
        found = []
        for path in self.home.rglob("*"):
            if path.is_file() and path.name not in _MAY_HOLD_SECRETS:
                data = path.read_bytes()
                found += [f"{path.name}: …{s[-6:]}" for s in secrets if len(s) > 8 and s.encode() in data]
        return found
