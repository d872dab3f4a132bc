"""A real agentic eval set: command line, server, runner, a real SDK over HTTP, a real (very small) model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commandline import CommandLine, command_line

pytestmark = [pytest.mark.llama, pytest.mark.slow, pytest.mark.timeout(400)]

HERE = Path(__file__).parent
RUNS = 2


@pytest.fixture(scope="module")
def hawk(llama_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """Two models, reached in two ways, through one finished job."""
    base = tmp_path_factory.mktemp("llama")
    config = {
        "name": "llama",
        "tasks": [{"file": str(HERE / "shell_agent.py"), "items": [{"name": "shell_agent"}]}],
        "models": [
            {"package": "inspect-ai", "items": [{"name": "openai-api/llama/smollm2"}]},
            {
                "package": "inspect-ai",
                "items": [
                    {
                        "name": "openai/smollm2",
                        "args": {"base_url": f"{llama_url}/v1", "responses_api": False},
                    }
                ],
            },
        ],
        "epochs": RUNS,
        "secrets": [{"name": "LLAMA_API_KEY"}, {"name": "OPENAI_API_KEY"}],
        "runner": {"environment": {"LLAMA_BASE_URL": f"{llama_url}/v1"}},
    }
    path = base / "llama.yaml"
    path.write_text(yaml.safe_dump(config))
    with command_line(base, LLAMA_API_KEY="not-a-key", OPENAI_API_KEY="not-a-key") as hawk:
        hawk.ok("eval-set", path, "--wait")
        yield hawk


def attempts(hawk: CommandLine) -> list[dict[str, Any]]:
    return [sample for task in hawk.snapshot()["tasks"] for sample in task["samples"]]


def test_every_attempt_ends_with_an_outcome_and_tokens(hawk: CommandLine) -> None:
    snapshot = hawk.snapshot()
    assert snapshot["status"] == "complete"
    assert snapshot["progress"]["completed"] == snapshot["progress"]["total"] == 2 * 3 * RUNS
    for attempt in attempts(hawk):
        assert attempt["latest_score"] in ("C", "I")
        assert attempt["total_tokens"] > 0
        assert attempt["error"] is None


def test_each_model_has_its_row(hawk: CommandLine) -> None:
    assert {task["model"] for task in hawk.snapshot()["tasks"]} == {
        "openai-api/llama/smollm2",
        "openai/smollm2",
    }


def test_transcript_holds_what_the_model_chose(hawk: CommandLine) -> None:
    assert '"command"' in hawk.ok("transcript", attempts(hawk)[0]["uuid"])


def test_keys_are_nowhere_on_disk(hawk: CommandLine) -> None:
    home = Path(hawk.environ["HAWK_HOME"])
    holding = [path for path in home.rglob("*") if path.is_file() and b"not-a-key" in path.read_bytes()]
    assert holding == []
