"""Server and middleman answer as they describe it: schemathesis asks them whatever their `/openapi.json` allows, and more."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat.actors import Server, serve, wait_until
from tests.compat.described import LOG, ended_job
from tests.compat.environment import schemathesis_directory
from tests.middleman.running import Middleman, settings

CONFIG = Path(__file__).with_name("schemathesis.toml")
OFFLINE = {"HAWK_MIDDLEMAN": "0", "PIP_NO_INDEX": "1", "UV_OFFLINE": "1", "HAWK_WARM": "0"}
JOB, SPARE = "described", "spare"
CLOSED = "http://127.0.0.1:1"

# In place of made-up ids. Deleting gets one of its own. Coverage of submits are thousands of requests.
IDS = """
[parameters]
"path.eval_set_id" = "{job}"
"path.job_id" = "{job}"
"path.uuid" = "{uuid}"
"path.name" = "{log}"
"query.a" = "{job}"
"query.b" = "{job}"
"query.log_dir" = "{job}"

[[operations]]
include-name = "DELETE /eval_sets/{{eval_set_id}}"
parameters = {{ "path.eval_set_id" = "{spare}" }}
"""
FEWER_SUBMITS = """
[[operations]]
include-name = "POST /eval_sets/"
phases.coverage.enabled = false
"""
SERVER_TOKEN = """
[auth.openapi.bearer]
bearer = "${HAWK_TEST_PERSON}"
"""
MIDDLEMAN_TOKENS = """
[auth.openapi.person]
bearer = "${HAWK_TEST_PERSON}"

[auth.openapi.job]
bearer = "${HAWK_TEST_JOB}"

[[operations]]
include-name = "DELETE /job"
headers.Authorization = "Bearer ${HAWK_TEST_ENDED}"

[[operations]]
include-path = "/admin/jobs/{job}/revoke"
parameters = { "path.job" = "somebody" }
"""

Asks = Callable[..., None]


@pytest.fixture(scope="module")
def schemathesis() -> Path:
    return schemathesis_directory() / "bin" / "schemathesis"


@pytest.fixture
def ask(schemathesis: Path, tmp_path: Path) -> Asks:
    """Runs schemathesis, which must find nothing."""

    def run(url: str, more: str, *, phases: str = "coverage,fuzzing,stateful", **tokens: str) -> None:
        config = tmp_path / "schemathesis.toml"
        config.write_text(CONFIG.read_text() + more)
        variables = {f"HAWK_TEST_{name.upper()}": token for name, token in tokens.items()}
        done = subprocess.run(
            [
                *(schemathesis, "--config-file", config, "run", f"{url.rstrip('/')}/openapi.json"),
                *(
                    "--phases",
                    phases,
                    "--max-examples",
                    "2",
                    "--no-shrink",
                    "--continue-on-failure",
                    "--no-color",
                ),
                *("--generation-deterministic", "--request-timeout", "30"),
            ],
            cwd=tmp_path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=240,
        )
        tried = re.search(r"(\d+) generated", done.stdout)
        assert done.returncode == 0, done.stdout + done.stderr
        assert tried is not None, done.stdout
        assert int(tried[1]) > 100, done.stdout

    return run


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("described")


@pytest.fixture(scope="module")
def uuid(home: Path) -> str:
    """An attempt of `JOB`; `SPARE` has one, too."""
    ended_job(home / "runs", SPARE)
    return ended_job(home / "runs", JOB)


@pytest.fixture(scope="module")
def server(schemathesis: Path, home: Path, uuid: str) -> Iterator[Server]:
    with serve(home, **OFFLINE) as running:
        wait_until("jobs are indexed", lambda: len(running.request("GET", "/meta/samples")["items"]) == 2)
        yield running


@pytest.fixture(scope="module")
def middleman(schemathesis: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Middleman]:
    found = Middleman(tmp_path_factory.mktemp("described") / "home", settings(CLOSED))
    found.start()
    yield found
    assert found.stop() == 0


def test_the_server_answers_as_described(server: Server, ask: Asks, uuid: str) -> None:
    ids = IDS.format(job=JOB, spare=SPARE, uuid=uuid, log=f"{JOB}/{LOG}")
    ask(server.url, FEWER_SUBMITS + SERVER_TOKEN + ids, person=server.token)
    jobs = [job["job_id"] for job in server.request("GET", "/meta/jobs?limit=500")["items"]]
    assert JOB in jobs
    assert SPARE not in jobs
    for job in jobs:  # what was submitted ends
        server.wait(job)


def test_the_server_answers_as_described_without_a_token(server: Server, ask: Asks) -> None:
    ask(server.url, FEWER_SUBMITS, phases="coverage")


def test_the_middleman_answers_as_described(middleman: Middleman, ask: Asks) -> None:
    middleman.admin("/admin/probe", {"model": "openai/gpt-5"})  # so that there is something to tell
    tokens = {"job": middleman.token("job-1"), "ended": middleman.token("job-2")}
    ask(middleman.url, MIDDLEMAN_TOKENS, person=middleman.person(), **tokens)
    assert middleman.status()["lanes"]


def test_the_middleman_answers_as_described_without_a_token(middleman: Middleman, ask: Asks) -> None:
    ask(middleman.url, "", phases="coverage")
