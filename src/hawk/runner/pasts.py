"""What a plan may know of earlier attempts: what the server wrote into the run directory, and the eval set's own file."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from hawk.core.attempts.history import Past
from hawk.core.attempts.results import Outcome, Pair
from hawk.core.text import one_line
from hawk.errors import StorageError
from hawk.store.rundir import JobSpec, RunDir, read_json

NEEDED = ("task", "sample", "model", "duration_s")
"""Columns that a file of earlier attempts must have; `agent`, `outcome` or `passed`, `tokens` and `cost_usd` may be
there."""


def read_history(run_dir: RunDir, spec: JobSpec) -> tuple[list[Past], list[str]]:
    """Earlier attempts, and what could not be read of them: a plan is made without."""
    past, problems = [], []
    try:
        past = read_json(run_dir.history_file, list[Past]) or []
    except StorageError as ex:
        problems = [ex.message]
    named = (spec.config.get("attempts") or {}).get("history")
    if named is None:
        return past, problems
    path = Path(os.path.normpath(Path(spec.base_dir) / named))
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is no file")  # a pipe would never end
        with path.open(newline="", encoding="utf-8-sig") as f:
            reader = csv.DictReader(f)
            missing = [name for name in NEEDED if name not in (reader.fieldnames or ())]
            if missing:
                raise ValueError(f"it has no column {', '.join(missing)}")
            return [*past, *_rows(reader)], problems
    except (OSError, ValueError, csv.Error) as ex:
        return past, [*problems, f"attempts.history: {path}: {one_line(str(ex), 200)}"]


def _rows(rows: Iterable[Mapping[str, str | None]]) -> Iterator[Past]:
    for number, row in enumerate(rows, start=2):
        try:
            outcome = row.get("outcome")
            if not row["duration_s"] or (outcome and not Outcome(outcome).produced):
                continue  # how long it took says nothing about the next one
            passed = outcome == Outcome.PASS or (row.get("passed") or "").lower() in ("1", "true", "yes")
            yield Past(
                Pair(row["task"] or "", row["sample"] or "", row["model"] or "", row.get("agent") or None),
                _number(row["duration_s"]),
                passed,
                int(_number(row.get("tokens") or "0")),
                _number(cost) if (cost := row.get("cost_usd")) else None,
            )
        except (ValueError, TypeError, msgspec.ValidationError) as ex:
            raise ValueError(f"line {number}: {ex}") from ex


def _number(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):  # in sums and orders one that is none spoils the others
        raise ValueError(f"{text.strip()} is out of range")
    return number
