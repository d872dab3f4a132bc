"""What a plan is told of earlier attempts: files that people write, and a file that may be damaged."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hawk.core.attempts.history import Past
from hawk.core.attempts.results import Pair
from hawk.runner.pasts import read_history
from hawk.store.rundir import JobSpec, RunDir, write_json

HEADER = "task,sample,model,duration_s"
OURS = [Past(Pair("t", "s", "m"), 3.0, True)]


def read(tmp_path: Path, text: str | bytes | None, name: str = "past.csv") -> tuple[list[Past], list[str]]:
    """With a file of that content beside the eval set; None: the eval set names none."""
    attempts = {} if text is None else {"history": name}
    if isinstance(text, str):
        text = text.encode()
    if text is not None:
        (tmp_path / "past.csv").write_bytes(text)
    spec = JobSpec("job", str(tmp_path), {"attempts": attempts})
    return read_history(RunDir(tmp_path), spec)


def only(found: tuple[list[Past], list[str]]) -> Past:
    [past], problems = found
    assert problems == []
    return past


def problem(found: tuple[list[Past], list[str]]) -> str:
    past, [line] = found
    assert past == []
    return line


def test_without_any_there_is_nothing_to_know(tmp_path: Path) -> None:
    assert read(tmp_path, None) == ([], [])


def test_what_the_server_wrote_comes_first(tmp_path: Path) -> None:
    write_json(RunDir(tmp_path).history_file, OURS)
    assert read(tmp_path, None) == (OURS, [])
    past, problems = read(tmp_path, f"{HEADER}\nt,s,m,8\n")
    assert problems == []
    assert [row.seconds for row in past] == [3.0, 8.0]


def test_every_column_is_read_in_any_order_whatever_else_is_there(tmp_path: Path) -> None:
    text = "outcome,model,agent,tokens,note,duration_s,cost_usd,task,sample\npass,m,a,12.0,x,1.5,0.25,t,s\n"
    assert only(read(tmp_path, text)) == Past(Pair("t", "s", "m", "a"), 1.5, True, 12, 0.25)


@pytest.mark.parametrize(
    ("columns", "cells", "passed"),
    [
        ("outcome", "pass", True),
        ("outcome", "fail", False),
        ("outcome", "timeout", False),
        ("passed", "1", True),
        ("passed", "True", True),
        ("passed", "yes", True),
        ("passed", "0", False),
        ("passed", "", False),
        ("outcome,passed", ",1", True),
    ],
)
def test_a_pass_has_several_spellings(tmp_path: Path, columns: str, cells: str, passed: bool) -> None:
    assert only(read(tmp_path, f"{HEADER},{columns}\nt,s,m,1,{cells}\n")).passed is passed


@pytest.mark.parametrize("outcome", ["infra_error", "scorer_error", "canceled", "missing"])
def test_how_long_an_attempt_without_a_result_took_says_nothing(tmp_path: Path, outcome: str) -> None:
    text = f"{HEADER},outcome\nt,s,m,1,{outcome}\nt,s,m,2,fail\nt,s,m,,missing\n"
    assert only(read(tmp_path, text)).seconds == 2.0


@pytest.mark.parametrize("text", [f"\ufeff{HEADER}\r\nt,s,m,1\r\n", f'{HEADER}\n"t",s,"m","1"\n\n'])
def test_files_of_spreadsheets_are_read(tmp_path: Path, text: str) -> None:
    assert only(read(tmp_path, text)).pair == Pair("t", "s", "m")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no column task, sample, model, duration_s"),
        ("task,model,duration_s\n", "no column sample"),
        (f"{HEADER}\nt,s,m,1\nt,s,m,soon\n", "line 3: could not convert string to float"),
        (f"{HEADER}\nt,s,m,nan\n", "line 2: nan is out of range"),
        (f"{HEADER}\nt,s,m,inf\n", "line 2: inf is out of range"),
        (f"{HEADER}\nt,s,m,-1\n", "line 2: -1 is out of range"),
        (f"{HEADER},tokens\nt,s,m,1,1e400\n", "line 2: 1e400 is out of range"),
        (f"{HEADER},cost_usd\nt,s,m,1,nan\n", "line 2: nan is out of range"),
        (f"{HEADER},outcome\nt,s,m,1,won\n", "line 2: 'won' is not a valid Outcome"),
        (b"\xff\xfe\x00", "can't decode"),
        (f"{HEADER}\nt,s,m,1\n".encode() + b"\xff\n", "can't decode"),
        (f'{HEADER}\n"{"x" * 200_000}",s,m,1\n', "field larger than field limit"),
    ],
    ids=lambda value: str(value)[:20] if isinstance(value, str) else "bytes",
)
def test_a_file_that_can_t_be_used_is_named_with_the_reason(
    tmp_path: Path, text: str | bytes, why: str
) -> None:
    line = problem(read(tmp_path, text))
    assert line.startswith(f"attempts.history: {tmp_path / 'past.csv'}: ")
    assert why in line
    assert len(line) < 600


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "No such file" in problem(read(tmp_path, "", name="gone.csv"))


@pytest.mark.timeout(20)
def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "it is no file" in problem(read(tmp_path, "", name="pipe"))
    assert "it is no file" in problem(read(tmp_path, "", name="."))


def test_a_damaged_file_of_the_servers_is_named_and_the_other_is_used(tmp_path: Path) -> None:
    RunDir(tmp_path).history_file.write_text('[{"pair": ')
    past, [line] = read(tmp_path, f"{HEADER}\nt,s,m,8\n")
    assert [row.seconds for row in past] == [8.0]
    assert "history.json" in line
    _, [line, other] = read(tmp_path, "nothing\n")
    assert "history.json" in line
    assert "no column" in other


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_text_whatever_breaks_a_plan(tmp_path: Path, text: str) -> None:
    for content in (text, f"{HEADER},outcome,tokens,cost_usd\n{text}", f"{HEADER}\na,b,c,{text}"):
        past, problems = read(tmp_path, content)
        assert len(problems) <= 1
        assert all(math.isfinite(row.seconds) and row.seconds >= 0 for row in past)
