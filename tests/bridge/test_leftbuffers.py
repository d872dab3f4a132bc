"""Which buffer a log is recovered from, on buffers that Inspect's own class and our mirror wrote."""

from __future__ import annotations

import os
from pathlib import Path

from inspect_ai.log._recorders.buffer import SampleBufferDatabase
from inspect_ai.log._recorders.buffer.database import log_dir_hash

from hawk.bridge.leftbuffers import _newest
from hawk.runner.workpods.buffers import Mirror
from hawk.runner.workpods.messages import Rows


def test_a_living_process_of_that_number_makes_no_difference(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "one.eval"
    assert _newest(str(log), tmp_path) is None
    SampleBufferDatabase(str(log), db_dir=tmp_path).close()
    assert (
        _newest(str(log), tmp_path) == SampleBufferDatabase(str(log), create=False, db_dir=tmp_path).db_path
    )
    assert str(os.getpid()) in str(_newest(str(log), tmp_path))


def test_a_copy_that_only_a_supervisor_can_read_is_none(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "one.eval"
    name = f"{log_dir_hash(log.parent.as_uri())}/one.eval.20.db"
    Mirror(tmp_path).apply(Rows(name, samples=[("a", 1, "{}")]))
    assert (tmp_path / name).exists()
    assert _newest(str(log), tmp_path) is None
