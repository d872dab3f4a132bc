"""What a job that scores another's attempts again takes from it, on real run directories."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from hawk.bridge.selection import Enumeration
from hawk.core.attempts.policy import Policy, Rules
from hawk.core.attempts.results import Outcome, Result, Workspace
from hawk.core.plan import Plan, PlanTask
from hawk.errors import ConfigError
from hawk.runner.backfill import write_missing
from hawk.runner.gate import Gate
from hawk.runner.planner import make_plan
from hawk.runner.rescore import Source, excluded_without_result, write_carried, write_excluded
from hawk.store.attempts import WORKSPACE, attempt_directory, read_results, workspace_draft, write_result
from hawk.store.rundir import JobSpec, RunDir
from tests.store.runs import make_run, settings_in

TASK = PlanTask("id", "t", "m", ["a", "b"], 2, agent="agent")


def result(sample: str, attempt: int, outcome: Outcome = Outcome.PASS, **fields: object) -> Result:
    return Result(
        pair=TASK.pair(sample),
        attempt=attempt,
        outcome=outcome,
        duration=9.0,
        uuid=f"{sample}{attempt}",
        **fields,
    )  # type: ignore[arg-type]


@pytest.fixture
def runs(tmp_path: Path) -> tuple[RunDir, RunDir]:
    """The source, and the job that scores it again."""
    return make_run(tmp_path, "old"), make_run(tmp_path, "new", rescore="old")


def kept(run: RunDir, sample: str, attempt: int, content: bytes, outcome: Outcome = Outcome.PASS) -> None:
    draft = workspace_draft(run, TASK.pair(sample), attempt)
    draft.write_bytes(content)
    found = result(sample, attempt, outcome, workspace=Workspace(1, 2, len(content)))
    write_result(run, found, workspace=draft)


def test_only_what_has_a_result_is_planned_to_run(runs: tuple[RunDir, RunDir], tmp_path: Path) -> None:
    old, new = runs
    write_result(old, result("a", 1))
    write_result(old, result("a", 2, Outcome.INFRA_ERROR))
    write_result(old, result("b", 1, Outcome.SCORER_ERROR))
    spec = JobSpec(
        "new", str(tmp_path), config={"runs": 2, "attempts": {"history": "no-such-file"}}, rescore="old"
    )
    plan, problems = make_plan(Enumeration([TASK]), spec, settings_in(tmp_path), new, [])
    assert sorted(plan.excluded) == [("id", "a", 2), ("id", "b", 2)]
    assert (plan.rescore, plan.rules.policy, plan.order.policy) == ("old", Policy.SEQUENTIAL, Policy.PARALLEL)
    assert (plan.total, plan.forecast, plan.known) == (4, [], 0)
    assert [problem.partition(": ")[0] for problem in problems] == [
        "not scored again, for old has no result of them"
    ]


def test_nothing_to_score_is_an_error_with_a_remedy(runs: tuple[RunDir, RunDir], tmp_path: Path) -> None:
    old, new = runs
    write_result(old, result("other", 1))
    spec = JobSpec("new", str(tmp_path), rescore="old")
    with pytest.raises(ConfigError, match="old has no result of any attempt") as caught:
        make_plan(Enumeration([TASK]), spec, settings_in(tmp_path), new, [])
    assert "hawk report old" in (caught.value.remedy or "")
    with pytest.raises(ConfigError, match="gone has no result"):
        Source(new, "gone").excluded([TASK])


def test_a_damaged_result_is_named_and_left_out(runs: tuple[RunDir, RunDir]) -> None:
    old, new = runs
    for sample in ("a", "b"):
        write_result(old, result(sample, 1))
    (attempt_directory(old, TASK.pair("a"), 1) / "result.json").write_text("{")
    excluded, said = Source(new, "old").excluded([TASK])
    assert ("id", "a", 1) in excluded
    assert ("id", "b", 1) not in excluded
    assert "torn or damaged" in said[-1]


@pytest.mark.parametrize("links", [True, False])
def test_workspaces_are_taken_over_with_or_without_links(
    runs: tuple[RunDir, RunDir], monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    old, new = runs
    kept(old, "a", 1, b"packed")
    if not links:

        def refused(self: Path, target: Path) -> None:
            raise OSError(errno.EXDEV, "Invalid cross-device link")

        monkeypatch.setattr(Path, "hardlink_to", refused)
    source = Source(new, "old")
    write_carried(new, source, result("a", 1, Outcome.FAIL))
    [found], problems = read_results(new)
    assert (found.outcome, found.duration, found.rescored_from, problems) == (Outcome.FAIL, 9.0, "old", [])
    assert found.workspace == Workspace(1, 2, 6)
    there = attempt_directory(new, found.pair, 1) / WORKSPACE
    assert there.read_bytes() == b"packed"
    assert there.samefile(source.workspace(found.pair, 1)) is links
    assert sorted(path.name for path in there.parent.iterdir()) == ["result.json", WORKSPACE]


def test_a_workspace_that_is_not_there_is_said_not_to_be(runs: tuple[RunDir, RunDir]) -> None:
    old, new = runs
    kept(old, "a", 1, b"packed")
    write_result(old, result("b", 1, workspace_error="it was too odd"))
    source = Source(new, "old")
    source.workspace(TASK.pair("a"), 1).unlink()
    said = [source.take_workspace(new, TASK.pair(sample), 1) for sample in ("a", "b")]
    assert said == ["it is not in old any more", "it was too odd"]
    assert source.take_workspace(new, TASK.pair("b"), 2) is None


def test_results_of_what_is_left_out_are_written_once(runs: tuple[RunDir, RunDir]) -> None:
    old, new = runs
    write_result(old, result("a", 1))
    write_result(old, result("a", 2, Outcome.INFRA_ERROR))
    source = Source(new, "old")
    plan = Plan(
        "new", [TASK], rules=Rules(Policy.PARALLEL), rescore="old", excluded=source.excluded([TASK])[0]
    )
    keys = excluded_without_result(plan, {})
    assert len(keys) == 3
    write_excluded(new, plan, source, keys)
    results, _ = read_results(new)
    assert {(r.pair.sample, r.attempt): r.outcome for r in results} == {
        ("a", 2): Outcome.INFRA_ERROR,
        ("b", 1): Outcome.CANCELED,
        ("b", 2): Outcome.CANCELED,
    }
    assert excluded_without_result(plan, {(r.pair, r.attempt) for r in results}) == []
    assert write_missing(new, plan, {}) == 0
    assert read_results(new)[0] == results


def test_the_supervisor_writes_what_is_left_out(runs: tuple[RunDir, RunDir]) -> None:
    old, new = runs
    write_result(old, result("a", 1))
    plan = Plan("new", [TASK], rescore="old", excluded=[("id", "b", 2)])
    write_missing(new, plan, {})
    [found], _ = read_results(new)
    assert (found.pair.sample, found.attempt, found.reason) == ("b", 2, "not needed: it has no result in old")


async def test_what_is_left_out_never_starts_and_holds_up_nobody() -> None:
    task = PlanTask("id", "t", "m", [f"s{i}" for i in range(20)], 2)
    excluded = {(("id", f"s{i}"), 1 + i % 2) for i in range(20)}
    gate = Gate(Rules(Policy.PARALLEL), [task], 3, done={}, interrupt=lambda *_: True, excluded=excluded)
    started = []

    async def attempt(sample: str, number: int) -> None:
        turn = gate.turn(("id", sample), number)
        if await turn.admitted():
            started.append((("id", sample), number))
        turn.left()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for number in (1, 2):
            for sample in task.sample_ids:
                group.create_task(attempt(sample, number))
    assert sorted(started) == sorted(
        (("id", sample), number)
        for sample in task.sample_ids
        for number in (1, 2)
        if (("id", sample), number) not in excluded
    )
