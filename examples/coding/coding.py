"""A small coding eval: the agent edits files and runs tests in its sandbox; hidden tests score the result."""

import sys
import sysconfig
from pathlib import Path
from typing import Any

import yaml
from inspect_ai import Task, task
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.scorer import CORRECT, INCORRECT, Score, Scorer, Target, accuracy, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, ToolError, tool
from inspect_ai.util import SandboxEnvironmentSpec, sandbox

PROBLEMS = Path(__file__).resolve().with_name("problems.yaml")

PROMPT = """Problem: {name}

{prompt}

Edit solution.py in your working directory. test_solution.py holds some tests; others are hidden.
Submit when you are done."""


@task
def coding(message_limit: int = 30) -> Task:
    """Twelve small Python problems.

    Args:
        message_limit: Messages after which an attempt is halted and scored as it is.
    """
    problems = yaml.safe_load(PROBLEMS.read_text(encoding="utf-8"))
    return Task(
        dataset=[_sample(name, problem) for name, problem in problems.items()],
        setup=note_attempt(),
        solver=react(tools=[bash(), write_file()]),
        scorer=hidden_tests(),
        sandbox=isolated(),
        message_limit=message_limit,
    )


def isolated() -> SandboxEnvironmentSpec:
    """A sandbox with Python: this machine's, where programs have their place, else the one that runs this."""
    config: dict[str, Any] = {"inspect_tools": False}  # bash and write_file are our own
    if not any(Path(directory, "python3").exists() for directory in ("/usr/bin", "/usr/local/bin")):
        library = Path(sysconfig.get_path("stdlib"))
        modules = [path for path in library.iterdir() if path.name not in ("site-packages", "test")]
        files = {f"/opt/python/lib/{library.name}/{path.name}": str(path) for path in modules}
        files["/opt/python/bin/python3"] = str(Path(sys.executable).resolve())
        config["setup"] = {"files": files}
        config["environment"] = {"PATH": "/opt/python/bin:/usr/bin:/bin"}
    return SandboxEnvironmentSpec.model_validate({"type": "bubblewrap", "config": config})


def _sample(name: str, problem: dict[str, str]) -> Sample:
    return Sample(
        id=name,
        input=PROMPT.format(name=name, prompt=problem["prompt"]),
        files={"solution.py": problem["starter"], "test_solution.py": problem["tests"]},
        metadata={"hidden": problem["hidden"]},
    )


@solver
def note_attempt() -> Solver:
    """Note the attempt's number, by which the scripted model varies its pace. Other models don't look."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.store.set("attempt", state.epoch)
        return state

    return solve


@tool
def bash() -> Tool:
    async def execute(command: str) -> str:
        """Run a command in the working directory.

        Args:
            command: The command.
        """
        # Not Inspect's own bash tool: that one reads the login profile, which may take half a second each time.
        try:
            result = await sandbox().exec(["bash", "-c", command], timeout=30)
        except TimeoutError:
            raise ToolError("The command did not end within 30 seconds.") from None
        return (result.stderr + result.stdout).strip() or "(no output)"

    return execute


@tool
def write_file() -> Tool:
    async def execute(path: str, content: str) -> str:
        """Write a file, replacing what was there.

        Args:
            path: Path relative to the working directory.
            content: The whole new content.
        """
        await sandbox().write_file(path, content)
        return f"Wrote {len(content)} characters to {path}."

    return execute


@scorer(metrics=[accuracy(), stderr()])
def hidden_tests() -> Scorer:
    """Correct when the hidden tests pass on what the agent left."""

    async def score(state: TaskState, target: Target) -> Score:
        await sandbox().write_file("hidden_tests.py", state.metadata["hidden"])
        try:
            result = await sandbox().exec(["python3", "hidden_tests.py"], timeout=30)
        except TimeoutError:
            return Score(value=INCORRECT, explanation="The hidden tests did not end within 30 seconds.")
        return Score(
            value=CORRECT if result.success else INCORRECT,
            answer=await sandbox().read_file("solution.py"),
            explanation=result.stderr.strip()[-500:] or "All hidden tests pass.",
        )

    return score
