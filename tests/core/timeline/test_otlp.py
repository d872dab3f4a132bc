"""What is exported is what OpenTelemetry's own classes read, and joins the trace that requests carry."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from hawk.core.timeline.build import Sources, answer
from hawk.core.timeline.model import SampleTimeline, call_id, trace_id
from hawk.core.timeline.otlp import requests
from tests.core.timeline.rows import BEGIN, UUID, built, event, record, whole


def exported(**fields: Any) -> SampleTimeline:
    events = [*whole(), event("model", 9.6, span_id="x", model="late", pending=True)]
    sources = Sources(record(events, **fields), [], [], [], BEGIN + 20_000, "t/s/1")
    return answer(built(sources.record, now=20), sources, "job-1", "eval-1")


def test_ids_are_those_of_the_trace_context_that_requests_carry() -> None:
    from hawk.bridge import attribution

    assert trace_id(UUID) == attribution.trace_id(UUID)
    assert call_id("one") == attribution.span_id("one")
    (request,) = requests(exported(), "1.0")
    spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert {span["traceId"] for span in spans} == {trace_id(UUID)}
    assert call_id("one") in {span["spanId"] for span in spans}
    assert [span["name"] for span in spans if "parentSpanId" not in span] == ["t/s/1"]


def test_an_open_span_ends_where_it_was_last_seen_and_says_so() -> None:
    (request,) = requests(exported(), "1.0")
    late = next(s for s in request["resourceSpans"][0]["scopeSpans"][0]["spans"] if s["name"] == "late")
    assert late["endTimeUnixNano"] == str(int((BEGIN + 20_000) * 1e6))
    assert {"key": "hawk.open", "value": {"boolValue": True}} in late["attributes"]


def test_the_official_classes_read_it() -> None:
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    from google.protobuf import json_format

    (request,) = requests(exported(over=10), "1.0")
    request = json.loads(json.dumps(request))
    for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for field in (
            "traceId",
            "spanId",
            "parentSpanId",
        ):  # hexadecimal in OTLP, base64 in protobuf's own JSON
            if field in span:
                span[field] = b64encode(bytes.fromhex(span[field])).decode()
    read = json_format.ParseDict(request, service.ExportTraceServiceRequest())
    resource = {a.key: a.value.string_value for a in read.resource_spans[0].resource.attributes}
    assert (resource["service.name"], resource["hawk.job.id"], resource["inspect.sample.uuid"]) == (
        "hawk",
        "job-1",
        UUID,
    )
    spans = read.resource_spans[0].scope_spans[0].spans
    assert spans[0].trace_id.hex() == trace_id(UUID)
    assert all(span.end_time_unix_nano >= span.start_time_unix_nano > 0 for span in spans)
