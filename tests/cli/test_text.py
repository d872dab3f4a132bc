import pytest

from hawk.cli.text import clean, duration, shorten, table, width


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b2Jgone", "gone"),
        ("\x1bP1$r\x1b\\text", "text"),
        ("a\x1b", "a"),
        ("a\rb\x08c\x00", "abc"),
        ("\u202egnp.exe", "gnp.exe"),
        ("two\nlines\there", "two lines here"),
    ],
)
def test_nothing_that_acts_on_a_terminal_is_left(hostile: str, harmless: str) -> None:
    assert clean(hostile) == harmless


def test_an_unfinished_escape_hides_no_following_line() -> None:
    assert clean("\x1b]0;never closed\nnext", lines=True) == "\nnext"


def test_durations_have_two_units() -> None:
    assert [duration(s) for s in (None, 8, 200, 3720, 183600)] == ["–", "8s", "3m 20s", "1h 02m", "2d 03h"]


def test_tables_align_and_fit() -> None:
    text = table(["id", "text"], [["a", "x" * 50], ["日本", "y"]], columns=30)
    assert all(width(line) <= 30 for line in text.splitlines())
    assert text.splitlines()[1].startswith("a     x")
    assert shorten("abcdef", 4) == "abc…"
