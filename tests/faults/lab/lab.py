"""Runs scenarios: batches side by side in one Hawk, and those that need a Hawk of their own after them."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.lab.bench import Bench
from tests.faults.lab.room import Room
from tests.faults.lab.scenario import Scenario
from tests.faults.lab.trial import Outcome, Result, Trial

Told = Callable[[Result], None]
Seen = Callable[[Trial], None]


class Lab:
    """Where scenarios run.

    Args:
        seed: Names, sizes and delays come from it and the scenario's name.
        jobs: How many run at once.
        keep: Evidence of each scenario is put here.
        deaths: Look at what is said once everything is dead too.
        told: Called with each result as it comes.
        seen: Called with each trial after its verdict, while its job still runs.
    """

    def __init__(
        self,
        seed: int,
        *,
        jobs: int = 3,
        keep: Path | None = None,
        deaths: bool = True,
        told: Told = lambda result: None,
        seen: Seen = lambda trial: None,
    ) -> None:
        self.seed, self.jobs, self.keep, self.deaths, self.told, self.seen = (
            seed,
            jobs,
            keep,
            deaths,
            told,
            seen,
        )
        self.base = Path(tempfile.mkdtemp(prefix="hkl-"))
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)

    def run(self, scenarios: Sequence[Scenario]) -> list[Result]:
        """All of them; what can't be run here is skipped, and says why."""
        results: list[Result] = []
        can = []
        for scenario in scenarios:
            if scenario.missing is None:
                can.append(scenario)
            else:
                results.append(self._skipped(scenario))
        try:
            results += self._together([s for s in can if not s.alone])
            for scenario in can:
                if scenario.alone:
                    results.append(self._alone(scenario))
        finally:
            shutil.rmtree(self.base, ignore_errors=True)
        order = {scenario.name: i for i, scenario in enumerate(scenarios)}
        return sorted(results, key=lambda result: order[result.name])

    # --- side by side

    def _together(self, scenarios: list[Scenario]) -> list[Result]:
        if not scenarios:
            return []
        room = Room(self.base / "room")
        room.start()
        results = []
        try:
            for batch in _batches(scenarios, self.jobs):
                results += self._batch(room, batch)
        finally:
            room.close()
        return results

    def _batch(self, room: Room, batch: list[Scenario]) -> list[Result]:
        trials = []
        for scenario in batch:
            bench = self._bench(scenario)
            trials.append(Trial(scenario, bench, scenario.make(bench), room, self._seed(scenario)))
        try:
            with ThreadPoolExecutor(len(trials)) as threads:
                list(threads.map(lambda trial: trial.run(), trials))
            self._bury(room, trials)
        finally:
            for trial in trials:
                trial.close()
        for trial in trials:
            self.told(trial.result)
        return [trial.result for trial in trials]

    def _bury(self, room: Room, trials: list[Trial]) -> None:
        """Put evidence aside; then kill everything, and look at what is left."""
        for trial in trials:
            self.seen(trial)
            trial.stop()
            if self.keep is not None:
                trial.keep(self.keep)
        dying = [
            trial
            for trial in trials
            if self.deaths and trial.scenario.dead and trial.result.outcome in (Outcome.RIGHT, Outcome.LATE)
        ]
        if not dying:
            return
        room.kill_everything([trial.job for trial in dying])
        try:
            for trial in dying:
                trial.after_death(served=False)
        finally:
            room.start()
        for trial in dying:
            trial.after_death(served=True)

    # --- alone

    def _alone(self, scenario: Scenario) -> Result:
        bench = self._bench(scenario)
        with bench.closing:
            case = scenario.make(bench)
            room = Room(self.base / f"a{len(list(self.base.iterdir()))}", case)
            trial = Trial(scenario, bench, case, room, self._seed(scenario))
            try:
                room.start()
                trial.run()
                self._bury(room, [trial])
            finally:
                trial.stop()
                bench.undo()
                room.close()
        self.told(trial.result)
        return trial.result

    # --- both

    def _seed(self, scenario: Scenario) -> str:
        return f"{self.seed}/{scenario.name}"

    def _bench(self, scenario: Scenario) -> Bench:
        folder = Path(tempfile.mkdtemp(prefix="c-", dir=self.base))
        return Bench(random.Random(self._seed(scenario)), folder)

    def _skipped(self, scenario: Scenario) -> Result:
        result = Result(
            scenario.name, scenario.cause, scenario.healthy, bool(scenario.also), self._seed(scenario),
            Outcome.SKIPPED, why=scenario.missing or "",
        )  # fmt: skip
        self.told(result)
        return result


def _batches(scenarios: list[Scenario], size: int) -> Iterator[list[Scenario]]:
    """Those that take about as long together: a batch takes as long as its longest."""
    ordered = sorted(scenarios, key=lambda s: (s.healthy, s.watch if s.healthy else s.within))
    for i in range(0, len(ordered), size):
        yield ordered[i : i + size]
