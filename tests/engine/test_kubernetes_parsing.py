"""What is kept of the API's documents, and what becomes of odd ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hawk.core.cluster import PodsSeen
from hawk.engine.kubernetes import books
from hawk.engine.kubernetes.books import Book
from hawk.engine.kubernetes.reporting import quantity
from hawk.kube import parsing
from hawk.store.rundir import JobSpec, RunDir, read_json, write_json
from tests.core.cluster_documents import RUNS, ago, container, document, ended, job, runner, sandbox


def event(reason: str, message: str, before: float, count: int = 1) -> dict[str, Any]:
    return {
        "reason": reason,
        "message": message,
        "type": "Warning",
        "count": count,
        "lastTimestamp": ago(before),
    }


def test_of_events_the_newest_are_kept_and_repeated_ones_counted() -> None:
    said = [
        event("A", "x", 50, 3),
        event("B", "y", 40),
        event("A", "x", 10, 2),
        *(event("C", str(i), 5 - i) for i in range(4)),
    ]
    found = parsing.newest(map(parsing.event, said))
    assert [(e.reason, e.message, e.count) for e in found] == [
        ("A", "x", 5),
        ("C", "0", 1),
        ("C", "1", 1),
        ("C", "2", 1),
        ("C", "3", 1),
    ]


def test_an_image_that_is_backed_off_keeps_the_words_of_the_pull_that_failed() -> None:
    def pod(reason: str, message: str) -> Any:
        state = {"waiting": {"reason": reason, "message": message}}
        return parsing.pod(
            document("r", "runner", "Pending", status={"containerStatuses": [container("runner", state)]})
        )

    first = pod("ErrImagePull", "failed to resolve reference: not found")
    then = parsing.later(first, pod("ImagePullBackOff", "Back-off pulling image"))
    assert (then.containers[0].reason, then.containers[0].message) == (
        "ImagePullBackOff",
        "failed to resolve reference: not found",
    )
    assert parsing.later(then, pod("ErrImagePull", "denied")).containers[0].message == "denied"


def test_of_last_words_the_end_is_kept() -> None:
    found = runner("r", "Failed", ended(1, message="line\n" * 2000 + "\x1b[31mHawkError: boom"))
    last = found.containers[0].ended
    assert last is not None
    assert last.message.endswith("line HawkError: boom")
    assert len(last.message) <= parsing.LAST_WORDS + 1


@pytest.mark.parametrize(
    "status",
    [
        None,
        {},
        {"conditions": None},
        {"conditions": ["x"]},
        {"containerStatuses": [{}]},
        {"containerStatuses": [{"state": {"odd": 1}}]},
        {"phase": 3},
    ],
)
def test_odd_documents_are_taken_as_far_as_they_go(status: Any) -> None:
    item = document("r", "runner", "Running")
    item["status"] = status
    item["metadata"]["creationTimestamp"] = "yesterday"
    item["metadata"]["annotations"] = {"hawk/epoch": "²"}
    found = parsing.pod(item)
    assert (found.name, found.created, found.epoch) == ("r", None, None)


@pytest.mark.parametrize(
    ("text", "number"),
    [("250m", 0.25), ("3", 3.0), ("12Mi", 12 * 2**20), ("5n", 5e-9), ("2k", 2000.0), ("odd", 0.0)],
)
def test_quantities(text: str, number: float) -> None:
    assert quantity(text) == pytest.approx(number)


# --- the book


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    found = RunDir(tmp_path / "j")
    found.create()
    write_json(found.spec_file, JobSpec("j", "/x", engine="kubernetes"))
    return found


def written(run: RunDir) -> PodsSeen:
    found = read_json(run.pods_file, PodsSeen)
    assert found is not None
    return found


def test_it_is_written_when_it_changes_and_not_more_than_once_a_second(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(books.time, "monotonic", lambda: clock[0])
    book = Book(run, "evals")
    book.saw_pod(runner())
    assert book.write(0.0) is True
    book.saw_pod(runner(phase="Failed", state=ended(1)))
    assert book.write(0.0) is False
    clock[0] += 1.1
    assert book.write(0.0) is True
    assert [pod.phase for pod in written(run).pods] == ["Failed"]
    clock[0] += 1.1
    book.saw_pod(runner(phase="Failed", state=ended(1)))
    assert book.write(0.0) is False  # the same again


def test_pods_that_ended_badly_are_remembered_and_survive_a_server(run: RunDir) -> None:
    book = Book(run, "evals")
    book.saw_job(job())
    book.lost_pod(runner("r1", "Failed", ended(137, "OOMKilled")), ago(1))
    book.saw_pod(runner("r2"))
    for i in range(40):
        book.lost_pod(
            sandbox(f"b{i}", "Failed" if i == 3 else "Running", ended(137, "OOMKilled") if i == 3 else RUNS),
            ago(1),
        )
    book.write(0.0, now=True)
    after = Book(run, "evals")
    after.saw_pod(runner("r2"))
    gone = [pod.name for pod in after.gone]
    assert "r1" in gone
    assert "b3" in gone  # what says most stays longest
    assert len(gone) == 21
    assert [pod.name for pod in after.pods()] == ["r2"]
    assert after.job is not None
    assert after.job.gone  # until it is seen again
    after.saw_job(job())
    assert not after.job.gone


def test_a_sandbox_that_ended_well_is_forgotten(run: RunDir) -> None:
    book = Book(run, "evals")
    book.lost_pod(sandbox("b", "Succeeded", ended(0, "Completed")), ago(1))
    assert book.gone == []
