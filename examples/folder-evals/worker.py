"""The experiments' agent: Inspect's `react` with a shell, as any agent would be written."""

from inspect_ai.agent import as_solver, react
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import bash


@solver
def worker(timeout: int = 60) -> Solver:
    """An agent with a shell.

    Args:
        timeout: Seconds that one command may take.
    """
    agent = as_solver(react(tools=[bash(timeout)]))

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        # for the scripted model alone, which plays another script in each attempt; other models don't look
        state.store.set("eval", str(state.sample_id))
        state.store.set("attempt", state.epoch)
        return await agent(state, generate)

    return solve
