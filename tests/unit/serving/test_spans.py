"""Spans that continue the client's trace, recorded by OpenTelemetry's own SDK."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.propagate import extract
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import aioinfer
from aioinfer.serving.inference import Inference
from aioinfer.serving.protocol.limits import Limits
from aioinfer.serving.repository.fixed import FixedRepository
from aioinfer.serving.rpc.service import make_server
from aioinfer.serving.spans import NO_SPANS, RecordedSpans, installed_spans
from aioinfer.serving.web.application import application
from unit.serving.asgi_client import AsgiClient
from unit.serving.models import scaled

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
X = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}


class Recorded:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.spans = RecordedSpans(trace, extract, provider.get_tracer("test"))

    def finished(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())


@pytest.fixture
def network(core: aioinfer.Core, tmp_path: Path) -> Iterator[aioinfer.ExecutableNetwork]:
    with core.load_network(scaled(tmp_path / "double.onnx", 2.0), "REFERENCE") as loaded:
        yield loaded


async def test_a_request_is_a_span_of_the_clients_trace(
    network: aioinfer.ExecutableNetwork,
) -> None:
    recorded = Recorded()
    inference = Inference(FixedRepository(network), Limits(), spans=recorded.spans)
    client = AsgiClient(application(inference))
    await client.post("/v2/models/double/infer", {"inputs": [X]}, traceparent=PARENT)
    await client.get("/v2/models/other", traceparent="nonsense")
    await client.get("/v2/health/live", traceparent=PARENT)
    first, second = recorded.finished()
    assert (first.name, f"{first.context.trace_id:032x}") == ("POST infer", TRACE)
    assert first.parent is not None
    assert f"{first.parent.span_id:016x}" == "b7ad6b7169203331"
    assert first.kind is trace.SpanKind.SERVER
    assert dict(first.attributes or {}) == {
        "aioinfer.model": "double",
        "aioinfer.version": "",
        "aioinfer.status": 200,
    }
    assert (second.name, second.parent) == ("GET", None)
    assert second.status.status_code is trace.StatusCode.UNSET  # the client's mistake


async def test_a_fault_of_the_server_is_an_error(network: aioinfer.ExecutableNetwork) -> None:
    recorded = Recorded()
    inference = Inference(FixedRepository(network), Limits(bodies_bytes=0), spans=recorded.spans)
    await AsgiClient(application(inference)).post("/v2/models/double/infer", {"inputs": [X]})
    (span,) = recorded.finished()
    assert span.status.status_code is trace.StatusCode.ERROR


async def test_a_call_over_grpc_is_one_too(network: aioinfer.ExecutableNetwork) -> None:
    recorded = Recorded()
    inference = Inference(FixedRepository(network), Limits(), spans=recorded.spans)
    server = make_server(inference, None)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        ask = channel.unary_unary("/inference.GRPCInferenceService/ModelMetadata")
        await ask(b"\x0a\x06double", metadata=(("traceparent", PARENT),))
        with pytest.raises(grpc.aio.AioRpcError):
            await ask(b"\x0a\x05other", metadata=(("traceparent", PARENT),))
    await server.stop(20.0)
    for _ in range(1000):  # a client hears first that a call is over
        if len(recorded.finished()) == 2:
            break
        await asyncio.sleep(0)
    first, second = recorded.finished()
    assert (first.name, f"{first.context.trace_id:032x}") == ("gRPC ModelMetadata", TRACE)
    assert (second.attributes or {})["aioinfer.code"] == "NOT_FOUND"


def test_without_the_package_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(installed_spans(), RecordedSpans)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert installed_spans() is NO_SPANS


async def test_without_anything_that_records_only_the_clients_trace_is_carried_on() -> None:
    spans = RecordedSpans(trace, extract, trace.NoOpTracer(), is_recorded=lambda: False)
    for headers, wanted in (({}, ""), ({"traceparent": PARENT}, TRACE)):
        with spans.around("POST infer", headers) as span:
            span.tell(model="m")
            assert span.trace_id == wanted


def test_whether_anything_records_is_asked_once_a_second() -> None:
    now_s, asked = [0.0], [False]

    def is_recorded() -> bool:
        asked.append(True)
        return len(asked) > 2

    spans = RecordedSpans(trace, extract, trace.NoOpTracer(), is_recorded, lambda: now_s[0])
    assert [spans.is_wanted({}) for _ in range(3)] == [False] * 3
    assert spans.is_wanted({"traceparent": PARENT})
    assert len(asked) == 2
    now_s[0] = 1.0
    assert spans.is_wanted({})
    assert spans.is_wanted({})
    assert len(asked) == 3
