"""How long things took before: what earlier jobs left in `learnt.json`, and what this one leaves for the next."""

from __future__ import annotations

import contextlib
import heapq
import os
from pathlib import Path

from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.evidence import Evidence, Learnt
from hawk.core.diagnosis.learning import merged, times
from hawk.errors import StorageError
from hawk.runner.sources.context import Context
from hawk.store.rundir import RunDir, read_json, write_json

RUNS = 50
"""Earlier runs that are read, the newest: what took long a year ago says little."""


class LearntReader:
    """See the module. Reads once: the past does not change.

    Attributes:
        shown: What this job alone has shown so far.
    """

    source = Source.HISTORY

    def __init__(self) -> None:
        self._past: Learnt | None = None
        self.shown = Learnt()

    def fill(self, evidence: Evidence, context: Context) -> None:
        self.shown = evidence.learnt
        if self._past is None:
            root = context.run_dir.path.parent
            self._past = merged(_read(path) for path in _newest(root, besides=context.run_dir.path))
        evidence.learnt = merged([self._past, evidence.learnt])


def own(shown: Learnt, evidence: Evidence) -> Learnt:
    """What a job leaves to later ones: how long calls of its models took too."""
    models = {
        f"{model.provider}/{model.model}": found
        for model in evidence.models
        if (found := times(model.ok_seconds)) is not None
    }
    return merged([shown, Learnt(models=models)])


def keep(run_dir: RunDir, learnt: Learnt) -> None:
    """Leave what this job has shown to later ones.

    Raises:
        StorageError: The disk is full.
    """
    write_json(run_dir.learnt_file, learnt, durable=False)


def _newest(root: Path, besides: Path) -> list[Path]:
    found = []
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if entry.path != str(besides) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    found.append((entry.stat().st_mtime, entry.path))
    return [Path(path) for _, path in heapq.nlargest(RUNS, found)]


def _read(path: Path) -> Learnt | None:
    with contextlib.suppress(StorageError):
        return read_json(RunDir(path).learnt_file, Learnt)
    return None
