"""Jobs whose attempts take as long, and end, as a test says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hawk.core.attempts.results import Result
from hawk.store.attempts import read_results
from tests.system import System, running

TASKS = Path(__file__).with_name("played.py")

Script = Mapping[str, Sequence[tuple[float, str]]]
"""By sample: seconds and end of each attempt."""


class Stage:
    """A Hawk of its own, and what its jobs are told to play."""

    def __init__(self, system: System, base: Path) -> None:
        self.system, self.base = system, base

    def play(self, job: str, script: Script, attempts: Any, *, tasks: int = 1, **config: Any) -> None:
        """Submit a job. A later call with the same id resumes it, with another script if one is given."""
        plan = self.base / f"{job}.json"
        plan.write_text(json.dumps(script))
        args = {"plan": str(plan), "ledger": str(self.system.ledger(job))}
        items = [{"name": name, "args": args} for name in ("one", "two")[:tasks]]
        body = {
            "eval_set_config": {
                "tasks": [{"file": str(TASKS), "items": items}],
                "models": ["none/none"],
                "runs": max(len(rows) for rows in script.values()),
                "attempts": attempts,
                **config,
            },
            "eval_set_id": job,
            "base_dir": str(TASKS.parent),
        }
        with self.system.client() as client:
            client.submit(body)

    def results(self, job: str) -> dict[str, Result]:
        """By `task/sample/attempt`; nothing may be damaged."""
        results, problems = read_results(self.system.run_dir(job))
        assert problems == []
        return {f"{r.pair.task}/{r.pair.sample}/{r.attempt}": r for r in results}

    def outcomes(self, job: str) -> dict[str, str]:
        return {name.partition("/")[2]: str(result.outcome) for name, result in self.results(job).items()}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    base = tmp_path_factory.mktemp("attempts")
    with running(base) as up:
        yield Stage(up, base)
