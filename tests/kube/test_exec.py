"""Commands: what goes in and out, deadlines, and streams that do not end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import psutil
import pytest
import pytest_asyncio
from aiohttp import web

from hawk.errors import ClusterError
from hawk.kube.api import Cluster
from hawk.kube.exec import ExecTimeoutError
from tests.kube.fake import V4, Fake, refuse

POD = {"kind": "Pod", "metadata": {"name": "box"}, "spec": {"containers": [{"name": "main"}]}}


@pytest_asyncio.fixture
async def box(kube: tuple[Fake, Cluster]) -> AsyncIterator[tuple[Fake, Cluster]]:
    fake, cluster = kube
    await cluster.create(POD)
    while (fake.named("Pod", "box") or {}).get("status", {}).get("phase") != "Running":
        await asyncio.sleep(0.01)
    yield fake, cluster


def alive(mark: str) -> list[list[str]]:
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if any(mark in word for word in words) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(words)
    return found


async def gone(mark: str) -> None:
    """What was killed is seen until it has had a processor once more."""
    async with asyncio.timeout(60):
        while alive(mark):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("protocols", [("v5.channel.k8s.io",), (V4,)])
async def test_output_input_code_directory_and_variables(
    box: tuple[Fake, Cluster], protocols: tuple[str, ...]
) -> None:
    fake, cluster = box
    fake.protocols = protocols  # type: ignore[assignment]
    script = 'cat; echo "$PWD $A" >&2; exit 7'
    for _ in range(2):  # the first finds out what the server speaks
        done = await cluster.exec(
            "box",
            ["sh", "-c", script],
            stdin=b"in\x00put",
            cwd="/usr/bin",
            env={"A": "b c\n'd'", "not a name": "x"},
        )
        assert (done.code, done.stdout, done.stderr) == (7, b"in\x00put", b"/usr/bin b c\n'd'\n")
    assert cluster.stdin_closes is (V4 not in protocols)


async def test_large_input_and_output(box: tuple[Fake, Cluster]) -> None:
    _, cluster = box
    content = bytes(range(256)) * (1 << 14)
    done = await cluster.exec("box", ["cat"], stdin=content, limit=1 << 30)
    assert done.stdout == content
    last = await cluster.exec("box", ["cat"], stdin=content, limit=1000)
    assert last.truncated
    assert last.stdout == content[-1000:]


@pytest.mark.parametrize("stdin", [None, b"beside"])
async def test_a_command_longer_than_an_address_may_be(
    box: tuple[Fake, Cluster], stdin: bytes | None
) -> None:
    _, cluster = box
    words = ["'x'" * 1000] * 300
    done = await cluster.exec("box", ["sh", "-c", 'cat; printf %s "$@"', "-", *words], stdin=stdin)
    assert done.stdout == (stdin or b"") + "".join(words).encode()


async def test_the_deadline_kills_all_that_was_started(box: tuple[Fake, Cluster]) -> None:
    _, cluster = box
    mark = f"mark-{time.time_ns()}"
    script = f"sleep 300 # {mark}-a\n:"
    with pytest.raises(ExecTimeoutError) as caught:
        await cluster.exec(
            "box", ["sh", "-c", f'echo began; setsid sh -c "{script}" & sh -c "{script}"; :'], timeout=3
        )
    assert caught.value.stdout == b"began\n"
    await gone(mark)


async def test_the_deadline_kills_what_another_user_runs(box: tuple[Fake, Cluster]) -> None:
    _, cluster = box
    if psutil.Process().uids().real != 0:
        pytest.skip("only root becomes another")
    mark = f"mark-{time.time_ns()}"
    script = f"sleep 300 # {mark}\n:"
    with pytest.raises(ExecTimeoutError):
        await cluster.exec(
            "box",
            ["sh", "-c", f'(setsid sh -c "{script}" &) ; sh -c "{script}"; :'],
            timeout=3,
            user="nobody",
        )
    await gone(mark)


async def test_a_cancelled_caller_leaves_nothing_running(box: tuple[Fake, Cluster]) -> None:
    _, cluster = box
    mark = f"mark-{time.time_ns()}"
    task = asyncio.ensure_future(cluster.exec("box", ["sh", "-c", f"sleep 300 # {mark}\n:"]))
    while not alive(mark):
        await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gone(mark)


async def test_a_background_process_does_not_hold_the_result_back(box: tuple[Fake, Cluster]) -> None:
    _, cluster = box
    done = await asyncio.wait_for(cluster.exec("box", ["sh", "-c", "sleep 300 & echo out; exit 3"]), 60)
    assert (done.code, done.stdout, done.stderr) == (3, b"out\n", b"")


async def test_a_stream_that_never_ends_is_cut(box: tuple[Fake, Cluster]) -> None:
    fake, cluster = box
    fake.hang.add("echo")
    done = await asyncio.wait_for(cluster.exec("box", ["echo", "out"]), 60)
    assert (done.code, done.stdout) == (0, b"out\n")


@pytest.mark.parametrize(
    ("command", "options", "code", "note"),
    [
        (["/nonexistent"], {}, 127, ""),
        (["/etc/passwd"], {}, 126, ""),
        (["true"], {"cwd": "/nonexistent"}, 125, "cwd"),
        (["true"], {"user": "nobody-here"}, 125, "user"),
        (["sh", "-c", "kill -TERM $$"], {}, 143, ""),
        (["exit", "3"], {}, 127, ""),
    ],
)
async def test_how_commands_end(
    box: tuple[Fake, Cluster], command: list[str], options: dict[str, str], code: int, note: str
) -> None:
    _, cluster = box
    done = await cluster.exec("box", command, **options)  # type: ignore[arg-type]
    assert (done.code, done.note) == (code, note)


async def test_as_another_user(box: tuple[Fake, Cluster]) -> None:
    _, cluster = box
    if psutil.Process().uids().real != 0:
        pytest.skip("only root becomes another")
    assert (await cluster.exec("box", ["id", "-un"], user="nobody")).stdout == b"nobody\n"
    assert (await cluster.exec("box", ["id", "-u"], user="12345")).stdout == b"12345\n"
    assert (await cluster.exec("box", ["id", "-u"], user="root")).stdout == b"0\n"


async def test_why_a_command_can_not_start(box: tuple[Fake, Cluster]) -> None:
    _, cluster = box
    with pytest.raises(ClusterError, match='pods "other" not found'):
        await cluster.exec("other", ["true"])


async def test_a_lost_connection_is_an_error(box: tuple[Fake, Cluster]) -> None:
    fake, cluster = box
    task = asyncio.ensure_future(cluster.exec("box", ["sleep", "300"]))
    while not fake.running.get("box"):
        await asyncio.sleep(0.02)
    for handler in [
        t for t in asyncio.all_tasks() if "Fake.handle" in repr(t) or "RequestHandler.start" in repr(t)
    ]:
        handler.cancel()
    with pytest.raises(ClusterError, match="connection was lost"):
        await task


async def test_a_long_lived_stream(box: tuple[Fake, Cluster]) -> None:
    _, cluster = box
    stream = await cluster.open_exec("box", ["sh", "-c", "while read -r x; do echo got $x; done; exit 4"])
    await stream.write(b"one\n")
    assert await stream.read() == b"got one\n"
    await stream.write(b"two\n")
    assert await stream.read() == b"got two\n"
    await stream.end_input()
    assert await stream.read() == b""
    assert stream.outcome is not None
    assert stream.outcome.code == 4
    await stream.close()


async def test_an_api_that_is_busy_is_waited_for_before_the_command_begins(box: tuple[Fake, Cluster]) -> None:
    fake, cluster = box
    left = [2]

    def answers(method: str, path: str, _: object) -> web.StreamResponse | None:
        left[0] -= 1
        return refuse(503, "ServiceUnavailable", "restarting") if left[0] >= 0 else None

    fake.answers = answers
    assert (await cluster.exec("box", ["echo", "once"])).stdout == b"once\n"
    fake.answers = lambda *_: refuse(503, "ServiceUnavailable", "restarting")
    with pytest.raises(ClusterError, match="restarting"):
        await cluster.exec("box", ["true"], patience=0.5)
