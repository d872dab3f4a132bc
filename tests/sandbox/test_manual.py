"""The manuals' tables of fields are the code's."""

from __future__ import annotations

from pathlib import Path

import pytest

from hawk.sandbox.manual import MANUALS, render

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("file", MANUALS)
def test_every_field_of_a_sandbox_is_in_the_manual(file: str) -> None:
    text = (DOCS / file).read_text("utf-8")
    assert "| `network` |" in text
    assert render(text, file) == text, "run `make docs`"
