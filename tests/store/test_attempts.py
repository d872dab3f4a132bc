"""The attempts folder: read whatever is in it, written so that no kill leaves a lie."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from hawk.core.attempts.results import Outcome, Pair, Result, Scored, Workspace
from hawk.core.plan import Plan, PlanTask
from hawk.errors import StorageError
from hawk.store.attempts import (
    LARGEST,
    LEFT_BEHIND,
    attempt_directory,
    planned_pairs,
    read_results,
    set_aside,
    sweep_drafts,
    workspace_draft,
    write_result,
)
from hawk.store.rundir import RunDir
from tests.store.hostile import NAMES

PAIR = Pair("coding", "s1", "mock/one", "react")


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    found = RunDir(tmp_path / "job")
    found.create()
    return found


def result(outcome: Outcome = Outcome.PASS, pair: Pair = PAIR, attempt: int = 1, **fields: object) -> Result:
    return Result(pair, attempt, outcome, **fields)  # type: ignore[arg-type]


def put(run: RunDir, pair: Pair, attempt: int | str, data: bytes) -> Path:
    path = run.path / "attempts" / pair.directory / str(attempt) / "result.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def with_workspace(run: RunDir, content: bytes, outcome: Outcome = Outcome.FAIL) -> None:
    draft = workspace_draft(run, PAIR, 1)
    draft.write_bytes(content)
    write_result(run, result(outcome, workspace=Workspace(1, len(content), len(content))), workspace=draft)


# --- reading


def test_what_is_written_is_read_back_in_order_of_attempts(run: RunDir) -> None:
    written = [result(attempt=k, scores={"v": Scored("C", "42", "right")}) for k in (1, 2, 10)]
    for one in reversed(written):
        write_result(run, one)
    assert read_results(run) == (written, [])


def test_a_run_without_attempts_has_no_results(run: RunDir) -> None:
    assert read_results(run) == ([], [])


def test_ten_thousand_results_are_read(run: RunDir) -> None:
    for i in range(2500):
        pair = Pair("coding", f"s{i}", "mock/one")
        for k in range(1, 5):
            put(run, pair, k, msgspec.json.encode(result(Outcome.FAIL, pair, k)))
    results, problems = read_results(run)
    assert problems == []
    assert len({(r.pair, r.attempt) for r in results}) == 10_000


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_stay_in_the_folder_and_come_back(run: RunDir, name: str) -> None:
    pairs = [Pair(name, "s", "m"), Pair("t", name, "m"), Pair("t", "s", name, name)]
    for pair in pairs:
        assert attempt_directory(run, pair, 1).parents[1] == run.path / "attempts"
        assert len(pair.directory.encode()) < 200
        write_result(run, result(pair=pair))
    found, problems = read_results(run)
    assert problems == []
    assert {r.pair for r in found} == set(pairs)


def test_pairs_that_look_alike_do_not_share_a_directory() -> None:
    alike = [
        Pair("a", "b", "c"),
        Pair("a", "b", "c", ""),
        Pair("a b", "", "c"),
        Pair("a-b", "", "c"),
        Pair("A", "b", "c"),
    ]
    assert len({pair.directory for pair in alike}) >= 4


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (msgspec.json.encode(result())[:-20], "torn or damaged"),
        (b"\x00" * 300, "torn or damaged"),
        (b'{"hello": 1}', "torn or damaged"),
        (b"[" * 200_000, "torn or damaged"),
        (b'{"scores": {"v": {"value": ' + b"[" * 5000 + b"]" * 5000 + b"}}}", "torn or damaged"),
        (msgspec.json.encode(result(Outcome.PASS)).replace(b'"pass"', b'"won"'), "torn or damaged"),
        (msgspec.json.encode(result(version=2)), "newer Hawk"),
        (msgspec.json.encode(result(attempt=3)), "is of attempt 3"),
        (msgspec.json.encode(result(pair=Pair("\x1b[2Jother", "s1", "m"))), "belongs to another pair: other"),
        (b" " * (LARGEST + 1), "larger than"),
    ],
)
def test_what_is_no_result_is_named_and_the_rest_is_read(run: RunDir, data: bytes, why: str) -> None:
    put(run, PAIR, 1, data)
    write_result(run, result(attempt=2))
    results, [problem] = read_results(run)
    assert [r.attempt for r in results] == [2]
    assert problem.startswith(f"attempts/{PAIR.directory}/1/result.json: ")
    assert why in problem
    assert problem.isprintable()


def test_links_pipes_and_directories_in_a_results_place_are_named(run: RunDir, tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_bytes(msgspec.json.encode(result()))
    put(run, PAIR, 1, b"").unlink()
    attempt_directory(run, PAIR, 1).joinpath("result.json").symlink_to(real)
    os.mkfifo(put(run, PAIR, 2, b"").with_name("pipe"))
    put(run, PAIR, 2, b"").unlink()
    attempt_directory(run, PAIR, 2).joinpath("pipe").rename(attempt_directory(run, PAIR, 2) / "result.json")
    attempt_directory(run, PAIR, 3).joinpath("result.json").mkdir(parents=True)
    results, problems = read_results(run)
    assert results == []
    assert ["is a link" in problems[0], "is empty" in problems[1], "can't be read" in problems[2]] == [
        True
    ] * 3


def test_foreign_entries_are_named_and_temporary_ones_are_not(run: RunDir) -> None:
    write_result(run, result())
    folder = run.path / "attempts"
    (folder / "notes.txt").write_text("hello")
    (folder / ".trash").mkdir()
    (folder / PAIR.directory / "01").mkdir()
    (folder / PAIR.directory / "best").mkdir()
    (folder / PAIR.directory / "2").mkdir()  # under way
    (folder / PAIR.directory / "1" / ".result.json.x").write_text("{")
    (folder / "elsewhere").symlink_to("/")
    Path(os.fsdecode(os.fsencode(folder / PAIR.directory) + b"/\xff\xfe\x1b[2J")).mkdir()
    results, problems = read_results(run)
    assert len(results) == 1
    said = "\n".join(problems)
    assert [name in said for name in ("notes.txt", "/01:", "/best:", "elsewhere")] == [True] * 4
    assert len(problems) == 5
    assert all(problem.isprintable() for problem in problems)
    msgspec.json.encode(problems)


def test_planned_pairs_follow_the_plan() -> None:
    tasks = [
        PlanTask("i1", "b", "m", ["2", "1"], 3, agent="react"),
        PlanTask("i2", "a", "m", ["x"], 1),
    ]
    assert planned_pairs(Plan("job", tasks)) == [
        (Pair("b", "2", "m", "react"), 3),
        (Pair("b", "1", "m", "react"), 3),
        (Pair("a", "x", "m"), 1),
    ]


# --- writing


def test_an_earlier_result_and_its_workspace_are_kept_each_time(run: RunDir) -> None:
    for content in (b"one", b"two", b"three"):
        with_workspace(run, content)
    home = attempt_directory(run, PAIR, 1)
    assert (home / "workspace.tar.zst").read_bytes() == b"three"
    assert [(home / "earlier" / str(n) / "workspace.tar.zst").read_bytes() for n in (1, 2)] == [
        b"one",
        b"two",
    ]
    kept = msgspec.json.decode((home / "earlier/1/result.json").read_bytes(), type=Result)
    assert kept.workspace == Workspace(1, 3, 3)
    assert sorted(p.name for p in home.iterdir()) == ["earlier", "result.json", "workspace.tar.zst"]


def test_scored_again_the_workspace_stays(run: RunDir) -> None:
    with_workspace(run, b"work")
    write_result(run, result(Outcome.PASS, workspace=Workspace(1, 4, 4)))
    home = attempt_directory(run, PAIR, 1)
    assert (
        (home / "workspace.tar.zst").read_bytes()
        == (home / "earlier/1/workspace.tar.zst").read_bytes()
        == b"work"
    )
    assert msgspec.json.decode((home / "earlier/1/result.json").read_bytes())["outcome"] == "fail"
    assert [r.outcome for r in read_results(run)[0]] == [Outcome.PASS]


def test_a_result_without_a_workspace_does_not_stand_beside_anothers(run: RunDir) -> None:
    with_workspace(run, b"old")
    write_result(run, result(Outcome.INFRA_ERROR))
    home = attempt_directory(run, PAIR, 1)
    assert not (home / "workspace.tar.zst").exists()
    assert (home / "earlier/1/workspace.tar.zst").read_bytes() == b"old"


def test_files_are_the_owners_only(run: RunDir) -> None:
    with_workspace(run, b"x")
    home = attempt_directory(run, PAIR, 1)
    assert (home / "result.json").stat().st_mode & 0o077 == 0
    assert home.stat().st_mode & 0o077 == 0


def test_a_draft_that_is_gone_leaves_everything_as_it_is(run: RunDir) -> None:
    with_workspace(run, b"old")
    with pytest.raises(StorageError):
        write_result(
            run, result(workspace=Workspace(1, 1, 1)), workspace=attempt_directory(run, PAIR, 1) / ".none"
        )
    assert [r.outcome for r in read_results(run)[0]] == [Outcome.FAIL]
    assert (attempt_directory(run, PAIR, 1) / "workspace.tar.zst").read_bytes() == b"old"


def test_a_file_in_the_way_is_said(run: RunDir) -> None:
    (run.path / "attempts").write_text("in the way")
    with pytest.raises(StorageError, match="attempts"):
        write_result(run, result())


def test_drafts_of_killed_writers_go_and_those_of_living_ones_stay(run: RunDir) -> None:
    dead, living = workspace_draft(run, PAIR, 1), workspace_draft(run, PAIR, 1)
    dead.write_bytes(b"x")
    long_ago = dead.stat().st_mtime - 2 * LEFT_BEHIND
    os.utime(dead, (long_ago, long_ago))
    living.write_bytes(b"y")
    write_result(run, result())  # by another process than the attempt's own
    assert (dead.exists(), living.exists()) == (False, True)


def test_when_a_job_has_ended_no_draft_of_anybody_stays(run: RunDir) -> None:
    write_result(run, result())
    home = attempt_directory(run, PAIR, 1)
    kept = sorted(home.rglob("*"))
    torn = home / ".result.json.14bl1vf3"
    torn.write_bytes(b"{")
    workspace_draft(run, PAIR, 2).write_bytes(b"x")
    sweep_drafts(run)
    assert sorted(home.rglob("*")) == kept
    assert list(attempt_directory(run, PAIR, 2).iterdir()) == []


def test_without_links_the_earlier_files_are_copied(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **more: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with_workspace(run, b"one")
    with_workspace(run, b"two")
    home = attempt_directory(run, PAIR, 1)
    assert (home / "earlier/1/workspace.tar.zst").read_bytes() == b"one"
    assert (home / "earlier/1/result.json").exists()


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


STEPS = ("replace", "rename", "link", "mkdir", "unlink", "fsync", "write", "open")


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Let the process die before its so-manieth change to the disk."""
    done: list[str] = []

    def dying(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **more: object) -> object:
            if len(done) == step:
                raise Killed
            done.append(name)
            return real(*args, **more)

        return call

    with monkeypatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, dying(name, getattr(os, name)))
        yield done


def evidence(run: RunDir) -> set[bytes]:
    """The content of every workspace that is kept somewhere under its final name."""
    return {path.read_bytes() for path in run.path.rglob("workspace.tar.zst")}


@pytest.mark.parametrize("again", ["rerun", "rescore", "lost"])
def test_killed_at_any_step_nothing_is_lost_torn_or_mixed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    step = 0
    while True:
        run = RunDir(tmp_path / f"{again}-{step}")
        run.create()
        with_workspace(run, b"first")
        ended = _write_again(run, again, step, monkeypatch)
        _is_true(run)
        assert b"first" in evidence(run)
        if ended:
            break
        _write_again(run, again, None, monkeypatch)
        _is_true(run)
        assert b"first" in evidence(run)
        [found], problems = read_results(run)
        assert (found.outcome, problems) == (Outcome.PASS, [])
        step += 1
    assert step > 5


def _write_again(run: RunDir, again: str, step: int | None, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the writer came to its end."""
    draft = None
    workspace = Workspace(1, 5, 5) if again == "rescore" else None
    if again == "rerun":
        draft = workspace_draft(run, PAIR, 1)
        draft.write_bytes(b"second!")
        workspace = Workspace(1, 7, 7)
    new = result(Outcome.PASS, workspace=workspace)
    if step is None:
        write_result(run, new, workspace=draft)
        return True
    try:
        with killed_at(step, monkeypatch):
            write_result(run, new, workspace=draft)
    except Killed:
        return False
    return True


def _is_true(run: RunDir) -> None:
    """There is at most one result, it is whole, and a workspace beside it is its own."""
    results, problems = read_results(run)
    assert problems == []
    assert len(results) <= 1
    home = attempt_directory(run, PAIR, 1) / "workspace.tar.zst"
    for found in results:
        assert found.outcome in (Outcome.FAIL, Outcome.PASS)
        if found.workspace is not None:
            assert home.stat().st_size == found.workspace.size
        else:
            assert not home.exists()
    for kept in run.path.rglob("earlier/[0-9]*/result.json"):
        old = msgspec.json.decode(kept.read_bytes(), type=Result)
        beside = kept.with_name("workspace.tar.zst")
        assert old.workspace is None or beside.stat().st_size == old.workspace.size


def test_setting_aside_twice_keeps_one_copy(run: RunDir) -> None:
    with_workspace(run, b"x")
    home = attempt_directory(run, PAIR, 1)
    assert set_aside(home) == set_aside(home) == home / "earlier" / "1"
    assert set_aside(attempt_directory(run, PAIR, 2)) is None
