"""The documents inside an `.eval` log, decoded into what Hawk keeps of them: pure functions over bytes.

Whatever else the documents hold is skipped while decoding, so memory follows what is kept. Numbers may be bare
`NaN` or `Infinity`, which the fast decoder refuses: then the slow one is used.
"""

from __future__ import annotations

import json
import math
from typing import Any, TypeVar

import msgspec

from hawk.bridge.modelerror import without_request

T = TypeVar("T")


class LogHeader(msgspec.Struct):
    """What one log says about its run.

    Attributes:
        status: started, success, cancelled or error; `started` is also what a killed run leaves.
        epochs: Attempts of each sample.
        sample_ids: Selected samples in dataset order; more may come where samples are made at run time.
        total_samples: Attempts to make: selected samples times epochs.
        completed_samples: Attempts that ended, known once the log is finished.
        metrics: `scorer/metric` to value; None where it is not a finite number.
        eval: The raw `eval` document; empty in headers from a cache.
    """

    path: str
    version: int
    status: str
    eval_set_id: str | None
    eval_id: str
    run_id: str
    task: str
    task_id: str
    task_registry_name: str | None
    model: str
    solver: str | None
    created: str
    started_at: str | None
    completed_at: str | None
    epochs: int
    sample_ids: list[str]
    dataset_samples: int | None
    total_samples: int
    completed_samples: int
    metrics: dict[str, float | None]
    error: str | None
    invalidated: bool = False
    tags: list[str] = []
    eval: dict[str, Any] = {}


class SampleSummary(msgspec.Struct):
    """One attempt, without its content.

    Attributes:
        completed: It ended: with a result, a limit or an error.
        scores: Scorer name to value; values may be text, numbers, lists or objects.
        retries: Times the attempt errored and was run again.
    """

    id: str
    epoch: int
    uuid: str | None = None
    started_at: str | None = None
    completed_at: str | None = None
    total_time: float | None = None
    working_time: float | None = None
    error: str | None = None
    limit: str | None = None
    limit_reason: str | None = None
    retries: int | None = None
    completed: bool = False
    scores: dict[str, Any] = {}
    total_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    message_count: int | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.id, self.epoch

    @property
    def reusable(self) -> bool:
        """A resume keeps it instead of running it again."""
        return self.completed and self.error is None


class _Dataset(msgspec.Struct):
    samples: int | None = None
    sample_ids: list[str | int] | None = None


class _Config(msgspec.Struct):
    epochs: int | None = None


class _Spec(msgspec.Struct):
    task: str
    model: str
    created: str = ""
    eval_set_id: str | None = None
    eval_id: str = ""
    run_id: str = ""
    task_id: str = ""
    task_registry_name: str | None = None
    solver: str | None = None
    tags: list[str] | None = None
    dataset: _Dataset = msgspec.field(default_factory=_Dataset)
    config: _Config = msgspec.field(default_factory=_Config)


class _Metric(msgspec.Struct):
    value: float | int | None = None


class _Score(msgspec.Struct):
    name: str
    reducer: str | None = None
    metrics: dict[str, _Metric] = {}


class _Results(msgspec.Struct):
    total_samples: int = 0
    completed_samples: int = 0
    scores: list[_Score] = []


class _Stats(msgspec.Struct):
    started_at: str | None = None
    completed_at: str | None = None


class _Error(msgspec.Struct):
    message: str = ""


class _Log(msgspec.Struct):
    eval: _Spec
    version: int = 0
    status: str = "started"
    results: _Results | None = None
    stats: _Stats | None = None
    error: _Error | None = None
    invalidated: bool = False
    tags: list[str] | None = None


class _SampleScore(msgspec.Struct):
    value: Any = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None


class _Row(msgspec.Struct):
    id: str | int
    epoch: int
    uuid: str | None = None
    started_at: str | None = None
    completed_at: str | None = None
    total_time: float | None = None
    working_time: float | None = None
    error: str | None = None
    limit: str | None = None
    limit_reason: str | None = None
    retries: int | None = None
    completed: bool = False
    scores: dict[str, _SampleScore] | None = None
    model_usage: dict[str, _Usage] = {}
    message_count: int | None = None


def loads(data: bytes, type_: type[T]) -> T:
    """Decode JSON as the type, bare NaN and Infinity allowed.

    Raises:
        ValueError: It is not JSON or not of that type.
    """
    try:
        return msgspec.json.decode(data, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError):
        document = json.loads(data)
        if b"\\ud" in data.lower():  # half a surrogate pair, which nothing that we write could hold
            document = json.loads(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"))
        return msgspec.convert(document, type=type_)


def decode_header(path: str, data: bytes) -> LogHeader:
    """The header from `header.json`, or from the `start.json` of a log in progress; without raw `eval`.

    Raises:
        ValueError: It is neither.
    """
    log = loads(data, _Log)
    spec, results, stats = log.eval, log.results or _Results(), log.stats or _Stats()
    ids = [str(i) for i in spec.dataset.sample_ids or []]
    epochs = spec.config.epochs or 1
    return LogHeader(
        path=path,
        version=log.version,
        status=log.status,
        eval_set_id=spec.eval_set_id,
        eval_id=spec.eval_id,
        run_id=spec.run_id,
        task=spec.task,
        task_id=spec.task_id,
        task_registry_name=spec.task_registry_name,
        model=spec.model,
        solver=spec.solver,
        created=spec.created,
        started_at=stats.started_at or None,
        completed_at=stats.completed_at or None,
        epochs=epochs,
        sample_ids=ids,
        dataset_samples=spec.dataset.samples,
        total_samples=results.total_samples or len(ids) * epochs,
        completed_samples=results.completed_samples,
        metrics=_metrics(results.scores),
        error=log.error.message if log.error else None,
        invalidated=log.invalidated,
        tags=log.tags or spec.tags or [],
    )


def decode_summary(data: bytes) -> SampleSummary:
    """One summary, as the realtime buffer stores it.

    Raises:
        ValueError: It is none.
    """
    return _summary(loads(data, _Row))


def decode_summaries(data: bytes) -> list[SampleSummary]:
    """A list of summaries, as `summaries.json` and each member of the journal hold it.

    Raises:
        ValueError: It is none.
    """
    return [_summary(row) for row in loads(data, list[_Row])]


def _metrics(scores: list[_Score]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for score in scores:
        for name, metric in score.metrics.items():
            value = metric.value
            finite = value is not None and math.isfinite(value)
            key = f"{score.name}/{name}"
            if key in found:  # one scorer under several reducers
                key = f"{score.name}@{score.reducer}/{name}"
            found[key] = float(value) if finite and value is not None else None
    return found


def _summary(row: _Row) -> SampleSummary:
    usage = row.model_usage.values()
    return SampleSummary(
        id=str(row.id),
        epoch=row.epoch,
        uuid=row.uuid,
        started_at=row.started_at,
        completed_at=row.completed_at,
        total_time=row.total_time,
        working_time=row.working_time,
        error=row.error and without_request(row.error),
        limit=row.limit,
        limit_reason=row.limit_reason,
        retries=row.retries,
        completed=row.completed,
        scores={name: score.value for name, score in (row.scores or {}).items()},
        total_tokens=sum(u.total_tokens or 0 for u in usage),
        input_tokens=sum(u.input_tokens or 0 for u in usage),
        output_tokens=sum(u.output_tokens or 0 for u in usage),
        message_count=row.message_count,
    )
