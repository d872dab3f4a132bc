"""Complaints in the output of workers, as evidence."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hawk.core.diagnosis.evidence import Evidence, Worker
from hawk.runner.sources.output import OutputReader


def test_what_a_worker_complains_of_is_counted_once_and_a_line_when_it_is_whole(tmp_path: Path) -> None:
    output = tmp_path / "output.jsonl"
    context: Any = SimpleNamespace(now=datetime.now(UTC), run_dir=SimpleNamespace(worker=lambda _: tmp_path))
    reader = OutputReader()

    def complaints() -> dict[str, int]:
        evidence = Evidence("job", at="", workers=[Worker(0)])
        reader.fill(evidence, context)
        return evidence.workers[0].complaints

    assert complaints() == {}, "no output yet"
    output.write_text("sqlite3: database is locked\nfine\nNo space left")
    assert complaints() == complaints() == {"database is locked": 1}
    with output.open("a") as file:
        file.write(" on device\ndatabase is locked\n")
    assert complaints() == {"database is locked": 2, "no space left": 1}
