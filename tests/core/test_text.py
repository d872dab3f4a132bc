"""Text from models can't move the cursor, change colours, set titles or reorder what a person reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawk.core.text import one_line, strip_controls


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;never ended\nnext line", "\nnext line"),
        ("\x9b2Jcleared", "cleared"),
        ("a\rb\bc\x00d", "abcd"),
        ("left\u202eright", "leftright"),
        ("half \ud83d pair", "half  pair"),
        ("tab\tand\nline", "tab\tand\nline"),
    ],
)
def test_what_is_removed(hostile: str, harmless: str) -> None:
    assert strip_controls(hostile) == harmless


@given(st.text(st.characters(codec=None) | st.sampled_from("\x1b[]\x07\x9b0;m\\")))
def test_no_escape_or_control_survives_and_what_comes_out_can_be_encoded(text: str) -> None:
    plain = strip_controls(text)
    assert not any((ord(c) < 32 and c not in "\t\n") or 0x7F <= ord(c) <= 0x9F for c in plain)
    plain.encode()


def test_one_line_is_short_and_says_that_it_was_cut() -> None:
    assert one_line("a\n b\t c") == "a b c"
    assert one_line("x" * 50, 10) == "x" * 9 + "…"
