"""Spans and tallies: bounded, exact under threads, and true."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import TensorError
from aioinfer.executors import NOW, Lane, ManualExecutor
from aioinfer.runtime.graph import DType, TensorType
from aioinfer.runtime.runs.bindings import Bindings
from aioinfer.runtime.runs.stage import Stage
from aioinfer.runtime.tensors.tensor import Port
from aioinfer.runtime.tracing.arrivals import Arrivals
from aioinfer.runtime.tracing.recorder import Span, SpanRecorder
from aioinfer.testing import MockDevices
from unit.runtime.held_runs import X, started
from unit.runtime.models import tiny_model

STAGE = Stage("compute", ManualExecutor("CPU"), lambda _lane: NOW)


def test_the_ring_keeps_the_latest_and_the_tally_counts_all() -> None:
    recorder = SpanRecorder(capacity=3)
    for run_id in range(10):
        recorder.record((run_id, 0, 0), STAGE, Lane("CPU.0"), 100, 110, 150)
    assert [span.run_id for span in recorder.spans()] == [7, 8, 9]
    (tally,) = recorder.tallies()
    assert (tally.stage, tally.executor, tally.count) == ("compute", "CPU", 10)
    assert (tally.busy_ns, tally.queued_ns, tally.lane_count) == (400, 100, 1)


def test_a_span_says_what_ran_where_and_when() -> None:
    recorder = SpanRecorder()
    recorder.record((7, 31, 90), STAGE, Lane("CPU.1"), 100, 110, 150)
    (span,) = recorder.spans("CPU.0")
    assert span == Span(
        7, "compute", "CPU", "CPU.1", 100, 110, 150, device="CPU.0", age=31, arrived_ns=90
    )


@pytest.mark.parametrize("shape", [(4, 3), ("n", 3)])
def test_what_counts_runs_and_spans_never_brings_the_garbage_collector(
    shape: tuple[int | str, ...],
) -> None:
    recorder, brought = SpanRecorder(capacity=100), []
    arrivals = Arrivals()
    arrivals.count_batches_of([Port("x", TensorType(DType.FLOAT32, shape))])
    bindings, lane = Bindings({"x": X}, (0, 1)), Lane("CPU.0")

    def record(count: int) -> None:
        for _ in range(count):
            if arrivals.has_open_batch:
                arrivals.arrive(bindings.inputs)
            recorder.record((0, 0, 0), STAGE, lane, 1, 3, 8)

    def note(phase: str, _info: dict[str, int]) -> None:
        brought.append(phase)

    record(3000)  # from here on the ring lets go of as many as it takes in
    gc.collect()
    gc.callbacks.append(note)
    try:
        record(3000)
    finally:
        gc.callbacks.remove(note)
    assert brought == []


def test_lanes_are_counted_per_executor() -> None:
    recorder = SpanRecorder()
    other = Stage("decode", STAGE.executor, STAGE.function)
    for stage in (STAGE, other):
        for lane in ("CPU.0", "CPU.1", "CPU.0"):
            recorder.record((0, 0, 0), stage, Lane(lane), 0, 0, 1)
    assert [(tally.stage, tally.lane_count) for tally in recorder.tallies()] == [
        ("compute", 2),
        ("decode", 2),
    ]


def test_tallies_are_a_copy() -> None:
    recorder = SpanRecorder()
    recorder.record((0, 0, 0), STAGE, Lane("CPU.0"), 0, 0, 1)
    (before,) = recorder.tallies()
    recorder.record((0, 0, 0), STAGE, Lane("CPU.0"), 0, 0, 1)
    assert before.count == 1


def test_tallies_are_exact_under_threads() -> None:
    recorder = SpanRecorder(capacity=100)
    stages = [Stage(name, STAGE.executor, STAGE.function) for name in "ab"]
    failed: list[BaseException] = []

    def record(number: int) -> None:
        try:
            for _ in range(2000):
                recorder.record((number, 0, 0), stages[number % 2], Lane(f"CPU.{number}"), 1, 3, 8)
                if number == 0:
                    assert len(recorder.spans()) <= 100
                    recorder.tallies()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=record, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    for tally in recorder.tallies():
        assert (tally.count, tally.busy_ns, tally.queued_ns) == (6000, 30_000, 12_000)
        assert tally.lane_count == 6
    assert len(recorder.spans()) == 100


def test_a_stage_that_fails_has_its_span_too(core: aioinfer.Core) -> None:
    network = core.load_network(tiny_model(), "REFERENCE")
    request = network.create_infer_request()
    request.set_tensor("y", np.empty((1, 3), np.float32))
    with pytest.raises(TensorError):
        request.infer_sync(np.zeros((2, 3), np.float32))
    assert [span.stage for span in network.trace()] == ["compute"]


def test_spans_of_a_network_are_in_order_and_carry_the_requests_id(
    core: aioinfer.Core, held: MockDevices
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    requests = started(network, 3)
    held[0].held.release(2)
    held[0].held.release()
    spans = network.trace()
    assert [span.run_id for span in spans] == [request.id for request in requests]
    for span in spans:
        assert (span.stage, span.executor, span.lane) == ("compute", "MOCK.0", "MOCK.0")
        assert span.queued_ns <= span.started_ns <= span.ended_ns
    assert spans[0].ended_ns <= spans[2].queued_ns, "the third had to wait for a slot"


def test_each_network_has_spans_of_its_own(core: aioinfer.Core, held: MockDevices) -> None:
    networks = [core.load_network(tiny_model(), f"MOCK.{index}") for index in range(2)]
    networks[0].create_infer_request().start_async(X)
    held[0].held.release()
    assert len(networks[0].trace()) == 1
    assert list(networks[1].trace()) == []


def test_tallies_hold_percentiles_of_all_that_was_recorded() -> None:
    recorder = SpanRecorder(capacity=3)
    for took_us in range(1, 3001):
        recorder.record((0, 0, 0), STAGE, Lane("CPU.0"), 0, 5_000, 5_000 + 1_000 * took_us)
    (tally,) = recorder.tallies()
    assert tally.service.count == tally.queue.count == 3000
    assert tally.service.p50_s == pytest.approx(1500e-6, rel=0.06)
    assert tally.service.p99_s == pytest.approx(2970e-6, rel=0.06)
    assert tally.service.max_s == 3000e-6
    assert tally.queue.max_s == 5e-6


def test_a_ring_that_is_full_says_until_when_it_forgot() -> None:
    recorder = SpanRecorder(capacity=2)
    for ended_ns in (10, 20):
        recorder.record((0, 0, 0), STAGE, Lane("CPU.0"), 0, 0, ended_ns)
        assert recorder.forgot_until_ns == (0 if ended_ns == 10 else 10)
    recorder.record((0, 0, 0), STAGE, Lane("CPU.0"), 0, 0, 30)
    assert recorder.forgot_until_ns == 20


def test_runs_of_one_request_are_told_apart(core: aioinfer.Core, held: MockDevices) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    request = network.create_infer_request()
    for _ in range(3):
        request.start_async(X)
        held[0].held.release()
    trace = network.trace()
    assert [run.label for run in trace.runs] == [f"{request.id}.{number}" for number in (1, 2, 3)]
    for span, run in zip(trace, trace.runs, strict=True):
        assert 0 < run.arrived_ns <= span.queued_ns
        assert span.device == "MOCK.0"
