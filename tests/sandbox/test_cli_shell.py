"""`hawk sandbox shell`: exit codes, streams, a real pseudo-terminal, fresh sandboxes and living ones."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cli.terminal import Terminal
from tests.sandbox.hawkrun import HAWK, hawk, listed, living, said, write_config
from tests.sandbox.rooms import needs_root
from tests.system import until

pytestmark = pytest.mark.slow

LOCAL_MODES = 3  # index of termios' local flags
LONG = 100.0  # seconds that ending a command may take
PROMPT = r"(?m)[$#]$"


# --- without a terminal


def test_a_command_ends_with_its_own_exit_code(home: Path) -> None:
    for script, code in (("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 128 + 9)):
        assert hawk("shell", "--", "sh", "-c", script).returncode == code
    missing = hawk("shell", "--", "no-such-program", "-x")
    assert (missing.returncode, missing.stderr) == (127, b"no-such-program: not found\n")


def test_a_script_on_standard_input_is_run(home: Path) -> None:
    done = hawk("shell", stdin="pwd; echo wrong >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"/workspace\n", b"wrong\n")


def test_streams_are_carried_whole_and_unchanged(home: Path) -> None:
    data = os.urandom(3_000_000)
    done = hawk("shell", "--", "cat", stdin=data)
    assert done.returncode == 0
    assert done.stdout == data


def test_what_runs_on_in_the_background_is_not_waited_for(home: Path) -> None:
    done = hawk("shell", "--", "sh", "-c", "sleep 3600 & echo here")
    assert (done.returncode, done.stdout) == (0, b"here\n")


def test_a_reader_that_has_enough_ends_the_command(home: Path) -> None:
    with subprocess.Popen([*HAWK, "sandbox", "shell", "--", "yes"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        assert shell.stdout.read(4) == b"y\ny\n"
        shell.stdout.close()
        assert shell.wait(120) == 128 + signal.SIGPIPE


def test_user_and_network_are_as_asked_for(home: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, "environment: {FROM: config}\nworkspace: /home/user/work")
    done = hawk("shell", config, "--", "sh", "-c", "id -u; echo $FROM; pwd")
    assert done.stdout == b"1000\nconfig\n/home/user/work\n"
    assert b"127.0.0.1" not in hawk("shell", "--", "cat", "/proc/net/route").stdout
    shut = hawk("shell", "--", "cat", "/proc/net/dev").stdout
    assert [line.split(":")[0].strip() for line in shut.decode().splitlines() if ":" in line] == ["lo"]
    opened = hawk("shell", "--network", "host", "--", "cat", "/proc/net/dev").stdout.decode()
    ours = Path("/proc/net/dev").read_text()
    assert [line.split(":")[0] for line in opened.splitlines()] == [
        line.split(":")[0] for line in ours.splitlines()
    ]


@needs_root
def test_root_of_the_sandbox_when_asked_for(home: Path) -> None:
    assert hawk("shell", "--user", "root", "--", "id", "-u").stdout == b"0\n"


def test_what_can_not_be_is_said(home: Path) -> None:
    assert "There is no sandbox 'abc'" in said("shell", "abc", code=2)
    assert "There is no such file" in said("shell", "./none.yaml", code=2)
    assert "nobody-here" in said("shell", "--user", "nobody-here", "--", "id", code=2)


def test_nothing_lives_on_after_the_shell(home: Path) -> None:
    hawk("shell", stdin="nohup sleep 300 >/dev/null 2>&1 &")
    assert listed()["sandboxes"] == []
    assert listed()["left"] == []
    assert list((home / "sandbox/keepers").iterdir()) == []


# --- a sandbox that lives


@pytest.fixture
def label(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with living(monkeypatch, environment={"WHOSE": "the worker's"}) as label:
        yield label


def test_a_living_sandbox_is_entered_by_its_label(label: str) -> None:
    assert hawk("shell", label, stdin="echo $WHOSE > said; pwd").stdout == b"/workspace\n"
    short = label.partition(".")[0]
    assert hawk("shell", short, "--", "cat", "said").stdout == b"the worker's\n"
    assert "keeps the network" in said("shell", label, "--network", "host", code=2)
    assert [row["label"] for row in listed()["sandboxes"]] == [label]


@pytest.fixture
def seconds() -> str:
    """How long a command sleeps: by which it is told from all others."""
    return str(secrets.randbelow(10**9) + 10**9)


def sleepers(seconds: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.cmdline() == ["sleep", seconds]:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_ctrl_c_kills_the_command_and_leaves_the_sandbox(label: str, seconds: str) -> None:
    with subprocess.Popen([*HAWK, "sandbox", "shell", label, "--", "sleep", seconds]) as shell:
        until("the command runs", lambda: sleepers(seconds))
        shell.send_signal(signal.SIGINT)
        assert shell.wait(120) == 130
    until("the command has ended", lambda: not sleepers(seconds))
    assert [row["label"] for row in listed()["sandboxes"]] == [label]


def test_a_shell_that_is_killed_leaves_the_sandbox_without_its_command(label: str, seconds: str) -> None:
    background = f"(setsid sleep {seconds} &); exec sleep {seconds}"
    with subprocess.Popen([*HAWK, "sandbox", "shell", label, "--", "sh", "-c", background]) as shell:
        until("the command runs", lambda: len(sleepers(seconds)) == 2)
        shell.kill()
    until("the command has ended", lambda: not sleepers(seconds))
    assert [row["label"] for row in listed()["sandboxes"]] == [label]


def test_labels_and_images_are_completed(label: str, home: Path) -> None:
    (home / "sandbox/images.json").write_text('{"mine": "0", "other": "1"}')

    def complete(words: str, index: int) -> list[str]:
        more = {"_HAWK_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(index)}
        done = subprocess.run(HAWK, env={**os.environ, **more}, capture_output=True, text=True, check=False)
        return done.stdout.splitlines()

    assert f"plain,{label}" in complete(f"hawk sandbox shell {label[:3]}", 3)
    assert complete("hawk sandbox import --remove m", 4) == ["plain,mine"]


# --- on a terminal


def test_the_shell_has_a_terminal_of_the_same_size_and_follows_it(home: Path) -> None:
    with Terminal("sandbox", "shell", env=dict(os.environ), columns=100, rows=30) as terminal:
        terminal.until(PROMPT)
        terminal.process.sendline("stty size; test -t 0 && echo a ter''minal; echo $TERM")
        terminal.until(r"30 100\s+a terminal\s+xterm-256color")
        terminal.process.sendline("trap 'stty size' WINCH; echo rea''dy")
        terminal.until("ready")
        terminal.resize(80, 20)
        terminal.until("20 80")
        terminal.process.sendline("exit 5")
        assert terminal.end(LONG) == 5


def test_ctrl_c_at_a_terminal_is_for_the_command_not_for_the_shell(home: Path, seconds: str) -> None:
    with Terminal("sandbox", "shell", env=dict(os.environ)) as terminal:
        terminal.until(PROMPT)
        terminal.process.sendline(f"sleep {seconds}")
        until("the command runs", lambda: sleepers(seconds))
        terminal.process.sendintr()
        until("the command ends", lambda: not sleepers(seconds))
        terminal.process.sendline("echo still $((40 + 2))")
        terminal.until("still 42")
        terminal.process.sendeof()
        terminal.end(LONG)


def local_modes(terminal: int) -> int:
    modes: int = termios.tcgetattr(terminal)[LOCAL_MODES]
    return modes & (termios.ICANON | termios.ECHO | termios.ISIG)


def new_modes() -> int:
    """Of a terminal that nobody has changed."""
    ours, theirs = os.openpty()
    try:
        return local_modes(ours)
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("how", ["exit", "SIGTERM", "the sandbox ends"])
def test_the_terminal_is_as_it_was_however_the_shell_ends(
    home: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as stack:
        label = stack.enter_context(living(monkeypatch))
        with Terminal("sandbox", "shell", label, env=dict(os.environ)) as terminal:
            fd = terminal.process.child_fd
            terminal.until(PROMPT)
            until("the terminal is raw", lambda: local_modes(fd) == 0)
            if how == "exit":
                terminal.process.sendline("exit")
            elif how == "SIGTERM":
                terminal.process.kill(signal.SIGTERM)
            else:
                stack.close()
            code = terminal.end(LONG)
            assert local_modes(fd) == new_modes()
    # A sandbox that ends kills what runs in it; the keeper may be gone before it could say so.
    assert code in {"exit": (0,), "SIGTERM": (143,), "the sandbox ends": (137, 1)}[how]


def test_a_terminal_that_is_closed_ends_its_shell(
    home: Path, seconds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with living(monkeypatch) as label:
        with Terminal("sandbox", "shell", label, env=dict(os.environ)) as terminal:
            terminal.until(PROMPT)
            terminal.process.sendline(f"exec sleep {seconds}")
            until("the command runs", lambda: sleepers(seconds))
        until("the command ends", lambda: not sleepers(seconds))
        assert [row["label"] for row in listed()["sandboxes"]] == [label]
