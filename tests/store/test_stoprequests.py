"""Requests to stop are found in order, and forgotten when the id runs again."""

from pathlib import Path

from hawk.core.states import StopAction
from hawk.server.services.submissions import _set_back
from hawk.store import stoprequests
from hawk.store.rundir import RunDir


def test_a_stop_that_no_runner_took_does_not_stop_the_next_run(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "j")
    run.create()
    asked = stoprequests.request(run, StopAction.SCORE, None)
    assert stoprequests.pending(run) == [asked]
    _set_back(run, restart=False)
    assert stoprequests.pending(run) == []
