"""A small real evaluation, run as a script in a process of its own: `python evaluation.py LOG_DIR OUTCOMES EPOCHS`.

OUTCOMES is a comma-separated list, one sample each: pass, fail (wrong answer), error (the model raises), limit
(runs into its message limit), nan (a score that is no number), or late and gate, whose tool waits until a file
of that name exists in `$EVAL_SIGNALS`. While the file `block` exists there, such a tool blocks the event loop.
"""

import asyncio
import gc
import os
import sys
import time
from pathlib import Path

gc.disable()
from hawk.bridge.preload import Preload  # noqa: E402

Preload().finish(worker=False)  # as the process that forks workers does: twice as fast
gc.freeze()
gc.enable()

from inspect_ai import Task, eval_set, task  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import ChatMessageTool, ModelAPI, ModelOutput, ModelUsage, get_model, modelapi  # noqa: E402
from inspect_ai.scorer import Score, mean, scorer  # noqa: E402
from inspect_ai.solver import basic_agent  # noqa: E402
from inspect_ai.tool import tool  # noqa: E402

SIGNALS = Path(os.environ["EVAL_SIGNALS"])
HOSTILE = "\x1b[31mred\x1b[0m ``` \x00 " + "y" * 300


@modelapi("scripted")
class Scripted(ModelAPI):
    """Works once, then submits; usage is given, so that no tokenizer is downloaded."""

    async def generate(self, input, tools, tool_choice, config):
        outcome = next(m.text for m in input if m.role == "user")
        if outcome == "error":
            raise ValueError("the model broke")
        if isinstance(input[-1], ChatMessageTool) and outcome != "limit":
            answer = "wrong" if outcome == "fail" else outcome
            output = ModelOutput.for_tool_call(self.model_name, "submit", {"answer": answer})
        else:
            output = ModelOutput.for_tool_call(self.model_name, "work", {"kind": outcome, "note": "x" * 200})
        output.usage = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)
        return output


@tool
def work():
    async def execute(kind: str, note: str):
        """Work.

        Args:
            kind: What to do.
            note: Anything.
        """
        while kind in ("late", "gate") and not (SIGNALS / kind).exists():
            if (SIGNALS / "block").exists():
                time.sleep(0.02)  # noqa: ASYNC251 - blocking the event loop is the point
            else:
                await asyncio.sleep(0.02)
        return f"done {HOSTILE}"

    return execute


@scorer(metrics=[mean()])
def graded():
    async def score(state, target):
        answer = state.output.completion
        if answer == "nan":
            return Score(value=float("nan"), answer=answer)
        return Score(value=1.0 if answer == target.text else 0.0, answer=answer, explanation=f"said {answer}")

    return score


@task
def tiny(outcomes: str):
    samples = [Sample(id=f"s{i}", input=o, target=o) for i, o in enumerate(outcomes.split(","))]
    return Task(
        dataset=samples, solver=basic_agent(tools=[work()], message_limit=12), scorer=graded(), name="tiny"
    )


if __name__ == "__main__":
    eval_set(
        tiny(sys.argv[2]),
        model=get_model("scripted/m"),
        log_dir=sys.argv[1],
        epochs=int(sys.argv[3]),
        fail_on_error=False,
        retry_attempts=0,
        log_buffer=4,
        display="none",
    )
