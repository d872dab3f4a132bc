"""The manual's table of fields is the code's."""

from __future__ import annotations

from pathlib import Path

from hawk.sandbox.manual import MANUAL_FILE, render

MANUAL = Path(__file__).parents[2] / "docs" / MANUAL_FILE


def test_every_field_of_a_sandbox_is_in_the_manual() -> None:
    text = MANUAL.read_text("utf-8")
    assert "| `network` |" in text
    assert render(text) == text, "run `make docs`"
