"""Checking evals without a model: the scorer passes the solution, and fails the start that nobody has touched.

Each is scored in a real sandbox of its own, as an attempt would be.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from inspect_ai.util import SandboxEnvironment, SandboxUnavailableError

from hawk.errors import HawkError
from hawk.evals.errors import ScorerError
from hawk.evals.folder import SOLUTION, FolderEval
from hawk.evals.placing import begin, lay
from hawk.evals.scoring import score
from hawk.evals.tree import Tree
from hawk.evals.verdict import Judged
from hawk.sandbox import pool
from hawk.sandbox.config import BubblewrapConfig
from hawk.sandbox.errors import SandboxUnsupportedError
from hawk.sandbox.provider import BubblewrapSandbox

AT_ONCE = 4
"""Evals that are checked at once: a scorer may compute."""


class State(StrEnum):
    """What a check came to."""

    OK = "ok"
    WRONG = "wrong"
    FLAKY = "flaky"
    ERROR = "error"  # it could not be scored
    SKIPPED = "skipped"

    @property
    def good(self) -> bool:
        return self in (State.OK, State.SKIPPED)


@dataclass(frozen=True)
class Trial:
    """The scorer run once.

    Attributes:
        passed: Its verdict; None where there is none.
        explanation: The checks that failed.
        error: Why there is no verdict.
        asked: Whether it asked the judge.
    """

    passed: bool | None
    explanation: str = ""
    error: str | None = None
    asked: bool = False


@dataclass(frozen=True)
class Checked:
    """One eval, checked: its state, why in a few lines, and how many seconds it took."""

    name: str
    state: State
    says: list[str]
    seconds: float = 0.0


@dataclass
class StubJudge:
    """A judge that always says the same, or that there is none; notes whether it was asked."""

    answer: bool | None
    asked: bool = field(default=False)

    async def judge(self, rubric: str, text: str) -> Judged:
        self.asked = True
        if self.answer is None:
            raise ScorerError("no judge is asked while an eval is checked")
        return Judged(self.answer, "(not judged: the answer was given on the command line)", "none")


async def check(
    evals: Sequence[FolderEval], *, times: int = 1, judge: bool | None = None
) -> AsyncIterator[Checked]:
    """Check evals, several at once; the results come in the evals' order.

    Args:
        times: How often each is scored: a scorer that does not always say the same is found so.
        judge: What a judge would say; None: evals that ask one are skipped.

    Raises:
        SandboxUnsupportedError: This machine makes no sandboxes.
    """
    places = asyncio.Semaphore(AT_ONCE)
    pool.hold()
    tasks = [asyncio.create_task(_check(eval, times, judge, places)) for eval in evals]
    try:
        for task in tasks:
            yield await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await pool.release()


async def _check(eval: FolderEval, times: int, judge: bool | None, places: asyncio.Semaphore) -> Checked:
    async with places:
        began = time.monotonic()
        solved: list[Trial] | None = None
        try:
            if eval.has_solution:
                solution = eval.solution()
                solved = [await _trial(eval, solution, judge) for _ in range(times)]
            untouched = [await _trial(eval, None, judge) for _ in range(times)]
        except SandboxUnsupportedError:
            raise
        except HawkError as ex:
            return Checked(eval.name, State.ERROR, ex.render().splitlines(), time.monotonic() - began)
        state, says = conclude(solved, untouched, judge)
        return Checked(eval.name, state, says, time.monotonic() - began)


def conclude(
    solved: Sequence[Trial] | None, untouched: Sequence[Trial], judge: bool | None
) -> tuple[State, list[str]]:
    """What trials say about an eval.

    Args:
        solved: Of the solution; None when there is none.
        untouched: Of the start.
        judge: What a judge was made to say, if any.
    """
    says: list[str] = []
    states: list[State] = []
    if solved is None:
        states.append(State.WRONG)
        says.append(f"it has no {SOLUTION}/: nothing shows that it can be passed")
    for what, trials, wanted in (
        ("the solution", solved or (), True),
        ("the untouched start", untouched, False),
    ):
        found = _look(what, trials, wanted, judge)
        if found is not None:
            states.append(found[0])
            says.append(found[1])
    for state in (State.ERROR, State.FLAKY, State.WRONG, State.SKIPPED):
        if state in states:
            return state, says
    return State.OK, says or ["the solution passes, the untouched start fails"]


def _look(what: str, trials: Sequence[Trial], wanted: bool, judge: bool | None) -> tuple[State, str] | None:
    """What is to be said of the trials of one workspace; None when they came out as they must."""
    if not trials:
        return None
    asked = any(trial.asked for trial in trials)
    if asked and judge is None:
        return (
            State.SKIPPED,
            f"{what} is not scored: the scorer asks a judge; give --judge pass or --judge fail",
        )
    errors = [trial.error for trial in trials if trial.error is not None]
    if errors:
        return State.ERROR, f"{what}: {errors[0]}{_of(len(errors), trials)}"
    passes = sum(trial.passed is True for trial in trials)
    if 0 < passes < len(trials):
        odd = next(trial for trial in trials if trial.passed is not wanted)
        return State.FLAKY, f"{what} passed {passes} of {len(trials)} times: {odd.explanation}"
    if (passes > 0) is wanted:
        return None
    if asked and judge is not wanted:
        word = "passes" if passes else "fails"
        return State.OK, f"{what} {word} with a judge that always says {'pass' if judge else 'fail'}"
    if wanted:
        return State.WRONG, f"{what} fails: {trials[0].explanation}"
    return State.WRONG, f"{what} passes, though nothing was done"


def _of(count: int, trials: Sequence[Trial]) -> str:
    return f" ({count} of {len(trials)} times)" if len(trials) > 1 else ""


async def _trial(eval: FolderEval, solution: Tree | None, judge: bool | None) -> Trial:
    """Score the start, or the solution laid over it, in a sandbox of its own.

    Raises:
        HawkError: No sandbox could be made.
    """
    stub = StubJudge(judge)
    config = _without_tools(eval.sandbox)
    boxes: dict[str, SandboxEnvironment] = await BubblewrapSandbox.sample_init(eval.name, config, {})
    try:
        await _prepare(eval, boxes["default"], solution)
        verdict = await score(eval, boxes, stub.judge)
    except (ScorerError, SandboxUnavailableError, OSError, RuntimeError) as ex:
        word = "scorer error" if isinstance(ex, ScorerError) else type(ex).__name__
        return Trial(None, error=f"{word}: {ex}", asked=stub.asked)
    finally:
        await BubblewrapSandbox.sample_cleanup(eval.name, config, boxes, False)
    return Trial(verdict.passed, verdict.explanation, asked=stub.asked)


def _without_tools(config: BubblewrapConfig) -> BubblewrapConfig:
    """Without what only agents use, and what takes seconds to prepare."""
    services = {
        name: service.model_copy(update={"inspect_tools": False}) for name, service in config.services.items()
    }
    return config.model_copy(update={"inspect_tools": False, "services": services})


async def _prepare(eval: FolderEval, box: SandboxEnvironment, solution: Tree | None) -> None:
    await lay(eval.local, box)
    await begin(eval, box)
    if solution is None:
        return
    replaced = [name for name in solution.files if name in eval.local.links]
    if replaced:  # a file would be written where the link leads
        await box.exec(["rm", "-f", "--", *replaced])
    await lay(solution, box)
