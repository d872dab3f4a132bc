"""Stacks are taken from outside too, and where something can't be taken it is said why."""

from __future__ import annotations

import itertools
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawk import pyspy
from hawk.core.recorder.fatal import read_fatal
from hawk.core.recorder.stacks import Chain, Frame, StackRecord, Thread, Who
from hawk.core.recorder.stacktext import render
from hawk.core.recorder.stalls import LONGEST, Pace, Signs, Stall, stalls
from hawk.runner import memory, stacktaking
from hawk.runner.processes import Worker
from hawk.store import stacks
from tests.system import until

BUSY = "import re\nprint('up', flush=True)\ndef work():\n    re.match('(a+)+$', 'a' * 60 + 'b')\nwork()\n"


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """A process that C code holds for good."""
    file = tmp_path_factory.mktemp("busy") / "busy.py"
    file.write_text(BUSY)
    process = subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    yield process
    process.kill()
    process.wait()


def worker(home: Path, process: subprocess.Popen[str]) -> Worker:
    (home / "stacks").mkdir(exist_ok=True)
    return Worker(0, home, home, (), process.pid)


def test_a_process_that_is_held_in_c_is_seen_from_outside(
    busy: subprocess.Popen[str], tmp_path: Path
) -> None:
    def held() -> StackRecord | None:
        record = stacktaking.take(worker(tmp_path, busy), "asked")
        return record if record.threads and record.threads[0].frames[-1].function == "match" else None

    record = until("the thread is seen in the expression", held, 20)
    assert record.live
    assert [f.function for f in record.threads[0].frames] == ["<module>", "work", "match"]
    assert record.threads[0].gil
    assert "can't be reached" in record.missing["await chains"]


def test_native_frames_are_there_on_request(busy: subprocess.Popen[str], tmp_path: Path) -> None:
    record = stacktaking.take(worker(tmp_path, busy), "asked", native=True)
    assert record.native
    names = {f.function for thread in record.threads for f in thread.frames}
    assert any(name.startswith("_sre") or "sre" in name.lower() for name in names), names


def test_where_ptrace_is_forbidden_it_is_said_and_the_chains_of_before_are_there(
    busy: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, setpriv = pyspy.find(), shutil.which("setpriv")
    if program is None or setpriv is None:
        pytest.skip("NOT TESTED: needs py-spy and setpriv")
    plain = tmp_path / "py-spy"
    plain.write_text(
        f'#!/bin/sh\nexec {setpriv} --reuid 65534 --clear-groups --bounding-set -sys_ptrace {program} "$@"\n'
    )
    plain.chmod(0o755)
    if subprocess.run([plain, "--version"], capture_output=True).returncode != 0:
        pytest.skip("NOT TESTED: takes root, to become somebody else, who may run py-spy")
    monkeypatch.setattr(pyspy, "find", lambda: str(plain))
    its = worker(tmp_path, busy)
    before = StackRecord(
        "2026-01-01T00:00:00+00:00", 0, busy.pid, "last", chains=[Chain((Frame("f.py", 3, "f"),), 1)]
    )
    stacks.keep(its.home, before)
    record = stacktaking.take(its, "asked")
    assert "ptrace" in record.missing["threads"]
    assert record.threads == []
    assert record.chains == before.chains
    assert record.chains_at == before.at


def test_a_process_that_has_gone_is_not_live(tmp_path: Path) -> None:
    process = subprocess.Popen(["true"], text=True)
    process.wait()
    assert not stacktaking.take(worker(tmp_path, process), "asked").live


def test_what_python_writes_at_a_fault_is_read(tmp_path: Path) -> None:
    code = """
import ctypes, faulthandler, sys, threading, time
faulthandler.enable(open(sys.argv[1], "w"), all_threads=True)
def wait():
    time.sleep(100)
def fall():
    ctypes.string_at(0)
threading.Thread(target=wait, daemon=True).start()
fall()
"""
    (tmp_path / "stacks").mkdir()
    file = tmp_path / "fall.py"
    file.write_text(code)
    done = subprocess.run([sys.executable, str(file), str(stacks.fatal_file(tmp_path))])
    assert done.returncode == -11
    chains = [Chain((Frame("f.py", 3, "f"),), 1, [Who("t", "s", 1, "u")])]
    stacks.keep(tmp_path, StackRecord("2026-01-01T00:00:00+00:00", 3, 77, "last", tasks=5, chains=chains))
    record = stacks.last_record(tmp_path)
    assert record is not None
    assert record.ended == "Segmentation fault"
    died = next(thread for thread in record.threads if thread.gil)
    assert [f.function for f in died.frames][-2:] == ["fall", "string_at"]
    assert died.frames[-2].line == code.splitlines().index("    ctypes.string_at(0)") + 1
    assert any(f.function == "wait" for t in record.threads if not t.gil for f in t.frames)
    assert (record.worker, record.pid, record.chains) == (3, 77, chains)


@given(st.text())
def test_whatever_stands_in_the_file_of_a_fault_is_read(text: str) -> None:
    found = read_fatal(f"Fatal Python error: {text}", at="2026-01-01T00:00:00+00:00")
    assert found is None or found.why == "fatal"


def test_the_tightest_limit_of_memory_is_found(busy: subprocess.Popen[str]) -> None:
    plain = memory.look(busy.pid)
    vms = 1 << 40
    resource.prlimit(busy.pid, resource.RLIMIT_AS, (vms, vms))
    limited = memory.look(busy.pid)
    assert limited is not None
    assert plain is None or plain.share >= 0
    resource.prlimit(busy.pid, resource.RLIMIT_AS, (1 << 26, vms))
    tight = memory.look(busy.pid)
    assert tight is not None
    assert (tight.where, tight.limit) == ("RLIMIT_AS", 1 << 26)
    assert tight.share > 0


HOSTILE = "\x1b]0;owned\x07\x1b[31mred\n\u202e"


def test_hostile_names_reach_no_terminal() -> None:
    who = Who(HOSTILE, HOSTILE, 1, "u")
    where = Frame(f"/x/{HOSTILE}.py", 1, HOSTILE)
    record = StackRecord(
        "2026-01-01T00:00:00+00:00",
        0,
        1,
        threads=[Thread(HOSTILE, 1, (where,), loop=True, gil=True, attempt=who)],
        loop_lag=9.0,
        chains=[Chain((where,), 1, [who])],
        missing={"threads": HOSTILE},
        ended=HOSTILE,
    )
    text = render([record], everything=True)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", text)
    assert "red" in text.splitlines()[0]


@given(
    silence=st.none() | st.floats(0, 1e6),
    lag=st.floats(0, 1e6),
    idle=st.none() | st.floats(0, 1e6),
    longest=st.floats(0, 1e6),
)
def test_no_stall_is_seen_in_what_is_as_expected(
    silence: float | None, lag: float, idle: float | None, longest: float
) -> None:
    found = stalls(Signs(silence, lag, idle, longest))
    assert (Stall.SILENT in found) == (silence is not None and silence > 10)
    assert (Stall.LOOP_BLOCKED in found) == (Stall.SILENT not in found and lag > 5)
    assert (Stall.NO_PROGRESS in found) == (idle is not None and idle > max(120, 2 * longest))


def test_a_stall_that_goes_on_is_recorded_ever_more_seldom() -> None:
    pace = Pace()
    times = [now for now in range(0, 100_000, 10) if pace.due(Stall.SILENT, now)]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert times[0] == 0
    assert gaps == sorted(gaps)
    assert gaps[0] <= 40
    assert gaps[-1] == LONGEST
    pace.over(Stall.SILENT)
    assert pace.due(Stall.SILENT, 100_000)
