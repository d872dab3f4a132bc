"""`hawk timeline` of an attempt with 10,000 events, none of which was asked for before.

The log is Inspect's own: an agent that asks its model and runs a command in its sandbox, two thousand times.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import psutil
from inspect_ai.event import Event, ModelEvent, SandboxEvent, SpanBeginEvent, SpanEndEvent, ToolEvent
from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalLog,
    EvalResults,
    EvalSample,
    EvalSpec,
    EvalStats,
    write_eval_log,
)
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    ChatMessageUser,
    GenerateConfig,
    ModelOutput,
)
from inspect_ai.scorer import Score
from inspect_ai.tool import ToolCall

from benchmarks.bars import Bar
from benchmarks.processes import hawk, timed
from hawk.core.snapshot import Snapshot
from hawk.core.states import JobStatus
from hawk.store.rundir import JobSpec, RunDir, write_json

JOB = "long"
MODEL = "none/none"
TURNS = 2000
PER_TURN = 5
CONTEXT = 40
"""Messages of the conversation that go into a call, as after compaction."""


def measure(rounds: int) -> list[Bar]:
    base = Path(tempfile.mkdtemp(prefix="hawk-benchmark-"))
    try:
        with hawk(base / "home", HAWK_MIDDLEMAN="0", HAWK_WARM="0") as instance:
            run = _job(instance.settings.root)
            size = _write_log(run, 2 * rounds)
            print(f"  {2 * rounds} attempts, {size / 2**20:.1f} MiB on disk", file=sys.stderr, flush=True)
            instance.start()
            attempts = iter(range(1, 2 * rounds + 1))
            http, answer = [], b""
            with instance.client() as client:
                client.status(JOB)
                server = psutil.Process(json.loads(instance.settings.server_file.read_bytes())["pid"])
                before = _cpu(server)
                for _ in range(rounds):
                    began = time.perf_counter()
                    answer = client.timeline_json(_uuid(next(attempts)))
                    http.append(1000 * (time.perf_counter() - began))
                cpu = 1000 * (_cpu(server) - before) / rounds
                began = time.perf_counter()
                client.timeline_json(_uuid(rounds))
                again = 1000 * (time.perf_counter() - began)
                spans = len(client.timeline(_uuid(rounds)).spans)
            took = [
                timed([instance.command, "timeline", _uuid(next(attempts))], instance.env)
                for _ in range(rounds)
            ]
    finally:
        shutil.rmtree(base, ignore_errors=True)
    name = f"timeline of {TURNS * PER_TURN:,} events"
    note = (
        f"median of {rounds}, first {http[0]:.0f} ms, best {min(http):.0f} ms, {cpu:.0f} ms of CPU each; {spans:,} spans, "
        f"{len(answer) / 2**20:.1f} MiB; the same again {again:.0f} ms"
    )
    return [
        Bar(f"{name}: server, over HTTP", median(http), 200, "ms", note),
        Bar(
            f"{name}: hawk timeline, the whole command",
            median(took),
            1.0,
            "s",
            f"median of {rounds}, best {min(took):.2f} s",
        ),
    ]


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _job(root: Path) -> RunDir:
    """A job that has ended."""
    run = RunDir(root / JOB)
    run.create()
    write_json(run.spec_file, JobSpec(job_id=JOB, base_dir="/", created_at=_at(0).isoformat()))
    write_json(run.snapshot_file, Snapshot(job_id=JOB, status=JobStatus.COMPLETE))
    return run


def _uuid(attempt: int) -> str:
    return f"long-{attempt}"


def _write_log(run: RunDir, attempts: int) -> int:
    """One sample's attempts, alike but for their uuids; bytes of the log."""
    events, messages = _events()
    ended = _at(TURNS).isoformat()
    samples = [
        EvalSample(
            id="sample",
            epoch=attempt,
            uuid=_uuid(attempt),
            input="Make the tests pass.",
            target="",
            messages=messages[-CONTEXT:],
            output=ModelOutput.from_content(MODEL, "Done."),
            scores={"passes": Score(value="C")},
            events=events,
            started_at=_at(0).isoformat(),
            completed_at=ended,
        )
        for attempt in range(1, attempts + 1)
    ]
    spec = EvalSpec(
        eval_id="long-eval",
        task_id="long-task",
        created=_at(0).isoformat(),
        task="long",
        dataset=EvalDataset(name="long", samples=1, sample_ids=["sample"]),
        model=MODEL,
        config=EvalConfig(epochs=attempts),
    )
    log = EvalLog(
        status="success",
        eval=spec,
        samples=samples,
        results=EvalResults(total_samples=attempts, completed_samples=attempts),
        stats=EvalStats(started_at=_at(0).isoformat(), completed_at=ended),
    )
    path = run.logs / "long.eval"
    write_eval_log(log, str(path))
    return path.stat().st_size


def _events() -> tuple[list[Event], list[ChatMessage]]:
    messages: list[ChatMessage] = [ChatMessageUser(content="Make the tests pass.")]
    events: list[Event] = []
    for turn in range(TURNS):
        events += _turn(turn, messages)
    return events, messages


def _turn(turn: int, messages: list[ChatMessage]) -> Iterator[Event]:
    """A call of the model, and the command it asked for, in a span of its own."""
    command = f"grep -rn 'name_{turn}' src | head -{turn % 50}; python -m pytest tests/test_{turn % 97}.py -q"
    call = ToolCall(id=f"call-{turn}", function="bash", arguments={"cmd": command})
    said = ChatMessageAssistant(content=f"Let me look at part {turn}.", tool_calls=[call])
    heard = ChatMessageTool(
        content=f"src/part_{turn}.py: 1 failed\n" * 20, tool_call_id=call.id, function="bash"
    )
    span, output = f"span-{turn}", ModelOutput.from_message(said)
    yield ModelEvent(
        timestamp=_at(turn),
        completed=_at(turn, 0.5),
        working_start=turn,
        working_time=0.5,
        model=MODEL,
        input=messages[-CONTEXT:],
        tools=[],
        tool_choice="auto",
        config=GenerateConfig(),
        output=output,
    )
    yield SpanBeginEvent(
        id=span, name="bash", type="tool", span_id=span, timestamp=_at(turn, 0.5), working_start=turn + 0.5
    )
    yield SandboxEvent(
        action="exec",
        cmd=command,
        result=1,
        output=heard.text,
        span_id=span,
        timestamp=_at(turn, 0.51),
        completed=_at(turn, 0.94),
        working_start=turn + 0.51,
    )
    yield ToolEvent(
        id=call.id,
        function="bash",
        arguments=call.arguments,
        result=heard.text,
        span_id=span,
        timestamp=_at(turn, 0.5),
        completed=_at(turn, 0.95),
        working_start=turn + 0.5,
        working_time=0.45,
    )
    yield SpanEndEvent(id=span, span_id=span, timestamp=_at(turn, 0.95), working_start=turn + 0.95)
    messages += [said, heard]


def _at(turn: int, seconds: float = 0.0) -> datetime:
    return datetime(2026, 1, 2, tzinfo=UTC) + timedelta(seconds=turn + seconds)
