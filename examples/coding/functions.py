"""A very small coding eval, for very small models: one answer, and no tools.

The model is asked for a Python function. What it answers is taken out of its text and run in the attempt's sandbox.
"""

import re
from pathlib import Path
from typing import Any

import yaml
from coding import isolated
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import CORRECT, INCORRECT, Score, Scorer, Target, accuracy, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import sandbox

FUNCTIONS = Path(__file__).resolve().with_name("functions.yaml")

PROMPT = "Write a Python function {signature} that {does}. Answer with the code only."

BLOCK = re.compile(r"```\w*[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
"""A block of code as models write it. The last one may have no end: the answer stops there."""


@task
def functions() -> Task:
    """Twelve functions of a few lines."""
    described = yaml.safe_load(FUNCTIONS.read_text(encoding="utf-8"))
    return Task(
        dataset=[_sample(name, function) for name, function in described.items()],
        solver=answer_once(),
        scorer=tests_pass(),
        sandbox=isolated(),
        # It is asked for the code only; the stop spares what it would say about it.
        config=GenerateConfig(temperature=0.7, max_tokens=120, stop_seqs=["```\n\n"]),
    )


def _sample(name: str, function: dict[str, Any]) -> Sample:
    return Sample(
        id=name,
        input=PROMPT.format(signature=function["signature"], does=function["does"]),
        metadata={"function": function["signature"].partition("(")[0], "tests": function["tests"]},
    )


@solver
def answer_once() -> Solver:
    """Ask once. Each attempt has its own seed: it gives another answer, and the same one when it is begun again."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        return await generate(state, seed=state.epoch)

    return solve


@scorer(metrics=[accuracy(), stderr()])
def tests_pass() -> Scorer:
    """Correct when the function is there and does what the tests say."""

    async def score(state: TaskState, target: Target) -> Score:
        code = code_of(state.output.completion)
        lines = [f"from answer import {state.metadata['function']}"]
        lines += [f"assert {test}, {test!r}" for test in state.metadata["tests"]]
        await sandbox().write_file("answer.py", code)
        await sandbox().write_file("tests.py", "\n".join(lines) + "\n")
        try:
            result = await sandbox().exec(["python3", "tests.py"], timeout=20)
        except TimeoutError:
            return Score(value=INCORRECT, answer=code, explanation="It did not end within 20 seconds.")
        said = result.stderr.strip().splitlines()
        return Score(
            value=CORRECT if result.success else INCORRECT,
            answer=code,
            explanation=said[-1] if said else "All tests pass.",
        )

    return score


def code_of(answer: str) -> str:
    """The code in an answer: its first block, or, where it begins with code, that, up to the first fence."""
    if re.match(r"\s*(def|import|from)\b", answer):
        return answer.partition("```")[0]
    block = BLOCK.search(answer)
    return block[1] if block else answer
