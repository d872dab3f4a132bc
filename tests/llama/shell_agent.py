"""A small agentic eval for a small model: it picks shell commands, sees what they print, and reports.

The model is far too small to solve anything. What it exercises is the whole way: HTTP calls, turns, structured
answers, commands in a sandbox, usage, scores.
"""

import json

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageUser, GenerateConfig, ResponseSchema
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import JSONSchema, sandbox

COMMANDS = ["ls", "pwd", "cat note.txt"]
TURNS = 2


@task
def shell_agent() -> Task:
    return Task(
        dataset=[
            Sample(id=name, input=f"What does {name} say?", target=text, files={"note.txt": text})
            for name, text in {"first": "alpha", "second": "beta", "third": "gamma"}.items()
        ],
        solver=choose_commands(),
        scorer=saw_the_note(),
        sandbox="local",
        config=GenerateConfig(max_tokens=32, temperature=0.0),
    )


@solver
def choose_commands() -> Solver:
    """Two turns: the model answers with a command, the sandbox with what it printed."""
    command = JSONSchema(type="string", enum=COMMANDS)
    schema = ResponseSchema(
        name="turn",
        json_schema=JSONSchema(type="object", properties={"command": command}, required=["command"]),
    )

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        for _ in range(TURNS):
            state = await generate(state, response_schema=schema)
            chosen = json.loads(state.output.completion)["command"]
            result = await sandbox().exec(["sh", "-c", chosen], timeout=10)
            state.messages.append(ChatMessageUser(content=result.stdout or "(nothing)"))
        return state

    return solve


@scorer(metrics=[accuracy()])
def saw_the_note() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        seen = any(target.text in message.text for message in state.messages[1:])
        return Score(value="C" if seen else "I")

    return score
