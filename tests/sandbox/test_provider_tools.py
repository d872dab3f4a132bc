"""Inspect's tools, remote commands and agent bridge in bubblewrap sandboxes, in real evals with a scripted model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from inspect_ai.agent import sandbox_agent_bridge
from inspect_ai.tool import bash, bash_session, python, text_editor, tool_with
from inspect_ai.util import ExecRemoteAwaitableOptions, ExecRemoteStreamingOptions, SandboxEnvironment
from inspect_ai.util._sandbox import exec_remote

from tests.sandbox.conftest import new_home
from tests.sandbox.evals import LAST, in_sample, play
from tests.sandbox.programs import needs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("shared_home", "quick_polls"),
    pytest.mark.timeout(240),
]

WITH_TOOLS = {"inspect_tools": True}

AGENT = """
import json, socket, time, urllib.request

for _ in range(600):  # Inspect does not wait until its proxy listens
    with socket.socket() as door:
        if door.connect_ex(("localhost", 13131)) == 0:
            break
    time.sleep(0.05)

def ask(messages):
    body = json.dumps({"model": "inspect", "messages": messages}).encode()
    request = urllib.request.Request(
        "http://localhost:13131/v1/chat/completions", body, {"Content-Type": "application/json"}
    )
    return json.load(urllib.request.urlopen(request, timeout=100))["choices"][0]["message"]["content"]

print(ask([{"role": "user", "content": "[]"}]))
print(ask([{"role": "user", "content": "once more"}]))
"""


@pytest.fixture(scope="module")
def shared_home(supported: None) -> Iterator[None]:
    """One store for all: its layer with Inspect's tools takes seconds to make."""
    with new_home():
        yield


@pytest.fixture
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_remote, "MIN_POLL_INTERVAL", 0.1)


def test_bash_and_python_give_the_model_what_a_command_says() -> None:
    moves: list[tuple[str, dict[str, Any]]] = [
        ("bash", {"command": "echo out; echo err >&2; cd /tmp && touch here && ls here"}),
        ("impatient", {"command": "pwd; sleep 3600"}),
        ("bash", {"command": "echo still here"}),
    ]
    texts, sample = play(moves, [bash(timeout=100), tool_with(bash(timeout=1), "impatient")])
    assert texts[0] == "err\n\nout\nhere\n"
    assert "timed out" in texts[1]
    assert texts[2] == "still here\n"
    outputs = [event.output for event in sample.events if event.event == "sandbox"]
    assert "still here\n" in outputs


@needs("python3")
def test_python_runs_code() -> None:
    texts, _ = play(
        [("python", {"code": "print(6 * 7)"}), ("python", {"code": "1/0"})], [python(timeout=100)]
    )
    assert texts[0] == "42\n"
    assert "ZeroDivisionError" in texts[1]


def test_a_session_keeps_its_shell_and_the_editor_edits_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    # The seconds of silence after which a session has said all: half of one is soon over.
    monkeypatch.setattr("inspect_ai.tool._tools._bash_session.DEFAULT_IDLE_TIME", 3)
    path = "/workspace/notes.txt"
    moves = [
        (
            "bash_session",
            {"action": "type_submit", "input": "cd /tmp; X=$((6*7)); echo started as $(id -un)"},
        ),
        ("bash_session", {"action": "type_submit", "input": "echo in $PWD with $X"}),
        ("text_editor", {"command": "create", "path": path, "file_text": "one\ntwo\n"}),
        ("text_editor", {"command": "str_replace", "path": path, "old_str": "two", "new_str": "three"}),
        ("text_editor", {"command": "view", "path": path}),
        ("bash", {"command": f"cat {path}; stat -c %U {path}"}),
    ]
    texts, _ = play(moves, [bash_session(), text_editor(), bash()], WITH_TOOLS)
    assert "started as user" in texts[0]
    assert "in /tmp with 42" in texts[1]
    assert "three" in texts[4]
    assert texts[5] == "one\nthree\nuser\n"


def test_remote_commands_stream_and_end() -> None:
    async def work(box: SandboxEnvironment) -> list[Any]:
        process = await box.exec_remote(
            ["sh", "-c", "echo one; read line; echo got $line; echo two >&2; exit 5"],
            ExecRemoteStreamingOptions(stdin_open=True),
        )
        await process.write_stdin("hello\n")
        events = [(event.type, getattr(event, "data", None)) async for event in process]
        texts = {
            kind: "".join(data for k, data in events if k == kind and data) for kind in ("stdout", "stderr")
        }
        awaited = await box.exec_remote(["sh", "-c", "echo done; exit 7"], stream=False)
        return [texts, events[-1][0], awaited.stdout, awaited.returncode]

    assert in_sample(work, WITH_TOOLS) == [
        {"stdout": "one\ngot hello\n", "stderr": "two\n"},
        "completed",
        "done\n",
        7,
    ]


def test_remote_commands_are_killed_when_they_are_cancelled_or_late() -> None:
    async def alive(box: SandboxEnvironment, count: int) -> None:
        """So many live, or soon will: what is told begins and ends a moment later."""
        command = ["sh", "-c", "cat /proc/[0-9]*/comm | grep -c sleep; true"]
        with anyio.fail_after(60):
            while (await box.exec(command)).stdout.strip() != str(count):
                await anyio.sleep(0.05)

    async def work(box: SandboxEnvironment) -> None:
        async with anyio.create_task_group() as group:

            async def late() -> None:
                await box.exec_remote(["sh", "-c", "sleep 7401 & sleep 7402"], stream=False)

            group.start_soon(late)
            await alive(box, 2)
            group.cancel_scope.cancel()
        await alive(box, 0)
        with pytest.raises(TimeoutError):
            await box.exec_remote(["sleep", "7403"], ExecRemoteAwaitableOptions(timeout=1), stream=False)
        await alive(box, 0)
        process = await box.exec_remote(["sleep", "7404"])
        await alive(box, 1)
        await process.kill()
        await alive(box, 0)

    in_sample(work, WITH_TOOLS)


@needs("python3")
def test_an_agent_in_the_sandbox_talks_to_the_model_through_the_bridge() -> None:
    async def work(box: SandboxEnvironment) -> tuple[str, str, int]:
        await box.write_file("agent.py", AGENT)
        async with sandbox_agent_bridge() as bridge:
            ran = await box.exec_remote(["python3", "agent.py"], stream=False)
            messages = len(bridge.state.messages)
        return ran.stdout, ran.stderr, messages

    stdout, stderr, messages = in_sample(work, WITH_TOOLS)
    assert (stdout, stderr) == (f"{LAST}\n{LAST}\n", "")
    assert messages >= 2
