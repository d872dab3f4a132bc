"""`trace` of the public client: the last lines, all of them, and following."""

import json
import re
from collections.abc import Callable

import pytest

from tests.compat.actors import PublicClient, Server

pytestmark = [pytest.mark.compat, pytest.mark.slow]

Live = tuple[str, Callable[[], None]]


def test_trace_shows_the_last_lines(hawk: PublicClient, finished: str) -> None:
    output = hawk.run("trace", finished, "-n", "3")
    assert len(re.findall(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ\] \[TRACE\]", output, re.MULTILINE)) == 3
    assert "Run Task: task: capitals" in output
    assert "showing last 3 lines" in output


def test_the_full_trace_is_what_was_written(hawk: PublicClient, finished: str, server: Server) -> None:
    raw = hawk.run("trace", finished, "--full", "--raw")
    home = server.home / "runs" / finished / "workers"
    assert raw == (home / "0" / "trace.jsonl").read_text()
    lines = [json.loads(line) for line in raw.splitlines()]
    begun = {line["trace_id"] for line in lines if line.get("event") == "enter"}
    assert begun == {line["trace_id"] for line in lines if line.get("event") in ("exit", "error")}


def test_trace_follows_until_the_job_ends(hawk: PublicClient, live: Live, server: Server) -> None:
    job, open_gate = live
    with hawk.follow("trace", job, "-f", "--raw", "-n", "50000", "--poll-interval", "0.5") as trace:
        trace.wait_for('"event": "enter"')
        open_gate()
        server.wait(job)
        output = trace.finish()
    assert trace.process.returncode == 0
    assert "stopping trace follow" in output
    shown = [line for line in output.splitlines() if line.startswith("{")]
    assert shown == hawk.run("trace", job, "--full", "--raw").splitlines()
