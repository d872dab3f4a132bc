"""The commands that ask once, against canned answers."""

import json
from pathlib import Path
from typing import Any

from hawk.core.plan import Plan, PlanTask
from hawk.core.states import JobStatus
from tests.cli.conftest import Run
from tests.cli.serving import Canned
from tests.cli.snapshots import busy, ended
from tests.cli.terminal import Terminal

Env = dict[str, str]
CONFIG = """
name: demo
tasks: [{file: tasks.py, items: [{name: easy}]}]
models: [{package: inspect-ai, items: [{name: mockllm/model}]}]
"""


def write_config(directory: Path, text: str = CONFIG) -> str:
    (directory / "tasks.py").write_text("from inspect_ai import task\n\n@task\ndef easy():\n    pass\n")
    path = directory / "demo.yaml"
    path.write_text(text)
    return str(path)


def accept(canned: Canned, **answer: Any) -> None:
    canned.routes["POST /eval_sets/"] = {"eval_set_id": "demo-1", **answer}
    plan = Plan("demo-1", [PlanTask("i", "easy", "mockllm/model", ["a", "b"], 3)], runs=3)
    canned.routes["GET /monitoring/jobs/demo-1/plan"] = plan


def submitted(canned: Canned) -> list[Any]:
    return [body for method, path, body in canned.requests if (method, path) == ("POST", "/eval_sets/")]


def test_eval_set_prints_id_plan_and_where_to_watch(
    canned: Canned, remote: Env, run: Run, tmp_path: Path
) -> None:
    accept(canned, warnings=["be careful"])
    done = run("eval-set", write_config(tmp_path), "--runs", "3", "--name", "demo-1", env=remote)
    assert done.returncode == 0, done.stderr
    assert "Eval set ID: demo-1 (submitted)" in done.stdout
    assert "1 task, 2 pairs x 3 runs = 6 attempts, 1 worker" in done.stdout
    assert "model call retries at most 12" in done.stdout
    assert "Watch it: hawk watch demo-1" in done.stdout
    assert "Warning: be careful" in done.stderr
    [body] = submitted(canned)
    assert (body["eval_set_id"], body["base_dir"]) == ("demo-1", str(tmp_path))
    assert body["eval_set_config"]["runs"] == 3
    assert (Path(remote["HAWK_HOME"]) / "last-eval-set-id").read_text() == "demo-1\n"


def test_wait_follows_to_the_end_and_its_exit_code(
    canned: Canned, remote: Env, run: Run, tmp_path: Path
) -> None:
    accept(canned)
    for status, code in ((JobStatus.COMPLETE, 0), (JobStatus.FAILED, 1)):
        canned.snapshots = [ended(status)]
        assert run("eval-set", "--wait", write_config(tmp_path), env=remote).returncode == code


def test_check_says_what_would_run_and_asks_no_server(env: Env, run: Run, tmp_path: Path) -> None:
    done = run("eval-set", write_config(tmp_path), "--check", "--runs", "2", env=env)
    assert done.returncode == 0, done.stderr
    assert "1 combination, 2 attempts of each sample" in done.stdout
    assert not Path(env["HAWK_HOME"]).exists()


def test_a_wrong_config_is_exit_2_and_names_the_line(env: Env, run: Run, tmp_path: Path) -> None:
    done = run("eval-set", write_config(tmp_path, CONFIG + "epoch: 3\n"), "--check", env=env)
    assert done.returncode == 2
    assert "demo.yaml:5" in done.stderr
    assert "epochs" in done.stderr
    assert run("eval-set", str(tmp_path / "none.yaml"), env=env).returncode == 2


def test_secrets_travel_in_the_body_and_a_missing_one_is_named(
    canned: Canned, remote: Env, run: Run, tmp_path: Path
) -> None:
    accept(canned)
    config = write_config(tmp_path, CONFIG + "secrets: [{name: API_KEY}]\n")
    done = run("eval-set", config, env=remote)
    assert done.returncode == 1
    assert "API_KEY" in done.stderr
    assert submitted(canned) == []
    (tmp_path / "secrets").write_text("OTHER=o\n")
    done = run(
        "eval-set", config, "--secret", "API_KEY", "--secrets-file", str(tmp_path / "secrets"),
        env={**remote, "API_KEY": "hidden-value"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [body] = submitted(canned)
    assert body["secrets"] == {"API_KEY": "hidden-value", "OTHER": "o"}
    assert "hidden-value" not in done.stdout + done.stderr


def test_resume_means_the_last_eval_set(canned: Canned, remote: Env, run: Run) -> None:
    accept(canned, created=False)
    assert run("eval-set", "resume", env=remote).returncode == 2
    (Path(remote["HAWK_HOME"]) / "last-eval-set-id").write_text("demo-1")
    done = run("eval-set", "resume", env=remote)
    assert "resumed; finished attempts are reused" in done.stdout
    assert submitted(canned)[-1]["resume"] is True


def test_a_job_that_fails_before_its_plan_says_why(
    canned: Canned, remote: Env, run: Run, tmp_path: Path
) -> None:
    canned.routes["POST /eval_sets/"] = {"eval_set_id": "demo-1"}
    snapshot = ended(JobStatus.FAILED)
    snapshot.reason, snapshot.remedy = "No task named 'hard'.", "Did you mean 'easy'?"
    canned.show(snapshot)
    done = run("eval-set", write_config(tmp_path), env=remote)
    assert done.returncode == 1
    assert "No task named 'hard'." in done.stderr
    assert "→ Did you mean 'easy'?" in done.stderr


def test_stop_prints_what_the_runner_acknowledged(canned: Canned, remote: Env, run: Run) -> None:
    canned.routes["POST /eval_sets/demo-1/stop"] = {"request_id": "r1", "acknowledged": False}
    line = {"at": "t", "kind": "stop", "subject": "r1", "state": "acknowledged", "reason": "3 attempts"}
    canned.routes["GET /monitoring/jobs/demo-1/journal"] = {"entries": [line]}
    done = run("stop", "demo-1", "--sample", "u1", "--error", env=remote)
    assert done.returncode == 0
    assert "Acknowledged: 3 attempts." in done.stderr
    assert canned.requests[0][2] == {"sample_uuid": "u1", "action": "error"}
    line["state"] = "refused"
    assert run("stop", "demo-1", env=remote).returncode == 1


def deletes(canned: Canned) -> int:
    return sum(method == "DELETE" for method, _, _ in canned.requests)


def test_delete_refuses_without_a_terminal_and_y_wants_the_id(canned: Canned, remote: Env, run: Run) -> None:
    canned.show(busy())
    canned.routes["DELETE /eval_sets/demo-1"] = {"eval_set_id": "demo-1", "deleted": True}
    (Path(remote["HAWK_HOME"]) / "last-job-id").write_text("demo-1")
    for line in (["delete"], ["delete", "demo-1"], ["delete", "-y"]):
        assert run(*line, env=remote).returncode == 2
    assert deletes(canned) == 0
    assert run("delete", "demo-1", "-y", env=remote).returncode == 0
    assert deletes(canned) == 1


def test_delete_asks_at_a_terminal(canned: Canned, remote: Env) -> None:
    canned.show(busy())
    canned.routes["DELETE /eval_sets/demo-1"] = {"eval_set_id": "demo-1", "deleted": True}
    for answer, code, count in (("n", 1, 0), ("y", 0, 1)):
        with Terminal("delete", "demo-1", env=remote) as terminal:
            assert "demo-1: Running" in terminal.until(r"Delete it.*\[y/N\]")
            terminal.process.sendline(answer)
            assert terminal.end() == code
        assert deletes(canned) == count


def test_logs_are_printed_oldest_first_and_cleaned(canned: Canned, remote: Env, run: Run) -> None:
    entries = [
        {
            "timestamp": "2026-01-01T00:00:02Z",
            "service": "worker/0",
            "message": "\x1b[2Jsecond",
            "level": "error",
        },
        {"timestamp": "2026-01-01T00:00:01Z", "service": "supervisor", "message": "first", "level": None},
    ]
    asked: list[dict[str, str]] = []
    canned.routes["GET /monitoring/jobs/j/logs"] = lambda query: asked.append(query) or {"entries": entries}
    done = run("logs", "j", "-n", "2", env=remote)
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["first", "second"]
    assert "[ERROR] worker/0" in done.stdout
    assert (asked[0]["limit"], asked[0]["sort"]) == ("2", "desc")


def test_lists_are_tables_or_json(canned: Canned, remote: Env, run: Run) -> None:
    items = [
        {"uuid": f"u{i}", "id": f"s{i}", "epoch": 1, "status": "success", "task_name": "t"} for i in range(3)
    ]
    canned.routes["GET /meta/samples"] = lambda query: {"items": items[: int(query["limit"])]}
    done = run("list", "samples", "demo-1", "--limit", "2", env=remote)
    assert len(done.stdout.splitlines()) == 3
    assert "--limit shows them" in done.stderr
    done = run("list", "samples", "--json", env=remote)
    assert [item["uuid"] for item in json.loads(done.stdout)] == ["u0", "u1", "u2"]


def test_transcripts_are_cleaned_or_written(canned: Canned, remote: Env, run: Run, tmp_path: Path) -> None:
    canned.routes["GET /meta/samples/u1/transcript"] = b"# Title \x1b[31mred\n"
    assert run("transcript", "u1", env=remote).stdout == "# Title red\n"
    done = run("transcript", "u1", "--output-dir", str(tmp_path / "out"), env=remote)
    assert (tmp_path / "out" / "u1.md").exists()
    assert done.returncode == 0
    assert run("transcript", "../u1", "--output-dir", str(tmp_path), env=remote).returncode == 2


def test_access_token_never_goes_to_a_server_it_is_not_for(env: Env, run: Run) -> None:
    local = run("auth", "access-token", env=env)
    assert local.stdout.strip()
    token_file = Path(env["HAWK_HOME"]) / "token"
    assert token_file.stat().st_mode & 0o777 == 0o600
    remote = run("auth", "access-token", env={**env, "HAWK_API_URL": "http://elsewhere.example"})
    assert (remote.returncode, remote.stdout) == (1, "")
    given = run("auth", "access-token", env={**env, "HAWK_ACCESS_TOKEN": "mine"})
    assert given.stdout == "mine\n"


def test_a_wrong_token_is_an_error_with_a_remedy(remote: Env, run: Run) -> None:
    done = run("list", "eval-sets", env={**remote, "HAWK_ACCESS_TOKEN": "wrong"})
    assert done.returncode == 1
    assert "→ hawk login" in done.stderr


def test_doctor_names_what_is_missing_and_how_to_mend_it(env: Env, run: Run, tmp_path: Path) -> None:
    assert run("doctor", env=env).returncode == 0
    (tmp_path / "file").write_text("")
    broken = {**env, "HAWK_HOME": str(tmp_path / "file" / "x"), "HAWK_RUN_BASE": "/tmp/" + "x" * 80}
    done = run("doctor", "--json", env=broken)
    found = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 1
    assert found["home"]["state"] == found["sockets"]["state"] == "missing"
    assert "HAWK_RUN_BASE" in found["sockets"]["remedy"]
