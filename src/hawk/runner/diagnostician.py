"""The supervisor's diagnosis: a thread that gathers evidence, weighs it, and keeps both.

Evidence is written beside the snapshot (`evidence.json`), so that the cause can still be told when everything has died.
A source that fails is named in it and costs nothing else. The supervisor itself never waits for any of this.
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hawk.config.settings import Settings
from hawk.core.diagnosis.causes import Severity
from hawk.core.diagnosis.diagnose import explain, is_stuck
from hawk.core.diagnosis.evidence import Evidence
from hawk.core.diagnosis.verdict import Diagnosis, Verdict, builtins
from hawk.core.job import JobPhase
from hawk.core.plan import Plan
from hawk.core.snapshot import Snapshot
from hawk.core.text import one_line
from hawk.errors import StorageError
from hawk.runner.book import say
from hawk.runner.models import ModelAccess
from hawk.runner.processes import Worker
from hawk.runner.sources import jobstate, learnt
from hawk.runner.sources.actions import ActionReader
from hawk.runner.sources.chains import ChainReader
from hawk.runner.sources.conduct import ConductSource
from hawk.runner.sources.context import Context, Reader
from hawk.runner.sources.endings import EndingsSource
from hawk.runner.sources.enumerating import EnumerationReader
from hawk.runner.sources.host import HostReader
from hawk.runner.sources.journaltail import JournalTail
from hawk.runner.sources.models import ModelReader
from hawk.runner.sources.output import OutputReader
from hawk.runner.sources.pods import PodsReader
from hawk.runner.sources.processes import ProcessReader
from hawk.runner.sources.workers import WorkerReader
from hawk.runner.stalls import Note
from hawk.store.rundir import JobSpec, RunDir, write_json

PERIOD = 2.0
"""Seconds between looks: a cause that has a signal is to be named within twenty."""

DUTY = 50.0
"""Looks take at most 1/50 of a core: on a large job they grow rarer."""

CALM = 10.0
"""Seconds between lines of the journal about the same cause that comes and goes."""


@dataclass(frozen=True)
class Moment:
    """What the supervisor's loop last saw; not changed any more.

    Attributes:
        enumerator: The process that loads the tasks, while it does.
        stopping_since: When a stop was asked for.
    """

    snapshot: Snapshot
    phase: JobPhase
    plan: Plan | None
    workers: Sequence[Worker] = ()
    enumerator: Worker | None = None
    stopping_since: str | None = None


class Diagnostician:
    """Of one job.

    Args:
        note: Writes a line of the journal, from any thread.

    Attributes:
        diagnosis: The last one.
        watch: Is told of each, on the thread.
    """

    def __init__(
        self, run_dir: RunDir, spec: JobSpec, settings: Settings, models: ModelAccess, note: Note
    ) -> None:
        self._run_dir, self._spec, self._settings, self._models = run_dir, spec, settings, models
        self._note = note
        self._learnt = learnt.LearntReader()
        self._readers: list[Reader] = [*readers(), self._learnt]
        self._moment: Moment | None = None
        self._phase: tuple[JobPhase, str] = (JobPhase.NEW, _now().isoformat())
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._said: dict[tuple[str, str], tuple[Severity, float]] = {}
        self.diagnosis: Diagnosis | None = None
        self.watch: Callable[[Diagnosis, Evidence], None] | None = None

    def open(self) -> None:
        self._thread = threading.Thread(target=self._run, name="diagnosis", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """No more looks of the thread; `look` still works."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def follow(self, moment: Moment) -> None:
        """What to look at from here on."""
        self._moment = moment

    @property
    def verdicts(self) -> list[Verdict]:
        return self.diagnosis.verdicts if self.diagnosis is not None else []

    @property
    def stuck(self) -> bool:
        """Whether the job won't go on by itself, as of the last look."""
        moment = self._moment
        running = moment.snapshot.progress.running if moment is not None else 0
        return is_stuck(self.verdicts, running)

    def judgement(self) -> tuple[list[dict[str, Any]], bool, dict[str, str]]:
        """For the snapshot: verdicts as plain data, whether it is stuck, the cause that holds an attempt by its uuid."""
        verdicts = self.verdicts
        causes: dict[str, str] = {}
        for verdict in verdicts:
            if verdict.severity is not Severity.INFO:
                for uuid in verdict.uuids:
                    causes.setdefault(uuid, verdict.cause)
        return builtins(verdicts), self.stuck, causes

    def conclude(self, moment: Moment) -> list[dict[str, Any]]:
        """The verdicts on a job that has ended; what it has shown is kept for later ones. Never raises."""
        try:
            evidence = self.gather(moment)
            self._keep_learnt(evidence)
            return builtins(self._weigh(evidence).verdicts)
        except Exception as ex:  # the end of the job must not depend on it
            self._failed(ex)
            return []

    # --- the thread

    def _run(self) -> None:
        pause = PERIOD
        while not self._end.wait(pause):
            moment = self._moment
            if moment is None:
                continue
            began = time.thread_time()
            try:
                self.look(moment)
            except Exception as ex:  # a diagnosis that has died would be missed just when it is needed
                self._failed(ex)
                self._end.wait(30)
            pause = max(PERIOD, DUTY * (time.thread_time() - began))

    def look(self, moment: Moment) -> Diagnosis:
        """Gather, weigh, keep; what changed is noted in the journal."""
        evidence = self.gather(moment)
        found = self._weigh(evidence)
        if self.watch is not None:
            self.watch(found, evidence)
        return found

    def _weigh(self, evidence: Evidence) -> Diagnosis:
        found = explain(evidence, datetime.fromisoformat(evidence.at))
        with contextlib.suppress(StorageError):  # a full disk: it is one of the causes, and is shown live
            write_json(self._run_dir.evidence_file, evidence, durable=False)
        self.diagnosis = found
        self._tell(found.verdicts)
        return found

    def gather(self, moment: Moment) -> Evidence:
        """All that can be known now; sources that fail are named in it."""
        now = _now()
        evidence = Evidence(self._run_dir.job_id, now.isoformat())
        context = Context(
            self._run_dir,
            self._spec,
            self._settings,
            now,
            moment.snapshot,
            moment.plan,
            tuple(moment.workers),
            self._models,
            enumerator=moment.enumerator,
        )
        self._time_phase(moment, evidence)
        evidence.job.stopping_since = moment.stopping_since
        jobstate.fill(evidence, context)
        for reader in self._readers:
            try:
                reader.fill(evidence, context)
            except Exception as ex:  # whatever is wrong with one source, the others go on
                evidence.missing[reader.source] = one_line(f"{type(ex).__name__}: {ex}", 200)
        return evidence

    def _failed(self, ex: Exception) -> None:
        say(traceback.format_exc())
        self._note("job", self._spec.job_id, "not diagnosed", one_line(f"{type(ex).__name__}: {ex}", 300), {})

    def _keep_learnt(self, evidence: Evidence) -> None:
        """Leave to later jobs how long things took here."""
        with contextlib.suppress(StorageError):
            learnt.keep(self._run_dir, learnt.own(self._learnt.shown, evidence))

    def _time_phase(self, moment: Moment, evidence: Evidence) -> None:
        if moment.phase is not self._phase[0]:
            self._phase = moment.phase, evidence.at
        evidence.job.phase, evidence.job.phase_since = self._phase

    def _tell(self, verdicts: Sequence[Verdict]) -> None:
        """Note in the journal what began, grew worse or is over, of what is no mere information."""
        now = time.monotonic()
        present = {(v.cause, v.subject): v for v in verdicts if v.severity is not Severity.INFO}
        for key, verdict in present.items():
            before = self._said.get(key)
            if before is not None and (before[0] is verdict.severity or now - before[1] < CALM):
                continue
            self._said[key] = verdict.severity, now
            data = {"layer": verdict.layer, "attempts": verdict.attempts, "subject": verdict.subject}
            self._note("diagnosis", verdict.cause, verdict.severity, verdict.what, data)
        for key in [key for key, (_, at) in self._said.items() if key not in present and now - at >= CALM]:
            del self._said[key]
            self._note("diagnosis", key[0], "over", "", {"subject": key[1]})


def readers() -> list[Reader]:
    """The sources, in the order in which they build on each other."""
    conduct = ConductSource()
    return [
        JournalTail(),
        WorkerReader(),
        HostReader(),
        OutputReader(),
        EnumerationReader(),
        ChainReader(),
        ActionReader(),
        conduct,
        ProcessReader(),
        EndingsSource(lambda: conduct.tries),
        ModelReader(),
        PodsReader(),
    ]


def _now() -> datetime:
    return datetime.now(UTC)
