"""Files of lines that grow while they are read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hawk.store.tails import Tail


@given(st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")), max_size=30), st.integers(1, 9))
@settings(deadline=None)
def test_every_line_comes_once_however_the_file_grows(lines: list[bytes], step: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lines")
        path.touch()
        tail, data = Tail(path), b"".join(line + b"\n" for line in lines)
        seen: list[bytes] = []
        for at in range(0, len(data) + step, step):
            with path.open("ab") as file:
                file.write(data[at : at + step])
            seen += tail.lines()
        assert seen == [line + b"\n" for line in lines]


def test_of_a_long_file_the_newest_whole_lines_count(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"%04d\n" % n for n in range(1000)))
    tail = Tail(path, most=52)
    assert list(tail.lines()) == [b"%04d\n" % n for n in range(990, 1000)]
    assert list(Tail(path, most=50).lines()) == [b"%04d\n" % n for n in range(990, 1000)]
    with path.open("ab") as file:
        file.write(b"more\nto")
    assert list(tail.lines()) == [b"more\n"]


def test_a_file_that_became_shorter_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\n")
    tail = Tail(path)
    assert len(list(tail.lines())) == 2
    path.write_bytes(b"new\n")
    assert list(tail.lines()) == [b"new\n"]


def test_what_is_no_json_is_passed_over_and_what_is_not_there_is_said(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"a": 1}\nnonsense\n\xff\xfe\n{"a": 2}\n')
    assert list(Tail(path).read(msgspec.json.Decoder(dict[str, int]))) == [{"a": 1}, {"a": 2}]
    with pytest.raises(OSError, match="No such file"):
        list(Tail(tmp_path / "none").lines())
