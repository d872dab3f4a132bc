"""`hawk watch` as a process, against a real HTTP server."""

import fcntl
import json
import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from hawk import __version__
from hawk.core.states import JobStatus
from tests.cli.conftest import HAWK, Run
from tests.cli.serving import TOKEN, Canned, serving
from tests.cli.snapshots import busy, ended, large

Env = dict[str, str]


def start(*args: str, env: Env) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*HAWK, *args], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )


def lines_until(process: subprocess.Popen[str], text: str) -> list[str]:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(
        f"{text!r} never came:\n{''.join(lines)}\n{process.stderr and process.stderr.read()}"
    )


def test_no_follow_prints_one_snapshot(canned: Canned, remote: Env, run: Run) -> None:
    canned.show(busy())
    done = run("watch", "demo-1", "--no-follow", env=remote)
    assert (done.returncode, done.stderr) == (0, "")
    assert "5/12 · 2 completed" in done.stdout
    assert "waits to retry RateLimitError 429" in done.stdout
    assert "\x1b" not in done.stdout


def test_the_local_server_is_asked_once_and_for_nothing_else(canned: Canned, env: Env, run: Run) -> None:
    canned.show(busy())
    home = Path(env["HAWK_HOME"])
    home.mkdir()
    with serving(canned) as url, (home / "server.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (home / "server.json").write_text(
            json.dumps({"url": url, "pid": os.getpid(), "version": __version__})
        )
        done = run("watch", "demo-1", "--no-follow", env={**env, "HAWK_ACCESS_TOKEN": TOKEN})
    assert (done.returncode, done.stderr) == (0, "")
    assert [path for _, path, _ in canned.requests] == ["/monitoring/jobs/demo-1/eval-set-status"]


def test_json_is_the_whole_payload(canned: Canned, remote: Env, run: Run) -> None:
    canned.show(busy())
    done = run("watch", "demo-1", "--json", env=remote)
    body = json.loads(done.stdout)
    progress = body["data"]["progress"]
    assert progress["total"] == sum(v for k, v in progress.items() if k != "total")
    assert body["etag"]


@pytest.mark.parametrize(
    ("status", "options", "code"),
    [
        (JobStatus.COMPLETE, [], 0),
        (JobStatus.FAILED, [], 1),
        (JobStatus.DELETED, [], 1),
        (JobStatus.STUCK, ["--exit-status"], 3),
        (JobStatus.STUCK, ["--exit-status", "--no-follow"], 3),
        (JobStatus.STUCK, ["--no-follow"], 0),
        (JobStatus.FAILED, ["--exit-status", "--no-follow"], 1),
        (JobStatus.RUNNING, ["--exit-status", "--no-follow"], 0),
    ],
)
def test_exit_codes(
    canned: Canned, remote: Env, run: Run, status: JobStatus, options: list[str], code: int
) -> None:
    canned.show(ended(status))
    assert run("watch", "demo-1", *options, env=remote).returncode == code


def test_unknown_job_is_exit_2(remote: Env, run: Run) -> None:
    for options in ([], ["--no-follow"]):
        done = run("watch", "nope", *options, env=remote)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert "→ hawk list eval-sets" in done.stderr


def test_left_out_id_means_the_last_job_and_there_must_be_one(canned: Canned, remote: Env, run: Run) -> None:
    canned.show(busy())
    done = run("watch", "--no-follow", env=remote)
    assert done.returncode == 2
    assert "No id given, and no last job is known." in done.stderr
    run("watch", "demo-1", "--no-follow", env=remote)
    assert run("watch", "--no-follow", env=remote).returncode == 0
    done = run("stop", env=remote)
    assert done.returncode == 2, "watching a job does not make it the last eval set"


def test_piped_it_prints_a_line_per_change_and_ends_with_a_summary(canned: Canned, remote: Env) -> None:
    canned.show(busy())
    process = start("watch", "demo-1", env=remote)
    lines = lines_until(process, "limit: coding long #1: token limit")
    assert any("trouble: worker 0 restarted" in line for line in lines)
    canned.show(ended())
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "verify/accuracy 0.667" in out
    assert "\x1b" not in out + err


def test_ctrl_c_leaves_the_job_alone_and_says_how_to_stop_it(canned: Canned, remote: Env) -> None:
    canned.show(busy())
    process = start("watch", "demo-1", env=remote)
    lines_until(process, "5/12")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "demo-1 runs on." in err
    assert "hawk stop demo-1" in err
    assert "Traceback" not in err
    assert all(method == "GET" for method, _, _ in canned.requests)


def test_a_broken_stream_is_opened_again_and_said_once(canned: Canned, env: Env) -> None:
    Path(env["HAWK_HOME"]).mkdir()
    canned.show(busy())
    with serving(canned) as url:
        env |= {"HAWK_API_URL": url, "HAWK_ACCESS_TOKEN": TOKEN}
        process = start("watch", "demo-1", env=env)
        lines_until(process, "5/12")
    again = Canned(ended())
    with serving(again, port=int(url.rpartition(":")[2])):
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Complete" in out
    assert err.count("Connection lost") == 1


def test_a_server_that_is_not_there_is_an_error_without_traceback(env: Env, run: Run) -> None:
    env |= {"HAWK_API_URL": "http://127.0.0.1:9", "HAWK_ACCESS_TOKEN": TOKEN}
    done = run("watch", "demo-1", env=env)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: The server at http://127.0.0.1:9 does not answer")
    assert "Traceback" in run("watch", "demo-1", "--debug", env=env).stderr


def test_a_reader_that_goes_away_is_no_error(canned: Canned, remote: Env) -> None:
    canned.show(large(100, 100))
    process = start("watch", "demo-1", "--json", env=remote)
    assert process.stdout is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(20) == 141
    assert process.stderr is not None
    assert process.stderr.read() == ""


def test_a_narrow_encoding_does_not_end_the_command(canned: Canned, remote: Env, run: Run) -> None:
    snapshot = busy()
    snapshot.remedy = "wait"
    canned.show(snapshot)
    latin = {**remote, "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1:strict"}
    done = run("watch", "demo-1", "--no-follow", env=latin, encoding="latin-1")
    assert done.returncode == 0
    assert "? wait" in done.stdout


def test_ten_thousand_attempts_take_a_moment(canned: Canned, remote: Env, run: Run) -> None:
    """CPU time, not wall clock: other tests run beside this one. The bar is 0.3 s."""
    canned.show(large(100, 100))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run("watch", "large-1", "--no-follow", env=remote).returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.6


def test_watch_imports_no_heavy_package(canned: Canned, remote: Env) -> None:
    canned.show(busy())
    code = (
        "import sys, hawk.cli\n"
        "try: hawk.cli.main(['watch', 'demo-1', '--no-follow'])\n"
        "except SystemExit: pass\n"
        "bad = {*'httpx pydantic inspect_ai fastapi sqlalchemy rich email ssl subprocess'.split()} & set(sys.modules)\n"
        "sys.exit(repr(bad) if bad else 0)"
    )
    done = subprocess.run(
        [HAWK[0], "-c", code], env={**os.environ, **remote}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
