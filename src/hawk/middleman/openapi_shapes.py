"""JSON Schemas of what `hawk.middleman.status` says."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}


def maybe(schema: Schema) -> Schema:
    """That, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def record(optional: dict[str, Schema] | None = None, **required: Schema) -> Schema:
    """An object with these fields; it may have others."""
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}


def listed(items: Schema) -> Schema:
    """A list of those."""
    return {"type": "array", "items": items}


JOB = record(
    {"instance": TEXT},
    job=TEXT,
    requests=COUNT,
    tokens=COUNT,
    usd=maybe(NUMBER),
    unpriced=COUNT,
    in_flight=COUNT,
    waiting=COUNT,
    budget=record(usd=maybe(NUMBER), tokens=maybe(COUNT)),
    exhausted=maybe(TEXT),
)

MODEL = record(
    name=TEXT,
    inspect_name=TEXT,
    provider=TEXT,
    lab=TEXT,
    groups=listed(TEXT),
    public=FLAG,
    reachable=FLAG,
    dead=FLAG,
    is_chat=FLAG,
    are_details_secret=FLAG,
    is_zdr=FLAG,
    raw_cot=FLAG,
    context_length=maybe(COUNT),
    output_limit=maybe(COUNT),
    input_cost_per_1m=maybe(NUMBER),
    output_cost_per_1m=maybe(NUMBER),
    cache_read_cost_per_1m=maybe(NUMBER),
    cache_write_cost_per_1m=maybe(NUMBER),
)

_LANE = record(
    provider=TEXT,
    account=TEXT,
    model=maybe(TEXT),
    limit=COUNT,
    most=COUNT,
    in_flight=COUNT,
    waiting=COUNT,
    by_job=listed(record(job=maybe(TEXT), in_flight=COUNT, waiting=COUNT, oldest_wait_s=maybe(NUMBER))),
    paused_until=maybe(TEXT),
    paused_why=maybe(TEXT),
    requests_per_minute=NUMBER,
    tokens_per_minute=NUMBER,
    usd_per_minute=maybe(NUMBER),
    status_429_last_minute=COUNT,
    errors_last_minute=COUNT,
    latency_p50_s=maybe(NUMBER),
    latency_p95_s=maybe(NUMBER),
    breaker=record(open=FLAG, since=maybe(TEXT), retry_at=maybe(TEXT), said=maybe(TEXT)),
)

_REQUEST = record(
    id=TEXT,
    job=maybe(TEXT),
    task=TEXT,
    sample=TEXT,
    sample_uuid=TEXT,
    attempt=TEXT,
    provider=TEXT,
    account=TEXT,
    model=maybe(TEXT),
    phase=TEXT,
    since=TEXT,
    age_s=NUMBER,
    first_byte_s=maybe(NUMBER),
    bytes_out=COUNT,
    place=maybe(COUNT),
    reason=maybe(TEXT),
    until=maybe(TEXT),
    retry=COUNT,
)

_OWN_LANE = record(
    {"learnt_per_minute": maybe(NUMBER)},
    **{
        **_LANE["properties"],
        "url": TEXT,
        "by_job": listed(
            record(job=TEXT, mine=FLAG, in_flight=COUNT, waiting=COUNT, oldest_wait_s=maybe(NUMBER))
        ),
        "probe": maybe(record(at=TEXT, answered=FLAG, seconds=NUMBER, status=maybe(COUNT), why=TEXT)),
    },
)

_OWN_REQUEST = record(
    id=TEXT,
    task=TEXT,
    sample=TEXT,
    sample_uuid=TEXT,
    attempt=TEXT,
    provider=TEXT,
    account=TEXT,
    model=maybe(TEXT),
    phase=TEXT,
    age_s=NUMBER,
    sent_s=maybe(NUMBER),
    first_byte_s=maybe(NUMBER),
    quiet_s=maybe(NUMBER),
    bytes_out=COUNT,
    stream=FLAG,
    most_tokens=maybe(COUNT),
    reasoning=FLAG,
    replayed=FLAG,
    retry=COUNT,
    place=maybe(COUNT),
    reason=maybe(TEXT),
    until=maybe(TEXT),
    deadline_s=maybe(NUMBER),
)

JOB_STATUS = record(
    job=TEXT,
    instance=TEXT,
    draining=FLAG,
    lanes=listed(_OWN_LANE),
    requests=listed(_OWN_REQUEST),
    left_out=COUNT,
    replicas=COUNT,
    missing=maybe(TEXT),
)

STATUS = record(
    instance=TEXT,
    version=TEXT,
    pid=COUNT,
    url=TEXT,
    started_at=TEXT,
    draining=FLAG,
    open=COUNT,
    spans_lost=COUNT,
    shared=maybe(record(replicas=COUNT, behind_s=NUMBER, problem=maybe(TEXT))),
    lanes=listed(_LANE),
    jobs=listed(JOB),
    requests=listed(_REQUEST),
)
