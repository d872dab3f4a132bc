"""The watchdog in a real job: nobody acts but the supervisor itself, and somebody is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hawk.core.states import JobStatus
from hawk.store import actions
from tests.system import running, until

TASKS = Path(__file__).with_name("hanging.py")
JOB = "guarded"


def test_a_blocked_worker_is_started_again_by_policy_and_its_people_are_told(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text("last\n")  # without it the attempt would wait before it blocks
    told = tmp_path / "told"
    script = f"import sys; open({str(told)!r}, 'a').write(' '.join(sys.stdin.read().split()) + chr(10))"
    config = {
        "tasks": [{"file": str(TASKS), "items": [{"name": "blocks", "args": {"folder": str(tmp_path)}}]}],
        "models": [{"file": str(TASKS), "items": [{"name": "hanging/m"}]}],
        "watchdog": {
            "after": 1,
            "causes": ["loop_blocked"],
            "notify": {"on": ["stuck", "done"], "command": [sys.executable, "-c", script]},
        },
    }
    with running(tmp_path) as system:
        with system.client() as client:
            client.submit({"eval_set_config": config, "eval_set_id": JOB, "base_dir": str(TASKS.parent)})
        end = system.finish(JOB, 120)
        run = system.run_dir(JOB)
        lines = until("both are told", lambda: _lines(told, 2), 20)
    assert end.status is JobStatus.COMPLETE
    assert (tmp_path / "ledger").read_text().split().count("blocks") == 2
    journal = [json.loads(line) for line in run.journal_file.read_text().splitlines()]
    acted = [entry for entry in journal if entry["kind"] == actions.KIND]
    assert any(entry["state"] == "done" for entry in acted), acted
    stuck, done = (json.loads(line) for line in lines)
    assert (stuck["event"], done["event"]) == ("stuck", "done")
    assert [verdict["cause"] for verdict in stuck["verdicts"]] == ["loop_blocked"]


def _lines(path: Path, count: int) -> list[str] | None:
    found = path.read_text().splitlines() if path.exists() else []
    return found if len(found) >= count else None
