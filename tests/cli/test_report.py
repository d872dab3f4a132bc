"""`hawk report` as it is used: forms, files, exit codes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from hawk.core.attempts.report import Report
from tests.cli import reports
from tests.cli.conftest import Run
from tests.cli.serving import Canned
from tests.cli.terminal import Terminal

Env = dict[str, str]
PATH = "GET /meta/eval-sets/demo-1/report"


@pytest.fixture
def served(canned: Canned) -> Canned:
    canned.routes[PATH] = reports.mixed()
    return canned


def test_the_table_begins_with_the_rate_and_shows_failures_first(
    served: Canned, remote: Env, run: Run
) -> None:
    done = run("report", "demo-1", env=remote)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert (
        lines[0]
        == "demo-1: parallel, 2 runs of each pair, not complete: attempts are missing or still to come"
    )
    assert lines[1].startswith("2 of 4 pairs passed: 50.0 % (95 % interval ")
    assert lines[1].endswith("2 undecided.")
    for label in ("any pass", "pass@1", "pass@2", "pass^2", "tally", "saved", "wall clock", "used", "money"):
        assert any(line.startswith(label) for line in lines), label
    assert "1 x 2/2, 1 x 1/2, 2 x 0/2" in done.stdout
    table = lines[lines.index(next(line for line in lines if line.startswith("result"))) + 1 :]
    assert [line.split("  ")[0] for line in table[:5]] == [
        "failed",
        "failed",
        "no result",
        "undecided",
        "flaky",
    ]
    assert "tests pass: 2 of 9 fail" in table[0]
    assert table[5] == "… 1 more pair; --all shows them"


def test_what_other_policies_would_have_used_stands_beside_this_one(
    served: Canned, remote: Env, run: Run
) -> None:
    text = run("report", "demo-1", env=remote).stdout
    rows = [line for line in text.splitlines() if line.startswith(("parallel", "sequential", "selective"))]
    assert [row.split("  ")[0] for row in rows] == [
        "parallel (this run)",
        "sequential",
        "selective above 5m 00s",
    ]
    assert "$1.50" in rows[1]


def test_errors_and_incomplete_pairs_are_named(served: Canned, remote: Env, run: Run) -> None:
    text = run("report", "demo-1", env=remote).stdout
    assert "2 x 429 Too many requests" in text
    assert "coding · react · openai/gpt-5.6 · lost: none of 2 planned attempts has a result" in text
    assert text.count("· lost: coding · react") == 0
    assert "coding · react · openai/gpt-5.6 · open: 1 of 2 attempts have a result" in text
    assert "torn or damaged" in text


def test_all_shows_every_pair(canned: Canned, remote: Env, run: Run) -> None:
    canned.routes[PATH] = reports.big(300, 2)
    short = run("report", "demo-1", env=remote).stdout
    whole = run("report", "demo-1", "--all", env=remote).stdout
    assert len(short.splitlines()) < 50
    assert "280 more pairs; --all shows them" in short
    assert sum(line.startswith(("failed", "flaky", "passed")) for line in whole.splitlines()) == 300


def test_json_is_what_the_server_sent_and_the_last_eval_set_is_meant(
    served: Canned, remote: Env, run: Run
) -> None:
    assert run("report", env=remote).returncode == 2
    first = run("report", "demo-1", "--json", env=remote)
    second = run("report", "--json", env=remote)
    assert first.stdout == second.stdout == msgspec.json.encode(reports.mixed()).decode() + "\n"


def test_several_files_are_written_and_one_form_goes_to_the_output(
    served: Canned, remote: Env, run: Run, tmp_path: Path
) -> None:
    page, xml, rows = tmp_path / "r.html", tmp_path / "r.xml", tmp_path / "r.csv"
    xml.write_text("an older one")
    done = run(
        "report",
        "demo-1",
        f"--csv={rows}",
        "--html",
        str(page),
        "--junit",
        str(xml),
        "--markdown",
        env=remote,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("## demo-1\n")
    assert [f"Wrote {path}." in done.stderr for path in (page, xml, rows)] == [True] * 3
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert ET.parse(xml).getroot().tag == "testsuites"
    assert len(list(csv.reader(io.StringIO(rows.read_text("utf-8"))))) == 1 + 12
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        (["--csv"], "task,agent,model,"),
        (["--csv", "-"], "task,agent,model,"),
        (["--html", "-"], "<!doctype html>"),
        (["--junit", "-"], "<?xml "),
        (["--markdown"], "## demo-1"),
    ],
)
def test_each_form_goes_to_the_output_alone(
    served: Canned, remote: Env, run: Run, options: list[str], begins: str
) -> None:
    done = run("report", "demo-1", *options, env=remote)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(begins)


def test_two_forms_cant_share_the_output(served: Canned, remote: Env, run: Run) -> None:
    done = run("report", "demo-1", "--json", "--html", "-", env=remote)
    assert done.returncode == 2
    assert "--html and --json can't both go to the output" in done.stderr


def test_an_id_in_a_files_place_is_asked_about(served: Canned, remote: Env, run: Run, tmp_path: Path) -> None:
    for option in ("--csv", "--html", "--junit"):
        done = run("report", option, "demo-1", env=remote)
        assert (done.returncode, "the ID or the FILE" in done.stderr) == (2, True)


def test_an_unwritable_file_is_said_and_no_old_one_is_touched(
    served: Canned, remote: Env, run: Run, tmp_path: Path
) -> None:
    done = run("report", "demo-1", "--html", str(tmp_path / "none" / "r.html"), env=remote)
    assert done.returncode == 1
    assert "No such file" in done.stderr
    done = run("report", "demo-1", "--html", str(tmp_path), env=remote)
    assert done.returncode == 1


def test_a_device_is_written_to_and_not_replaced(served: Canned, remote: Env, run: Run) -> None:
    done = run("report", "demo-1", "--html", "/dev/stdout", env=remote)
    assert "<!doctype html>" in done.stdout
    assert not Path("/dev/null").is_file()
    assert run("report", "demo-1", "--html", "/dev/null", env=remote).returncode == 0
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize(
    ("report", "code"),
    [(reports.passed(), 0), (reports.big(3, 1), 1), (reports.mixed(), 2), (reports.empty(), 0)],
)
def test_exit_status_tells_a_failure_from_a_missing_result(
    canned: Canned, remote: Env, run: Run, report: Report, code: int
) -> None:
    canned.routes[PATH] = report
    assert run("report", "demo-1", env=remote).returncode == 0
    for form in ([], ["--json"], ["--markdown"], ["--csv"]):
        assert run("report", "demo-1", "--exit-status", *form, env=remote).returncode == code


def test_an_unknown_id_is_exit_2_with_a_remedy(canned: Canned, remote: Env, run: Run) -> None:
    done = run("report", "none", env=remote)
    assert done.returncode == 2
    assert "hawk list eval-sets" in done.stderr


def test_on_a_terminal_it_fits_and_nothing_reaches_it_raw(canned: Canned, remote: Env) -> None:
    canned.routes[PATH] = reports.hostile()
    for form in ([], ["--all"], ["--json"]):
        with Terminal("report", "demo-1", *form, env=remote, columns=100, rows=30) as terminal:
            assert terminal.end() == 0
        raw = terminal.raw.decode("utf-8")
        for sequence in ("\x1b[2J", "\x1b]", "\x07", "\x00", "\x85", "\u202e", "\u2028"):
            assert sequence not in raw
    canned.routes[PATH] = reports.mixed()
    with Terminal("report", "demo-1", env=remote, columns=100, rows=60) as terminal:
        assert terminal.end() == 0
    rows = [line for line in terminal.text.splitlines() if line.startswith(("failed", "no result", "flaky"))]
    assert [row.split("  ")[0] for row in rows] == ["failed", "failed", "no result", "flaky"]


def test_a_server_that_sends_nonsense_is_an_error_not_a_traceback(
    canned: Canned, remote: Env, run: Run
) -> None:
    canned.routes[PATH] = json.loads('{"job_id": 3}')
    done = run("report", "demo-1", env=remote)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "not understood" in done.stderr
