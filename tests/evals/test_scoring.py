"""Scorers over what agents leave, in real sandboxes: hidden files, hostile workspaces, scorers that fail."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from inspect_ai.util import SandboxEnvironment, SandboxUnavailableError

from hawk.evals.check import StubJudge
from hawk.evals.errors import ScorerError
from hawk.evals.scoring import score
from tests.evals.making import boxes_of, make, python, scored, shell
from tests.sandbox.programs import needs

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home"), pytest.mark.timeout(240)]

EXISTS = "#!/bin/sh\ntest -f done.txt\n"


# --- what a scorer is given


async def test_a_program_decides_by_its_exit_code_in_the_workspace(tmp_path: Path) -> None:
    eval = make(tmp_path, EVAL=EXISTS)
    assert not (await scored(eval)).passed
    verdict = await scored(eval, shell("touch done.txt"))
    assert (verdict.passed, [check.name for check in verdict.checks]) == (True, ["EVAL"])


async def test_a_program_that_fails_leaves_the_end_of_what_it_said(tmp_path: Path) -> None:
    eval = make(
        tmp_path, EVAL="#!/bin/sh\necho begin; yes x | head -n 2000; echo the last words >&2; exit 3\n"
    )
    [check] = (await scored(eval)).checks
    assert check.notes.startswith("exit code 3: …")
    assert check.notes.endswith("the last words")
    assert len(check.notes) < 600


async def test_a_program_finds_the_hidden_tests(tmp_path: Path) -> None:
    files = {
        "tests/a/data.txt": "42\n",
        "tests/run!": "#!/bin/sh\ncat a/data.txt\n",
        "local/mine.txt": "42\n",
    }
    eval = make(tmp_path, EVAL='#!/bin/sh\ncd "$HAWK_TESTS" && ./run | cmp - "$OLDPWD/mine.txt"\n', **files)
    assert (await scored(eval)).passed


async def test_a_function_sees_everything_through_the_sandbox(tmp_path: Path) -> None:
    body = """
ran = await sandbox.exec(["sh", "-c", "cat; echo $WORD; exit 3"], input="in\\n", env={"WORD": "w"})
await sandbox.write("sub/new.txt", "new")
shell = await sandbox.exec("cat new.txt | tr n N", cwd="sub")
found = {
    "code": (ran.ok, ran.code) == (False, 3),
    "output": ran.stdout == "in\\nw\\n",
    "shell": shell.stdout == "New",
    "read": await sandbox.read("sub/new.txt") == "new",
    "cut": await sandbox.read("sub/new.txt", limit=2) == "ne",
    "bytes": await sandbox.read_bytes("data") == b"\\xff\\x00",
    "replaced": await sandbox.read("data") == "\\ufffd\\x00",
    "missing": await sandbox.read("nowhere") is None and await sandbox.read_bytes("nowhere") is None,
    "directory": await sandbox.read("sub") is None,
    "exists": await sandbox.exists("sub") and not await sandbox.exists("nowhere"),
    "files": await sandbox.files() == ["data", "run", "sub/new.txt"],
    "workspace": sandbox.workspace == "/workspace",
    "tests": await sandbox.read(sandbox.tests + "/t") == "t",
    "not started": (await sandbox.exec(["./data"])).code == 126 and (await sandbox.exec(["nope"])).code == 127,
    "slow": (await sandbox.exec(["sleep", "60"], timeout=1)).timed_out,
    "mode": (await sandbox.exec(["./run"])).stdout == "ran\\n",
}
return {"checks": [{"name": name, "passed": bool(passed)} for name, passed in found.items()]}
"""
    files = {"local/data": b"\xff\x00", "local/run!": "#!/bin/sh\necho ran\n", "tests/t": "t"}
    verdict = await scored(make(tmp_path, **{"EVAL.py": python(body), **files}))
    assert verdict.explanation == "16 of 16 checks passed"


async def test_helpers_may_lie_beside_the_evals_and_nothing_is_shared_through_a_module(
    tmp_path: Path,
) -> None:
    (tmp_path / "helper_of_test_scoring.py").write_text("ANSWER = 42\n")
    code = (
        "from dataclasses import dataclass\nfrom helper_of_test_scoring import ANSWER\n\n"
        "@dataclass\nclass Seen:\n    count: int = 0\n\nSEEN = Seen()\n\n"
        "async def score(sandbox):\n    SEEN.count += 1\n    return {'passed': SEEN.count == 1 and ANSWER == 42}\n"
    )
    eval = make(tmp_path, **{"EVAL.py": code})
    assert (await scored(eval)).passed
    assert (await scored(eval)).passed


async def test_start_runs_where_the_files_are_and_links_are_links(tmp_path: Path) -> None:
    eval = make(
        tmp_path,
        front="start: ./prepare > out.txt",
        **{"EVAL": '#!/bin/sh\ntest "$(cat out.txt)" = started && test -L link && test "$(cat link)" = x\n'},
        **{"local/prepare!": "#!/bin/sh\necho started\n", "local/a: odd name": "x"},
    )
    (eval.path / "local" / "link").symlink_to("a: odd name")
    eval = make(tmp_path, front="start: ./prepare > out.txt", EVAL=eval.script.content)
    assert (await scored(eval)).passed


async def test_a_start_that_fails_says_so(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="`start` of one ended with 4: no luck"):
        await scored(make(tmp_path, front="start: echo no luck; exit 4"))


@needs("python3")
async def test_services_are_there_for_the_agent_and_the_scorer(tmp_path: Path) -> None:
    front = """\
services:
  web:
    inspect_tools: false
    command: [python3, -m, http.server, "8000"]
    ready: python3 -c 'import urllib.request as u; u.urlopen("http://localhost:8000")'
"""
    body = """
name = await sandbox.service("web").exec(["hostname"])
page = await sandbox.exec(["python3", "-c", "import urllib.request as u; u.urlopen('http://web:8000')"])
return {"passed": page.ok and name.stdout.strip() == "web"}
"""
    eval = make(tmp_path, front=front, **{"EVAL.py": python(body)})
    verdict = await scored(
        eval, shell("python3 -c 'import urllib.request as u; u.urlopen(\"http://web:8000\")'")
    )
    assert verdict.passed


async def test_the_judge_is_asked_and_what_it_said_is_kept(tmp_path: Path) -> None:
    body = """
said = await sandbox.judge("It is good.", await sandbox.read("answer.txt") or "")
return {"checks": [{"name": "judged", "passed": said.passed, "notes": said.notes}]}
"""
    verdict = await scored(
        make(tmp_path, **{"EVAL.py": python(body)}), shell("echo good > answer.txt"), judge=True
    )
    assert verdict.passed
    assert [judged.passed for judged in verdict.judged] == [True]


# --- hidden until it is scored


async def test_the_agent_finds_neither_tests_nor_scorer_nor_solution(tmp_path: Path) -> None:
    seen = []

    async def look(box: SandboxEnvironment) -> None:
        found = await box.exec(
            [
                "sh",
                "-c",
                "cd /; grep -rIl HIDDEN-WORD $(ls -A / | grep -vE '^(proc|sys|usr|lib.*|s?bin)$') 2>/dev/null",
            ]
        )
        seen.append((found.stdout, (await box.exec(["ls", "-A", "/workspace", "/tmp"])).stdout))

    files = {"tests/t": "HIDDEN-WORD", "solution/s": "HIDDEN-WORD", "local/mine": "x"}
    eval = make(tmp_path, EVAL="#!/bin/sh\n# HIDDEN-WORD\ngrep HIDDEN-WORD $HAWK_TESTS/t\n", **files)
    assert (await scored(eval, look)).passed
    assert seen == [("", "/tmp:\n\n/workspace:\nmine\n")]


WATCHER = """
(setsid sh -c '
  while :; do
    for f in /tmp/*/tests/* /tmp/*/*; do
      [ -f "$f" ] && cat "$f" >> /workspace/stolen.txt && touch /workspace/done.txt
    done
  done' >/dev/null 2>&1 &)
(trap "" TERM HUP INT; exec setsid sleep 7000) >/dev/null 2>&1 &
"""


async def test_what_the_agent_left_running_is_gone_before_the_tests_are_there(tmp_path: Path) -> None:
    body = """
processes = await sandbox.exec("for p in /proc/[0-9]*; do tr '\\\\0' ' ' < $p/cmdline; echo; done; true")
left = [line for line in processes.stdout.splitlines() if "sleep 7000" in line or "stolen" in line]
stolen = await sandbox.exists("stolen.txt")
return {"checks": [
    {"name": "gone", "passed": not left, "notes": str(left)},
    {"name": "nothing stolen", "passed": not stolen},
]}
"""
    eval = make(tmp_path, **{"EVAL.py": python(body), "tests/t": "secret"})
    verdict = await scored(eval, shell(WATCHER))
    assert verdict.passed, verdict.explanation


async def test_an_eval_may_keep_what_the_agent_left_running(tmp_path: Path) -> None:
    eval = make(tmp_path, front="keep_processes: true", EVAL="#!/bin/sh\nkill -0 $(cat pid)\n")
    left = shell("sleep 7100 >/dev/null 2>&1 & echo $! > pid")
    assert (await scored(eval, left)).passed
    assert not (await scored(make(tmp_path, EVAL="#!/bin/sh\nkill -0 $(cat pid)\n"), left)).passed


# --- hostile workspaces


async def test_paths_that_lead_outside_lead_nowhere_on_this_machine(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("of this machine")
    body = f"""
texts = [await sandbox.read(name) for name in ("link", "up", {str(secret)!r}, "../../../..{secret}")]
raw = await sandbox.read_bytes("link")
inside = await sandbox.read("passwd")
return {{"checks": [
    {{"name": "nothing of this machine", "passed": texts == [None] * 4 and raw is None, "notes": str(texts)}},
    {{"name": "the sandbox's own", "passed": inside is not None and "user" in inside}},
]}}
"""
    eval = make(tmp_path, **{"EVAL.py": python(body)})
    agent = shell(f"ln -s {secret} link; ln -s ../../../../..{secret} up; ln -s /etc/passwd passwd")
    verdict = await scored(eval, agent)
    assert verdict.passed, verdict.explanation


async def test_pipes_devices_loops_and_floods_neither_hold_nor_fail_the_scorer(tmp_path: Path) -> None:
    body = """
found = [await sandbox.read(name) for name in ("pipe", "zero", "loop", "dir", "locked")]
huge = await sandbox.read("huge")
flood = await sandbox.exec("yes | head -c 30000000")
listed = await sandbox.files()
return {"checks": [
    {"name": "none", "passed": found == [None] * 5 or found == [None] * 4 + ["x"], "notes": str(found)[:200]},
    {"name": "cut", "passed": len(huge) == 1 << 20},
    {"name": "flood", "passed": len(flood.stdout) <= 10 << 20},
    {"name": "names", "passed": "new\\nline" in listed and "huge" in listed},
]}
"""
    agent = shell(
        "mkfifo pipe; ln -s /dev/zero zero; ln -s loop loop; mkdir dir; head -c 20000000 /dev/zero > huge;"
        "printf x > locked; chmod 0 locked; touch 'new\nline'"
    )
    verdict = await scored(make(tmp_path, **{"EVAL.py": python(body)}), agent)
    assert verdict.passed, verdict.explanation


async def test_a_full_disk_is_the_agents_fail_and_no_error(tmp_path: Path) -> None:
    eval = make(tmp_path, limits="{workspace: 8m}", **{"tests/t": b"x" * 100_000})
    verdict = await scored(eval, shell("head -c 100000000 /dev/zero > fill 2>/dev/null; true"))
    assert (verdict.passed, verdict.explanation) == (
        False,
        "1 of 1 checks failed: there is room to score (the sandbox's disk is full)",
    )


async def test_a_workspace_that_is_gone_is_a_fail(tmp_path: Path) -> None:
    eval = make(tmp_path, EVAL="#!/bin/sh\ntest -f done.txt\n")
    assert not (await scored(eval, shell("rm -rf /workspace/* /workspace/.* 2>/dev/null; true"))).passed


async def test_a_lost_sandbox_is_the_sandboxs_error_whatever_the_scorer_makes_of_it(tmp_path: Path) -> None:
    body = """
try:
    await sandbox.exec("true")
except Exception:
    pass
return {"passed": False}
"""
    eval = make(tmp_path, **{"EVAL.py": python(body)})
    async with boxes_of(eval) as boxes:

        class Lost:
            """A sandbox that is lost when the scorer comes to it."""

            def __init__(self, inner: SandboxEnvironment) -> None:
                self.inner = inner

            def __getattr__(self, name: str) -> object:
                return getattr(self.inner, name)

            async def exec(self, cmd: list[str], **options: object) -> object:
                if cmd[-1] == "true":
                    raise SandboxUnavailableError("it is gone")
                return await self.inner.exec(cmd, **options)  # type: ignore[arg-type]

        boxes = {"default": Lost(boxes["default"])}  # type: ignore[dict-item]
        with pytest.raises(SandboxUnavailableError, match="it is gone"):
            await score(eval, boxes, StubJudge(None).judge)


# --- scorers that fail


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (python("return 1 / 0"), r"the scorer of one raised ZeroDivisionError: division by zero \(line 2\)"),
        (python("return {'passed': 'yes'}"), "no verdict"),
        (python("import sys\nsys.exit(0)"), "SystemExit"),
        (python("import asyncio\nraise asyncio.CancelledError"), "CancelledError"),
        (python("raise TimeoutError('mine')"), "raised TimeoutError: mine"),
        ("raise OSError('at import')\nasync def score(sandbox): ...\n", r"OSError: at import \(line 1\)"),
        ("score = print\n", "must be 'async def score"),
        ("score = 3\n", "defines no"),
        (python("await sandbox.service('db').exec('true')"), "there is no service 'db'"),
        (python("await sandbox.judge('a', 'b')\nreturn {'passed': True}"), "no judge is asked"),
    ],
)
async def test_a_scorer_that_raises_is_no_fail(tmp_path: Path, code: str, words: str) -> None:
    with pytest.raises(ScorerError, match=words):
        await scored(make(tmp_path, **{"EVAL.py": code}))


@pytest.mark.parametrize(
    "files",
    [
        {"EVAL.py": python("import asyncio\nawait asyncio.sleep(3600)")},
        {"EVAL.py": python("import time\nwhile True:\n    time.sleep(0.05)")},
        {"EVAL.py": python("await sandbox.exec('sleep 3600', timeout=3600)")},
        {"EVAL.py": "import time\nwhile True:\n    time.sleep(0.05)\nasync def score(sandbox): ...\n"},
        {"EVAL": "#!/bin/sh\ntrap '' TERM\nsleep 3600\n"},
    ],
    ids=["awaits", "blocks", "waits for a command", "blocks at import", "program"],
)
async def test_a_scorer_that_never_returns_is_ended_at_its_own_deadline(
    tmp_path: Path, files: dict[str, str | bytes]
) -> None:
    eval = make(tmp_path, front="score_time_limit: 2", **files)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.05)

    ticking = asyncio.create_task(tick())
    with pytest.raises(ScorerError, match="did not end within 2 s"):
        await scored(eval)
    ticking.cancel()
    assert ticks > 5  # the loop went on all the while


async def test_a_program_whose_interpreter_is_missing_is_the_scorers_error(tmp_path: Path) -> None:
    with pytest.raises(ScorerError, match="the sandbox has no /nowhere/python9"):
        await scored(make(tmp_path, EVAL="#!/nowhere/python9\n"))
    with pytest.raises(ScorerError, match="the sandbox has no python9"):
        await scored(make(tmp_path, EVAL="#!/usr/bin/env -S python9 -I\n"))


async def test_a_program_that_can_not_find_the_agents_program_is_a_fail(tmp_path: Path) -> None:
    assert not (await scored(make(tmp_path, EVAL="#!/bin/sh\n./built-by-the-agent\n"))).passed


async def test_many_attempts_are_scored_at_once(tmp_path: Path) -> None:
    body = """
import time
time.sleep(0.3)
return {"passed": (await sandbox.exec("echo $((6 * 7))")).stdout == "42\\n"}
"""
    eval = make(tmp_path, **{"EVAL.py": python(body)})
    verdicts = await asyncio.gather(*(scored(eval) for _ in range(12)))
    assert all(verdict.passed for verdict in verdicts)
