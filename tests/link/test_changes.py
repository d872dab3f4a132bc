"""What has changed in a tree."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hawk.link import changes, rules
from hawk.link.changes import Scanner


def scanner(root: Path) -> Scanner:
    return Scanner(root, rules.carried)


def look(found: Scanner) -> tuple[list[str], list[str]]:
    """Changes without those that are only doubted, and removals."""
    found.doubtful.clear()
    changed, removed = found.look()
    return sorted(changed), sorted(removed)


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_new_changed_and_removed_files_are_told_once(tmp_path: Path) -> None:
    put(tmp_path / "plan.json", "1")
    put(tmp_path / "attempts/p/1/result.json", "1")
    found = scanner(tmp_path)
    assert look(found) == (["attempts/p/1/result.json", "plan.json"], [])
    assert look(found) == ([], [])
    put(tmp_path / "attempts/p/2/result.json", "1")
    put(tmp_path / "workers/0/output.jsonl", "1\n")
    assert look(found)[0] == ["attempts/p/2/result.json", "workers/0/output.jsonl"]
    with (tmp_path / "workers/0/output.jsonl").open("a") as file:
        file.write("2\n")
    assert look(found) == (["workers/0/output.jsonl"], [])
    (tmp_path / "plan.json").unlink()
    (tmp_path / "attempts/p").rename(tmp_path / "attempts/q")
    found.look(everything=True)
    assert sorted(found.stamps()) == [
        "attempts/q/1/result.json",
        "attempts/q/2/result.json",
        "workers/0/output.jsonl",
    ]


def test_a_file_that_is_replaced_by_one_of_the_same_size_and_time_is_noticed(tmp_path: Path) -> None:
    put(tmp_path / "logs/a.eval", "one")
    found = scanner(tmp_path)
    look(found)
    before = (tmp_path / "logs/a.eval").stat()
    put(tmp_path / "logs/.a.eval.abcdefgh", "two")
    (tmp_path / "logs/.a.eval.abcdefgh").rename(tmp_path / "logs/a.eval")
    os.utime(tmp_path / "logs/a.eval", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert look(found) == (["logs/a.eval"], [])


def test_a_file_that_was_just_written_is_told_again(tmp_path: Path) -> None:
    put(tmp_path / "snapshot.json", "1")
    found = scanner(tmp_path)
    assert list(found.look()[0]) == ["snapshot.json"]
    assert list(found.look()[0]) == ["snapshot.json"]
    assert found.look()[0] == {}
    old = time.time() - 60
    os.utime(tmp_path / "snapshot.json", (old, old))
    assert list(found.look()[0]) == ["snapshot.json"]
    assert found.look()[0] == {}


def test_links_pipes_and_what_lies_behind_them_are_not_there(tmp_path: Path) -> None:
    put(tmp_path / "outside/x.json", "1")
    run = tmp_path / "run"
    run.mkdir()
    (run / "linked").symlink_to(tmp_path / "outside")
    (run / "x.json").symlink_to(tmp_path / "outside/x.json")
    os.mkfifo(run / "pipe.jsonl")
    assert scanner(run).look() == ({}, set())


def test_an_old_pair_is_looked_at_less_often_and_still_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "attempts/p/1/result.json", "1")
    found = scanner(tmp_path)
    look(found)
    for directory in found._directories.values():
        directory.changed -= 1000
    now = time.time_ns()
    monkeypatch.setattr(changes.time, "time_ns", lambda: now + 60 * 10**9)  # times can be trusted
    look(found)
    look(found)
    put(tmp_path / "attempts/p/1/earlier/1/result.json", "1")
    assert look(found) == ([], [])
    assert list(found.look(everything=True)[0]) == ["attempts/p/1/earlier/1/result.json"]


def test_a_file_that_goes_right_after_it_came_is_gone(tmp_path: Path) -> None:
    (tmp_path / "attempts" / "p" / "1").mkdir(parents=True)
    file = tmp_path / "attempts" / "p" / "1" / "result.json"
    file.write_text("{}")
    scanner = Scanner(tmp_path, lambda _: True)
    assert "attempts/p/1/result.json" in scanner.look(everything=True)[0]
    file.unlink()
    changed, removed = scanner.look(everything=True)
    assert (sorted(changed), removed) == ([], {"attempts/p/1/result.json"})
