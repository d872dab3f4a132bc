"""The main job, as the README says it: offline, without a key, with the answers of a real model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commandline import EXAMPLES, CommandLine, command_line
from tests.system import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

CASSETTE = EXAMPLES / "quickstart.cassette.jsonl"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CommandLine, str]]:
    """The quickstart, run to its end, and what it printed."""
    with command_line(tmp_path_factory.mktemp("demo"), HAWK_MIDDLEMAN="1") as hawk:
        hawk.environ = {
            name: value
            for name, value in hawk.environ.items()
            if not name.endswith(("_API_KEY", "_BASE_URL"))
        }
        yield hawk, hawk.ok("eval-set", EXAMPLES / "quickstart.yaml", "--wait")


@pytest.fixture(scope="module")
def samples(demo: tuple[CommandLine, str]) -> dict[tuple[str, int], dict[str, Any]]:
    return {(s["id"], s["epoch"]): s for task in demo[0].snapshot()["tasks"] for s in task["samples"]}


def test_ends_complete_with_a_scored_table(demo: tuple[CommandLine, str]) -> None:
    hawk, output = demo
    assert "48/48 · 48 completed" in output
    assert "tests_pass/accuracy" in output
    assert hawk.snapshot()["status"] == "complete"


def test_some_functions_pass_at_once_some_later_and_some_never(
    demo: tuple[CommandLine, str], samples: dict[tuple[str, int], dict[str, Any]]
) -> None:
    scores: dict[str, str] = {}
    for (name, _), sample in sorted(samples.items()):
        scores[name] = scores.get(name, "") + sample["latest_score"]
    assert len(scores) == 12
    assert all(len(of_one) == 4 for of_one in scores.values())
    assert any(of_one.startswith("C") for of_one in scores.values())
    assert any(of_one.startswith("I") and "C" in of_one for of_one in scores.values())
    assert any(of_one == "IIII" for of_one in scores.values())
    assert "passed only by a later attempt" in demo[0].ok("report")


def test_what_the_model_said_is_what_was_recorded(
    demo: tuple[CommandLine, str], samples: dict[tuple[str, int], dict[str, Any]]
) -> None:
    lines = [json.loads(line) for line in CASSETTE.read_text().splitlines()]
    assert len({(line["sample"], line["attempt"]) for line in lines}) == len(lines) == 48
    [line] = [line for line in lines if (line["sample"], line["attempt"]) == ("average", "3")]
    answer = json.loads(line["chunks"][0]["s"])["choices"][0]["message"]["content"]
    transcript = demo[0].ok("transcript", samples["average", 3]["uuid"])
    said = [text.strip() for text in answer.splitlines() if text.strip()]
    assert said
    assert [text for text in said if text not in transcript] == []


def test_every_request_was_replayed_and_none_needed_a_key(demo: tuple[CommandLine, str]) -> None:
    runs = Path(demo[0].environ["HAWK_HOME"]) / "runs"

    def lines() -> list[str]:
        return [
            line for spans in runs.glob("*/spans/middleman.jsonl") for line in spans.read_text().splitlines()
        ]

    until("all are written down", lambda: len(lines()) >= 48)
    requests = [json.loads(line) for line in lines()]
    assert len(requests) == 48
    assert all(request["replayed"] and request["status"] == 200 for request in requests)


def test_the_recording_is_small_and_names_no_machine() -> None:
    text = CASSETTE.read_text()
    assert len(text) < 300_000
    assert "127.0.0.1" not in text
    assert "authorization" not in text.lower()
