"""A model provider that plays an agent from scripts.yaml: no key, no network, the same every time.

`scripted/careful` and `scripted/hasty` look around, do what their script says for this eval and attempt, and submit.
What comes next depends only on the conversation so far, so an attempt that is started again goes the same way.
"""

import asyncio
import random
from pathlib import Path
from typing import Any

import yaml
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)
from inspect_ai.tool import ToolChoice, ToolInfo
from inspect_ai.util import store

SCRIPTS = Path(__file__).resolve().with_name("scripts.yaml")


@modelapi(name="scripted")
class ScriptedAPI(ModelAPI):
    """`scripted/<name in scripts.yaml>`; model argument `pace` stretches (or shortens) its pauses."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        pace: float = 1.0,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config or GenerateConfig())
        self.pace = float(pace)
        self.scripts: dict[str, Any] = yaml.safe_load(SCRIPTS.read_text(encoding="utf-8"))

    async def generate(
        self,
        input: list[ChatMessage],
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """The next command of the script, after a pause; at its end, the answer."""
        eval_name, attempt = str(store().get("eval")), int(store().get("attempt", 1))
        turn = sum(isinstance(message, ChatMessageAssistant) for message in input)
        chance = random.Random(f"{self.model_name}/{eval_name}/{attempt}/{turn}")
        await asyncio.sleep(self.pace * chance.uniform(0.2, 1.0))
        script = self.scripts[eval_name]
        way = script["plays"][self.model_name][attempt - 1 :] or script["plays"][self.model_name][-1:]
        commands = [*script["looks"], *script["ways"][way[0]]]
        if way[0] == "circles":
            commands = [commands[turn % len(commands)]] * (turn + 1)
        if turn < len(commands):
            say, tool, arguments = "Next step.", "bash", {"command": commands[turn]}
        else:
            say, tool, arguments = "That should be it.", "submit", {"answer": "Done."}
        output = ModelOutput.for_tool_call(
            self.model_name, tool, arguments, tool_call_id=f"{eval_name}-{attempt}-{turn}", content=say
        )
        read = sum(len(message.text) for message in input) // 4
        written = (len(say) + sum(map(len, arguments.values()))) // 4
        output.usage = ModelUsage(input_tokens=read, output_tokens=written, total_tokens=read + written)
        return output
