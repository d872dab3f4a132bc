"""The Inspect scorer of folder evals."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from inspect_ai.scorer import CORRECT, INCORRECT, Score, Scorer, Target, accuracy, scorer, stderr
from inspect_ai.solver import TaskState
from inspect_ai.util import sandbox

from hawk.evals.errors import ScorerError
from hawk.evals.folder import FolderEval, read_folder
from hawk.evals.judge import judge
from hawk.evals.scoring import score as score_sandbox
from hawk.evals.verdict import Verdict

_read: dict[Path, dict[str, FolderEval]] = {}


def evals_of(folder: str, *, again: bool = False) -> dict[str, FolderEval]:
    """The evals of a folder by name, read once: an attempt is scored by what was there when its task was made.

    Args:
        folder: The folder, relative to the working directory.
        again: Read them even if they were read before.

    Raises:
        ConfigError: Anything is wrong with any of them.
    """
    path = Path(folder).expanduser().absolute()
    if again or path not in _read:
        _read[path] = {eval.name: eval for eval in read_folder(path, folder.rstrip("/") or folder)}
    return _read[path]


@scorer(metrics=[accuracy(), stderr()])
def verdict(folder: str) -> Scorer:
    """Runs the scorer of the sample's own eval.

    Args:
        folder: The folder of the evals.
    """
    evals = evals_of(folder)

    async def score(state: TaskState, target: Target) -> Score:
        eval = evals.get(str(state.sample_id))
        if eval is None:
            raise ScorerError(f"{folder} has no eval {state.sample_id!r}")
        boxes = {"default": sandbox(), **{name: sandbox(name) for name in eval.sandbox.services}}
        try:
            return as_score(await score_sandbox(eval, boxes, judge))
        except ScorerError as ex:
            return unscored(ex)

    return score


def unscored(error: ScorerError) -> Score:
    """No score: it is not counted, the agent does not have to do its work again, and it can be scored again.

    Raised as an error, Inspect would begin the whole attempt anew.
    """
    lines = traceback.format_exception(error.__cause__ or error)
    return Score.unscored(
        reason="scorer_error", explanation=str(error), metadata={"traceback": "".join(lines)[-8000:]}
    )


def as_score(verdict: Verdict) -> Score:
    """A verdict as Inspect records it: `C` or `I`, with the checks in its metadata."""
    metadata: dict[str, Any] = {
        "checks": [{"name": c.name, "passed": c.passed, "notes": c.notes} for c in verdict.checks]
    }
    if verdict.judged:
        metadata["judge"] = {
            "model": verdict.judged[0].model,
            "verdicts": [{"passed": j.passed, "notes": j.notes} for j in verdict.judged],
        }
    value = CORRECT if verdict.passed else INCORRECT
    return Score(value=value, explanation=verdict.explanation, metadata=metadata)
