"""The Markdown of an attempt, from real logs and from hostile ones."""

from __future__ import annotations

from typing import Any

import pytest

from hawk.bridge.evallog import read_sample
from hawk.bridge.transcript import render
from tests.bridge.conftest import Evaluation

pytestmark = pytest.mark.timeout(400)  # real evaluations start slowly on a loaded machine


def test_transcript_of_a_real_attempt_tells_the_whole_story(finished: Evaluation) -> None:
    text = render(read_sample(finished.log, "s1", 2), task="tiny")
    assert text.startswith("# tiny · s1 · attempt 2\n")
    assert "- **Scores**: graded 0.0" in text
    assert "- **Tokens**: 30 (20 in, 10 out)" in text
    assert "said wrong" in text
    assert "Calls **work**:" in text
    assert "Calls **submit**:\n\n```\nwrong\n```" in text
    assert "### 4. tool work" in text
    assert "done red" in text
    assert not any(c in text for c in "\x1b\x00\x07")


def test_transcript_names_error_and_limit(finished: Evaluation) -> None:
    broken = render(read_sample(finished.log, "s2", 1), task="tiny")
    assert "- **Error**: ValueError('the model broke')" in broken
    assert "Traceback (most recent call last)" in broken
    limited = render(read_sample(finished.log, "s3", 1), task="tiny")
    assert "- **Limit**: message (12.0)" in limited or "- **Limit**: message (12)" in limited


def _sample(content: Any, **more: Any) -> dict[str, Any]:
    return {"id": "s", "epoch": 1, "messages": [{"role": "assistant", "content": content, **more}]}


def test_text_cannot_leave_its_fence() -> None:
    text = render(_sample("a\n````\n# Forged heading\n`````\n\x1b]0;x\x07\x1b[2Jb"), task="t")
    body = text[text.index("``````") :]
    assert body.startswith("``````\na\n````\n# Forged heading\n`````\nb\n``````")


def test_names_cannot_forge_markup() -> None:
    sample = {"id": "x\n# Forged\n**bold**", "epoch": 1, "scores": {"a\n\n# b": {"value": "<b>"}}}
    text = render(sample, task="[t](http://x)")
    assert "\n# Forged" not in text
    assert "\n# b" not in text
    assert r"\[t\](http://x)" in text
    assert r"\<b\>" in text


def test_long_text_is_cut_with_a_note() -> None:
    text = render(_sample("y" * 1500), task="t", limit=1000)
    assert "y" * 1000 in text
    assert "y" * 1001 not in text
    assert "*… 500 more characters.*" in text


def test_message_parts_of_every_kind_are_shown() -> None:
    parts = [
        {"type": "reasoning", "reasoning": "think first"},
        {"type": "reasoning", "reasoning": "gAAAA", "redacted": True},
        {"type": "text", "text": "answer"},
        {"type": "image", "image": "data:image/png;base64,AAAA"},
        "bare",
    ]
    calls = [{"id": "1", "function": "bash", "arguments": {"cmd": "ls", "timeout": 3}}]
    text = render(_sample(parts, tool_calls=calls), task="t")
    assert "[reasoning] think first" in text
    assert "[reasoning] (redacted)" in text
    assert "answer" in text
    assert "[image]" in text
    assert "AAAA" not in text
    assert '"timeout": 3' in text


def test_sample_with_hardly_anything_renders() -> None:
    assert "None." in render({}, task="t")
    assert "half" in render(_sample("half \ud800 pair"), task="t").encode().decode()
