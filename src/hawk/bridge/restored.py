"""Attempts that are put back to where their agent was done, instead of being made: only scorers run then.

Inspect's plan of each task stays what it is, solvers and their names included, for pairs are known by them; what it does
when it is called is another thing in this process. Everything around it (sandbox, limits, scoring, log, retries) is
Inspect's own.

Imports Inspect: for code that runs inside a worker.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, Protocol, cast

import anyio
from inspect_ai import Task
from inspect_ai._eval.task import run as task_run
from inspect_ai._util.answer import answer_index
from inspect_ai.log import EvalSampleLimit
from inspect_ai.log._samples import ActiveSample, sample_active
from inspect_ai.solver import Generate, Solver, TaskState
from inspect_ai.solver._chain import unroll
from inspect_ai.solver._multiple_choice import parse_answers
from inspect_ai.solver._plan import Plan
from inspect_ai.util import LimitExceededError, SandboxEnvironment, SandboxUnavailableError

from hawk.bridge.attempts import current
from hawk.bridge.keptsample import KeptSample

__all__ = ["RestorationError", "Restorer", "check_plan", "restore_instead_of_solving", "without_sandbox"]

_SETUP = "_hawk_setup"
_CHOICE = re.compile(r"choice\d*")
_LETTER = re.compile(r"\b(?:[A-Z]|[1-9]\d*)\b")


class RestorationError(RuntimeError):
    """What an attempt left can't be put back, so that nothing can be scored."""


class Restorer(Protocol):
    """Who has what attempts left. All calls are made on the event loop, and not canceled half-way."""

    async def state(self, identifier: str, sample_id: str, epoch: int) -> KeptSample:
        """Messages, output, store and metadata of an attempt.

        Raises:
            RestorationError: They are not there any more.
        """

    async def sandboxes(
        self, identifier: str, sample_id: str, epoch: int, sandboxes: Mapping[str, SandboxEnvironment]
    ) -> None:
        """Make an attempt's fresh sandboxes what it left, or of no use.

        Raises:
            RestorationError: It can't be done.
        """

    def restored(self, identifier: str, sample_id: str, epoch: int) -> None:
        """All of it is back."""


def restore_instead_of_solving(restorer: Restorer) -> None:
    """Make every plan of this process restore its attempt. For good, and once.

    What a task does before any agent begins (`Task.setup`) is done: it belongs to the task, and scorers may need what it
    makes outside the workspace. It gets no model.
    """
    resolve = task_run.resolve_plan

    def resolve_and_count(task: Task, solver: Solver | None) -> Plan:
        plan = resolve(task, solver)
        setattr(plan, _SETUP, len(unroll(task.setup)) if task.setup else 0)
        return plan

    async def restore(self: Plan, state: TaskState, generate: Generate) -> TaskState:
        attempt, active = current(), sample_active()
        if attempt is None or active is None:
            raise RestorationError("nobody knows which attempt this is")
        for step in self.steps[: getattr(self, _SETUP, 0)]:
            prepared = await step(state, cast(Generate, _no_model))
            state.metadata = prepared.metadata
        # Half of it would be scored as if it were all.
        with anyio.CancelScope(shield=True):
            kept = await restorer.state(*attempt)
            _restore(state, kept)
            if active.sandbox_environments:
                await restorer.sandboxes(*attempt, active.sandbox_environments)
            restorer.restored(*attempt)
        if kept.sample.limit is not None:
            _end_as_before(kept.sample.limit)
        return state

    stop = ActiveSample.interrupt

    def interrupt(self: ActiveSample, action: Any) -> None:
        # To score what there is so far would be to score a start.
        stop(self, "cancel" if action == "score" else action)

    task_run.resolve_plan = resolve_and_count
    Plan.__call__ = restore  # type: ignore[method-assign]
    ActiveSample.interrupt = interrupt  # type: ignore[method-assign]


def without_sandbox(sandboxes: Mapping[str, SandboxEnvironment], why: str) -> None:
    """Make sandboxes of no use to scorers: what is in them is not what the attempt left."""

    async def unavailable(*args: object, **kwargs: object) -> Any:
        raise SandboxUnavailableError(why)

    for sandbox in sandboxes.values():
        for name in ("exec", "read_file", "write_file"):
            setattr(sandbox, name, unavailable)


async def _no_model(*args: object, **kwargs: object) -> TaskState:
    raise RestorationError(
        "the task's setup calls the model, which nothing does when attempts are scored again"
    )


def _restore(state: TaskState, kept: KeptSample) -> None:
    sample = kept.sample
    state.messages = []
    list.extend(state.messages, sample.messages)  # its own would raise at a limit that was reached then
    state.output = sample.output
    for key in list(state.store.keys()):
        state.store.delete(key)
    for key, value in sample.store.items():
        state.store.set(key, value)
    state.metadata = kept.metadata_now(state.metadata)
    state.scores = dict(kept.scores) or None
    _mark_choices(state, kept)
    state.completed = True


def _mark_choices(state: TaskState, kept: KeptSample) -> None:
    """Mark the choices that the model made, which no log keeps: by the scorer's word then, else by the model's."""
    said = next((s for name, s in (kept.sample.scores or {}).items() if _CHOICE.fullmatch(name)), None)
    if not state.choices:
        return
    if said is not None and said.answer is not None:
        letters = set(_LETTER.findall(said.answer))
    else:
        letters = parse_answers(state, multiple_correct=True)
    if letters:
        chosen = {answer_index(letter) for letter in letters}
        for i in range(len(state.choices)):
            state.choices.mark_choice(i, i in chosen)


def _end_as_before(limit: EvalSampleLimit) -> None:
    """End as the attempt did that ran into a limit: Inspect writes it down, and scores."""
    raise LimitExceededError(
        cast(Any, limit.type), value=limit.limit, limit=limit.limit, message=limit.reason
    )


def check_plan() -> None:
    """Whether Inspect calls plans as this module expects.

    Raises:
        TypeError: It does not.
    """
    for function, expected in (
        (Plan.__call__, ["self", "state", "generate"]),
        (task_run.resolve_plan, ["task", "solver"]),
        (ActiveSample.interrupt, ["self", "action"]),
    ):
        found = list(inspect.signature(function).parameters)
        if found != expected:
            raise TypeError(f"{function.__qualname__} takes {found}, not {expected}")
