"""Results that a worker did not live to write are what it would have written: from a real log."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log._samples import active_samples
from inspect_ai.model import ModelAPI, ModelOutput, ModelUsage, get_model, modelapi
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver

from hawk.bridge.evallog import list_logs, read_summaries
from hawk.bridge.logformat import SampleSummary
from hawk.core.attempts.planning import fingerprint_of
from hawk.core.attempts.policy import Policy, Rules
from hawk.core.attempts.results import Check, Failure, Outcome, Pair, Result, Usage
from hawk.core.plan import Plan, PlanTask
from hawk.core.status import AttemptKey
from hawk.runner.backfill import write_missing
from hawk.runner.workerhome import Share
from hawk.store.attempts import EARLIER, RESULT, attempt_directory, read_results, write_result
from hawk.store.rundir import RunDir, write_json

SAMPLES = ["works", "wrong", "idle", "agent", "scorer", "limit", "pair"]
TASK = PlanTask("t/1", "kept", "answering/m", SAMPLES, 2)
PLAN = Plan("job", [TASK], rules=Rules(Policy.PARALLEL, cancel_siblings=True), generation=3, fingerprint="f")


@modelapi("answering")
class Answering(ModelAPI):
    async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
        output = ModelOutput.from_content(self.model_name, "yes")
        output.usage = ModelUsage(input_tokens=7, output_tokens=3, total_tokens=10, input_tokens_cache_read=2)
        return output


@solver
def acting() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        sample = str(state.sample_id)
        if sample != "idle":
            await get_model().generate("?")
        if sample == "agent":
            raise ValueError('the agent\'s "fault"')
        if sample == "limit":
            state.message_limit = 1
            state.messages = [*state.messages, *state.messages]
        if (sample, state.epoch) == ("pair", 1):
            while not (
                others := [a for a in active_samples() if (a.sample.id, a.epoch) == ("pair", 2) and a.tg]
            ):
                await asyncio.sleep(0.01)
            others[0].interrupt("cancel")
        if (sample, state.epoch) == ("pair", 2):
            await asyncio.sleep(60)
        return state

    return solve


@scorer(metrics=[accuracy()])
def judge() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        if state.sample_id == "scorer":
            raise RuntimeError("the scorer is broken")
        checks = [{"name": "tests", "passed": False, "notes": "1 of 3"}]
        value = "I" if state.sample_id in ("wrong", "limit") else "C"
        return Score(value=value, explanation="it looked", metadata={"checks": checks})

    return score


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    dataset = MemoryDataset([Sample("?", id=i, target="!", metadata={"digest": "d"}) for i in SAMPLES])
    task = Task(dataset, solver=acting(), scorer=judge(), name="kept")
    options: dict[str, Any] = {"fail_on_error": False, "display": "none", "log_level": "error"}
    [log] = eval(task, model="answering/m", epochs=2, log_dir=str(folder), **options)
    assert log.status == "success"
    return folder


Summaries = dict[str, dict[AttemptKey, SampleSummary]]


@pytest.fixture
def summaries(logs: Path) -> Summaries:
    [log] = list_logs(logs)
    return {TASK.identifier: {row.key: row for row in read_summaries(log)}}


@pytest.fixture
def run(tmp_path: Path, logs: Path) -> RunDir:
    found = RunDir(tmp_path / "job")
    shutil.copytree(logs, found.logs)
    return found


def results(run: RunDir) -> dict[str, Result]:
    found, problems = read_results(run)
    assert problems == []
    return {f"{r.pair.sample}/{r.attempt}": r for r in found}


def only(summaries: Summaries, *keys: AttemptKey) -> Summaries:
    return {TASK.identifier: {key: summaries[TASK.identifier][key] for key in keys}}


def file_of(run: RunDir, sample: str, attempt: int = 1) -> Path:
    return attempt_directory(run, TASK.pair(sample), attempt) / RESULT


def test_each_is_what_its_worker_would_have_written(run: RunDir, summaries: Summaries) -> None:
    assert write_missing(run, PLAN, summaries) == 14
    found = results(run)
    assert {name: str(result.outcome) for name, result in found.items() if name.endswith("/1")} == {
        "works/1": "pass",
        "wrong/1": "fail",
        "idle/1": "infra_error",
        "agent/1": "infra_error",
        "scorer/1": "scorer_error",
        "limit/1": "limit",
        "pair/1": "pass",
    }
    assert found["pair/2"].outcome is Outcome.CANCELED
    works = found["works/1"]
    summary = summaries[TASK.identifier]["works", 1]
    assert works.pair == Pair("kept", "works", "answering/m")
    assert (works.uuid, works.started_at, works.ended_at) == (
        summary.uuid,
        summary.started_at,
        summary.completed_at,
    )
    assert (works.duration, works.score, works.generation) == (summary.total_time, 1.0, 3)
    assert works.fingerprint == fingerprint_of("f", "d")
    assert works.usage == {"answering/m": Usage(input=7, output=3, cache_read=2, total=10)}
    assert works.model_calls == 1
    assert works.scores["judge"].explanation == "it looked"
    assert works.scores["judge"].checks == (Check("tests", False, "1 of 3"),)
    assert works.workspace is None
    assert "killed before" in (works.workspace_error or "")
    assert found["agent/1"].error == Failure("ValueError", 'the agent\'s "fault"', "agent")
    assert found["scorer/1"].error == Failure("RuntimeError", "the scorer is broken", "scoring")
    assert found["limit/1"].limit == "message"
    assert found["limit/1"].reason


def test_a_canceled_one_says_whose_pass_canceled_it(run: RunDir, summaries: Summaries) -> None:
    write_missing(run, PLAN, summaries)
    assert results(run)["pair/2"].reason == "not needed: attempt 1 passed"


def test_under_a_policy_that_cancels_nobody_a_person_did_it(run: RunDir, summaries: Summaries) -> None:
    write_missing(run, msgspec.structs.replace(PLAN, rules=Rules(Policy.PARALLEL)), summaries)
    assert results(run)["pair/2"].reason is None


def test_what_is_there_stays_and_nothing_is_written_twice(run: RunDir, summaries: Summaries) -> None:
    write_missing(run, PLAN, summaries)
    before = {path: path.read_bytes() for path in run.path.rglob(RESULT)}
    assert len(before) == 14
    assert write_missing(run, PLAN, summaries) == 0
    file_of(run, "wrong").unlink()
    assert write_missing(run, PLAN, summaries) == 1
    assert {path: path.read_bytes() for path in run.path.rglob(RESULT)} == before


@pytest.mark.parametrize("damage", [b"", b'{"pair": ', b"null"])
def test_a_damaged_one_is_written_again(run: RunDir, summaries: Summaries, damage: bytes) -> None:
    write_missing(run, PLAN, summaries)
    whole = file_of(run, "works").read_bytes()
    file_of(run, "works").write_bytes(damage)
    assert write_missing(run, PLAN, summaries) == 1
    assert file_of(run, "works").read_bytes() == whole


@pytest.mark.parametrize("ended_at", ["2020-01-01T00:00:00+00:00", "2099-01-01T00:00:00+00:00", None])
def test_a_later_try_replaces_an_earlier_one_whatever_the_clock_said(
    run: RunDir, summaries: Summaries, ended_at: str | None
) -> None:
    old = Result(TASK.pair("works"), 1, Outcome.INFRA_ERROR, uuid="earlier", ended_at=ended_at)
    write_result(run, old)
    assert write_missing(run, PLAN, only(summaries, ("works", 1))) == 1
    assert results(run)["works/1"].outcome is Outcome.PASS
    kept = file_of(run, "works").parent / EARLIER / "1" / RESULT
    assert msgspec.json.decode(kept.read_bytes(), type=Result) == old


@pytest.mark.parametrize("ended_at", ["2020-01-01T00:00:00+00:00", "2099-01-01T00:00:00+00:00"])
def test_an_earlier_try_never_replaces_a_later_one(run: RunDir, summaries: Summaries, ended_at: str) -> None:
    write_missing(run, PLAN, only(summaries, ("works", 1)))
    write_result(run, Result(TASK.pair("works"), 1, Outcome.FAIL, uuid="later", ended_at=ended_at))
    assert write_missing(run, PLAN, only(summaries, ("works", 1))) == 0
    assert results(run)["works/1"].uuid == "later"


def test_one_that_was_in_flight_when_its_worker_was_killed_has_no_result(
    run: RunDir, summaries: Summaries
) -> None:
    """Inspect recovers it as cancelled, and runs it again."""
    torn = msgspec.structs.replace(
        summaries[TASK.identifier]["works", 1], error="CancelledError()", completed_at=None, scores={}
    )
    assert write_missing(run, PLAN, {TASK.identifier: {torn.key: torn}}) == 0
    assert results(run) == {}


def test_what_only_a_buffer_knows_is_written_as_far_as_that_goes(run: RunDir, summaries: Summaries) -> None:
    for log in list_logs(run.logs):
        log.unlink()
    assert write_missing(run, PLAN, summaries) == 14
    found = results(run)
    assert (found["works/1"].outcome, found["wrong/1"].outcome) == (Outcome.PASS, Outcome.FAIL)
    assert (found["agent/1"].outcome, found["pair/2"].outcome) == (Outcome.INFRA_ERROR, Outcome.CANCELED)
    assert found["works/1"].usage == {"answering/m": Usage(input=7, output=3, total=10)}
    assert found["pair/2"].reason == "not needed: attempt 1 passed"


def test_a_log_that_is_cut_short_stops_nobody(run: RunDir, summaries: Summaries) -> None:
    [log] = list_logs(run.logs)
    log.write_bytes(log.read_bytes()[:-200])
    assert write_missing(run, PLAN, summaries) == 14
    assert results(run)["works/1"].outcome is Outcome.PASS


def test_a_task_of_another_plan_is_nobodys(run: RunDir, summaries: Summaries) -> None:
    assert write_missing(run, PLAN, {"another": summaries[TASK.identifier]}) == 0
    assert write_missing(run, PLAN, {}) == 0


LIVING = "import sys; from pathlib import Path; from hawk.store.locks import hold; hold(Path(sys.argv[1])); \
print(flush=True); sys.stdin.read()"


@pytest.fixture
def worker(run: RunDir) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is worker 0, with the plan's task."""
    home = run.path / "workers" / "0"
    home.mkdir(parents=True)
    write_json(home / "worker.json", Share((TASK.identifier,), ""))
    with subprocess.Popen(
        [sys.executable, "-c", LIVING, str(home / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_a_worker_that_lives_writes_its_own(
    run: RunDir, summaries: Summaries, worker: subprocess.Popen[bytes]
) -> None:
    """It may be about to: two at once would set each other's aside."""
    assert write_missing(run, PLAN, summaries) == 0
    worker.kill()
    worker.wait()
    assert write_missing(run, PLAN, summaries) == 14
