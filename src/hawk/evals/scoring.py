"""Scoring one attempt: the hidden files into its sandbox, the scorer over what is there, a verdict or an error.

Needs no eval of Inspect's around it: the same is done with what an agent left, with a solution, and with a workspace
that was kept.
"""

from __future__ import annotations

import asyncio
import inspect
import posixpath
import sys
import traceback
import types
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec
from inspect_ai.util import OutputLimitExceededError, SandboxEnvironment, SandboxUnavailableError

from hawk.core.attempts.results import Check
from hawk.evals.deadline import in_own_thread
from hawk.evals.errors import ScorerError
from hawk.evals.finished import FinishedSandbox, Records
from hawk.evals.folder import FolderEval
from hawk.evals.judge import Judge
from hawk.evals.placing import NoRoomError, end_processes, lay_privately, workspace_of
from hawk.evals.script import FUNCTION, PROGRAM
from hawk.evals.tree import File, Tree
from hawk.evals.verdict import Verdict, end_of, parse_answer

TESTS_VARIABLE = "HAWK_TESTS"
"""Where a program finds the eval's `tests/`."""

_CANNOT_EXECUTE = (126, 127)


async def score(eval: FolderEval, sandboxes: Mapping[str, SandboxEnvironment], judge: Judge) -> Verdict:
    """Score what is in a sandbox.

    Args:
        eval: Whose scorer.
        sandboxes: `default`, and services by name. What runs in the default one is killed, unless the eval keeps it.
        judge: Whom `sandbox.judge` asks.

    Raises:
        ScorerError: The scorer raised, took too long, or gave no verdict.
        SandboxUnavailableError: The sandbox was lost: neither the agent's fault nor the scorer's.
    """
    records = Records()
    limit = eval.front.score_time_limit
    try:
        async with asyncio.timeout(limit) as deadline:
            verdict = await _score(eval, sandboxes, judge, records)
        if records.lost is not None:  # whatever the scorer made of it
            raise records.lost
    except SandboxUnavailableError:
        raise
    except Exception as ex:
        if records.lost is not None:
            raise records.lost from ex
        if isinstance(ex, TimeoutError) and deadline.expired():
            raise ScorerError(f"the scorer of {eval.name} did not end within {limit} s") from ex
        if isinstance(ex, ScorerError):
            raise ScorerError(f"{eval.name}: {ex}") from ex
        raise ScorerError(f"the scorer of {eval.name} raised {_described(ex, eval.script.path)}") from ex
    finally:
        records.over = True
    return msgspec.structs.replace(verdict, judged=tuple(records.judged))


async def _score(
    eval: FolderEval, sandboxes: Mapping[str, SandboxEnvironment], judge: Judge, records: Records
) -> Verdict:
    sandbox = sandboxes["default"]
    if not eval.front.keep_processes:
        await end_processes(sandbox)
    hidden = Tree(
        {f"tests/{name}": file for name, file in eval.tests.files.items()}, _below(eval.tests.links)
    )
    if not eval.script.is_python:
        hidden = Tree({PROGRAM: File(eval.script.content, executable=True), **hidden.files}, hidden.links)
    try:
        directory = await lay_privately(hidden, sandbox)
    except NoRoomError:
        return Verdict(False, (Check("there is room to score", False, "the sandbox's disk is full"),))
    tests = posixpath.join(directory, "tests")
    if not eval.script.is_python:
        return await _run_program(eval, sandbox, directory, tests)
    finished = FinishedSandbox(
        sandboxes, tests=tests, judge=judge, home=asyncio.get_running_loop(), records=records
    )

    async def work() -> Verdict:
        answer = _load(eval)(finished)
        if not inspect.isawaitable(answer):
            raise ScorerError(f"'{FUNCTION}' must be 'async def {FUNCTION}(sandbox)'")
        return parse_answer(await answer)

    return await in_own_thread(work, eval.front.score_time_limit, name=f"scorer of {eval.name}")


def _below(links: Mapping[str, str]) -> dict[str, str]:
    return {f"tests/{name}": target for name, target in links.items()}


async def _run_program(eval: FolderEval, sandbox: SandboxEnvironment, directory: str, tests: str) -> Verdict:
    program = posixpath.join(directory, PROGRAM)
    cwd = workspace_of(sandbox) or None
    try:
        done = await sandbox.exec(
            [program],
            cwd=cwd,
            env={TESTS_VARIABLE: tests},
            timeout=eval.front.score_time_limit,
            timeout_retry=False,
        )
        code, output = done.returncode, f"{done.stdout}\n{done.stderr}"
    except OutputLimitExceededError as ex:
        raise ScorerError("it wrote more than can be read; its exit code is not known") from ex
    except PermissionError:
        code, output = _CANNOT_EXECUTE[0], "permission denied"
    interpreter = eval.script.interpreter
    if code in _CANNOT_EXECUTE and interpreter is not None and not await _has(sandbox, interpreter):
        raise ScorerError(f"{PROGRAM} can't be run: the sandbox has no {interpreter}")
    notes = "" if code == 0 else f"exit code {code}: {end_of(output)}".rstrip(": ")
    return Verdict(code == 0, (Check(PROGRAM, code == 0, notes),))


async def _has(sandbox: SandboxEnvironment, program: str) -> bool:
    command = ["sh", "-c", 'command -v "$1"', "sh", program]
    return (await sandbox.exec(command, cwd="/", timeout=60)).success


def _load(eval: FolderEval) -> Any:
    """The scorer's function, from a module of its own: attempts share nothing through it."""
    path = eval.script.path
    parent = str(eval.path.parent)
    if parent not in sys.path:  # helpers that several evals share lie beside them
        sys.path.append(parent)
    module = types.ModuleType(f"hawk_eval_{sha256(path.encode()).hexdigest()[:12]}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # dataclasses look their own module up
    exec(compile(eval.script.content, path, "exec"), module.__dict__)  # noqa: S102 - the author's own code
    function = getattr(module, FUNCTION, None)
    if not callable(function):
        raise ScorerError(f"it defines no 'async def {FUNCTION}(sandbox)'")
    return function


def _described(ex: BaseException, path: str) -> str:
    """An exception with the last line of the scorer's own that it came through."""
    lines = [frame.lineno for frame in traceback.extract_tb(ex.__traceback__) if frame.filename == path]
    where = f" (line {lines[-1]})" if lines else ""
    return f"{type(ex).__name__}: {ex}".rstrip(": ") + where
