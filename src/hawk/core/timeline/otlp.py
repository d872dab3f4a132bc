"""A timeline as OpenTelemetry's protocol has it, in JSON: `ExportTraceServiceRequest` of OTLP 1.x.

https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding: ids are hexadecimal, 64-bit numbers are texts, and names
are in lowerCamelCase. An open span, which the protocol does not know, ends where it was last seen and says `hawk.open`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hawk.core.timeline.model import SampleTimeline, Span, trace_id

BATCH = 2_000
"""Spans of one request: receivers refuse bodies that are too large."""

_KINDS = {"INTERNAL": 1, "SERVER": 2, "CLIENT": 3}
_ERROR = 2


def requests(timeline: SampleTimeline, version: str) -> Iterator[dict[str, Any]]:
    """The requests that carry a timeline.

    Args:
        timeline: Of one attempt.
        version: Hawk's.
    """
    resource = {
        "service.name": "hawk",
        "service.version": version,
        "hawk.job.id": timeline.eval_set_id or "",
        "inspect.eval.id": timeline.eval_id or "",
        "inspect.task": timeline.task,
        "inspect.sample.id": timeline.sample_id,
        "inspect.sample.uuid": timeline.sample_uuid,
        "inspect.sample.epoch": timeline.epoch,
    }
    trace = trace_id(timeline.sample_uuid)
    for at in range(0, len(timeline.spans), BATCH):
        spans = [_span(span, trace) for span in timeline.spans[at : at + BATCH]]
        scope = {"scope": {"name": "hawk", "version": version}, "spans": spans}
        yield {"resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}]}


def _span(span: Span, trace: str) -> dict[str, Any]:
    attributes = {"hawk.category": span.category.value, **span.attributes}
    error = attributes.pop("error", None)
    if span.end_ms is None:
        attributes["hawk.open"] = True
    made: dict[str, Any] = {
        "traceId": trace,
        "spanId": span.span_id,
        "name": span.name,
        "kind": _KINDS.get(span.kind, 1),
        "startTimeUnixNano": _nano(span.start_ms),
        "endTimeUnixNano": _nano(span.until),
        "attributes": _attributes(attributes),
    }
    if span.parent_id is not None:
        made["parentSpanId"] = span.parent_id
    if error is not None:
        made["status"] = {"code": _ERROR, "message": str(error)}
    return made


def _nano(ms: float) -> str:
    return str(max(0, round(ms * 1000.0)) * 1000)


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": str(value)}
