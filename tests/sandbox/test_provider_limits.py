"""Limits of sandboxes in real evals: held, and told as what they are, to the model and in the transcript."""

from __future__ import annotations

import time
from typing import Any

import pytest
from inspect_ai.log import EvalSample
from inspect_ai.tool import bash
from inspect_ai.util import SandboxEnvironment, SandboxUnavailableError

from hawk.sandbox.provider import BubblewrapSandbox
from tests.sandbox.evals import in_sample, play
from tests.sandbox.programs import needs

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home"), pytest.mark.timeout(240)]

MEMORY_BOMB = "head -c 300M /dev/zero | tail > /dev/null; echo ended with $? >&2; exit 1"
FORK_BOMB = """
bomb() { bomb | bomb & }
bomb 2>/dev/null
sleep 0.5
exit 1
"""


def told(sample: EvalSample) -> list[str]:
    """Limits that the transcript says were hit."""
    rows = [event.data for event in sample.events if event.event == "info" and event.source == "hawk"]
    return [row["sandbox"] for row in rows if isinstance(row, dict)]


def kept_by(limit: str) -> str:
    """What keeps a limit on this machine, for this user."""

    async def work(box: SandboxEnvironment) -> str:
        return box.as_type(BubblewrapSandbox).box.kept_by[limit]

    result: str = in_sample(work)
    return result


def run_in_bash(
    command: str, limits: dict[str, Any], after: str = "echo usable"
) -> tuple[str, str, list[str]]:
    """What the model reads of a command and of the next one, and what the transcript tells."""
    moves = [("bash", {"command": command}), ("bash", {"command": after})]
    (first, second), sample = play(moves, [bash(timeout=150)], {"limits": limits})
    return first, second, told(sample)


def test_a_memory_bomb_is_killed_and_called_so() -> None:
    first, second, events = run_in_bash(MEMORY_BOMB, {"memory": "64m"})
    assert second == "usable\n"
    if kept_by("memory") == "cgroup":
        assert "ended with 137" in first
        assert "[sandbox] oom_killed: a process was killed: the sandbox's memory limit was reached" in first
        assert events == ["oom_killed"]
    else:
        assert "memory exhausted" in first


@needs("python3")
def test_memory_is_counted_over_all_processes() -> None:
    if kept_by("memory") != "cgroup":
        pytest.skip("without cgroups memory is limited for each process by itself")
    each = "python3 -c 'x = bytearray(40 << 20); import time; time.sleep(20)' & "
    first, second, events = run_in_bash(
        f"{each * 4} wait %1 && wait %2 && wait %3 && wait %4", {"memory": "100m"}
    )
    assert "oom_killed" in first
    assert (second, events) == ("usable\n", ["oom_killed"])


def test_a_full_workspace_is_called_so() -> None:
    fill = "head -c 20M /dev/zero > a && head -c 20M /dev/zero > /tmp/b"
    first, second, events = run_in_bash(fill, {"workspace": "32m"}, "rm a; echo x > c && cat c")
    assert "No space left on device" in first
    assert "[sandbox] disk_full: the sandbox may not write more: its workspace limit was reached" in first
    assert (second, events) == ("x\n", ["disk_full"])


def test_too_many_files_are_called_so() -> None:
    first, second, events = run_in_bash(
        "for i in $(seq 200); do : > f$i || exit 1; done", {"inodes": 100}, "rm f*; echo x > c && cat c"
    )
    assert "[sandbox] disk_full" in first
    assert (second, events) == ("x\n", ["disk_full"])


def test_a_file_that_does_not_fit_is_an_error_of_its_own() -> None:
    async def work(box: SandboxEnvironment) -> str:
        with pytest.raises(OSError, match="No space left on device"):
            await box.write_file("large", b"x" * (40 << 20))
        await box.exec(["rm", "-f", "large"])
        await box.write_file("small", "fits")
        return await box.read_file("small")

    assert in_sample(work, {"limits": {"workspace": "32m"}}) == "fits"


def test_a_sandbox_on_disk_that_writes_too_much_ends_and_says_so() -> None:
    async def work(box: SandboxEnvironment) -> str:
        with pytest.raises(SandboxUnavailableError) as caught:
            await box.exec(["sh", "-c", "for i in 1 2 3; do head -c 20M /dev/zero > $i; done; sleep 3600"])
        return str(caught.value)

    said = in_sample(work, {"limits": {"workspace": "32m"}, "storage": "disk"})
    assert "its workspace limit was reached" in said


def test_a_fork_bomb_is_held_and_called_so() -> None:
    first, second, events = run_in_bash(FORK_BOMB, {"processes": 50}, "until echo usable; do :; done")
    assert second.endswith("usable\n")
    if kept_by("processes") == "cgroup":
        assert "[sandbox] too_many_processes: a process could not be started" in first
        assert events == ["too_many_processes"]


def test_a_file_over_the_limit_kills_its_writer_and_is_called_so() -> None:
    first, second, events = run_in_bash(
        "exec head -c 2M /dev/zero > big", {"file_size": "1m"}, "stat -c %s big"
    )
    assert (
        "[sandbox] file_size: a process was killed: it wrote a file larger than the sandbox may have" in first
    )
    assert (second, events) == ("1048576\n", ["file_size"])


def test_processor_time_over_the_limit_kills_and_is_called_so() -> None:
    first, second, events = run_in_bash("exec sh -c 'while :; do :; done'", {"cpu_time": 1})
    assert "[sandbox] cpu_time: a process was killed: it used all the processor time" in first
    assert (second, events) == ("usable\n", ["cpu_time"])


def test_open_files_are_limited() -> None:
    first, _, _ = run_in_bash("ulimit -n; ulimit -c", {"open_files": 123})
    assert first == "123\n0\n"


def test_a_sandbox_that_has_lived_long_enough_ends_and_says_so() -> None:
    async def work(box: SandboxEnvironment) -> list[str]:
        said = []
        for _ in range(2):
            with pytest.raises(SandboxUnavailableError) as caught:
                await box.exec(["sleep", "3600"])
            said.append(str(caught.value))
        for attempt in (box.read_file("x"), box.write_file("x", "y")):
            with pytest.raises(SandboxUnavailableError) as caught:
                await attempt
            said.append(str(caught.value))
        return said

    said = in_sample(work, {"limits": {"wall_time": 1}})
    assert all("has lived as long as it may" in text for text in said)


def test_processors_are_shared_as_told() -> None:
    if kept_by("processes") != "cgroup":
        pytest.skip("without cgroups processors are not shared out")

    async def work(box: SandboxEnvironment) -> tuple[float, float]:
        usage = box.as_type(BubblewrapSandbox).box.usage
        began, before = time.monotonic(), (await usage())["cpu_seconds"]
        with pytest.raises(TimeoutError):
            await box.exec(["sh", "-c", "while :; do :; done"], timeout=2)
        used = (await usage())["cpu_seconds"] - before
        return used, time.monotonic() - began

    used, seconds = in_sample(work, {"limits": {"cpus": 0.25}})
    assert used < 0.25 * seconds + 0.5
