"""What a runner takes from the cluster's word about itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from hawk.core.diagnosis.evidence import Evidence
from hawk.core.diagnosis.pods import fill
from hawk.runner.sources.pods import PodsReader
from hawk.store.rundir import write_json
from tests.core.cluster_documents import NOW, RUNS, ago, container, job, runner, seen
from tests.store.runs import make_run


def test_a_runner_that_reads_that_its_node_does_not_answer_does_not_take_itself_for_lost(
    tmp_path: Path,
) -> None:
    gone = {"type": "Ready", "status": "False", "lastTransitionTime": ago(60)}
    status = {"conditions": [gone], "containerStatuses": [container("runner", RUNS)]}
    pods = seen(runner(status=status), job=job(age=100))
    run = make_run(tmp_path, "a")
    write_json(run.pods_file, pods)
    outside, inside = Evidence("a", NOW.isoformat()), Evidence("a", NOW.isoformat())
    fill(outside, pods)
    PodsReader().fill(inside, cast("Any", SimpleNamespace(run_dir=run)))
    assert outside.cluster is not None
    assert outside.cluster.unreached is not None
    assert inside.cluster is not None
    assert inside.cluster.unreached is None
    assert inside.cluster.active
