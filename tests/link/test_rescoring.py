"""A job that ran in a pod is scored again in another one, which has nothing of the first but what the server gives it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hawk.core.attempts.results import Result, Workspace
from hawk.link import rules
from hawk.store.attempts import RESULT, WORKSPACE, attempt_directory, read_results, write_result
from hawk.store.borrowed import RESCORED, borrow, other_job
from hawk.store.rundir import RunDir
from tests.link.podding import pods
from tests.runner.test_rescore import TASK, kept, result
from tests.store.runs import make_run

PACKED = b"what the agent left"


def with_workspace(run: RunDir) -> Result:
    """The first result, as if its sandbox had left a tree."""
    found = read_results(run)[0][0]
    directory = attempt_directory(run, found.pair, found.attempt)
    (directory / WORKSPACE).write_bytes(PACKED)
    changed = msgspec.structs.replace(found, workspace=Workspace(1, 2, len(PACKED)), workspace_error=None)
    (directory / RESULT).write_bytes(msgspec.json.encode(changed))
    return changed


@pytest.mark.slow
def test_a_pods_job_is_scored_again_in_a_pod_without_an_agent(tmp_path: Path) -> None:
    with pods(tmp_path) as system:
        system.submit("away", samples=1, runs=2)
        system.pod("away")
        assert system.ended("away") == 0
        system.finish("away")
        done = system.lines("away", "done")
        old = with_workspace(system.run_dir("away"))
        with system.client() as client:
            new = client.submit({"rescore": "away"}).eval_set_id
        assert system.run_dir(new).read_spec().engine == "kubernetes", "where the first one ran"
        pod = system.pod(new)
        assert system.ended(new) == 0, pod.log.read_text()
        end = system.finish(new)
        assert (end.status, end.progress.completed) == ("complete", len(done))
        assert system.lines("away", "done") == done
        results, problems = read_results(system.run_dir(new))
        assert ([r.rescored_from for r in results], problems) == (["away"] * len(done), [])
        assert all(r.scores for r in results)
        again = attempt_directory(system.run_dir(new), old.pair, old.attempt) / WORKSPACE
        assert again.read_bytes() == PACKED
        assert not (system.run_dir(new).path / RESCORED).exists(), "it is given back"
        assert not (pod.root / "runs" / "away").exists()


def test_what_is_borrowed_takes_no_room_and_is_what_the_other_job_has_now(tmp_path: Path) -> None:
    old, new = make_run(tmp_path, "old"), make_run(tmp_path, "new", rescore="old")
    kept(old, "a", 1, b"first")
    write_result(old, result("b", 1))
    borrow(new, "old")
    within = RunDir(new.path / RESCORED / "old")
    there = attempt_directory(within, TASK.pair("a"), 1) / WORKSPACE
    assert there.samefile(attempt_directory(old, TASK.pair("a"), 1) / WORKSPACE)
    assert other_job(new, "old") == old
    write_result(old, result("b", 2))
    borrow(new, "old")
    assert len(read_results(within)[0]) == 3
    (tmp_path / "old").rename(tmp_path / "moved")
    borrow(new, "old")
    assert other_job(new, "old") == within
    assert len(read_results(other_job(new, "old"))[0]) == 3, "of a job that is gone, what was there"


def test_what_is_borrowed_is_given_with_its_workspaces_and_is_the_servers() -> None:
    pair = TASK.pair("a").directory
    workspace = f"{RESCORED}/old/attempts/{pair}/1/{WORKSPACE}"
    assert rules.wanted_to_begin(workspace)
    assert rules.owner(workspace, spans=True) is rules.Owner.SERVER
