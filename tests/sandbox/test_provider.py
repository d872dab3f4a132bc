"""Commands and files of sandboxes in real evals."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from pathlib import Path

import pytest
from inspect_ai.dataset import Sample
from inspect_ai.util import OutputLimitExceededError, SandboxEnvironment, SandboxEnvironmentLimits
from inspect_ai.util._sandbox.limits import override_max_read_file_size

from tests.sandbox.evals import doing, error_of, in_sample, in_samples, run_eval
from tests.sandbox.programs import needs
from tests.system import until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home"), pytest.mark.timeout(240)]

SLEEPERS = r"""
for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline | grep -o '^sleep 7[0-9]*'; done 2>/dev/null | sort; true
"""
"""Lists the sleepers that tests start: `sleep 7…`."""

TREE = """
sleep 7001 &
setsid sleep 7002 &
nohup sleep 7003 >/dev/null 2>&1 &
(setsid sh -c 'sleep 7004 & exit' &)
env -i sleep 7005 &
sh -c 'trap "" TERM HUP INT; while :; do sleep 7006; done' &
sleep 7007
"""
"""Processes that leave their parent and their session, their output, their environment, or ignore signals."""

UNKNOWN = "(env -i setsid sh -c 'sleep 7301 & exit')"
"""A process that leaves its parent, its session and its environment: nothing tells any more which command's it is."""


async def until_sleeping(box: SandboxEnvironment, lister: str, count: int) -> None:
    """What was started in the background has become so many sleepers."""
    while len((await box.exec(["sh", "-c", lister])).stdout.splitlines()) < count:
        await asyncio.sleep(0.02)


def test_commands_run_as_an_ordinary_user_in_the_workspace() -> None:
    async def work(box: SandboxEnvironment) -> list[str]:
        return [(await box.exec(["sh", "-c", c])).stdout for c in ("id -un; pwd", "echo $HOME; uname -n")]

    assert in_sample(work) == ["user\n/workspace\n", "/home/user\nsandbox\n"]


@needs("python3", "curl")
def test_a_server_started_by_one_command_is_there_for_the_next() -> None:
    async def work(box: SandboxEnvironment) -> tuple[str, str]:
        server = "nohup python3 -u -m http.server 8000 > server.log 2>&1 &"
        started = await box.exec(["sh", "-c", f"echo hello > index.html; {server}"])
        assert started.success, started.stderr
        fetch = "until curl -sf http://localhost:8000/; do sleep 0.05; done"
        return (await box.exec(["sh", "-c", fetch], timeout=150)).stdout, await box.read_file("server.log")

    page, log = in_sample(work)
    assert page == "hello\n"
    assert log.count("GET / ") == 1


def test_a_command_that_keeps_its_output_open_in_the_background_does_not_hold_the_caller() -> None:
    async def work(box: SandboxEnvironment) -> str:
        return (await box.exec(["sh", "-c", "sleep 7100 & echo started"])).stdout

    assert in_sample(work) == "started\n"


def test_standard_input_is_given_as_it_is() -> None:
    async def work(box: SandboxEnvironment) -> list[str]:
        inputs: list[str | bytes | None] = ["text\n", b"\x00\xff", "", None, b"x" * 3_000_000]
        return [(await box.exec(["sh", "-c", "cksum"], input=i)).stdout.split()[1] for i in inputs]

    assert in_sample(work) == ["5", "2", "0", "0", "3000000"]


def test_input_that_nobody_reads_does_not_hold_the_command() -> None:
    async def work(box: SandboxEnvironment) -> tuple[bool, str]:
        result = await box.exec(["sh", "-c", "exec <&-; echo done"], input=b"x" * 20_000_000)
        return result.success, result.stdout

    assert in_sample(work) == (True, "done\n")


def test_output_beyond_the_limit_loses_its_beginning() -> None:
    limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE

    async def work(box: SandboxEnvironment) -> tuple[int, str, str, int]:
        flood = f"echo BEGIN; yes 0123456789 | head -c {limit + 5_000_000}; echo END"
        result = await box.exec(["sh", "-c", f"{flood}; ({flood}) >&2; exit 3"])
        return (
            len(result.stdout),
            result.stdout[:5] + result.stdout[-4:],
            result.stderr[-4:],
            result.returncode,
        )

    size, ends, stderr_end, code = in_sample(work)
    assert size == limit
    assert "BEGIN" not in ends
    assert (ends[-4:], stderr_end, code) == ("END\n", "END\n", 3)


def test_a_timeout_kills_all_that_the_command_started_and_nothing_else() -> None:
    async def work(box: SandboxEnvironment) -> tuple[str, str]:
        await box.exec(["sh", "-c", "setsid sleep 7200 >/dev/null 2>&1 &"])
        await until_sleeping(box, SLEEPERS, 1)
        with pytest.raises(TimeoutError):
            await box.exec(["sh", "-c", TREE], timeout=1)
        return (await box.exec(["sh", "-c", SLEEPERS])).stdout, (await box.exec(["echo", "usable"])).stdout

    left, after = in_sample(work)
    assert left.split("\n") == ["sleep 7200", ""]
    assert after == "usable\n"


def test_an_attempt_that_is_over_takes_its_processes_with_it() -> None:
    mine = str(secrets.randbelow(10**8) + 10**8)

    async def work(box: SandboxEnvironment) -> None:
        script = f"({TREE}) >/dev/null 2>&1 & {UNKNOWN}".replace("sleep 7", f"sleep {mine}7")
        await box.exec(["sh", "-c", script])
        await until_sleeping(box, SLEEPERS.replace("sleep 7", f"sleep {mine}"), 8)

    in_sample(work)

    def sleepers() -> list[str]:
        return [path for path in map(str, Path("/proc").glob("[0-9]*/cmdline")) if _is_sleeper(path, mine)]

    until("the sleepers have gone", lambda: not sleepers())


def _is_sleeper(cmdline: str, mine: str) -> bool:
    try:
        return Path(cmdline).read_text().startswith(f"sleep\0{mine}")
    except OSError:
        return False


def test_files_are_kept_to_the_byte() -> None:
    content = bytes(range(256)) * 4097

    async def work(box: SandboxEnvironment) -> tuple[bytes, str]:
        await box.write_file("deep/er/data.bin", content)
        count = await box.exec(["sh", "-c", "wc -c < deep/er/data.bin"])
        return await box.read_file("deep/er/data.bin", text=False), count.stdout.strip()

    assert in_sample(work) == (content, str(len(content)))


def test_a_file_of_200_mb_goes_in_and_out() -> None:
    piece = hashlib.sha512(b"piece").digest() * 16384
    size = 200 << 20
    content = piece * (size // len(piece))

    async def work(box: SandboxEnvironment) -> tuple[str, str, bool]:
        await box.write_file("large", content)
        told = await box.exec(["sh", "-c", "sha256sum < large"])
        with pytest.raises(OutputLimitExceededError):
            await box.read_file("large", text=False)
        with override_max_read_file_size(size):
            same = await box.read_file("large", text=False) == content
        return told.stdout.split()[0], hashlib.sha256(content).hexdigest(), same

    told, expected, same = in_sample(work)
    assert told == expected
    assert same


@pytest.mark.parametrize(
    "name",
    [
        "with space",
        "-dash",
        "'quote\"",
        "new\nline",
        "$(touch x)",
        "*",
        "ünï☃",
        "a" * 255,
        ".hidden",
        "\udcff\udcfe",
    ],
    ids=ascii,
)
def test_any_name_is_a_name(name: str) -> None:
    async def work(box: SandboxEnvironment) -> tuple[str, int]:
        await box.write_file(name, "content")
        listed = await box.exec(["sh", "-c", "ls -A | wc -l"])
        return await box.read_file(name), int(listed.stdout)

    content, lines = in_sample(work)
    assert content == "content"
    assert lines == 1 + name.count("\n")


def test_symlinks_lead_where_they_lead_inside() -> None:
    async def work(box: SandboxEnvironment) -> dict[str, str]:
        await box.exec(["sh", "-c", "echo one > real; ln -s real link; ln -s /workspace/made dangling"])
        await box.exec(
            ["sh", "-c", "ln -s loop loop; ln -s /etc there; ln -s ../../../../../etc/hostname up"]
        )
        found = {"link": await box.read_file("link"), "up": await box.read_file("up")}
        await box.write_file("link", "two")
        await box.write_file("dangling", "made")
        found |= {"real": await box.read_file("real"), "made": await box.read_file("made")}
        found["there"] = await box.read_file("there/hostname")
        with pytest.raises(OSError, match="symbolic links"):
            await box.read_file("loop")
        return found

    assert in_sample(work) == {
        "link": "one\n",
        "up": "sandbox\n",
        "real": "two",
        "made": "made",
        "there": "sandbox\n",
    }


def test_a_samples_files_and_setup_are_there_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    (tmp_path / "tree" / "inner" / "leaf.txt").write_text("leaf")
    (tmp_path / "tree" / "blob").write_bytes(b"\x00\xff")
    files = {
        "plain.txt": "text",
        "/tmp/deep/absolute.txt": "absolute",
        "tree": str(tmp_path / "tree"),
        "encoded": "data:;base64,AAEC",
    }

    async def work(box: SandboxEnvironment) -> list[object]:
        names = ("plain.txt", "/tmp/deep/absolute.txt", "tree/inner/leaf.txt", "made-by-setup")
        texts = [await box.read_file(name) for name in names]
        return [
            *texts,
            await box.read_file("tree/blob", text=False),
            await box.read_file("encoded", text=False),
        ]

    setup = "#!/bin/sh\ncat plain.txt tree/inner/leaf.txt > made-by-setup; id -un >> made-by-setup"
    found = in_sample(work, files=files, setup=setup)
    assert found == ["text", "absolute", "leaf", "textleafuser\n", b"\x00\xff", b"\x00\x01\x02"]


def test_a_setup_that_fails_is_an_error_with_its_output() -> None:
    async def work(box: SandboxEnvironment) -> None:
        raise AssertionError("not reached")

    log = run_eval(doing(work, {}), [Sample("?", setup="#!/bin/sh\necho the reason >&2; exit 9")])
    assert "the reason" in error_of(log)


def test_what_one_attempt_writes_no_other_sees() -> None:
    async def work(box: SandboxEnvironment) -> str:
        places = "/workspace/mine /tmp/mine /etc/mine /home/user/mine /dev/shm/mine"
        script = (
            f"ls {places} 2>/dev/null; for p in {places}; do echo here > $p; done 2>/dev/null; hostname other"
        )
        return (await box.exec(["sh", "-c", script])).stdout

    assert in_samples(work, [Sample("?") for _ in range(5)], max_samples=1) == [""] * 5


def test_two_hundred_sandboxes_live_at_once() -> None:
    here: set[str] = set()
    all_here = []

    async def work(box: SandboxEnvironment) -> str:
        name = (await box.exec(["sh", "-c", "echo $SANDBOX_COMMAND > id; cat id"])).stdout
        here.add(name)
        async with asyncio.timeout(200):
            while len(here) < 200:
                await asyncio.sleep(0.05)
        all_here.append(name)
        return await box.read_file("id") == name and name

    names = in_samples(work, [Sample("?") for _ in range(200)], max_samples=200)
    assert len(set(names)) == len(all_here) == 200
