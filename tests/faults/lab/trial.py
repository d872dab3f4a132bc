"""One scenario, run and judged."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from hawk.core.diagnosis.causes import Severity
from hawk.core.diagnosis.verdict import Diagnosis, Verdict
from tests.faults.lab.bench import Bench, Case
from tests.faults.lab.room import Room, judged, read_evidence
from tests.faults.lab.run import OverError, Run
from tests.faults.lab.scenario import Scenario

PERIOD = 0.5
"""Seconds between looks."""

PATIENCE = 1.5
"""So many times its time is a late verdict waited for, to tell late from never."""

COMES = 75.0
"""Seconds that a fault may take to be there: a worker starts on a busy machine."""


class Outcome(StrEnum):
    RIGHT = "right"
    LATE = "late"  # the right cause, too late
    SECOND = "not first"  # it is named, though not first
    THIN = "thin"  # first, though without what it has to say
    WRONG = "wrong"
    ALARM = "false alarm"
    NOT_PROVOKED = "not provoked"
    SKIPPED = "skipped"


@dataclass
class Look:
    """What was said at a moment: seconds since the fault, `layer.word` of each verdict, their severities."""

    at: float
    causes: list[str]
    severities: list[str]


@dataclass
class Result:
    """What came of a scenario.

    Attributes:
        first: What was named first, last.
        seconds: From the fault to its verdict.
        named: Every cause that was named at any time, with its worst severity.
        why: What is wrong, where something is.
        dead: What was first once all was dead, from the document alone and from a new server; None: not looked at.
    """

    name: str
    cause: str
    healthy: bool
    several: bool
    seed: str
    outcome: Outcome = Outcome.NOT_PROVOKED
    first: str = ""
    seconds: float | None = None
    named: dict[str, str] = field(default_factory=dict)
    why: str = ""
    looks: list[Look] = field(default_factory=list)
    dead: str | None = None
    dead_served: str | None = None
    dead_right: bool | None = None
    evidence: str = ""
    took: float = 0.0

    @property
    def good(self) -> bool:
        return self.outcome is Outcome.RIGHT and self.dead_right is not False


def key(verdict: Verdict) -> str:
    return f"{verdict.layer}.{verdict.cause}"


class Trial:
    """A scenario in a room. `run` judges it, `after_death` does so again, `close` takes everything away."""

    def __init__(self, scenario: Scenario, bench: Bench, case: Case, room: Room, seed: str) -> None:
        self.scenario, self.bench, self.case, self.room = scenario, bench, case, room
        self.result = Result(scenario.name, scenario.cause, scenario.healthy, bool(scenario.also), seed)
        self.run_: Run | None = None
        self._faults: list[str] = []

    @property
    def job(self) -> str:
        return self.bench.job

    def run(self) -> None:
        """To the verdict, or to the end of its time."""
        began = time.monotonic()
        try:
            run = self.run_ = self.room.submit(self.bench, self.case)
            for action in self.case.actions:
                threading.Thread(target=self._act, args=(action, run), daemon=True).start()
            if not self._comes(run):
                return
            elif self.scenario.healthy:
                self._watch(run)
            else:
                self._wait(run)
        except Exception as ex:
            self.result.outcome = Outcome.NOT_PROVOKED
            self.result.why = f"{type(ex).__name__}: {ex}"
            self._faults.append(traceback.format_exc())
        if self._faults:
            self.result.why = f"{self.result.why} {self._faults[0].strip().splitlines()[-1]}".strip()
        self.result.took = time.monotonic() - began

    def _act(self, action: Callable[[Run], None], run: Run) -> None:
        try:
            action(run)
        except OverError:
            return
        except Exception:
            if not run.over.is_set():
                self._faults.append(traceback.format_exc())

    def _comes(self, run: Run) -> bool:
        deadline = time.monotonic() + COMES
        over = 0
        while time.monotonic() < deadline and over < 30:
            if self.case.present(run):
                return True
            over += run.ended()
            time.sleep(0.1)
        found = run.snapshot()
        self.result.why = f"the fault was never there; {found.reason if found else 'the job has not begun'}"
        return False

    # --- a fault

    def _wait(self, run: Run) -> None:
        began = time.monotonic()
        limit = self.scenario.within * PATIENCE
        said: Diagnosis | None = None
        while (at := time.monotonic() - began) < limit:
            said = self._look(at) or said
            if said is not None and not self._wrong(said):
                self.result.seconds = time.monotonic() - began
                late = self.result.seconds > self.scenario.within
                self.result.outcome = Outcome.LATE if late else Outcome.RIGHT
                return
            time.sleep(PERIOD)
        self.result.why = self._wrong(said) if said is not None else "nothing was said"
        named = self.result.named
        self.result.outcome = (
            Outcome.THIN if self._is_first(said)
            else Outcome.SECOND if all(cause in named for cause in self.scenario.causes)
            else Outcome.WRONG
        )  # fmt: skip

    def _is_first(self, said: Diagnosis | None) -> bool:
        if said is None or not said.verdicts:
            return False
        first = key(said.verdicts[0])
        if self.scenario.also:
            return {key(v) for v in said.verdicts} >= set(self.scenario.causes)
        return first in (self.scenario.cause, *self.scenario.either)

    def _wrong(self, said: Diagnosis) -> str:
        """Why it is not what has to be said; empty: it is."""
        if not said.verdicts:
            return "no verdict"
        named = {key(v) for v in said.verdicts}
        missing = [cause for cause in self.scenario.causes if cause not in named]
        if missing and not named & set(self.scenario.either):
            return f"{', '.join(missing)} not named"
        if not self._is_first(said):
            return f"{key(said.verdicts[0])} is first"
        right = [v for v in said.verdicts if key(v) in (*self.scenario.causes, *self.scenario.either)]
        if right[0].severity.rank < self.scenario.least.rank:
            return f"only {right[0].severity}"
        text = msgspec.json.encode(right).decode()
        if without := [fragment for fragment in self.case.must if fragment not in text]:
            return f"does not say {', '.join(without)}"
        loud = {key(v) for v in said.verdicts if v.severity.rank > Severity.INFO.rank}
        if forbidden := sorted(loud & set(self.scenario.must_not)):
            return f"{', '.join(forbidden)} named"
        return ""

    # --- a healthy run

    def _watch(self, run: Run) -> None:
        began = time.monotonic()
        self.result.outcome = Outcome.RIGHT
        over = 0
        while (at := time.monotonic() - began) < self.scenario.watch and over < 6:
            said = self._look(at)
            for verdict in said.verdicts if said is not None else ():
                if verdict.severity.rank > self.scenario.most.rank:
                    self.result.outcome = Outcome.ALARM
                    self.result.why = f"{key(verdict)} {verdict.severity}: {verdict.what}"
            if self.result.outcome is Outcome.ALARM:
                return
            over += run.ended()
            time.sleep(PERIOD)
        self.result.seconds = time.monotonic() - began
        if not self.result.looks:
            self.result.outcome, self.result.why = Outcome.WRONG, "nothing was said"
        elif self.scenario.cause and self.scenario.cause not in self.result.named:
            self.result.outcome, self.result.why = Outcome.WRONG, f"{self.scenario.cause} not named"

    # --- both

    def _look(self, at: float) -> Diagnosis | None:
        said = self.room.diagnosis(self.job)
        if said is None:
            return None
        causes = [key(verdict) for verdict in said.verdicts]
        severities = [str(verdict.severity) for verdict in said.verdicts]
        if not self.result.looks or self.result.looks[-1].causes != causes or (
            self.result.looks[-1].severities != severities
        ):  # fmt: skip
            self.result.looks.append(Look(round(at, 1), causes, severities))
        self.result.first = causes[0] if causes else ""
        for verdict in said.verdicts:
            known = self.result.named.get(key(verdict))
            if known is None or Severity(known).rank < verdict.severity.rank:
                self.result.named[key(verdict)] = str(verdict.severity)
        return said

    def keep(self, folder: Path) -> None:
        """Put the evidence aside, with what has to be said of it."""
        evidence = read_evidence(self.room.evidence_file(self.job))
        if evidence is None:
            return
        document: dict[str, Any] = {
            "scenario": self.scenario.name,
            "seed": self.result.seed,
            "causes": list(self.scenario.causes),
            "either": list(self.scenario.either),
            "healthy": self.scenario.healthy,
            "must": list(self.case.must),
            "outcome": str(self.result.outcome),
            "evidence": evidence,
        }
        path = folder / f"{self.scenario.name}.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1))
        self.result.evidence = str(path)

    def after_death(self, *, served: bool) -> None:
        """Judge what is kept, when all is dead: the document alone, and what a new server makes of it."""
        if served:
            said = self.room.diagnosis(self.job)
            self.result.dead_served = key(said.verdicts[0]) if said and said.verdicts else "nothing"
            self.result.dead_right = bool(self.result.dead_right) and self._is_first(said)
            return
        evidence = read_evidence(self.room.evidence_file(self.job))
        said = judged(evidence, dead=True) if evidence is not None else None
        self.result.dead = key(said.verdicts[0]) if said and said.verdicts else "nothing"
        self.result.dead_right = self._is_first(said)

    def stop(self) -> None:
        """No action is taken any more."""
        if self.run_ is not None:
            self.run_.over.set()

    def close(self) -> None:
        """Everything of it is taken away."""
        self.stop()
        try:
            self.bench.undo()
            if self.run_ is not None:
                self.room.remove(self.job)
        finally:
            self.bench.close()
