"""One attempt as a Markdown document for a person: what was asked, what the agent did, how it was judged.

Pure: a raw sample from `evallog.read_sample` in, text out. What models and sandboxes wrote is hostile: control
characters are removed, and it stands in code fences longer than any run of backticks in it, so that it can't
pose as part of the document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hawk.core.text import one_line, strip_controls

_BACKTICKS = re.compile(r"`{3,}")
_MARKS = re.compile(r"([\\`*_\[\]<>#|])")


def render(sample: dict[str, Any], *, task: str, model: str | None = None, limit: int = 20_000) -> str:
    """Render an attempt.

    Args:
        sample: The raw sample, attachments resolved.
        task: The task's name.
        model: The model, where known.
        limit: Characters shown of one text; a note says how many more there are.
    """
    parts = [
        *_header(sample, task, model),
        *_errors(sample, limit),
        *_scores(sample, limit),
        "## Messages",
        *_messages(sample, limit),
    ]
    return "\n\n".join(parts) + "\n"


def _header(sample: dict[str, Any], task: str, model: str | None) -> Iterator[str]:
    name, attempt = sample.get("id"), sample.get("epoch", 1)
    yield f"# {_inline(task)} · {_inline(name)} · attempt {attempt}"
    usage = [u for u in (sample.get("model_usage") or {}).values() if isinstance(u, dict)]
    tokens = {k: sum(u.get(f"{k}_tokens") or 0 for u in usage) for k in ("total", "input", "output")}
    limit = sample.get("limit")
    rows = {
        "Model": model or ", ".join(sample.get("model_usage") or {}),
        "Sample": sample.get("uuid"),
        "Scores": ", ".join(f"{k} {_value(v)}" for k, v in _dicts(sample.get("scores"))),
        "Limit": f"{limit.get('type')} ({limit.get('limit')})" if isinstance(limit, dict) else None,
        "Error": _message(sample.get("error")),
        "Retries": len(sample.get("error_retries") or []) or None,
        "Tokens": f"{tokens['total']:,} ({tokens['input']:,} in, {tokens['output']:,} out)"
        if usage
        else None,
        "Started": sample.get("started_at"),
        "Ended": sample.get("completed_at"),
        "Time": _times(sample),
    }
    yield "\n".join(f"- **{label}**: {_inline(value)}" for label, value in rows.items() if value)


def _errors(sample: dict[str, Any], limit: int) -> Iterator[str]:
    tries = [*(sample.get("error_retries") or []), sample.get("error")]
    for number, error in enumerate(tries, start=1):
        if isinstance(error, dict):
            yield f"## Error in try {number}" if len(tries) > 1 else "## Error"
            yield _fenced(error.get("traceback") or _message(error) or "", limit)


def _scores(sample: dict[str, Any], limit: int) -> Iterator[str]:
    for name, score in _dicts(sample.get("scores")):
        yield f"## Score {_inline(name)}: {_inline(_value(score))}"
        for label in ("answer", "explanation"):
            if score.get(label):
                yield f"{label.capitalize()}:\n\n{_fenced(_text(score[label]), limit)}"
    if sample.get("target"):
        yield f"Target:\n\n{_fenced(_text(sample['target']), limit)}"


def _messages(sample: dict[str, Any], limit: int) -> Iterator[str]:
    messages = [m for m in sample.get("messages") or [] if isinstance(m, dict)]
    if not messages:
        yield "None."
    for number, message in enumerate(messages, start=1):
        role = message.get("role", "message")
        of = f" {_inline(message['function'])}" if role == "tool" and message.get("function") else ""
        yield f"### {number}. {_inline(role)}{of}"
        content = _text(message.get("content"))
        if content.strip():
            yield _fenced(content, limit)
        if message.get("error"):
            yield f"Error: {_inline(_message(message['error']))}"
        for call in message.get("tool_calls") or []:
            if isinstance(call, dict):
                yield f"Calls **{_inline(call.get('function'))}**:\n\n{_call(call, limit)}"


def _call(call: dict[str, Any], limit: int) -> str:
    """The arguments: a single text as it is, for that is mostly code; anything else as JSON."""
    arguments = call.get("arguments")
    if isinstance(arguments, dict) and len(arguments) == 1:
        only = next(iter(arguments.values()))
        if isinstance(only, str):
            return _fenced(only, limit)
    return _fenced(json.dumps(arguments, indent=2, ensure_ascii=False, default=str), limit, "json")


def _text(content: Any) -> str:
    """Plain text of a message's content: a string, or a list of parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_part(part) for part in content)
    return json.dumps(content, indent=2, ensure_ascii=False, default=str)


def _part(part: Any) -> str:
    if not isinstance(part, dict):
        return _text(part)
    match part.get("type"):
        case "text":
            return str(part.get("text", ""))
        case "reasoning":
            hidden = "(redacted)" if part.get("redacted") else part.get("reasoning", "")
            return f"[reasoning] {part.get('summary') or hidden}"
        case "tool_use":
            return f"[{part.get('name')}] {part.get('arguments')}\n{part.get('result')}"
        case "data":
            return _text(part.get("data"))
        case kind:
            return f"[{kind}]"


def _fenced(text: str, limit: int, language: str = "") -> str:
    text = strip_controls(text).rstrip("\n")
    note = ""
    if len(text) > limit:
        note = f"\n\n*… {len(text) - limit:,} more characters.*"
        text = text[:limit]
    fence = "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}{note}"


def _inline(value: Any) -> str:
    """One line that can't open markup of its own."""
    return _MARKS.sub(r"\\\1", one_line(_text(value), 300))


def _dicts(value: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(k, v) for k, v in value.items() if isinstance(v, dict)] if isinstance(value, dict) else []


def _value(score: dict[str, Any]) -> str:
    value = score.get("value")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _message(error: Any) -> str | None:
    return str(error.get("message", "")) if isinstance(error, dict) else error


def _times(sample: dict[str, Any]) -> str | None:
    total, working = sample.get("total_time"), sample.get("working_time")
    if total is None:
        return None
    return f"{total:.1f} s" + (f", {working:.1f} s of it working" if working is not None else "")
