"""Evals as people write them: read whole, or every problem said with its file, line and remedy."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from hawk.errors import ConfigError
from hawk.evals import tree
from hawk.evals.folder import find_evals, read_eval, read_folder, select
from tests.evals.making import PASSES, make, problems, write

FRONT = """\
---
description: Mend it.
suite: core
tags: [shell, files]
time_limit: 5m
working_limit: 90
message_limit: 30
turn_limit: 12
token_limit: 500k
cost_limit: 1.5
score_time_limit: 30s
keep_processes: true
start: |
  echo ${HOME} > here
sandbox:
  limits: {memory: 512m}
services:
  db: {command: [sleep, "9"]}
---

Mend the *thing*.

---
This line belongs to the task.
"""


def test_everything_that_an_eval_says_is_read(tmp_path: Path) -> None:
    path = write(
        tmp_path, "mend-it", **{"PROMPT.md": FRONT, "local/a/b.txt": b"\xff\x00", "local/run!": "#!/bin/sh\n"}
    )
    (path / "local" / "link").symlink_to("a/b.txt")
    eval = read_eval(path)
    assert eval.name == "mend-it"
    assert eval.prompt == "Mend the *thing*.\n\n---\nThis line belongs to the task."
    assert (eval.front.suite, eval.front.tags, eval.front.score_time_limit) == (
        "core",
        ["shell", "files"],
        30,
    )
    assert eval.front.start == "echo ${HOME} > here\n"
    assert eval.front.limits == {
        "time_limit": 300,
        "working_limit": 90,
        "message_limit": 30,
        "turn_limit": 12,
        "token_limit": 500_000,
        "cost_limit": 1.5,
    }
    assert eval.sandbox.limits.memory == 512 << 20
    assert list(eval.sandbox.services) == ["db"]
    assert eval.local.files["a/b.txt"].content == b"\xff\x00"
    assert eval.local.executables == ["run"]
    assert eval.local.links == {"link": "a/b.txt"}
    assert not eval.has_solution


@pytest.mark.parametrize(
    "text", ["Do it.", "---\n---\nDo it.\n", "\ufeff---\r\n\r\n---\r\nDo it.\r\n", "---\n# no\n---\nDo it."]
)
def test_front_matter_may_be_left_out_or_empty(tmp_path: Path, text: str) -> None:
    assert read_eval(write(tmp_path, **{"PROMPT.md": text})).prompt == "Do it."


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("---\nsuite: a\ntime_limt: 3\n---\nx", 3, "Did you mean 'time_limit'"),
        ("---\nsuite: a\n\nlimits: {messages: 3}\n---\nx", 4, "sandbox: {limits: …}"),
        ("---\ntime_limit: soon\n---\nx", 2, "'soon' is not a duration"),
        ("---\ntime_limit: 0\n---\nx", 2, "must be above zero"),
        ("---\nmessage_limit: 0\n---\nx", 2, "greater than or equal to 1"),
        ("---\ntoken_limit: many\n---\nx", 2, "has a value that is not allowed"),
        ("---\nsuite: a b\n---\nx", 2, "has a value that is not allowed"),
        ("---\nsandbox:\n  netwrk: none\n---\nx", 3, "Did you mean 'network'"),
        ("---\nsandbox:\n  setup:\n    files: {a: nowhere}\n---\nx", 4, "there is no file nowhere"),
        ("---\nservices:\n  Big: {}\n---\nx", 3, "Big"),
        ("---\nsuite: a\nsuite: b\n---\nx", 3, "given twice"),
        ("---\nsuite: [\n---\nx", 2, "bad YAML"),
        ("---\njust text\n---\nx", 2, "a mapping of fields"),
        ("---\nsuite: a\nx", 1, "has no end"),
        ("---\nsuite: a\n---\n \n", 3, "holds no task"),
        ("", 1, "holds no task"),
        ("a\0b", 1, "not a text file"),
        ("---\nsandbox: {services: {a: {}}}\nservices: {b: {}}\n---\nx", None, "given twice"),
    ],
)
def test_a_mistake_in_the_front_matter_names_its_line(
    tmp_path: Path, text: str, line: int | None, words: str
) -> None:
    [problem] = problems(write(tmp_path, **{"PROMPT.md": text}))
    assert problem.file == "one/PROMPT.md"
    assert problem.line == line
    assert words in problem.render()


def test_text_that_is_no_text_is_refused(tmp_path: Path) -> None:
    [problem] = problems(write(tmp_path, **{"PROMPT.md": b"\xff\xfe\x00"}))
    assert "UTF-8" in problem.message


def test_a_sandbox_may_be_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "shared.yaml").write_text("network: host\n")
    prompt = "---\nsandbox: ../shared.yaml\n---\nDo it."
    assert read_eval(write(tmp_path, **{"PROMPT.md": prompt})).sandbox.network == "host"
    (tmp_path / "shared.yaml").write_text("network: some\n")
    [problem] = problems(tmp_path / "one")
    assert problem.file.endswith("shared.yaml")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"EVAL.py": "def score(sandbox): ..."}, "must be 'async def score(sandbox)'"),
        ({"EVAL.py": "async def score(): ..."}, "must take the sandbox"),
        ({"EVAL.py": "async def scores(sandbox): ..."}, "Did you mean 'score'"),
        ({"EVAL.py": "async def other(sandbox): ..."}, "defines no function"),
        ({"EVAL.py": "async def score(sandbox:\n"}, "not valid Python"),
        ({"EVAL.py": "a = '\0'"}, "not valid Python"),
        ({"EVAL": "echo hello\n"}, "first line must say what runs it"),
        ({"EVAL": "#!/bin/sh\n", "EVAL.py": PASSES}, "both EVAL.py and EVAL"),
        ({"EVAL": "#!/bin/sh\n", "solutions/a": "x"}, "Did you mean 'solution/'"),
    ],
)
def test_a_scorer_that_can_not_work_is_found_without_running_it(
    tmp_path: Path, files: dict[str, str], words: str
) -> None:
    assert any(words in problem.render() for problem in problems(write(tmp_path, **files)))


def test_a_scorer_may_be_imported_or_assigned(tmp_path: Path) -> None:
    read_eval(write(tmp_path, "a", **{"EVAL.py": "from shared import score\n"}))
    read_eval(write(tmp_path, "b", **{"EVAL.py": "score = make()\n"}))


def test_a_missing_scorer_is_named_with_what_was_meant(tmp_path: Path) -> None:
    path = write(tmp_path)
    (path / "EVAL.py").rename(path / "eval.py")
    [problem] = problems(path)
    assert "has no scorer; rename eval.py" in problem.message


def test_whether_a_scorer_asks_a_judge_is_seen(tmp_path: Path) -> None:
    asks = "async def score(sandbox):\n    return {'passed': (await sandbox.judge('good?', 'x')).passed}\n"
    assert make(tmp_path, "a", **{"EVAL.py": asks}).script.asks_judge
    assert not make(tmp_path, "b").script.asks_judge


@pytest.mark.parametrize("target", ["/etc/passwd", "../EVAL.py", "a/../../x", ".."])
def test_links_that_lead_outside_are_refused(tmp_path: Path, target: str) -> None:
    path = write(tmp_path, **{"local/file": "x"})
    (path / "local" / "link").symlink_to(target)
    [problem] = problems(path)
    assert problem.file == "one/local/link"
    assert "leads outside" in problem.message


def test_a_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    (path / "local").symlink_to("/etc")
    [problem] = problems(path)
    assert "is a symbolic link" in problem.message


def test_what_is_no_file_is_refused_and_named(tmp_path: Path) -> None:
    path = write(tmp_path, **{"tests/a": "x"})
    os.mkfifo(path / "tests" / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path / "tests" / "s"))
        found = {problem.file: problem.message for problem in problems(path)}
    assert set(found) == {"one/tests/pipe", "one/tests/s"}


def test_names_that_nothing_can_carry_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, **{"local/fine: with * and 'quotes'": "x"})
    read_eval(path)
    (path / "local" / "two\nlines").touch()
    Path(os.fsdecode(os.fsencode(path / "local") + b"/\xff\xfe")).touch()
    found = problems(path)
    assert len(found) == 2
    assert all("\n" not in problem.render() for problem in found)
    assert {"has control characters in its name", "has a name that is not UTF-8"} == {
        p.message for p in found
    }


def test_sizes_and_numbers_of_files_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, **{"local/big": b"x" * 101, "local/b": b"x" * 60, "local/c": b"x" * 60})
    read_eval(path)
    monkeypatch.setattr(tree, "MAX_FILE", 100)
    assert [problem.file for problem in problems(path)] == ["one/local/big"]
    monkeypatch.setattr(tree, "MAX_BYTES", 100)
    assert any("holds more than" in problem.message for problem in problems(path))
    monkeypatch.setattr(tree, "MAX_FILES", 1)
    assert any("more than 1 files" in problem.message for problem in problems(path))


def test_an_evals_name_must_fit_into_paths_and_patterns(tmp_path: Path) -> None:
    for name in ("has space", "star*", "-dash", "x" * 101):
        assert "can't be an eval's name" in problems(write(tmp_path, name))[0].message


def test_all_evals_of_a_folder_are_read_in_order_and_all_mistakes_said(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        write(tmp_path, name)
    (tmp_path / "experiments").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "README.md").touch()
    assert [eval.name for eval in read_folder(tmp_path)] == ["a", "b", "c"]
    assert [eval.name for eval in read_folder(tmp_path / "b")] == ["b"]
    (tmp_path / "a" / "PROMPT.md").rename(tmp_path / "a" / "prompt.md")
    write(tmp_path, "b", **{"PROMPT.md": ""})
    with pytest.raises(ConfigError) as caught:
        read_folder(tmp_path, "evals")
    assert [p["file"] for p in caught.value.fields["problems"]] == ["evals/b/PROMPT.md", "evals/a/PROMPT.md"]
    assert "Did you mean 'prompt.md'" in caught.value.message


def test_a_folder_without_evals_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, words in ((tmp_path, "holds no evals"), (tmp_path / "x", "does not exist")):
        with pytest.raises(ConfigError, match=words):
            read_folder(path)
    assert find_evals(tmp_path / "x") == []


def test_evals_are_chosen_by_name_and_suite(tmp_path: Path) -> None:
    for name, front in {"a-one": "suite: core", "a-two": "suite: slow", "b": ""}.items():
        make(tmp_path, name, front)
    evals = read_folder(tmp_path)

    def names(*, evals_: list[str] | None = None, suites: list[str] | None = None) -> list[str]:
        return [eval.name for eval in select(evals, evals_ or [], suites or [])]

    assert names() == ["a-one", "a-two", "b"]
    assert names(evals_=["a-*"]) == ["a-one", "a-two"]
    assert names(suites=["core"]) == ["a-one"]
    assert names(evals_=["b", "a-*"], suites=["s*"]) == ["a-two"]
    for wrong, words in (({"evals_": ["a-on"]}, "Did you mean 'a-one'"), ({"suites": ["cor"]}, "'core'")):
        with pytest.raises(ConfigError, match=words):
            names(**wrong)
    with pytest.raises(ConfigError, match="None of the evals"):
        names(evals_=["b"], suites=["core"])


def test_the_digest_changes_with_everything_that_may_change_an_outcome(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"local/a": "x", "tests/t": "x", "service/s.py": "x"}
    front = "services: {api: {setup: {files: {s.py: service/s.py}}}}"
    seen = [make(tmp_path, front=front, **files).digest]
    assert make(tmp_path, front=front, **files).digest == seen[0]
    for change in (
        {"local/a": "y"},
        {"tests/t": "y"},
        {"service/s.py": "y"},
        {"EVAL.py": PASSES + "#"},
        {"local/b": ""},
    ):
        seen.append(make(tmp_path, front=front, **{**files, **change}).digest)
    seen.append(make(tmp_path, front=front + "\ntime_limit: 5", **files).digest)
    (tmp_path / "one" / "local" / "a").chmod(0o755)
    seen.append(read_eval(tmp_path / "one").digest)
    assert len(set(seen)) == len(seen)
    write(tmp_path, **{"solution/a": "z"})
    assert make(tmp_path, front=front + "\ntime_limit: 5", **files).digest in seen
