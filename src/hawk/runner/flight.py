"""The supervisor's half of the flight recorder: a watch for stalls, and a desk for who asks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from hawk.core.recorder.stacks import StackRecord
from hawk.core.snapshot import Sample
from hawk.runner.desk import Desk
from hawk.runner.processes import Worker
from hawk.runner.stalls import Note, StallWatch
from hawk.store import desk
from hawk.store.rundir import RunDir


class InFlight(Protocol):
    """Who knows which attempts run."""

    def in_flight(self, identifiers: tuple[str, ...]) -> list[Sample]: ...


class FlightRecorder:
    """Of one job.

    Args:
        run_base: Directory of short paths, for the desk's socket.
        note: Writes a line of the journal, from any thread.
    """

    def __init__(self, run_dir: RunDir, run_base: Path, note: Note) -> None:
        self._job_id, self._note = run_dir.job_id, note
        self._watch = StallWatch(note)
        self._desk = Desk(desk.address(run_base, run_dir), self._answer)
        self._idle: dict[str, float] = {}  # by uuid, at the last look
        self._quiet: dict[int, float] = {}  # by worker
        self._longest = 0.0

    def open(self) -> None:
        self._watch.start()
        try:
            self._desk.open()
        except OSError as ex:
            self._note("job", self._job_id, "warning", f"stacks can't be asked for while it runs: {ex}", {})

    def close(self) -> None:
        self._desk.close()
        self._watch.close()

    def follow(self, workers: Sequence[Worker], attempts: InFlight | None) -> None:
        """Tell the watch which workers live, and for how long their attempts have done nothing.

        Args:
            attempts: None where nobody has looked at them since the last call.
        """
        if attempts is not None:
            self._learn(workers, attempts)
        self._watch.follow(workers, self._quiet, self._longest)

    def _learn(self, workers: Sequence[Worker], attempts: InFlight) -> None:
        idle: dict[str, float] = {}
        quiet: dict[int, float] = {}
        for worker in workers:
            for sample in attempts.in_flight(worker.identifiers):
                if sample.uuid is not None and sample.idle_seconds is not None:
                    idle[sample.uuid] = sample.idle_seconds
                    quiet[worker.index] = min(sample.idle_seconds, quiet.get(worker.index, float("inf")))
        ended = [before for uuid, before in self._idle.items() if idle.get(uuid, 0.0) < before]
        self._longest = max([self._longest, *ended])
        self._idle, self._quiet = idle, quiet

    def killed_for_memory(self, worker: Worker) -> str | None:
        """Whether a worker that ended was killed for lack of memory, in words."""
        return self._watch.killed_for_memory(worker)

    def _answer(self, question: desk.Question) -> list[StackRecord]:
        return self._watch.stacks(native=question.native)
