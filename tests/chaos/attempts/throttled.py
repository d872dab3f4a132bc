"""A provider that refuses: with `THROTTLED` set, every call once with 429, and calls for `hard` samples each time."""

from __future__ import annotations

import os

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, ModelAPI, ModelOutput, ModelUsage, modelapi
from inspect_ai.scorer import includes
from inspect_ai.solver import generate


class RateLimitError(Exception):
    """As providers' libraries call it."""

    status_code = 429


@modelapi(name="meagre")
class Meagre(ModelAPI):
    def __init__(self, model_name: str, **kwargs: object) -> None:
        super().__init__(model_name, config=GenerateConfig())
        self._refused: dict[str, int] = {}

    async def generate(
        self, input: object, tools: object, tool_choice: object, config: object
    ) -> ModelOutput:
        text = str(input[-1].text)  # type: ignore[index]
        refused = self._refused[text] = self._refused.get(text, 0) + 1
        if os.environ.get("THROTTLED") and ("hard" in text or refused % 2):
            raise RateLimitError("slow down")
        output = ModelOutput.from_content(self.model_name, "42")
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return output

    def should_retry(self, ex: BaseException) -> bool:
        return isinstance(ex, RateLimitError)


@task
def questions() -> Task:
    names = [f"easy{i}" for i in range(4)] + [f"hard{i}" for i in range(4)]
    return Task(
        [Sample(f"{name}?", id=name, target="42") for name in names], solver=generate(), scorer=includes()
    )
