"""What follows from trace lines alone."""

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from hawk.core.recorder.about import About, Attempt
from hawk.core.recorder.trace import (
    ENDS,
    InFlight,
    ended_by_death,
    pack_offsets,
    parse_line,
    unpack_offset,
)
from tests.recorder.traces import START, enter, leave, line

ids = st.sampled_from("abcdef")
events = st.lists(st.tuples(ids, st.sampled_from(["enter", *ENDS, "unheard of"])), max_size=40)


@given(events, st.integers(min_value=0, max_value=40))
def test_in_flight_is_what_began_and_has_not_ended_wherever_the_reading_begins(
    story: list[tuple[str, str]], cut: int
) -> None:
    expected: dict[str, None] = {}
    lines = []
    for name, event in story:
        if event == "enter":
            expected[name] = None
            lines.append(enter(name, 1))
        else:
            lines.append(leave(name, 2, event=event))
            if event in ENDS:
                expected.pop(name, None)
    before = InFlight()
    for written in lines[:cut]:
        before.feed(written)
    after = InFlight(before.raw)  # as from a sidecar
    for written in lines[cut:]:
        after.feed(written)
    assert {action.trace_id for action in after.actions} == set(expected)


def test_lines_that_are_torn_foreign_or_odd_are_passed_over() -> None:
    state = InFlight([enter("a", 1)])
    for odd in (
        b"",
        b"{",
        b'{"trace_id": 5, "event": "exit"}\n',
        b"\xff\xfe\n",
        leave("a", 2)[:-20],
        b"[1]\n",
    ):
        state.feed(odd)
    assert [action.trace_id for action in state.actions] == ["a"]


def test_an_end_whose_error_holds_half_a_surrogate_pair_or_nan_is_an_end() -> None:
    for text in ('"error": "\\ud800 and so on"', '"duration": NaN'):
        state = InFlight([enter("a", 1)])
        state.feed(b'{"message": "x", "event": "error", "trace_id": "a", ' + text.encode() + b"}\n")
        assert state.actions == []


@given(st.dictionaries(st.integers(0, 40), st.integers(0, 2**48 - 1)), st.integers(0, 40))
def test_offsets_of_many_workers_are_one_number(offsets: dict[int, int], index: int) -> None:
    packed = pack_offsets(offsets)
    assert unpack_offset(packed, index) == offsets.get(index, 0)
    if offsets.get(index, 0) < 2**48 - 1:
        assert pack_offsets({**offsets, index: offsets.get(index, 0) + 1}) > packed


def test_an_action_whose_process_died_is_ended_by_an_error_that_says_so() -> None:
    entered = enter("a", 10, sample_id="s", epoch=2, task="t", sample_uuid="u")
    ended = ended_by_death(entered, 4711, datetime.now(UTC), START.timestamp() + 70.5)
    assert ended is not None
    found = parse_line(ended)
    assert found is not None
    assert (found.event, found.trace_id, found.duration) == ("error", "a", 60.5)
    assert (found.error, found.error_type) == ("the worker process 4711 died", "WorkerDied")
    assert (found.task, found.sample_id, found.epoch, found.sample_uuid) == ("t", "s", 2, "u")
    assert found.start_time is None


ATTEMPTS = [Attempt("t", "s/1", 2, "uuid-1"), Attempt("t", "s/1", 1, "uuid-2")]


def test_a_sample_is_known_by_its_uuid_its_id_and_its_attempt() -> None:
    ours = line(1, sample_id="s/1", epoch=2, task="t", sample_uuid="uuid-1")
    for name in ("uuid-1", "s/1", "s/1/2", "t/s/1/2"):
        assert About(name, ATTEMPTS).trace_line(ours), name
    for name in ("uuid-2", "s", "s/1/1", "u/s/1/2", "1"):
        assert not About(name, ATTEMPTS).trace_line(ours), name


def test_lines_without_a_uuid_are_known_by_the_attempt_whose_uuid_it_is() -> None:
    theirs = line(1, sample_id="s/1", epoch=2, task="package/t")
    assert About("uuid-1", ATTEMPTS).trace_line(theirs)
    assert not About("uuid-2", ATTEMPTS).trace_line(theirs)


@given(st.text(min_size=1), st.integers(1, 9), st.booleans())
def test_every_line_of_a_sample_passes_the_quick_test_too(name: str, epoch: int, ascii_: bool) -> None:
    written = json.dumps({"sample_id": name, "epoch": epoch}, ensure_ascii=ascii_).encode("utf-8", "replace")
    if "\ud7ff" < max(name) < "\ue000":
        return
    assert About(name).trace_line(written)
    assert About(f"{name}/{epoch}").trace_line(written)


def test_log_lines_name_samples_in_their_context_or_their_text() -> None:
    about = About("uuid-1", ATTEMPTS)
    assert about.log_line("task=t sample=s/1 epoch=2\nsomething happened", {})
    assert not about.log_line("task=t sample=s/1 epoch=1\nsomething happened", {})
    assert about.log_line("[x t/s/1/2 model] -> model retry 3", {})
    assert not about.log_line("[x t/s/1/22 model] -> model retry 3", {})
    assert about.log_line("attempt begins", {"uuid": "uuid-1"})
    assert About("s/1/1").log_line("sample=s/1\nonly one attempt each", {})
