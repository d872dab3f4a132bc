"""The player of system calls, really assembled and really run; aarch64's under emulation where that is installed."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hawk.sandbox.executable import ADDRESS, HEADERS
from hawk.sandbox.tape import LISTINGS, MAY_FAIL, TRY, Tape

HERE = os.uname().machine

runnable = pytest.mark.skipif(
    sys.platform != "linux" or HERE not in LISTINGS, reason="no player for this machine"
)


def play(tape: Tape, path: Path, *, under: tuple[str, ...] = ()) -> tuple[int, bytes, bytes]:
    """(exit code, standard output, report) of a tape."""
    path.write_bytes(tape.build())
    path.chmod(0o755)
    report, told = os.pipe()
    # A file: a pipe would be full before anybody reads.
    output = path.with_suffix(".out")
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    actions = [(os.POSIX_SPAWN_DUP2, written, 1), (os.POSIX_SPAWN_DUP2, told, 3)]
    argv = [*under, str(path)]
    pid = os.posix_spawn(argv[0], argv, {}, file_actions=actions)
    os.close(told)
    os.close(written)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(report, "rb") as f:
        return os.waitstatus_to_exitcode(status), output.read_bytes(), f.read()


def echo(tape: Tape, program: str = "/bin/echo", fails: int = TRY) -> None:
    tape.call(
        "execve",
        tape.text(program),
        tape.texts(["echo", "played", "ä"]),
        tape.texts(["A=1"]),
        stage="exec",
        fails=fails,
    )


@pytest.mark.parametrize("machine", LISTINGS)
def test_the_machine_code_is_what_the_assembler_makes_of_the_listing(machine: str, tmp_path: Path) -> None:
    prefix = "" if machine == HERE else f"{machine}-linux-gnu-"
    if not (shutil.which(f"{prefix}as") and shutil.which(f"{prefix}objcopy")):
        pytest.skip(f"no assembler for {machine}")
    rows = [line.split("|") for line in LISTINGS[machine].strip().splitlines()]
    source, made, raw = tmp_path / "tape.s", tmp_path / "tape.o", tmp_path / "tape.bin"
    # The tape follows the code.
    source.write_text("".join(f"{assembly}\n" for _, assembly, _ in rows) + "script:\n")
    subprocess.run([f"{prefix}as", "-o", made, source], check=True)
    subprocess.run([f"{prefix}objcopy", "-O", "binary", "-j", ".text", made, raw], check=True)
    code = raw.read_bytes()
    assert b"".join(bytes.fromhex(row[0]) for row in rows) == code
    assert Tape(machine).build()[HEADERS:].startswith(code)


@runnable
def test_calls_are_made_in_order_and_the_program_takes_over(tmp_path: Path) -> None:
    tape = Tape()
    tape.call("chdir", tape.text(str(tmp_path)))
    tape.call("execve", tape.text("/bin/pwd"), tape.texts(["pwd"]), tape.texts([]), fails=TRY)
    assert play(tape, tmp_path / "program") == (0, f"{tmp_path}\n".encode(), b"")


@runnable
def test_arguments_and_environment_arrive(tmp_path: Path) -> None:
    tape = Tape()
    script = 'printf "%s|" "$@" "$X" "$#"'
    argv = ["sh", "-c", script, "sh", "", "a b", "ü" * 60_000]
    tape.call("execve", tape.text("/bin/sh"), tape.texts(argv), tape.texts(["X=1=2"]), fails=TRY)
    code, out, report = play(tape, tmp_path / "program")
    assert (code, report) == (0, b"")
    assert out.decode() == "|".join(["", "a b", "ü" * 60_000, "1=2", "3", ""])


@runnable
def test_a_call_that_must_not_fail_ends_it_and_says_where_and_why(tmp_path: Path) -> None:
    tape = Tape()
    tape.call("umask", 0o022)
    tape.call("chdir", tape.text("/nonexistent"), stage="cwd")
    echo(tape)
    code, out, report = play(tape, tmp_path / "program")
    assert (code, out) == (126, b"")
    assert tape.tell(report) == (errno.ENOENT, "cwd")


@runnable
def test_a_call_that_may_fail_changes_nothing(tmp_path: Path) -> None:
    tape = Tape()
    tape.call("close", 77, fails=MAY_FAIL)
    echo(tape)
    assert play(tape, tmp_path / "program") == (0, "played ä\n".encode(), b"")


@runnable
@pytest.mark.parametrize(
    ("places", "number"),
    [
        (["/nonexistent/echo", "/etc/passwd/echo"], errno.ENOENT),
        (["/etc/passwd", "/nonexistent/echo"], errno.EACCES),
        (["/nonexistent/echo", "/etc"], errno.EACCES),
    ],
)
def test_when_no_place_has_the_program_the_reason_other_than_missing_is_told(
    places: list[str], number: int, tmp_path: Path
) -> None:
    tape = Tape()
    tape.call("close", 77, fails=MAY_FAIL)  # its error is not a reason
    for place in places:
        echo(tape, place)
    code, _, report = play(tape, tmp_path / "program")
    assert code == 126
    assert tape.tell(report) == (number, "exec")


@runnable
def test_the_first_place_that_has_the_program_is_taken(tmp_path: Path) -> None:
    tape = Tape()
    for place in ("/nonexistent/echo", "/etc/passwd", "/bin/echo", "/bin/false"):
        echo(tape, place)
    assert play(tape, tmp_path / "program") == (0, "played ä\n".encode(), b"")


def test_words_hold_numbers_and_places() -> None:
    tape = Tape("x86_64")
    at = tape.data(b"abc")
    words = tape.words([5, at, (1 << 64) - 1])
    tape.call("close", words)
    program = tape.build()
    code = len(bytes.fromhex("".join(row.partition("|")[0] for row in LISTINGS["x86_64"].splitlines())))
    base = ADDRESS + HEADERS + code + 2 * 64
    data = program[HEADERS + code + 2 * 64 :]
    assert data.startswith(b"abc")
    numbers = [int.from_bytes(data[words.offset + 8 * i :][:8], "little") for i in range(3)]
    assert numbers == [5, base + at.offset, (1 << 64) - 1]


def test_a_report_that_is_cut_off_still_says_something() -> None:
    tape = Tape("x86_64")
    tape.build()
    assert tape.tell(b"short") == (errno.EIO, "enter")


def test_a_machine_without_a_player_is_named() -> None:
    with pytest.raises(ValueError, match=r"'armv7l'.*x86_64, aarch64"):
        Tape("armv7l")


@pytest.mark.skipif(not shutil.which("qemu-aarch64-static"), reason="no emulator for aarch64")
@pytest.mark.skipif(HERE == "aarch64", reason="run for real above")
def test_aarch64_fails_where_it_must_and_tells(tmp_path: Path) -> None:
    """An emulator can't exec this machine's programs: what can be seen is that calls are made and told of."""
    tape = Tape("aarch64")
    hello = tape.text("hello\n")
    tape.call("close", 77, fails=MAY_FAIL)
    tape.call("write", 1, hello, 6)
    for place in ("/nonexistent/echo", "/etc/passwd"):
        echo(tape, place)
    emulator = shutil.which("qemu-aarch64-static") or ""
    code, out, report = play(tape, tmp_path / "program", under=(emulator,))
    assert (code, out) == (126, b"hello\n")
    assert tape.tell(report) == (errno.EACCES, "exec")
