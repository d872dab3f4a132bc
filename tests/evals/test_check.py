"""`hawk eval new` and `hawk eval check`: what they say, and their exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hawk.errors import UsageError
from hawk.evals.check import State, Trial, conclude
from hawk.evals.folder import read_eval
from hawk.evals.scaffold import FILES, scaffold
from tests.commandline import EXAMPLES, CommandLine
from tests.evals.making import make, python, write
from tests.sandbox.programs import needs

PASS, FAIL = Trial(True, "passed"), Trial(False, "1 of 1 checks failed: it works")
BROKEN = Trial(None, error="scorer error: oops")
ASKED_PASS, ASKED_FAIL = Trial(True, asked=True), Trial(False, "judged", asked=True)
NO_JUDGE = Trial(None, error="scorer error: no judge", asked=True)


@pytest.mark.parametrize(
    ("solved", "untouched", "judge", "state", "words"),
    [
        ([PASS], [FAIL], None, State.OK, "the solution passes, the untouched start fails"),
        ([FAIL], [FAIL], None, State.WRONG, "the solution fails: 1 of 1 checks failed: it works"),
        ([PASS], [PASS], None, State.WRONG, "the untouched start passes, though nothing was done"),
        ([FAIL], [PASS], None, State.WRONG, "the untouched start passes"),
        (None, [FAIL], None, State.WRONG, "it has no solution/"),
        ([BROKEN], [FAIL], None, State.ERROR, "the solution: scorer error: oops"),
        (
            [PASS],
            [BROKEN, BROKEN],
            None,
            State.ERROR,
            "the untouched start: scorer error: oops (2 of 2 times)",
        ),
        (
            [PASS, FAIL, PASS],
            [FAIL] * 3,
            None,
            State.FLAKY,
            "the solution passed 2 of 3 times: 1 of 1 checks",
        ),
        ([PASS] * 2, [FAIL, PASS], None, State.FLAKY, "the untouched start passed 1 of 2 times"),
        ([NO_JUDGE], [NO_JUDGE], None, State.SKIPPED, "give --judge pass or --judge fail"),
        ([NO_JUDGE], [FAIL], None, State.SKIPPED, "the solution is not scored"),
        ([NO_JUDGE], [PASS], None, State.WRONG, "the untouched start passes"),
        ([ASKED_PASS], [ASKED_PASS], True, State.OK, "passes with a judge that always says pass"),
        ([ASKED_PASS], [PASS], True, State.WRONG, "the untouched start passes, though"),
        ([ASKED_FAIL], [FAIL], True, State.WRONG, "the solution fails: judged"),
        ([ASKED_FAIL], [ASKED_FAIL], False, State.OK, "fails with a judge that always says fail"),
        ([PASS], [ASKED_PASS], False, State.WRONG, "the untouched start passes, though"),
    ],
)
def test_what_trials_say_about_an_eval(
    solved: list[Trial] | None, untouched: list[Trial], judge: bool | None, state: State, words: str
) -> None:
    found, says = conclude(solved, untouched, judge)
    assert found is state
    assert words in "; ".join(says)


def test_a_new_eval_is_whole(tmp_path: Path) -> None:
    path = scaffold(tmp_path / "new" / "evals", "first")
    assert sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()) == sorted(FILES)
    assert read_eval(path).local.executables == ["greet"]
    with pytest.raises(UsageError, match="is there already"):
        scaffold(tmp_path / "new" / "evals", "first")
    for name in ("a b", "../up", ""):
        with pytest.raises(UsageError, match="can't be an eval's name"):
            scaffold(tmp_path, name)


@pytest.fixture
def hawk(tmp_path: Path, supported: None) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    assert not (tmp_path / "home" / "server.json").exists()  # no command here needs a server


@pytest.mark.slow
def test_a_new_eval_passes_its_check(hawk: CommandLine, tmp_path: Path) -> None:
    said = hawk.ok("eval", "new", "first", "--dir", tmp_path / "evals")
    assert "hawk eval check" in said
    assert hawk.ok("eval", "check", tmp_path / "evals").startswith("ok ")


@pytest.mark.slow
@needs("python3")
def test_the_examples_pass_and_what_is_no_eval_is_passed_over(hawk: CommandLine) -> None:
    folder = EXAMPLES / "folder-evals"
    said = hawk.ok("eval", "check", *sorted(folder.iterdir())).splitlines()
    evals = sorted(path.parent.name for path in folder.glob("*/PROMPT.md"))
    assert [line.split()[:2] for line in said] == [*(["ok", name] for name in evals), ["4", "evals"]]


FLAKY = python("""
import pathlib
seen = pathlib.Path(__file__).with_name("seen")
seen.write_text(seen.read_text() + "x" if seen.exists() else "x")
return {"checks": [{"name": "even", "passed": len(seen.read_text()) % 2 == 0}]}
""")


@pytest.mark.slow
def test_each_kind_of_wrong_has_its_line_and_the_exit_code_is_1(hawk: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "evals"
    done = "#!/bin/sh\ntest -f done\n"
    make(folder, "a-good", EVAL=done, **{"solution/done": ""})
    make(folder, "b-undone", EVAL=done, **{"solution/other": ""})
    make(folder, "c-given", EVAL=done, **{"solution/done": "", "local/done": ""})
    make(folder, "d-alone", EVAL=done)
    make(folder, "e-raises", **{"EVAL.py": python("raise OSError('no')"), "solution/done": ""})
    make(
        folder,
        "f-hangs",
        front="score_time_limit: 1",
        EVAL="#!/bin/sh\nsleep 3600\n",
        **{"solution/done": ""},
    )
    # No longer than is needed: nothing can interrupt it, and the thread outlives this test in its process.
    blocks = "import time\nasync def score(sandbox):\n    time.sleep(10)\n"
    make(folder, "g-blocks", front="score_time_limit: 1", **{"EVAL.py": blocks, "solution/done": ""})
    make(folder, "h-start", front="start: exit 3", EVAL=done, **{"solution/done": ""})
    make(folder, "i-flaky", **{"EVAL.py": FLAKY, "solution/done": ""})
    judged = "return {'passed': (await sandbox.judge('good', 'text')).passed}"
    make(folder, "j-judged", **{"EVAL.py": python(judged), "solution/done": ""})
    write(folder, "k-broken", **{"PROMPT.md": "---\nsuit: x\n---\nDo it."})
    run = hawk.run("eval", "check", folder, "--times", "2", timeout=280)
    assert run.returncode == 1, run.stderr
    assert "Traceback" not in run.stderr
    lines = run.stdout.splitlines()
    assert "k-broken/PROMPT.md:2: suit: unknown field 'suit'. Did you mean 'suite'?" in lines[0]
    found = {line.split()[1]: line for line in lines if line.split()[1][1] == "-" and "k-broken" not in line}
    assert {name: line.split()[0] for name, line in found.items()} == {
        "a-good": "ok",
        "b-undone": "wrong",
        "c-given": "wrong",
        "d-alone": "wrong",
        "e-raises": "error",
        "f-hangs": "error",
        "g-blocks": "error",
        "h-start": "error",
        "i-flaky": "flaky",
        "j-judged": "skipped",
    }
    for name, words in {
        "b-undone": "the solution fails",
        "c-given": "the untouched start passes",
        "d-alone": "no solution/",
        "e-raises": "raised OSError: no (line 2)",
        "f-hangs": "did not end within 1 s",
        "g-blocks": "did not end within 1 s",
        "h-start": "`start` of h-start ended with 3",
    }.items():
        assert words in found[name]
    assert lines[-1] == "2 evals good, 8 not."


@pytest.mark.slow
def test_a_solution_takes_the_place_of_links_and_keeps_its_modes(hawk: CommandLine, tmp_path: Path) -> None:
    eval = make(
        tmp_path / "evals",
        EVAL='#!/bin/sh\ntest "$(./run)" = new && test "$(cat target)" = old && test -L link\n',
        **{"local/target": "old", "solution/run!": "#!/bin/sh\necho new\n"},
    )
    (eval.path / "local" / "run").symlink_to("target")
    (eval.path / "solution" / "link").symlink_to("run")
    assert hawk.ok("eval", "check", tmp_path / "evals").startswith("ok ")


@pytest.mark.slow
def test_a_judge_may_be_stood_in_for(hawk: CommandLine, tmp_path: Path) -> None:
    body = "text = await sandbox.read('a') or ''\nreturn {'passed': bool(text) and (await sandbox.judge('r', text)).passed}"
    make(tmp_path / "evals", **{"EVAL.py": python(body), "solution/a": "answer"})
    assert hawk.ok("eval", "check", tmp_path / "evals").startswith("skipped ")
    assert hawk.ok("eval", "check", tmp_path / "evals", "--judge", "pass").startswith("ok ")
    assert "fails with a judge that always says fail" in hawk.ok(
        "eval", "check", tmp_path / "evals", "--judge", "fail"
    )


def test_nothing_to_check_is_a_wrong_command_line(tmp_path: Path) -> None:
    hawk = CommandLine(tmp_path)
    (tmp_path / "empty").mkdir()
    for path, words in ((tmp_path / "empty", "No eval in"), (tmp_path / "nowhere", "does not exist")):
        run = hawk.run("eval", "check", path)
        assert (run.returncode, words in run.stderr) == (2, True)
