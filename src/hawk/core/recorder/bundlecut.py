"""What a bundle leaves out of a file when nobody asked for transcripts: the words of models, tools and sandboxes.

Each function takes a line, or a document, and gives back what may be shared: when, what kind, how long, for which
attempt, and which line of code. What it can't read it gives up, since nobody knows what is in it. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

NOTE = 300
"""Characters that are kept of a message whose author is a program."""

PLAIN_ACTIONS = frozenset(
    {
        "Run Task",
        "Model",
        "Log Write",
        "Log Sync",
        "Log Conditional Write",
        "Checkpoint",
        "HF Batched Generate",
    }
)
"""Actions of the trace whose detail names a model, a task or a file, and quotes nobody."""

_TRACE_FIELDS = (
    *("timestamp", "level", "message", "module", "function", "line", "action", "detail", "event", "trace_id"),
    *(
        "start_time",
        "duration",
        "error",
        "error_type",
        "stacktrace",
        "task",
        "sample_id",
        "epoch",
        "sample_uuid",
    ),
)
_LOG_FIELDS = ("ts", "timestamp", "level", "logger", "msg", "message", "module", "line", "exc", "exc_info")
_LOGGERS = re.compile(
    r"(inspect_ai|hawk|openai|anthropic|httpx|httpcore|google|google_genai|mistralai|groq|botocore|boto3|together"
    r"|azure|aiohttp|urllib3|asyncio|anyio|py\.warnings)(\.|$)"
)
"""Whose lines are kept: Hawk, Inspect, and the packages by which models are reached."""

_QUOTING = ("sandbox", "attempt")
"""Layers whose verdicts quote commands and tools."""

_SLEEP = re.compile(r"(/\S+/)?sleep (infinity|[0-9.]{1,12}[smhd]?)")

_FRAME = re.compile(r'\s*[|+\s]*File "[^"]*", line \d+')
_HEADS = re.compile(
    r"[|+\s-]*(Traceback \(most recent call last\):|Exception Group Traceback|During handling of the above exception"
    r"|The above exception was the direct cause|Fatal Python error|Current thread|Thread 0x|Extension modules:"
    r"|Segmentation fault|Killed|-+ \d+ -+|\+-+)"
)
_RAISED = re.compile(r"([|+\s]*[A-Za-z_][\w.]*)(:.*)?$")
_WARNED = re.compile(r"\S+\.py:\d+: \w*Warning\b")


def cut_trace_line(line: bytes) -> bytes | None:
    """A line of the trace with the names of tools and commands, without their arguments and what they said.

    Returns:
        A whole line; None for one that is torn or not the trace's.
    """
    fields = _document(line)
    if fields is None:
        return None
    kept = {name: fields[name] for name in _TRACE_FIELDS if fields.get(name) is not None}
    action = kept.get("action")
    if action is None:
        kept["message"] = _note(str(kept.get("message", "")))
        return _line(kept)
    plain = action in PLAIN_ACTIONS
    detail = str(kept.get("detail", ""))
    kept["detail"] = _note(detail) if plain else name_of(detail)
    kept["message"] = f"{action}: {kept['detail']} ({kept.get('event', '')})"
    if "error" in kept:
        kept["error"] = _note(str(kept["error"])) if plain else "(left out)"
    if "stacktrace" in kept:
        kept["stacktrace"] = frames(str(kept["stacktrace"]))
    return _line(kept)


def cut_output(lines: Iterable[bytes]) -> Iterator[bytes]:
    """A worker's output: log lines of Hawk, Inspect and the providers' packages, and tracebacks. The rest is counted."""
    left_out, context = 0, ""
    for line in lines:
        kept, context = _output_line(line, context)
        if kept is None:
            left_out += 1
            continue
        if left_out:
            yield _others(left_out)
            left_out = 0
        yield kept
    if left_out:
        yield _others(left_out)


def _others(count: int) -> bytes:
    return f"… {count} lines of other output left out\n".encode()


def _output_line(line: bytes, context: str) -> tuple[bytes | None, str]:
    """The line as it is kept, or None; and what the next one may belong to: `frame`, `trace` or nothing."""
    fields = _document(line) if line.startswith(b"{") else None
    if fields is not None:
        return _log_line(fields), ""
    text = line.decode("utf-8", "replace").rstrip("\r\n")
    if _FRAME.match(text):
        return _text(text), "frame"
    if _HEADS.match(text):
        return _text(text), "trace"
    if context == "frame" and text[:1] in (" ", "\t", "|"):
        return _text(text), "frame" if set(text) <= set(" ^~|") else "source"
    if context in ("frame", "source") and set(text) <= set(" ^~|") and text:
        return _text(text), "source"
    if context and _RAISED.match(text):
        return _text(_note(text)), ""
    if _WARNED.match(text):
        return _text(_note(text)), ""
    return None, context if not text.strip() else ""


def _log_line(fields: dict[str, Any]) -> bytes | None:
    if not _LOGGERS.match(str(fields.get("logger", ""))):
        return None
    if str(fields.get("level", "")).upper() == "DEBUG":
        return None  # packages write whole requests at that level
    kept = {name: fields[name] for name in _LOG_FIELDS if fields.get(name) is not None}
    for name in ("msg", "message"):
        if name in kept:
            kept[name] = str(kept[name])[: 4 * NOTE]
    for name in ("exc", "exc_info"):
        if name in kept:
            kept[name] = frames(str(kept[name]))
    return _line(kept)


def frames(traceback: str) -> str:
    """A traceback without what its exceptions say: places, lines of code, names of classes."""
    kept: list[str] = []
    after = ""
    for text in traceback.splitlines():
        if _FRAME.match(text):
            kept.append(text)
            after = "frame"
        elif _HEADS.match(text):
            kept.append(text)
            after = ""
        elif after == "frame" and text[:1] in (" ", "\t", "|"):
            kept.append(text)
            after = "source"
        elif after and set(text) <= set(" ^~|"):
            kept.append(text)
        elif after and (raised := _RAISED.match(text)):
            kept.append(raised[1])
            after = ""
    return "\n".join(kept)


def cut_result(data: bytes) -> bytes | None:
    """An attempt's `result.json` without answers, explanations and the scorer's notes; None when it is damaged."""
    fields = _document(data)
    if fields is None:
        return None
    for scored in _values(fields.get("scores")):
        for name in ("answer", "explanation"):
            if scored.get(name):
                scored[name] = f"({len(str(scored[name]))} characters left out)"
        if isinstance(scored.get("value"), str):
            scored["value"] = scored["value"][:40]
        for check in _dicts(scored.get("checks")):
            check.pop("notes", None)
    if isinstance(fields.get("error"), dict):
        fields["error"]["message"] = _note(str(fields["error"].get("message", "")))
    return _line(fields)


def cut_snapshot(data: bytes) -> bytes | None:
    """A snapshot without the arguments of tools and what was said; None when it is damaged."""
    fields = _document(data)
    if fields is None:
        return None
    for task in _dicts(fields.get("tasks")):
        for sample in _dicts(task.get("samples")):
            _cut_sample(sample)
    for verdict in _dicts(fields.get("diagnosis")):
        if verdict.get("layer") in _QUOTING:
            verdict.pop("evidence", None)
            verdict["what"] = str(verdict.get("cause"))
    return _line(fields)


def cut_evidence(data: bytes) -> bytes | None:
    """Evidence without the arguments of tools and commands, and without what was said; None when it is damaged."""
    fields = _document(data)
    if fields is None:
        return None
    for attempt in _dicts(fields.get("attempts")):
        for call in _dicts(attempt.get("calls")):
            if call.get("action") not in PLAIN_ACTIONS:
                call["detail"] = name_of(str(call.get("detail") or ""))
        for process in _dicts(attempt.get("processes")):
            process["command"] = _command(str(process.get("command") or ""))
        if isinstance(repeat := attempt.get("repeat"), dict):
            repeat["arguments"] = ""
        if attempt.get("activity") in ("tool", "sandbox", "approval", "question"):
            attempt["detail"] = name_of(str(attempt.get("detail") or ""))
        for tried in _dicts(attempt.get("tries")):
            tried["error"] = _note(str(tried.get("error") or ""))
    for group in _dicts(fields.get("ended")):
        group["message"] = _note(str(group.get("message") or ""))
    return _line(fields)


def _command(command: str) -> str:
    """Its name; of one that only sleeps, for how long too: that is what tells a pause from a hang."""
    return command if _SLEEP.fullmatch(command) else name_of(command)


def cut_journal(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines of the journal; of a verdict that quotes commands only which it was."""
    for line in lines:
        kept = _cut_entry(line) if b'"diagnosis"' in line else line
        if kept is not None:
            yield kept


def _cut_entry(line: bytes) -> bytes | None:
    fields = _document(line)
    if fields is None:
        return None
    data = fields.get("data")
    if fields.get("kind") == "diagnosis" and isinstance(data, dict) and data.get("layer") in _QUOTING:
        fields["reason"] = ""
    return _line(fields)


def _cut_sample(sample: dict[str, Any]) -> None:
    for event in _dicts(sample.get("last_events")):
        if event.get("description"):
            event["description"] = _brief(str(event.get("type")), str(event["description"]))
    activity = sample.get("activity")
    if isinstance(activity, dict) and activity.get("type") in ("tool", "sandbox", "approval", "question"):
        activity["detail"] = name_of(str(activity.get("detail") or ""))
    for name in ("error", "latest_score"):
        if isinstance(sample.get(name), str):
            sample[name] = _note(sample[name])


def _brief(kind: str, description: str) -> str | None:
    match kind:
        case "model" | "sample_limit" | "score" | "approval":
            return description
        case "tool":
            return name_of(description)
        case "sandbox":
            return description.partition(":")[0]
    return None


def cut_header(data: bytes) -> bytes | None:
    """The header of a log, or its first record, without attempts; None when it is damaged."""
    fields = _document(data)
    if fields is None:
        return None
    for name in ("samples", "reductions"):
        fields.pop(name, None)
    error = fields.get("error")
    if isinstance(error, dict):
        error["message"] = _note(str(error.get("message", "")))
        for name in ("traceback", "traceback_ansi"):
            if error.get(name):
                error[name] = frames(str(error[name]))
    return _line(fields)


def name_of(call: str) -> str:
    """The name in `name(arguments)` or in a command line: its first word, without the directory."""
    word = re.split(r"[\s(]", call.strip(), maxsplit=1)[0]
    return word.rpartition("/")[2][:80]


def _note(text: str) -> str:
    left = len(text) - NOTE
    return text if left <= 0 else f"{text[:NOTE]}… ({left} characters left out)"


def _document(data: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            found = json.loads(data)  # takes NaN, which Inspect writes
        except (ValueError, RecursionError):
            return None
    except RecursionError:
        return None
    return found if isinstance(found, dict) else None


def _line(fields: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(fields) + b"\n"
    except UnicodeEncodeError:  # lone surrogates, which Python's JSON reads and writes
        return json.dumps(fields).encode("ascii") + b"\n"


def _text(text: str) -> bytes:
    return text.encode("utf-8", "replace") + b"\n"


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def _values(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield from (item for item in value.values() if isinstance(item, dict))
