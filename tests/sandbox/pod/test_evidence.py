"""What a worker keeps of attempts whose sandboxes are pods, and how it puts that back to score it again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from inspect_ai.util import SandboxEnvironment

from hawk.core.attempts.results import Outcome, Result
from hawk.core.plan import Plan, PlanTask
from hawk.runner import evidence, restoring
from hawk.runner.evidence import Evidence
from hawk.runner.rescore import Source
from hawk.runner.restoring import Rescored
from hawk.runner.workerhome import Share
from hawk.sandbox.pod import workspace
from hawk.sandbox.pod.provider import PodSandbox
from hawk.store.attempts import WORKSPACE, attempt_directory, write_result
from hawk.store.rundir import RunDir
from tests.kube.fake import Fake
from tests.sandbox.pod.conftest import Make
from tests.store.runs import make_run

TASK = PlanTask("id", "t", "m", ["a"], 20, agent="agent")
SHARE = Share(["id"], 20)


@pytest.fixture
def home(kube: Fake, tmp_path: Path) -> Path:
    found = tmp_path / "work"
    found.mkdir()
    kube.home = str(found)
    return found


def written(run: RunDir, one: Evidence, epoch: int, **fields: object) -> Result:
    """The result of an attempt as the evidence has it."""
    key = (("id", "a"), epoch)
    kept = one._kept.pop(key)
    draft, found = kept if isinstance(kept, tuple) else (None, None)
    result = Result(
        pair=TASK.pair("a"),
        attempt=epoch,
        outcome=Outcome.PASS,
        sandbox=one._sandboxes.pop(key),
        workspace=found,
        workspace_error=None if found is not None else str(kept),
        **fields,  # type: ignore[arg-type]
    )
    write_result(run, result, workspace=draft)
    return result


async def scored(
    one: Evidence, environments: dict[str, SandboxEnvironment], epoch: int, *, canceled: bool = False
) -> None:
    await one.scoring("id", "a", epoch, environments, canceled)


async def test_a_pods_workspace_is_kept_by_one_more_request_and_put_back_to_be_scored_again(
    kube: Fake, make: Make, home: Path, tmp_path: Path
) -> None:
    old, new = make_run(tmp_path, "old"), make_run(tmp_path, "new", rescore="old")
    one = Evidence(old, Plan("old", [TASK]), SHARE, 0)
    (home / "answer").write_text("42")
    async with make() as environments:
        before = len(kube.asked)
        await scored(one, environments, 1)
        assert len(kube.asked) - before == 1
        result = written(old, one, 1)
        assert result.sandbox is not None
        assert result.workspace is not None
        assert (result.sandbox.type, result.workspace.files) == ("pod", 1)
        assert (attempt_directory(old, result.pair, 1) / WORKSPACE).is_file()
        (home / "answer").unlink()
        (home / "left by the setup").write_text("x")
        again = Rescored(new, Plan("new", [TASK], rescore="old"), SHARE, 0, Source(new, "old"))
        await again.sandboxes("id", "a", 1, environments)
        assert [path.name for path in home.iterdir()] == ["answer"]


async def test_what_can_not_be_kept_is_said_and_fails_no_attempt(
    kube: Fake, make: Make, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path, "a")
    one = Evidence(run, Plan("a", [TASK]), SHARE, 0)
    async with make() as environments:
        with monkeypatch.context() as patch:
            patch.setattr(evidence, "EXPORT_TIME", 0.3)
            patch.setattr(workspace, "_PACK", "exec sleep 300")
            await scored(one, environments, 1)
        with monkeypatch.context() as patch:
            patch.setattr(workspace, "_PACK", "echo /work; exit 42")
            await scored(one, environments, 2)
        await kube.end_pod(environments["default"].as_type(PodSandbox).box.tracked.name)
        async with asyncio.timeout(100):
            while environments["default"].as_type(PodSandbox).box.lost is None:
                await asyncio.sleep(0.01)
        await scored(one, environments, 3)
    said = [written(run, one, epoch).workspace_error or "" for epoch in (1, 2, 3)]
    assert said[0] == "it could not be kept within 0 s"
    assert "neither tar nor python" in said[1]
    assert said[2].startswith("its sandbox was lost: it ran out of memory")
    assert [p for p in tmp_path.rglob("*") if WORKSPACE in p.name] == []


async def test_only_a_few_are_read_at_once_and_who_is_canceled_does_not_wait_for_long(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Evidence(make_run(tmp_path, "a"), Plan("a", [TASK]), SHARE, 0)
    monkeypatch.setattr(evidence, "CANCELED_EXPORT_TIME", 0.2)
    now, most, go_on = 0, 0, asyncio.Event()

    async def slow(self: PodSandbox, target: Path, *, max_bytes: int, seconds: float) -> object:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await go_on.wait()
        now -= 1
        raise workspace.WorkspaceError("for the test")

    monkeypatch.setattr(PodSandbox, "keep_workspace", slow)
    async with make() as environments:
        work = [asyncio.ensure_future(scored(one, environments, epoch)) for epoch in range(1, 10)]
        async with asyncio.timeout(100):
            while now < evidence.PODS_AT_ONCE:
                await asyncio.sleep(0.01)
            await scored(one, environments, 10, canceled=True)
        go_on.set()
        await asyncio.gather(*work)
    assert most == evidence.PODS_AT_ONCE
    assert one._kept[("id", "a"), 10] == "too many others were being kept for 0 s"
    assert one._kept[("id", "a"), 9] == "for the test"


async def test_a_workspace_of_another_provider_is_not_put_back(
    make: Make, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = make_run(tmp_path, "old"), make_run(tmp_path, "new", rescore="old")
    one = Evidence(old, Plan("old", [TASK]), SHARE, 0)
    told: list[str] = []
    monkeypatch.setattr(restoring, "without_sandbox", lambda _, why: told.append(why))
    async with make() as environments:
        await scored(one, environments, 1)
        one._sandboxes[("id", "a"), 1] = evidence.SandboxRecord("bubblewrap")
        written(old, one, 1)
        again = Rescored(new, Plan("new", [TASK], rescore="old"), SHARE, 0, Source(new, "old"))
        await again.sandboxes("id", "a", 1, environments)
    assert told == ["its workspace can't be put back into a sandbox of another provider"]
