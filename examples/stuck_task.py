"""Attempts that get stuck in the ways people meet, and a few healthy ones between them. See stuck.yaml.

Offline and without a key: a script plays the model. Which way an attempt goes is said by its sample's id.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from inspect_ai import Task, task
from inspect_ai.agent import as_solver, react
from inspect_ai.approval import Approval, ApprovalPolicy, Approver, approver, auto_approver
from inspect_ai.dataset import Sample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    get_model,
    modelapi,
)
from inspect_ai.scorer import includes
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, ToolCall, ToolCallView, ToolChoice, ToolInfo, tool
from inspect_ai.util import sandbox

PAUSE = 0.5
"""Seconds the scripted model takes for an answer."""
BLOCKED, FREE = 8.0, 4.0
"""Seconds for which the event loop is blocked, and is not, in turns."""
NOBODY = "http://127.0.0.1:9/v1"
"""Where no server listens: connections are refused at once."""

WAYS = {
    "hung-tool": "Look at the files, then wait for the build.",
    "same-tool": "Find out what notes.txt means.",
    "approval": "Publish the results.",
    "never-set": "Wait for news.",
    "deadlock": "Use both instruments.",
    "refused": "Ask the other model.",
    "healthy-1": "What is six times seven?",
    "healthy-2": "What is six times seven, again?",
    "healthy-3": "What is six times seven, once more?",
}
"""Sample id to what the model is told."""


@task
def stuck() -> Task:
    """Attempts that wait for what never comes, each in its own way; the healthy ones end."""
    return Task(
        dataset=[_sample(name, prompt) for name, prompt in WAYS.items()],
        solver=go_its_way(),
        scorer=includes(),
        approval=[ApprovalPolicy(nobody_there(), "publish"), ApprovalPolicy(auto_approver(), "*")],
    )


@task
def blocks() -> Task:
    """One attempt blocks the event loop, again and again; the other only meets that."""
    return Task(
        dataset=[_sample("blocks-loop", "Read the large file.")], solver=read_large_file(), scorer=includes()
    )


def _sample(name: str, prompt: str) -> Sample:
    return Sample(
        id=name, input=f"Sample: {name}\n\n{prompt}", target="42", files={"notes.txt": "See notes.txt."}
    )


# --- what attempts do


@solver
def go_its_way() -> Solver:
    """Go the way of the sample's id: as an agent, or in code of its own."""
    agent = as_solver(react(tools=[shell(), publish()]))
    own: dict[str, Callable[[TaskState], Awaitable[None]]] = {
        "never-set": wait_for_news,
        "deadlock": use_both_instruments,
        "refused": ask_the_other_model,
    }

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        way = own.get(str(state.sample_id))
        if way is None:
            return await agent(state, generate)
        await generate(state)
        await way(state)
        return state

    return solve


async def wait_for_news(state: TaskState) -> None:
    """Wait for an event that nobody sets."""
    news = asyncio.Event()
    await news.wait()


INSTRUMENTS = asyncio.Lock(), asyncio.Lock()
TAKEN = asyncio.Event(), asyncio.Event()


async def use_both_instruments(state: TaskState) -> None:
    """Take two locks; the sample's other attempt takes them the other way round, and each waits for the other."""
    one, other = (0, 1) if state.epoch % 2 else (1, 0)
    async with INSTRUMENTS[one]:
        TAKEN[one].set()
        await TAKEN[other].wait()
        async with INSTRUMENTS[other]:
            pass


async def ask_the_other_model(state: TaskState) -> None:
    """Ask a provider that refuses every connection; each retry waits longer than the one before."""
    model = get_model("openai-api/nobody/silent", base_url=NOBODY, api_key="none")
    state.output = await model.generate("Are you there?")


@solver
def read_large_file() -> Solver:
    """Block the event loop for some seconds, now and then, as code does that forgets where it runs.

    Only the first attempt does so. The others count how long ten answers take when it does.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        blocker, answers = state.epoch == 1, 0
        while blocker or answers < 10:
            state.output = await get_model().generate(state.messages)
            answers += 1
            if blocker:
                parse_large_file()
                await asyncio.sleep(FREE)
        return state

    return solve


def parse_large_file() -> None:
    """Work that does not let others run meanwhile."""
    time.sleep(BLOCKED)


# --- tools


@tool
def shell() -> Tool:
    async def execute(command: str) -> str:
        """Run a command in the working directory.

        Args:
            command: The command.
        """
        result = await sandbox().exec(["sh", "-c", command])  # no timeout: what hangs, hangs
        return (result.stderr + result.stdout).strip() or "(no output)"

    return execute


@tool
def publish() -> Tool:
    async def execute() -> str:
        """Publish the results, which a person has to approve."""
        return "Published."

    return execute


@approver
def nobody_there() -> Approver:
    """Wait for a person who does not answer."""

    async def approve(
        message: str, call: ToolCall, view: ToolCallView, history: list[ChatMessage]
    ) -> Approval:
        answer: asyncio.Future[Approval] = asyncio.get_running_loop().create_future()
        return await answer

    return approve


# --- the model


@modelapi(name="stuck")
class StuckAPI(ModelAPI):
    """`stuck/<any name>`: plays each sample's agent from a script."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config or GenerateConfig())

    async def generate(
        self,
        input: list[ChatMessage],
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """The next call of a tool, after a pause; without tools, a remark."""
        await asyncio.sleep(PAUSE)
        if tools:
            name, arguments = _next_call(input)
            output = ModelOutput.for_tool_call(self.model_name, name, arguments)
        else:
            output = ModelOutput.from_content(self.model_name, "I am thinking.")
        read = sum(len(message.text) for message in input) // 4
        output.usage = ModelUsage(input_tokens=read, output_tokens=8, total_tokens=read + 8)
        return output


def _next_call(messages: list[ChatMessage]) -> tuple[str, dict[str, str]]:
    prompt = next(message.text for message in messages if message.role == "user")
    sample = prompt.splitlines()[0].removeprefix("Sample: ")
    turn = sum(isinstance(message, ChatMessageAssistant) for message in messages)
    match sample:
        case "hung-tool":
            return "shell", {"command": "sleep 100000" if turn else "ls"}
        case "same-tool":
            return "shell", {"command": "sleep 1; cat notes.txt"}
        case "approval":
            return "publish", {}
        case _:
            return ("submit", {"answer": "42"}) if turn else ("shell", {"command": "echo $((6 * 7))"})
