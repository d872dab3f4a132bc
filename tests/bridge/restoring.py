"""An evaluation, and the same with its attempts put back instead of made, in a process of its own: `… DIR`.

Writes `DIR/said.json`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import EvalLog
from inspect_ai.log._samples import sample_active
from inspect_ai.model import ModelAPI, ModelOutput, modelapi
from inspect_ai.scorer import Score, Scorer, Target, accuracy, choice, scorer
from inspect_ai.solver import Generate, Solver, TaskState, generate, multiple_choice, solver
from inspect_ai.util import SandboxEnvironment, sandbox, store

from hawk.bridge.attempts import watch
from hawk.bridge.keptsample import KeptSample, Place, find_samples, read_kept_sample
from hawk.bridge.restored import (
    RestorationError,
    check_plan,
    restore_instead_of_solving,
    without_sandbox,
)
from tests.bridge.watching import Watching

LONG = "a long text, which a log keeps apart " * 20
calls: list[str] = []
seen: dict[str, Any] = {}
prepared: list[str] = []
again: list[bool] = []
restored: list[str] = []


@modelapi("letters")
class Letters(ModelAPI):
    """Answers B, and counts."""

    async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
        calls.append(str(input[-1].text))
        return ModelOutput.from_content(self.model_name, f"{LONG}\n\nANSWER: B")


@solver
def working() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        await generate(state)
        state.store.set("kept", {"deep": [1, LONG]})
        state.metadata["mine"] = (1, LONG)
        state.metadata["counter"] += 1
        del state.metadata["gone"]
        if state.sample_id == "limited":
            state.message_limit = len(state.messages)
            await generate(state)
        if state.sample_id == "scored":
            state.scores = {"own": Score(value=0.5)}
        return state

    return solve


@solver
def setting_up(uses_model: bool = False) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        prepared.append(str(state.sample_id))
        state.metadata["prepared"] = True
        if state.sample_id == "stopped" and again:
            stop()
            await asyncio.sleep(0.01)  # where it arrives
        if uses_model:
            await generate(state)
        return state

    return solve


@scorer(metrics=[accuracy()])
def looking() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        seen[str(state.sample_id)] = {
            "messages": [[m.role, m.text] for m in state.messages],
            "output": state.output.completion,
            "store": dict(state.store.items()),
            "same_store": store() is state.store or dict(store().items()) == dict(state.store.items()),
            "metadata": state.metadata,
            "target": target.text,
        }
        if state.sample_id == "boxed":
            await sandbox().exec(["true"])
        return Score(value="C")

    return score


def samples(target: str, answer: str) -> MemoryDataset:
    metadata = {"counter": 1, "gone": 1, "answer": answer, "nested": {"a": [1, LONG]}}
    names = ["plain", "limited", "scored", "lost", "stopped", "stopped late"]
    rows = [Sample("?", id=name, target=target, metadata=dict(metadata)) for name in names]
    rows.append(Sample("?", id="boxed", target=target, metadata=dict(metadata), sandbox="local"))
    return MemoryDataset(rows)


def choices(target: str) -> MemoryDataset:
    return MemoryDataset([Sample("?", id="c", choices=["x", "y", "z"], target=target)])


def run(where: Path, *tasks: Task) -> list[EvalLog]:
    return eval(list(tasks), model="letters/l", log_dir=str(where), display="none", fail_on_error=False)


def stop() -> None:
    """As a person does who wants what there is to be scored."""
    active = sample_active()
    assert active is not None
    active.interrupt("score")


class Back:
    """Reads what attempts left from the first run's logs."""

    def __init__(self, logs: Path, places: Mapping[tuple[str, int], Place]) -> None:
        self.logs, self.places = logs, places

    async def state(self, identifier: str, sample_id: str, epoch: int) -> KeptSample:
        if sample_id == "lost":
            raise RestorationError("it is lost")
        if sample_id == "stopped late":
            stop()
        kept = await asyncio.to_thread(read_kept_sample, self.places[sample_id, epoch])
        await asyncio.sleep(0.01)
        return kept

    async def sandboxes(
        self, identifier: str, sample_id: str, epoch: int, sandboxes: Mapping[str, SandboxEnvironment]
    ) -> None:
        without_sandbox(sandboxes, "there is nothing in it")

    def restored(self, identifier: str, sample_id: str, epoch: int) -> None:
        restored.append(sample_id)


def logged(log: EvalLog) -> dict[str, Any]:
    assert log.samples is not None
    return {
        str(s.id): {
            "scores": {name: [score.value, score.answer] for name, score in (s.scores or {}).items()},
            "error": s.error.message if s.error else None,
            "limit": [s.limit.type, s.limit.limit, s.limit.reason] if s.limit else None,
            "solvers": [step.solver for step in log.plan.steps],
        }
        for s in log.samples
    }


def main(where: Path) -> None:
    check_plan()
    task = Task(samples("old", "old"), solver=working(), scorer=looking(), setup=setting_up(), name="t")
    picked = Task(choices("B"), solver=multiple_choice(), scorer=choice(), name="p")
    bare = Task(choices("B"), solver=multiple_choice(), scorer=looking(), name="b")
    first, first_picked, first_bare = run(where / "one", task, picked, bare)
    said: dict[str, Any] = {"first": logged(first), "calls": len(calls), "seen": dict(seen)}
    found = find_samples(where / "one")
    uuids = {(str(s.id), s.epoch): s.uuid for log in (first, first_picked) for s in log.samples or []}
    places = {key: found[uuid] for key, uuid in uuids.items() if uuid}
    [only] = first_bare.samples or []
    assert only.uuid is not None
    bare_place = found[only.uuid]
    for each in (calls, seen, prepared):
        each.clear()

    watch(Watching())
    back = Back(where / "one", places)
    restore_instead_of_solving(back)
    again.append(True)
    task = Task(samples("new", "new"), solver=working(), scorer=looking(), setup=setting_up(), name="t")
    picked = Task(choices("A"), solver=multiple_choice(), scorer=choice(), name="p")
    second, second_picked = run(where / "two", task, picked)
    said |= {
        "second": {**logged(second), **logged(second_picked)},
        "seen_again": dict(seen),
        "prepared": sorted(prepared),
        "restored": sorted(restored),
    }
    back.places = {("c", 1): bare_place}
    [third] = run(where / "three", Task(choices("B"), solver=generate(), scorer=choice(), name="b"))
    said["third"] = logged(third)
    careless = Task(choices("B"), solver=generate(), setup=setting_up(True), scorer=choice(), name="b")
    [fourth] = run(where / "four", careless)
    said |= {"fourth": logged(fourth), "calls_again": list(calls)}
    (where / "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
