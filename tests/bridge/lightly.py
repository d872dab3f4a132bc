"""Two samples at once in a process that starts samples lightly; the libraries of the providers come in the middle.

`python lightly.py LOGS`; prints what it found as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys

from hawk.bridge import preload

work = preload.Preload()
work.know("mockllm/model")
work.finish(worker=True)

from inspect_ai import Task, eval  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import get_model  # noqa: E402
from inspect_ai.model._assistant_internal import (  # noqa: E402
    dump_sample_assistant_internal,
    init_sample_assistant_internal,
)
from inspect_ai.solver import Generate, Solver, TaskState, solver  # noqa: E402

SDKS = {"openai", "anthropic"}
found: dict[str, object] = {
    "not there": sorted({*preload._ALWAYS, *preload._WORKERS} - set(sys.modules)),
    "preloaded": sorted({*SDKS, "numpy"} & set(sys.modules)),
}
both = asyncio.Barrier(2)


@solver
def remembering() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        name = str(state.sample_id)
        await both.wait()
        found.setdefault("in a sample", sorted(SDKS & set(sys.modules)))
        await asyncio.create_task(remember(name))  # of the sample's, as its scorers are
        await both.wait()
        found[name] = dump_sample_assistant_internal()
        saved = {"openai": {"tool_calls": {f"saved-{name}": {}}}}
        await asyncio.create_task(restore(saved))
        found[f"restored {name}"] = dump_sample_assistant_internal()["openai"]  # type: ignore[index, call-overload]
        return state

    return solve


async def remember(name: str) -> None:
    from inspect_ai.model import _openai_responses
    from inspect_ai.model._providers import anthropic

    anthropic.assistant_internal().tool_call_internal_names[name] = "internal"
    _openai_responses.assistant_internal().tool_calls[name] = {}  # type: ignore[assignment]


async def restore(saved: dict[str, object]) -> None:
    init_sample_assistant_internal(saved)  # type: ignore[arg-type]


samples = [Sample(id=name, input="?") for name in ("one", "two")]
task = Task(dataset=samples, solver=remembering())
(log,) = eval(task, model=get_model("mockllm/model"), log_dir=sys.argv[1], display="none")
found["status"] = log.status
found["error"] = str(log.error or [s.error for s in log.samples or [] if s.error])
found["outside"] = dump_sample_assistant_internal()
print(json.dumps(found))
