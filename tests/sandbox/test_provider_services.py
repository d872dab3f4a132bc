"""Services beside a sandbox, in real evals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from inspect_ai.dataset import Sample
from inspect_ai.util import SandboxEnvironment, sandbox

from tests.sandbox.evals import doing, error_of, in_sample, run_eval
from tests.sandbox.programs import needs

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home"), pytest.mark.timeout(240)]

WEB = """
inspect_tools: false
services:
  web:
    inspect_tools: false
    setup:
      files:
        index.html: {text: "from the web service\\n"}
    command: [python3, -m, http.server, "8080"]
    ready: curl -sf http://localhost:8080/
    environment: {ROLE: server}
  other:
    inspect_tools: false
"""


async def nothing(box: SandboxEnvironment) -> None:
    """What does not matter: it is not reached, or does nothing."""


@needs("python3", "curl")
def test_a_service_is_reached_by_its_name(tmp_path: Path) -> None:
    config = tmp_path / "sandbox.yaml"
    config.write_text(WEB)

    async def work(box: SandboxEnvironment) -> dict[str, str]:
        web, other = sandbox("web"), sandbox("other")
        await box.write_file("mine", "x")
        return {
            "page": (await box.exec(["curl", "-s", "http://web:8080/"])).stdout,
            "from other": (await other.exec(["curl", "-s", "http://web:8080/"])).stdout,
            "names": "".join([(await one.exec(["uname", "-n"])).stdout for one in (box, web, other)]),
            "role": (await web.exec(["sh", "-c", "echo $ROLE"])).stdout,
            "files": (await web.exec(["ls"])).stdout + (await other.exec(["ls"])).stdout,
            "servers": (await box.exec(["sh", "-c", "cat /proc/[0-9]*/comm | grep -c python; true"])).stdout,
        }

    assert in_sample(work, str(config)) == {
        "page": "from the web service\n",
        "from other": "from the web service\n",
        "names": "sandbox\nweb\nother\n",
        "role": "server\n",
        "files": "index.html\n",
        "servers": "0\n",
    }


def failing(service: dict[str, Any]) -> str:
    config = {"services": {"db": {"inspect_tools": False, **service}}}
    return error_of(run_eval(doing(nothing, {}), [Sample("?")], config))


def test_a_service_that_ends_before_it_is_ready_is_an_error_with_its_last_words() -> None:
    said = failing({"command": "echo no such database >&2; exit 4", "ready": "false"})
    assert "The service db ended before it was ready: exit code 4. no such database" in said


def test_a_service_that_does_not_become_ready_is_an_error_with_its_checks_words() -> None:
    said = failing({"command": "sleep 3600", "ready": "echo not yet >&2; false", "ready_timeout": 4})
    assert "The service db was not ready after 4 s: not yet" in said


def test_a_service_whose_check_hangs_is_an_error() -> None:
    said = failing({"command": "sleep 3600", "ready": "sleep 3600", "ready_timeout": 1})
    assert "The service db was not ready after 1 s" in said


def test_a_service_whose_program_is_missing_is_an_error() -> None:
    said = failing({"command": ["/no/such/program"], "ready": "false"})
    assert "The service db ended before it was ready" in said
    assert "no/such/program" in said
