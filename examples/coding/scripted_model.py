"""A model provider that plays a coding agent from a script: no key, no network, the same every time.

It looks at the files, writes a first draft, runs the tests, mends what they find, and submits. What it does
next depends only on the conversation so far, so an attempt that is started again goes the same way. Pauses
are random, seeded by problem and attempt, and about as long as a fast model's.
"""

import asyncio
import random
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)
from inspect_ai.tool import ToolChoice, ToolInfo
from inspect_ai.util import store

PROBLEMS = Path(__file__).resolve().with_name("problems.yaml")

STUBBORN = "csv_line"  # never sees that it goes round in circles
DROPPED = ("intervals", 1)  # the (problem, attempt) whose connection breaks once

RUN_TESTS = "python3 test_solution.py"
LOOK = ["ls", "cat solution.py test_solution.py"]

_dropped: set[tuple[str, int]] = set()


class Move(NamedTuple):
    """One turn of the agent: what it says and the tool it calls."""

    text: str
    tool: str
    arguments: dict[str, str]


@modelapi(name="scripted")
class ScriptedAPI(ModelAPI):
    """`scripted/<any name>`; model argument `pace` stretches (or shortens) its pauses, `drops=false` keeps the
    connection of `DROPPED` up."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        pace: float = 1.0,
        drops: bool = True,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config or GenerateConfig())
        self.pace = float(pace)
        self.drops = drops
        self.problems: dict[str, Any] = yaml.safe_load(PROBLEMS.read_text(encoding="utf-8"))

    async def generate(
        self,
        input: list[ChatMessage],
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """The next move, after a pause.

        Raises:
            RuntimeError: Once, in the attempt `DROPPED`.
        """
        problem, attempt = _problem(input), int(store().get("attempt", 1))
        turns = [message for message in input if isinstance(message, ChatMessageAssistant)]
        chance = random.Random(f"{problem}/{attempt}/{len(turns)}")
        await asyncio.sleep(self.pace * chance.uniform(0.2, 1.2))
        if self.drops and (problem, attempt) == DROPPED and len(turns) == 3 and DROPPED not in _dropped:
            _dropped.add(DROPPED)
            raise RuntimeError("The scripted connection broke, as connections do. The next try will hold.")
        move = _next_move(self.problems[problem]["drafts"], problem == STUBBORN, input, turns)
        return self._output(move, input, f"{problem}-{attempt}-{len(turns)}")

    def _output(self, move: Move, input: list[ChatMessage], call_id: str) -> ModelOutput:
        output = ModelOutput.for_tool_call(
            self.model_name, move.tool, move.arguments, tool_call_id=call_id, content=move.text
        )
        read = sum(len(message.text) for message in input) // 4
        written = (len(move.text) + sum(map(len, move.arguments.values()))) // 4
        output.usage = ModelUsage(input_tokens=read, output_tokens=written, total_tokens=read + written)
        return output


def _problem(messages: list[ChatMessage]) -> str:
    """The problem's name, from the first line of the task."""
    prompt = next(message.text for message in messages if message.role == "user")
    return prompt.splitlines()[0].removeprefix("Problem: ").strip()


def _next_move(
    drafts: list[str], stubborn: bool, messages: list[ChatMessage], turns: list[ChatMessageAssistant]
) -> Move:
    if len(turns) < len(LOOK):
        return Move("Let me see what is here.", "bash", {"command": LOOK[len(turns)]})
    calls = [call for turn in turns for call in turn.tool_calls or []]
    written = sum(call.function == "write_file" for call in calls)
    if calls[-1].function == "write_file":
        return Move("Do the tests pass?", "bash", {"command": RUN_TESTS})
    if written and _passed(messages):
        return Move("They do.", "submit", {"answer": "solution.py is done."})
    if written < len(drafts) or stubborn:
        draft = drafts[written % len(drafts)]
        say = "I know what is wrong." if written else "A first draft."
        return Move(say, "write_file", {"path": "solution.py", "content": draft})
    return Move("This is as far as I get.", "submit", {"answer": "Some tests still fail."})


def _passed(messages: list[ChatMessage]) -> bool:
    results = [message for message in messages if isinstance(message, ChatMessageTool)]
    return bool(results) and "all tests pass" in results[-1].text
