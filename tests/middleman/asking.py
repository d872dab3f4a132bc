"""Tasks whose attempts ask models in every way in which evals do: `generate()`, SDKs of their own, from within a sandbox."""

from __future__ import annotations

import asyncio
import os

import openai
from inspect_ai import Task, task
from inspect_ai.agent import sandbox_agent_bridge
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes, model_graded_qa
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import SandboxEnvironmentSpec, sandbox
from openai.types.chat import ChatCompletionMessageParam

AGENT = """
import json, time, urllib.error, urllib.request

body = json.dumps({"model": "inspect", "messages": [{"role": "user", "content": "asked in the sandbox"}]}).encode()
url = "http://localhost:13131/v1/chat/completions"
request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
for _ in range(600):
    try:
        answer = urllib.request.urlopen(request, timeout=60)
        break
    except urllib.error.URLError:  # the bridge does not listen yet
        time.sleep(0.05)
print(json.load(answer)["choices"][0]["message"]["content"])
"""

EVERYTHING = "env; cat /proc/[0-9]*/environ | tr '\\0' '\\n'"
"""Prints the environment of each process in a sandbox."""


def _samples(count: int, prompt: str, target: str) -> list[Sample]:
    return [Sample(id=f"s{i}", input=f"{prompt} {i}", target=target) for i in range(count)]


@task
def plain(samples: int = 2, prompt: str = "plain question", calls: int = 1) -> Task:
    """`generate()`, so many times; right when the answer holds `yes`."""
    return Task(dataset=_samples(samples, prompt, "yes"), solver=ask(calls), scorer=includes())


@task
def mixed(box: bool = True) -> Task:
    """`generate()`, calls of SDKs beside Inspect, and (with a box) an agent in a sandbox; a model grades."""
    tools = {"type": "bubblewrap", "config": {"inspect_tools": True}}
    return Task(
        dataset=_samples(1, "mixed question", "lighthouse"),
        solver=[ask(1), ask_openai(), *([agent_in_sandbox()] if box else [])],
        scorer=model_graded_qa(model_role="grader"),
        sandbox=SandboxEnvironmentSpec.model_validate(tools) if box else None,
    )


@task
def streaming() -> Task:
    """A stream that the solver reads until it ends."""
    return Task(dataset=_samples(1, "streaming question", "never"), solver=read_stream(), scorer=includes())


@solver
def ask(calls: int) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        for _ in range(calls):
            state = await generate(state)
        return state

    return solve


@solver
def ask_openai() -> Solver:
    """What agents do that bring their own client: without any setting, and in a thread."""
    token = "a job's token" if "HAWK_JOB_TOKEN" in os.environ else "no token"
    message: ChatCompletionMessageParam = {"role": "user", "content": f"asked with {token}"}

    def in_thread() -> None:
        openai.OpenAI().chat.completions.create(model="in-thread", messages=[message])

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        await openai.AsyncOpenAI().chat.completions.create(model="raw", messages=[message])
        await asyncio.to_thread(in_thread)
        return state

    return solve


@solver
def read_stream() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        message: ChatCompletionMessageParam = {"role": "user", "content": "on and on"}
        client = openai.AsyncOpenAI(max_retries=0)
        stream = await client.chat.completions.create(
            model=os.environ["STREAMED_MODEL"], messages=[message], stream=True
        )
        async for _ in stream:
            pass
        return state

    return solve


@solver
def agent_in_sandbox() -> Solver:
    """An agent in a sandbox asks through Inspect's bridge; beside it, what is in the environment there."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if (
            state.model.api == "openai"
        ):  # Inspect's tools take seconds to start: one model's attempts are enough
            return state
        box = sandbox()
        state.store.set("environment", (await box.exec(["sh", "-c", EVERYTHING])).stdout)
        await box.write_file("agent.py", AGENT)
        async with sandbox_agent_bridge():
            ran = await box.exec(["python3", "agent.py"])
        state.output.completion = ran.stdout + ran.stderr
        return state

    return solve
