"""What a person reads about a job with the public client: watch, status, logs, list, transcript."""

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.actors import PublicClient, Server, wait_until

pytestmark = [pytest.mark.compat, pytest.mark.slow]

Live = tuple[str, Callable[[], None]]


def test_access_token_is_printed_without_asking(hawk: PublicClient, server: Server) -> None:
    assert hawk.run("auth", "access-token").strip() == server.token


def test_version_names_client_and_server(hawk: PublicClient, server: Server) -> None:
    output = hawk.run("version")
    assert "CLI:    3.7.2" in output
    assert f"Server: {server.request('GET', '/version')['version']}" in output


def test_version_drift_only_warns(hawk: PublicClient, finished: str) -> None:
    hawk.environ["HAWK_VERSION_CHECK"] = "warn"
    output = hawk.run("watch", finished, "--no-follow")
    assert "hawk CLI version 3.7.2" in output
    assert "Complete" in output


def test_watch_shows_a_finished_job(hawk: PublicClient, finished: str) -> None:
    lines = hawk.run("watch", finished, "--no-follow").splitlines()
    assert lines[0] == finished
    assert lines[1] == "Complete — 6/8 complete"
    assert re.match(r"  capitals +█+░+  6/8$", lines[2])
    limited = [line for line in lines if "limit: message" in line]
    assert len(limited) == 2
    assert all("sample endless" in line for line in limited)


def test_watch_json_adds_up(hawk: PublicClient, finished: str) -> None:
    status = hawk.json("watch", finished, "--json")
    progress = status["progress"]
    assert progress["total"] == 8 == sum(count for name, count in progress.items() if name != "total")
    assert (progress["completed"], progress["limit"]) == (6, 2)
    [task] = status["tasks"]
    assert task["log_file"].endswith(".eval")
    assert {(s["id"], s["epoch"]) for s in task["samples"]} == {
        (name, epoch) for name in ("france", "england", "atlantis", "endless") for epoch in (1, 2)
    }
    scores = {s["id"]: s["latest_score"] for s in task["samples"]}
    assert scores["france"] in ("C", "1.0", "1")
    assert scores["atlantis"] in ("I", "0.0", "0")


def test_watch_shows_attempts_in_flight(hawk: PublicClient, live: Live) -> None:
    job, _ = live
    output = hawk.run("watch", job, "--no-follow")
    assert "Running — 0/3 complete" in output
    assert output.count("running") == 3
    samples = hawk.json("watch", job, "--json")["tasks"][0]["samples"]
    assert all(any(event["pending"] for event in sample["last_events"]) for sample in samples)


def test_watch_follows_until_the_job_ends(hawk: PublicClient, live: Live) -> None:
    job, open_gate = live
    with hawk.follow("watch", job) as watch:
        watch.wait_for("Running — 0/3 complete")
        open_gate()
        output = watch.finish()
    assert watch.process.returncode == 0
    assert "Complete — 3/3 complete" in output


def test_watch_of_a_job_that_errored(hawk: PublicClient, broken: str) -> None:
    output = hawk.run("watch", broken, "--no-follow")
    assert "Failed — 0/2 complete" in output
    assert output.count("errored") == 2


def test_unknown_job_is_not_found(hawk: PublicClient) -> None:
    assert "Eval set not found: no-such-job" in hawk.run("watch", "no-such-job", "--no-follow")
    assert "Job not found: no-such-job" in hawk.run("logs", "no-such-job")
    assert "no-such-job" in hawk.run("watch", "no-such-job", "--json", code=1)
    assert "no-such-job" in hawk.run("status", "no-such-job", code=1)


def test_wrong_token_is_refused_with_a_reason(hawk: PublicClient, finished: str) -> None:
    forged = ".".join([*hawk.server.token.split(".")[:2], "AAAA"])
    hawk.environ["HAWK_ACCESS_TOKEN"] = forged
    assert "Authentication error" in hawk.run("watch", finished, "--no-follow", code=1)
    assert "Unauthorized" in hawk.run("list", "eval-sets", code=1)


def test_status_reports_the_job(hawk: PublicClient, finished: str) -> None:
    report = hawk.json("status", finished)
    assert report["job_id"] == finished
    assert report["provider"] == "local"
    assert "capitals" in report["user_config"]
    assert report["logs"]["entries"]


def test_logs_are_printed_oldest_first(hawk: PublicClient, finished: str) -> None:
    lines = hawk.run("logs", finished).splitlines()
    stamps = [m.group(1) for line in lines if (m := re.match(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ)\]", line))]
    assert stamps
    assert stamps == sorted(stamps)
    assert len(hawk.run("logs", finished, "-n", "2").splitlines()) >= 2


def test_logs_follow_prints_each_line_once(hawk: PublicClient, live: Live, server: Server) -> None:
    job, open_gate = live
    path = f"/monitoring/jobs/{job}/logs?from_start=true&sort=asc&limit=10000"
    with hawk.follow("logs", job, "-f", "--poll-interval", "0.2") as logs:
        logs.wait_for(_first_lines(server.request("GET", path)["entries"])[-1])
        open_gate()
        server.wait(job)
        lines = wait_until("the log is at rest", lambda: _at_rest(server, path))
        logs.wait_for(lines[-1])
        before = logs.text
        time.sleep(1)  # several polls, in which nothing new may appear
        assert logs.text == before
        logs.process.send_signal(signal.SIGINT)
        output = logs.finish()
    assert "Stopping log follow" in output
    for line in set(lines):
        assert output.count(line) >= 1
    assert len(re.findall(r"^\[\d{4}-", output, re.MULTILINE)) == len(lines)


def _first_lines(entries: list[dict[str, str]]) -> list[str]:
    return [entry["message"].splitlines()[0] for entry in entries]


def _at_rest(server: Server, path: str) -> list[str] | None:
    """The log's lines, once two looks at it a second apart saw the same."""
    seen = _first_lines(server.request("GET", path)["entries"])
    time.sleep(1)
    return seen if seen == _first_lines(server.request("GET", path)["entries"]) else None


def test_lists_eval_sets_evals_samples_and_jobs(hawk: PublicClient, finished: str, server: Server) -> None:
    assert finished in hawk.run("list", "eval-sets")
    assert finished in hawk.run("list", "eval-sets", "--search", finished)
    evals = hawk.run("list", "evals", finished)
    assert re.search(r"capitals +hawk_compat/small +success +8/8", evals)
    samples = hawk.run("list", "samples", finished)
    assert "Total Samples: 8" in samples
    assert len(re.findall(r"france +[12] +success +(?:C|1)", samples)) == 2
    assert len(re.findall(r"endless +[12] +message_limit", samples)) == 2
    jobs = hawk.run("list", "jobs")
    assert re.search(rf"eval-set +{finished} .*Complete", jobs)
    assert finished in hawk.run("list", "jobs", "--all", "--limit", "100")


def test_list_samples_shows_errors(hawk: PublicClient, broken: str) -> None:
    assert len(re.findall(r"(?:alpha|beta) +1 +error", hawk.run("list", "samples", broken))) == 2


def test_list_samples_marks_attempts_in_flight(hawk: PublicClient, live: Live) -> None:
    job, _ = live
    output = hawk.run("list", "samples", job)
    assert len(re.findall(r"(?:one|two|three) +1 +running", output)) == 3


def test_list_without_id_takes_the_last_one(hawk: PublicClient, finished: str) -> None:
    hawk.run("list", "evals", finished)
    assert finished in hawk.run("list", "samples")


def test_transcript_of_one_sample(hawk: PublicClient, finished: str) -> None:
    samples = hawk.json("list", "samples", finished, "--json")
    uuid = next(s["uuid"] for s in samples if s["id"] == "france")
    text = hawk.run("transcript", uuid)
    assert f"**UUID:** {uuid}" in text
    assert "What is the capital of France?" in text
    assert "It is Paris." in text
    raw = hawk.json("transcript", uuid, "--raw")
    assert raw["scores"]["includes"]["value"] == "C"
    assert raw["model_usage"]["hawk_compat/small"]["total_tokens"] == 15


def test_transcript_of_an_unknown_sample(hawk: PublicClient) -> None:
    assert "Not found" in hawk.run("transcript", "A" * 22, code=1)


def test_transcripts_of_an_eval_set(hawk: PublicClient, finished: str, tmp_path: Path) -> None:
    whole = hawk.run("transcripts", finished)
    assert whole.count("# Sample Transcript") == 8
    ranged = hawk.run("transcripts", finished, "--limit", "3")
    assert ranged.count("# Sample Transcript") == 3
    hawk.run("transcripts", finished, "--output-dir", str(tmp_path / "out"), "--raw")
    written = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("*.json")]
    assert len(written) == 8
    assert {s["id"] for s in written} == {"france", "england", "atlantis", "endless"}
