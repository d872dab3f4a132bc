"""Without transcripts, what models, tools and sandboxes wrote does not get into a bundle; what explains a job does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawk.core.recorder.bundle import safe_name
from hawk.core.recorder.bundlecut import (
    cut_evidence,
    cut_header,
    cut_journal,
    cut_output,
    cut_result,
    cut_snapshot,
    cut_trace_line,
    frames,
    name_of,
)

SAID = "the model said this"

TRACEBACK = f"""Traceback (most recent call last):
  File "/evals/task.py", line 12, in execute
    result = await sandbox().exec(command)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/lib/box.py", line 9, in exec
    raise ToolError(said)
inspect_ai.tool.ToolError: {SAID}
and {SAID}, again"""


def trace(**fields: Any) -> dict[str, Any]:
    kept = cut_trace_line(json.dumps(fields).encode())
    assert kept is not None
    assert kept.endswith(b"\n")
    found: dict[str, Any] = json.loads(kept)
    return found


def test_an_action_keeps_what_the_timeline_and_inspects_anomalies_need() -> None:
    line: dict[str, Any] = {
        "timestamp": "2026-11-30T07:10:17.346805+00:00",
        "level": "TRACE",
        "message": f"sample=s epoch=1\nTool Call: bash(cmd='{SAID}') (error)",
        "action": "Tool Call",
        "detail": f"bash(cmd='{SAID}')",
        "event": "error",
        "trace_id": "Xo6Df6eUKHtHhgyzhg8RFP",
        "duration": 1.5,
        "error": SAID,
        "error_type": "ToolError",
        "stacktrace": TRACEBACK,
        "task": "t",
        "sample_id": "s\x1b]0;x\x07",
        "epoch": 2,
        "arguments": SAID,
    }
    kept = trace(**line)
    same = (
        "timestamp",
        "action",
        "event",
        "trace_id",
        "duration",
        "error_type",
        "task",
        "sample_id",
        "epoch",
    )
    assert {name: kept[name] for name in same} == {name: line[name] for name in same}
    assert kept["detail"] == "bash"
    assert kept["message"] == "Tool Call: bash (error)"
    assert 'File "/evals/task.py", line 12, in execute' in kept["stacktrace"]
    assert SAID not in json.dumps(kept)


def test_a_model_call_keeps_its_model_and_why_it_failed() -> None:
    kept = trace(action="Model", detail="generate (openai/gpt)", event="error", error="429 " + "x" * 1000)
    assert kept["detail"] == "generate (openai/gpt)"
    assert kept["error"].startswith("429 ")
    assert len(kept["error"]) < 400


@pytest.mark.parametrize(
    "line", [b'{"action": "Tool Call", "detail": "ba', b"", b"[]", b"\xff", b"[" * 100_000]
)
def test_what_is_no_line_of_the_trace_is_given_up(line: bytes) -> None:
    assert cut_trace_line(line) is None


def test_output_keeps_log_lines_of_packages_that_are_known_and_tracebacks() -> None:
    retry = {"level": "INFO", "logger": "openai._base_client", "msg": "Retrying request in 0.4 seconds"}
    lines = [
        json.dumps(retry),
        json.dumps({**retry, "level": "DEBUG", "msg": SAID}),
        json.dumps({**retry, "logger": "my_agent", "msg": SAID}),
        f"print: {SAID}",
        *TRACEBACK.splitlines(),
        SAID,
        "/lib/x.py:3: DeprecationWarning: old",
        "Fatal Python error: Segmentation fault",
        "Current thread 0x00007f (most recent call first):",
        '  File "/evals/native.py", line 5 in crash',
    ]
    kept = [line.decode() for line in cut_output((line + "\n").encode() for line in lines)]
    assert json.loads(kept[0]) == retry
    assert kept[1] == "… 3 lines of other output left out\n"
    assert kept[2:9] == [f"{line}\n" for line in TRACEBACK.splitlines()[:7]]
    assert kept[9] == "… 2 lines of other output left out\n"
    assert [line.split()[0] for line in kept[10:]] == ["/lib/x.py:3:", "Fatal", "Current", "File"]


def test_frames_leave_out_what_exceptions_say() -> None:
    kept = frames(TRACEBACK)
    assert SAID not in kept
    assert kept.splitlines()[-1] == "inspect_ai.tool.ToolError"
    assert "result = await sandbox().exec(command)" in kept


def test_a_result_keeps_scores_and_loses_answers() -> None:
    scored = {
        "value": "C",
        "answer": SAID,
        "explanation": SAID,
        "checks": [{"name": "a", "passed": True, "notes": SAID}],
    }
    kept = cut_result(json.dumps({"outcome": "pass", "scores": {"s": scored}}).encode())
    assert kept is not None
    assert SAID.encode() not in kept
    assert json.loads(kept)["scores"]["s"]["value"] == "C"
    assert json.loads(kept)["scores"]["s"]["checks"] == [{"name": "a", "passed": True}]


def test_a_snapshot_keeps_names_of_tools_and_loses_their_arguments() -> None:
    events = [
        {"type": "tool", "description": f"bash(cmd='{SAID}')"},
        {"type": "sandbox", "description": f"exec: {SAID}"},
        {"type": "model", "description": "openai/gpt retry 2"},
        {"type": "info", "description": SAID},
    ]
    activity = {"type": "tool", "detail": f"bash {SAID}"}
    document = {"tasks": [{"samples": [{"id": "s", "last_events": events, "activity": activity}]}]}
    kept = cut_snapshot(json.dumps(document).encode())
    assert kept is not None
    assert SAID.encode() not in kept
    sample = json.loads(kept)["tasks"][0]["samples"][0]
    assert [event["description"] for event in sample["last_events"]] == [
        "bash",
        "exec",
        "openai/gpt retry 2",
        None,
    ]
    assert sample["activity"]["detail"] == "bash"


def test_a_header_keeps_results_and_loses_attempts() -> None:
    document = {"status": "error", "results": {"a": float("nan")}, "samples": [SAID], "error": {"message": "m", "traceback": TRACEBACK}}  # fmt: skip
    kept = cut_header(json.dumps(document).encode())
    assert kept is not None
    assert SAID.encode() not in kept
    assert json.loads(kept)["status"] == "error"


def test_damaged_documents_are_given_up() -> None:
    assert cut_result(b"{") is cut_snapshot(b"[]") is cut_header(b"\xff") is None


@pytest.mark.parametrize(
    ("call", "name"),
    [("bash(cmd='x')", "bash"), ("/usr/bin/docker exec x", "docker"), ("", ""), ("x" * 200, "x" * 80)],
)
def test_the_name_of_a_call(call: str, name: str) -> None:
    assert name_of(call) == name


PARTS = st.text(min_size=1, max_size=300) | st.sampled_from(["..", ".", "-rf", "\x1b[31m", "a b", "con\0"])


@given(st.lists(PARTS, min_size=1, max_size=4))
def test_names_stay_inside_and_mean_nothing_to_a_terminal(parts: list[str]) -> None:
    name = safe_name("/".join(parts))
    assert name.isascii()
    assert name.isprintable()
    assert " " not in name
    assert not name.startswith("/")
    assert all(part and not part.startswith((".", "-")) for part in name.split("/"))
    assert safe_name(name) == name


def test_two_names_stay_two() -> None:
    assert safe_name("a b") != safe_name("a\x1bb") != safe_name("a_b") == "a_b"
    assert (
        safe_name("workers/0/trace-000000000000000.jsonl.zst") == "workers/0/trace-000000000000000.jsonl.zst"
    )


def test_evidence_keeps_what_a_cause_needs_and_quotes_nobody() -> None:
    attempt = {
        "task": "t",
        "activity": "tool",
        "detail": f"bash(cmd='{SAID}')",
        "calls": [
            {"action": "Sandbox Exec", "detail": f"/bin/cat {SAID}", "since": "2026"},
            {"action": "Model", "detail": "openai/gpt-x"},
        ],
        "processes": [
            {"command": f"/usr/bin/cat {SAID}", "waits": "its standard input", "quiet": 40.0},
            {"command": "sleep 100000"},
        ],
        "repeat": {"tool": "bash", "arguments": SAID, "count": 7},
        "wait": {"place": "agent.py:7 think"},
    }
    cut = cut_evidence(json.dumps({"job_id": "j", "attempts": [attempt]}).encode())
    assert cut is not None
    assert SAID not in cut.decode()
    [kept] = json.loads(cut)["attempts"]
    assert [call["detail"] for call in kept["calls"]] == ["cat", "openai/gpt-x"]
    assert kept["processes"][0] == {"command": "cat", "waits": "its standard input", "quiet": 40.0}
    assert kept["processes"][1]["command"] == "sleep 100000"
    assert (kept["repeat"]["count"], kept["wait"]["place"], kept["detail"]) == (7, "agent.py:7 think", "bash")
    assert cut_evidence(b'{"torn') is None


def test_a_verdict_in_journal_and_snapshot_says_which_it_was_and_quotes_no_command() -> None:
    plain = b'{"at":"2026","kind":"worker","subject":"0","state":"started"}\n'
    hung = {"kind": "diagnosis", "subject": "tool_hung", "state": "stuck", "reason": f"cat {SAID}"}
    quoting = json.dumps({**hung, "data": {"layer": "sandbox"}}).encode() + b"\n"
    provider = json.dumps({**hung, "reason": "429", "data": {"layer": "provider"}}).encode() + b"\n"
    first, second, third = cut_journal([plain, quoting, provider])
    assert first == plain
    assert (json.loads(second)["subject"], json.loads(second)["reason"]) == ("tool_hung", "")
    assert json.loads(third)["reason"] == "429"
    verdict = {"cause": "tool_hung", "layer": "sandbox", "what": f"cat {SAID}", "evidence": [{"fact": SAID}]}
    snapshot = cut_snapshot(json.dumps({"diagnosis": [verdict]}).encode())
    assert snapshot is not None
    assert SAID not in snapshot.decode()
    assert json.loads(snapshot)["diagnosis"][0]["cause"] == "tool_hung"
