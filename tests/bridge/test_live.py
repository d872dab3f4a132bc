"""What a worker's own process says of its attempts."""

from __future__ import annotations

import asyncio
from pathlib import Path

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.solver import Generate, Solver, TaskState, solver

from hawk.bridge import live
from hawk.runner.heartbeat import attempt_name


def test_code_knows_the_attempt_that_it_runs_for(tmp_path: Path) -> None:
    said: list[str | None] = []

    @solver
    def asking() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            said.append(live.current_attempt())
            said.append(await asyncio.create_task(asyncio.to_thread(live.current_attempt)))
            return state

        return solve

    task = Task(dataset=[Sample(id="a/b", input="?"), Sample(id="c", input="?")], solver=asking())
    [log] = eval(task, model="none/none", epochs=2, log_dir=str(tmp_path), display="none")
    assert log.status == "success"
    names = [attempt_name(sample, epoch, log.eval.eval_id) for sample in ("a/b", "c") for epoch in (1, 2)]
    assert sorted(map(str, said)) == sorted([*names, *names])
    assert live.current_attempt() is None
