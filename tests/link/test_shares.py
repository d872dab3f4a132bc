"""What a worker in a pod of its own is given, and what it may send."""

from __future__ import annotations

import pytest

from hawk.link.shares import WorkerShare

SHARE = WorkerShare(1, {"sums-m-s1-0123456789"}, ["before_abc.eval"])


@pytest.mark.parametrize(
    ("path", "writes", "given"),
    [
        ("workers/1/output.jsonl", True, True),
        ("workers/1/stacks/last.json", True, True),
        ("workers/1/selection.json", False, True),
        ("workers/1/worker.json", False, True),
        ("workers/11/output.jsonl", False, False),
        ("logs/new_def.eval", True, False),
        ("logs/before_abc.eval", True, True),
        ("logs/.buffer/before_abc/segment.0.zip", True, True),
        ("logs/.buffer/others_xyz/segment.0.zip", True, False),
        ("attempts/sums-m-s1-0123456789/1/result.json", True, True),
        ("attempts/sums-m-s1-0123456789/1/workspace.tar.zst", True, False),
        ("attempts/other-m-s1-9876543210/1/result.json", False, False),
        ("spans/worker-1.jsonl", True, True),
        ("spans/worker-0.jsonl", False, False),
        ("spans/middleman.jsonl", False, False),
        ("plan.json", False, True),
        ("job.json", False, True),
        ("source.tar.zst", False, True),
        ("journal.jsonl", False, False),
        ("snapshot.json", False, False),
        ("stop/abc.json", False, False),
    ],
)
def test_a_file_is_a_workers_or_given_to_it_or_neither(path: str, writes: bool, given: bool) -> None:
    assert (SHARE.writes(path), SHARE.given(path)) == (writes, given)
    folders = path.split("/")[:-1]
    if writes or given:
        assert all(SHARE.enters("/".join(folders[: n + 1])) for n in range(len(folders)))
