"""Spans of a call from its client through the service to the store, where an SDK records them; and trace ids in logs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from parallax.errors import InvalidNameError
from parallax.runtime import process, tracing
from tests.worlds.offset_servers import Served, serving
from tests.worlds.offset_world import GROUP, World


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What is recorded, of this test alone: a process has one provider for ever."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(World()) as running:
        yield running


def by_kind(spans: InMemorySpanExporter, name: str) -> dict[trace.SpanKind, ReadableSpan]:
    return {item.kind: item for item in spans.get_finished_spans() if item.name == name}


def test_a_call_is_one_trace_on_both_sides(spans: InMemorySpanExporter, served: Served) -> None:
    with served.client() as client:
        client.get_primary(GROUP)
    found = by_kind(spans, "parallax.GetPrimary")
    asked, answered = found[trace.SpanKind.CLIENT], found[trace.SpanKind.SERVER]
    assert answered.parent is not None
    assert answered.context is not None
    assert asked.context is not None
    assert answered.parent.span_id == asked.context.span_id
    assert answered.context.trace_id == asked.context.trace_id
    assert (answered.attributes or {})["rpc.method"] == "GetPrimary"


def test_rest_goes_on_with_its_callers_trace(spans: InMemorySpanExporter, served: Served) -> None:
    with served.http() as http:
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        assert http.get(f"/v1/groups/{GROUP}/primary", headers={"traceparent": parent}).status_code == 200
    answered = by_kind(spans, "parallax.GetPrimary")[trace.SpanKind.SERVER]
    assert answered.context is not None
    assert trace.format_trace_id(answered.context.trace_id) == "0af7651916cd43dd8448eb211c80319c"


def test_an_error_is_told_in_the_span_of_whoever_met_it(spans: InMemorySpanExporter, served: Served) -> None:
    with served.client() as client, pytest.raises(InvalidNameError):
        client.get_primary("")
    for item in by_kind(spans, "parallax.GetPrimary").values():
        assert item.status.status_code is trace.StatusCode.ERROR


@pytest.mark.usefixtures("spans")
def test_logs_name_the_trace_they_belong_to(capsys: pytest.CaptureFixture[str]) -> None:
    before = structlog.get_config()
    try:
        process.configure_logging(json=True)
        log = structlog.get_logger("traced")
        log.info("outside")
        with tracing.span("something"):
            log.info("inside")
    finally:  # what it writes to is gone after the test
        structlog.configure(**before)
    outside, inside = map(json.loads, capsys.readouterr().err.splitlines())
    assert "trace_id" not in outside
    assert (len(inside["trace_id"]), len(inside["span_id"])) == (32, 16)


def test_without_the_api_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_installed", False)
    with tracing.span("something"), tracing.received([], "something"):
        assert tracing.sent() == ()
        assert tracing.add_trace_ids(None, "info", {"event": "x"}) == {"event": "x"}
