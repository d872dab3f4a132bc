"""What attempts do again and again, from buffers that Inspect's own class writes; how they ended, from results and notes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from hawk.bridge.conduct import ConductReader
from hawk.core.attempts.results import Failure, Outcome, Result, SandboxRecord
from hawk.core.diagnosis.evidence import Attempt, ErrorGroup, Evidence
from hawk.core.plan import Plan, PlanTask
from hawk.core.snapshot import Sample, Snapshot, Task
from hawk.core.states import SamplePhase
from hawk.core.timeline.records import WorkerNote
from hawk.runner.sources import endings
from hawk.runner.sources.conduct import ConductSource
from hawk.runner.sources.endings import EndingsSource
from hawk.store.attempts import write_result
from hawk.store.rundir import RunDir
from tests.bridge.test_buffer import START, Writer
from tests.store.runs import make_run

PLANNED = PlanTask("task-1", "t", "m/x", ["s1", "s2", "s3", "s4"], 1)


def source_of(writer: Writer) -> tuple[ConductReader, dict[str, list[float]]]:
    times: dict[str, list[float]] = {}
    (db,) = (writer.data_home / "inspect_ai" / "samplebuffer").glob("*/*.db")
    reader = ConductReader(
        db,
        lambda name, seconds: times.setdefault(name, []).append(seconds),
        lambda seconds: times.setdefault("start", []).append(seconds),
    )
    return reader, times


def called(writer: Writer, command: str, result: str, name: str = "bash") -> None:
    """A call of a tool, with the row of its beginning and that of its end, as Inspect writes them."""
    event = writer.add("s1", "tool", id="c", function=name, arguments={"cmd": command}, pending=True)
    event.pending = None
    event.result = result
    event.completed = START + timedelta(seconds=writer.seconds, milliseconds=500)
    writer.log_event("s1", event)


def span(writer: Writer, name: str, type_: str | None = None, *, end: bool = False) -> None:
    from inspect_ai import event as events

    writer.seconds += 1
    at = START + timedelta(seconds=writer.seconds)
    made: Any = (
        events.SpanEndEvent(id=name, timestamp=at)
        if end
        else events.SpanBeginEvent(id=name, name=name, type=type_, timestamp=at)
    )
    writer.log_event("s1", made)


def test_equal_calls_are_counted_as_they_come_and_another_call_begins_anew(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.start("s1")
    reader, _ = source_of(writer)
    for _ in range(3):
        called(writer, "ls", "a\nb")
        reader.read()
    conduct = reader.of("s1", 1)
    assert conduct is not None
    assert conduct.run is not None
    assert (conduct.run.tool, conduct.run.count, conduct.run.same) == ("bash", 3, 3)
    called(writer, "ls", "a\nb\nc")
    reader.read()
    assert (conduct.run.count, conduct.run.same) == (4, 1)
    called(writer, "pwd", "/")
    reader.read()
    assert (conduct.run.count, conduct.run.arguments) == (1, '{"cmd": "pwd"}')
    reader.keep(set())
    assert reader.of("s1", 1) is None


def test_results_that_speak_of_a_missing_network_are_seen_however_long_they_are(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.start("s1")
    reader, _ = source_of(writer)
    called(writer, "pip install x", "WARNING: Retrying\n" * 30 + "Temporary failure in name resolution\n")
    writer.add(
        "s1",
        "sandbox",
        action="exec",
        cmd="curl x",
        result=6,
        output="curl: (6) Could not resolve host: x.org",
    )
    called(writer, "ls", "fine")
    reader.read()
    conduct = reader.of("s1", 1)
    assert conduct is not None
    assert [bool(text) for text in conduct.said] == [True, True, False]
    assert conduct.said[1] == "Could not resolve host: x.org"


def test_the_scorer_that_runs_and_how_long_scorers_and_starts_took(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.start("s1")
    reader, times = source_of(writer)
    span(writer, "init", "init")
    span(writer, "solvers")
    span(writer, "scorers", "scorers")
    span(writer, "graded", "scorer")
    reader.read()
    conduct = reader.of("s1", 1)
    assert conduct is not None
    assert conduct.scorer is not None
    assert conduct.scorer[0] == "graded"
    writer.seconds += 9
    span(writer, "graded", end=True)
    reader.read()
    assert conduct.scorer is None
    assert times == {"start": [1.0], "graded": [10.0]}


# --- tries and ends


def scene(root: Path, *samples: Sample, notes: list[WorkerNote] | None = None) -> tuple[Evidence, Any]:
    """A run with attempts that ended so, and what is noted of their tries."""
    run = RunDir(root / "a")
    if not run.spec_file.exists():
        make_run(root, "a")
    (run.path / "spans").mkdir(exist_ok=True)
    with (run.path / "spans" / "worker-0.jsonl").open("ab") as f:
        for note in notes or []:
            f.write(msgspec.json.encode(note) + b"\n")
    task = Task("t", samples=list(samples))
    evidence = Evidence("a", datetime.now(UTC).isoformat())
    evidence.attempts = [
        Attempt("task-1", s.id, s.epoch, name=f"t/{s.id}/1", uuid=s.uuid)
        for s in samples
        if s.phase.in_flight
    ]
    context: Any = SimpleNamespace(
        run_dir=run, plan=Plan("a", [PLANNED]), snapshot=Snapshot("a", tasks=[task]), workers=[]
    )
    return evidence, context


def errored(sample: str, text: str, **fields: Any) -> Sample:
    fields = {
        "phase": SamplePhase.ERRORED,
        "error": text,
        "completed_at": "2026-01-01T00:00:09+00:00",
        **fields,
    }
    return Sample(sample, 1, 1, uuid=f"u-{sample}", **fields)


def tried(sample: str, text: str, number: int = 1) -> WorkerNote:
    at = f"2026-01-01T00:00:0{number}+00:00"
    return WorkerNote("try", at, 3.0, f"u-{sample}", sample, 1, attempt=number, error=text)


class Followed:
    """Both sources, as the driver asks them: one after the other, again and again."""

    def __init__(self) -> None:
        self.conduct = ConductSource()
        self.endings = EndingsSource(lambda: self.conduct.tries)

    def look(self, evidence: Evidence, context: Any) -> list[ErrorGroup]:
        self.conduct.fill(evidence, context)
        self.endings.fill(evidence, context)
        return evidence.ended


def test_errors_are_grouped_by_task_and_text_with_their_tries_and_each_is_counted_once(
    tmp_path: Path,
) -> None:
    followed = Followed()
    text = "RuntimeError('the box 1f2e3d4c5b fell over after {} s')"
    ends = [errored(f"s{n}", text.format(n)) for n in (1, 2)]
    notes = [tried("s1", text.format(7), n) for n in (1, 2)] + [tried("s3", "KeyError('x')")]
    running = Sample("s3", 1, 1, uuid="u-s3", phase=SamplePhase.RUNNING)
    evidence, context = scene(tmp_path, *ends, running, notes=notes)
    fell, key = followed.look(evidence, context)
    assert (fell.kind, fell.count, fell.retried, fell.attempts) == ("RuntimeError", 4, 2, 2)
    assert (fell.task, sorted(fell.examples)) == ("task-1", ["t/s1/1", "t/s2/1"])
    assert (key.kind, key.count, key.retried) == ("KeyError", 1, 1)
    assert [one.error for one in evidence.attempts[0].tries] == ["KeyError('x')"]
    evidence, context = scene(tmp_path, *ends, running, notes=[tried("s3", "KeyError('x')", 2)])
    assert [group.count for group in followed.look(evidence, context)] == [4, 2]
    assert len(evidence.attempts[0].tries) == 2


@pytest.mark.parametrize(
    ("phase", "label", "text", "expected"),
    [
        ("init", None, "The sandbox a could not be made: create: bwrap: no", "sandbox"),
        ("init", "a.default", "Failed to execute setup script for sample: x", "setup"),
        ("init", "a.default", "No such file: notes.txt", "setup"),
        ("agent", "a.default", "boom", "agent"),
        ("scoring", "a.default", "boom", "scoring"),
    ],
)
def test_where_an_attempt_failed_is_known_from_its_result(
    tmp_path: Path, phase: str, label: str | None, text: str, expected: str
) -> None:
    evidence, context = scene(tmp_path, errored("s1", f"RuntimeError({text!r})"))
    box = SandboxRecord("bubblewrap", label)
    failure = Failure("OwnError", text, phase)
    result = Result(PLANNED.pair("s1"), 1, Outcome.INFRA_ERROR, error=failure, sandbox=box, uuid="u-s1")
    write_result(context.run_dir, result)
    (group,) = Followed().look(evidence, context)
    assert (group.kind, group.message, group.phase) == ("OwnError", text, expected)


def test_limits_are_grouped_by_their_name_and_groups_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [
        errored(f"s{n}", "", phase=SamplePhase.LIMIT, error=None, limit="token", reason=f"token limit: {n}00")
        for n in (1, 2)
    ]
    evidence, context = scene(tmp_path, *ends)
    (group,) = Followed().look(evidence, context)
    assert (group.limit, group.count, group.message) == ("token", 2, "token limit: 200")
    monkeypatch.setattr(endings, "GROUPS", 2)
    many = [errored(f"s{n}", f"RuntimeError('{word}')") for n, word in enumerate(["one", "two", "three"], 1)]
    evidence, context = scene(tmp_path, *many)
    assert [group.message for group in Followed().look(evidence, context)] == ["two", "three"]


def test_a_torn_note_is_read_when_it_is_whole(tmp_path: Path) -> None:
    followed = Followed()
    running = Sample("s1", 1, 1, uuid="u-s1", phase=SamplePhase.RUNNING)
    evidence, context = scene(tmp_path, running)
    line = msgspec.json.encode(tried("s1", "KeyError('x')")) + b"\n"
    file = context.run_dir.path / "spans" / "worker-0.jsonl"
    file.write_bytes(b"not json\n" + line[:20])
    followed.look(evidence, context)
    assert evidence.attempts[0].tries == []
    file.write_bytes(b"not json\n" + line)
    followed.look(evidence, context)
    assert len(evidence.attempts[0].tries) == 1
