"""The log readers against Inspect's own, on logs that real evaluations wrote."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hawk.bridge.evallog import (
    LogCache,
    LogUnreadable,
    SampleSummary,
    list_logs,
    merge,
    newest_by_task,
    read_header,
    read_sample,
    read_summaries,
    read_task,
)
from tests.bridge.conftest import Evaluation

pytestmark = pytest.mark.timeout(400)  # real evaluations start slowly on a loaded machine


def _plain(value: Any) -> Any:
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def _same_as_inspect(path: Path) -> None:
    from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries

    theirs, ours = read_eval_log(str(path), header_only=True), read_header(path)
    spec = theirs.eval
    assert (ours.status, ours.version, ours.invalidated) == (
        theirs.status,
        theirs.version,
        theirs.invalidated,
    )
    for name in ("eval_set_id", "eval_id", "run_id", "task", "task_id", "model", "solver", "created"):
        assert getattr(ours, name) == getattr(spec, name), name
    assert ours.task_registry_name == spec.task_registry_name
    assert ours.sample_ids == [str(i) for i in spec.dataset.sample_ids or []]
    assert ours.epochs == spec.config.epochs
    assert ours.eval["task_args_passed"] == spec.task_args_passed
    assert ours.started_at == (theirs.stats.started_at or None)
    assert ours.completed_at == (theirs.stats.completed_at or None)
    assert ours.error == (theirs.error.message if theirs.error else None)
    if theirs.results:
        assert ours.total_samples == theirs.results.total_samples
        assert ours.completed_samples == theirs.results.completed_samples
        values = [m.value for s in theirs.results.scores for m in s.metrics.values()]
        assert list(ours.metrics.values()) == [v if math.isfinite(v) else None for v in values]

    rows = {(str(s.id), s.epoch): s for s in read_eval_log_sample_summaries(str(path))}
    read = {s.key: s for s in read_summaries(path)}
    assert read.keys() == rows.keys()
    for key, row in rows.items():
        mine = read[key]
        for name in SampleSummary.__struct_fields__:
            if name not in ("id", "scores", "total_tokens", "input_tokens", "output_tokens"):
                assert getattr(mine, name) == getattr(row, name), name
        usage = row.model_usage.values()
        assert mine.total_tokens == sum(u.total_tokens for u in usage)
        assert mine.input_tokens == sum(u.input_tokens for u in usage)
        assert mine.output_tokens == sum(u.output_tokens for u in usage)
        scores = {name: _plain(score.value) for name, score in (row.scores or {}).items()}
        assert {name: _plain(value) for name, value in mine.scores.items()} == scores


def test_finished_log_reads_as_inspect_reads_it(finished: Evaluation) -> None:
    _same_as_inspect(finished.log)


def test_finished_log_tells_every_outcome(finished: Evaluation) -> None:
    header = read_header(finished.log)
    assert (header.status, header.total_samples, header.epochs) == ("success", 10, 2)
    first = {s.id: s for s in read_summaries(finished.log) if s.epoch == 1}
    assert all(s.completed for s in first.values())
    assert first["s0"].scores == {"graded": 1.0}
    assert first["s1"].scores == {"graded": 0.0}
    assert "the model broke" in (first["s2"].error or "")
    assert not first["s2"].reusable
    assert (first["s3"].limit, first["s3"].reusable) == ("message", True)
    assert math.isnan(first["s4"].scores["graded"])


def test_sample_reads_as_inspect_reads_it_with_attachments_resolved(finished: Evaluation) -> None:
    from inspect_ai.log import read_eval_log_sample

    sample = read_sample(finished.log, "s0", 2)
    theirs = read_eval_log_sample(str(finished.log), "s0", 2, resolve_attachments="full")
    assert "attachment://" not in str(sample)
    assert sample["uuid"] == theirs.uuid
    assert [m["content"] for m in sample["messages"]] == [m.content for m in theirs.messages]
    assert [e["event"] for e in sample["events"]] == [e.event for e in theirs.events]


def test_missing_sample_is_named(finished: Evaluation) -> None:
    with pytest.raises(LogUnreadable, match="no sample 's9', attempt 1"):
        read_sample(finished.log, "s9", 1)


def test_log_in_progress_reads_as_inspect_reads_it(live: Evaluation) -> None:
    _same_as_inspect(live.log)
    header = read_header(live.log)
    assert (header.status, header.total_samples) == ("started", 8)
    assert len(read_summaries(live.log)) >= 4


def test_killed_log_reads_as_inspect_reads_it(crashed: Evaluation) -> None:
    _same_as_inspect(crashed.log)
    assert read_header(crashed.log).status == "started"
    assert len(read_summaries(crashed.log)) == 4


def test_resumed_task_is_one_task_with_every_attempt(crashed: Evaluation, resumed: Evaluation) -> None:
    old, recovered, new = list_logs(resumed.logs)
    assert old.name == crashed.log.name
    assert recovered.stem == f"{old.stem}-recovered"
    for path in (old, recovered, new):
        _same_as_inspect(path)
    task_id = read_header(old).task_id
    assert newest_by_task(resumed.logs) == {task_id: new}
    task = read_task(resumed.logs, task_id)
    assert task is not None
    assert task.paths == [old, recovered, new]
    assert (task.header.status, task.header.eval_set_id) == ("success", "set-1")
    assert len(task.summaries) == 8
    assert all(s.reusable for s in task.summaries)
    kept = {s.key: s.uuid for s in read_summaries(crashed.log)}
    assert kept.items() <= {s.key: s.uuid for s in task.summaries}.items()


def _row(id_: str, error: str | None = None) -> SampleSummary:
    return SampleSummary(id=id_, epoch=1, completed=True, error=error, uuid=f"{id_}{error}")


def test_finished_attempts_of_an_older_log_stay_until_the_newer_one_has_them() -> None:
    old = [_row("a"), _row("b", error="cancelled"), _row("c")]
    assert merge([old, []]) == [_row("a"), _row("c")]
    assert merge([old, [_row("b")]]) == [_row("a"), _row("c"), _row("b")]
    assert merge([old, [_row("a", error="broke")]]) == [_row("a", error="broke"), _row("c")]
    assert merge([old]) is old


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9, 0.999])
def test_log_cut_short_is_unreadable(finished: Evaluation, tmp_path: Path, share: float) -> None:
    data = finished.log.read_bytes()
    path = tmp_path / finished.log.name
    path.write_bytes(data[: int(len(data) * share)])
    for read in (read_header, read_summaries, LogCache().read, lambda p: read_sample(p, "s0", 1)):
        with pytest.raises(LogUnreadable) as caught:
            read(path)
        assert caught.value.fields["path"] == str(path)
    assert list(LogCache().read_dir(tmp_path).unreadable) == [path.name]
    assert newest_by_task(tmp_path) == {}


def test_log_with_damage_anywhere_never_crashes_a_reader(finished: Evaluation, tmp_path: Path) -> None:
    data = bytearray(finished.log.read_bytes())
    path = tmp_path / "x.eval"
    for at in range(0, len(data), max(1, len(data) // 400)):
        old, data[at] = data[at], data[at] ^ 0xFF
        path.write_bytes(data)
        data[at] = old
        try:
            read_header(path)
            read_summaries(path)
            read_sample(path, "s0", 1)
        except LogUnreadable:
            pass


def test_missing_log_and_foreign_archive_are_unreadable(tmp_path: Path) -> None:
    with pytest.raises(LogUnreadable, match="No such file"):
        read_header(tmp_path / "none.eval")
    with zipfile.ZipFile(tmp_path / "x.eval", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(LogUnreadable, match="holds no evaluation"):
        read_summaries(tmp_path / "x.eval")
    assert list_logs(tmp_path / "nowhere") == []


def test_unreadable_newest_log_does_not_hide_the_older_ones(resumed: Evaluation, tmp_path: Path) -> None:
    old, recovered, new = list_logs(resumed.logs)
    (tmp_path / old.name).write_bytes(old.read_bytes())
    (tmp_path / recovered.name).write_bytes(recovered.read_bytes())
    (tmp_path / new.name).touch()
    found = LogCache().read_dir(tmp_path)
    (task,) = found.tasks.values()
    assert found.unreadable == {new.name: "it is empty"}
    assert task.paths[-1].name == recovered.name
    assert sum(s.reusable for s in task.summaries) == 6


def test_growing_log_is_decoded_only_where_it_grew(crashed: Evaluation, tmp_path: Path) -> None:
    """Grown as Inspect does it: each flush is a new file in the old one's place."""
    import inspect_ai  # noqa: F401 - teaches zipfile the compression before Python 3.14

    path = tmp_path / "g.eval"
    with zipfile.ZipFile(crashed.log) as source:
        start = source.read("_journal/start.json")
    members = {"_journal/start.json": start}
    cache = LogCache()

    def flush(name: str, text: str) -> list[SampleSummary]:
        members[name] = text.encode()
        with zipfile.ZipFile(tmp_path / "new", "w", 93) as archive:
            for member, data in members.items():
                archive.writestr(member, data)
        (tmp_path / "new").replace(path)
        return cache.read(path)[1]

    def journal(*rows: str) -> str:
        return "[" + ",".join(f'{{"id": "{row}", "epoch": 1, "completed": true}}' for row in rows) + "]"

    first = flush("_journal/summaries/1.json", journal("a", "b"))
    second = flush("_journal/summaries/2.json", journal("c"))
    assert [s.id for s in second] == ["a", "b", "c"]
    assert second[0] is first[0]
    assert cache.read(path)[1] is second
    tenth = flush("_journal/summaries/10.json", journal("a"))
    assert len(tenth) == 3
    assert tenth[1] is first[1]
    assert tenth[0] is not first[0]
    rewritten = flush("_journal/summaries/1.json", journal("z"))
    assert {s.id for s in rewritten} == {"z", "c", "a"}
    ended = flush("summaries.json", journal("a", "c"))
    assert [s.id for s in ended] == ["a", "c"]
