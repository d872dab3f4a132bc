"""Evals for tests, written from a few words."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.util import SandboxEnvironment

from hawk.config.problems import Problem
from hawk.errors import ConfigError
from hawk.evals.check import StubJudge
from hawk.evals.folder import FolderEval, read_eval
from hawk.evals.placing import begin, lay
from hawk.evals.scoring import score
from hawk.evals.verdict import Verdict
from hawk.sandbox import pool
from hawk.sandbox.provider import BubblewrapSandbox

PASSES = "async def score(sandbox):\n    return {'passed': True}\n"
PROMPT = "Do it.\n"

Agent = Callable[[SandboxEnvironment], Awaitable[Any]]


def write(folder: Path, name: str = "one", **files: str | bytes) -> Path:
    """An eval with these files, by their path; those that it needs are there in any case. A name with `!` is executable."""
    path = folder / name
    given = {key.rstrip("!"): content for key, content in files.items()}
    if not {"EVAL", "EVAL.py"} & set(given):
        given["EVAL.py"] = PASSES
    for file, content in {"PROMPT.md": PROMPT, **given}.items():
        target = path / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        target.chmod(0o755 if f"{file}!" in files or file == "EVAL" else 0o644)
    return path


def make(
    folder: Path, name: str = "one", front: str = "", limits: str = "{}", **files: str | bytes
) -> FolderEval:
    """The same, read; `inspect_tools` is off: a layer with them takes seconds to make."""
    prompt = f"---\nsandbox: {{inspect_tools: false, limits: {limits}}}\n{front}\n---\n{PROMPT}"
    return read_eval(write(folder, name, **{"PROMPT.md": prompt, **files}))


def problems(path: Path) -> list[Problem]:
    """What is wrong with an eval, which is."""
    with pytest.raises(ConfigError) as caught:
        read_eval(path, path.name)
    return [Problem(**problem) for problem in caught.value.fields["problems"]]


@asynccontextmanager
async def boxes_of(eval: FolderEval) -> AsyncIterator[dict[str, SandboxEnvironment]]:
    """The eval's sandboxes, as its agent finds them."""
    pool.hold()
    try:
        boxes = await BubblewrapSandbox.sample_init("test", eval.sandbox, {})
        try:
            await lay(eval.local, boxes["default"])
            await begin(eval, boxes["default"])
            yield boxes
        finally:
            await BubblewrapSandbox.sample_cleanup("test", eval.sandbox, boxes, False)
    finally:
        await pool.release()


async def scored(eval: FolderEval, agent: Agent | None = None, judge: bool | None = None) -> Verdict:
    """The verdict on what an agent left."""
    async with boxes_of(eval) as boxes:
        if agent is not None:
            await agent(boxes["default"])
        return await score(eval, boxes, StubJudge(judge).judge)


def shell(command: str) -> Agent:
    """An agent that runs one command, which must succeed."""

    async def work(box: SandboxEnvironment) -> None:
        done = await box.exec(["sh", "-c", command], timeout=100)
        assert done.success, done.stderr

    return work


def python(body: str) -> str:
    """An `EVAL.py` with this body."""
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return f"async def score(sandbox):\n{lines}"
