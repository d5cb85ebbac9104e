"""What a device did, beside what the host enqueued: spans, tallies, traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aioinfer.executors import NOW, DeviceStreamExecutor, Lane, ManualStreams, Ready
from aioinfer.runtime.runs.stage import Stage, Stop
from aioinfer.runtime.tracing.recorder import COUNT_AT, Span, SpanRecorder, busy_shares
from aioinfer.runtime.tracing.timeline import Trace
from unit.runtime.lines import start_line

TOOK_NS = {"upload": 20, "compute": 50, "download": 10}
FAR_NS = 10**18
"""Later than any time of the host's clock here, so that the device's spans come behind."""


def stages_of(device: ManualStreams, took_ns: dict[str, int | None]) -> list[Stage]:
    def function(name: str) -> Callable[[Lane], Ready]:
        def enqueue(_lane: Lane) -> Ready:
            device.stream(name).enqueue(name, took_ns=took_ns[name])
            return NOW

        return enqueue

    return [
        Stage(name, DeviceStreamExecutor(device.stream(name)), function(name)) for name in took_ns
    ]


def run_all(device: ManualStreams, took_ns: dict[str, Any], run_count: int) -> SpanRecorder:
    device.host_ns = FAR_NS
    recorder, stages = SpanRecorder(), stages_of(device, took_ns)
    for number in range(1, run_count + 1):
        start_line(stages, Stop(), lambda *_: None, recorder, number)
    device.fire_all()
    return recorder


def on_device(spans: list[Span]) -> dict[tuple[int, str], tuple[int, int, int]]:
    return {
        (span.run_id, span.lane): (
            span.queued_ns - FAR_NS,
            span.started_ns - FAR_NS,
            span.ended_ns - FAR_NS,
        )
        for span in spans
        if span.started_ns >= FAR_NS
    }


def test_each_stage_has_a_span_of_the_device_beside_that_of_the_enqueueing() -> None:
    recorder = run_all(ManualStreams(), TOOK_NS, run_count=2)
    assert on_device(recorder.spans()) == {
        (1, "upload"): (0, 0, 20),
        (1, "compute"): (20, 20, 70),
        (1, "download"): (70, 70, 80),
        (2, "upload"): (0, 20, 40),
        (2, "compute"): (40, 70, 120),
        (2, "download"): (120, 120, 130),
    }
    enqueued = [span for span in recorder.spans() if span.started_ns < FAR_NS]
    assert [(span.run_id, span.stage, span.lane, span.executor) for span in enqueued] == [
        (run, name, f"{name} host", f"{name} host") for run in (1, 2) for name in TOOK_NS
    ]


def test_the_tallies_say_how_busy_the_device_was() -> None:
    tallies = run_all(ManualStreams(), TOOK_NS, run_count=2).tallies()
    counted = {tally.executor: (tally.stage, tally.count, tally.busy_ns) for tally in tallies}
    for name, took_ns in TOOK_NS.items():
        assert counted[name] == (name, 2, 2 * took_ns)
    assert busy_shares(tallies, 200, {})["compute"] == 0.5


def test_without_times_of_the_device_there_is_the_enqueueing_alone() -> None:
    recorder = run_all(ManualStreams(), dict.fromkeys(TOOK_NS), run_count=1)
    assert {span.lane for span in recorder.spans()} == {f"{name} host" for name in TOOK_NS}


def test_a_run_that_fails_on_the_device_has_the_spans_of_what_was_done() -> None:
    device, recorder = ManualStreams(), SpanRecorder()
    device.host_ns = FAR_NS
    start_line(stages_of(device, TOOK_NS), Stop(), lambda *_: None, recorder, 1)
    device.fire_next("upload")
    device.fail("compute", OSError("bad kernel"))
    device.fire_all()
    assert list(on_device(recorder.spans())) == [(1, "upload")]


def test_stages_that_share_a_stream_have_times_of_their_own() -> None:
    device, recorder = ManualStreams(), SpanRecorder()
    device.host_ns = FAR_NS
    executor = DeviceStreamExecutor(device.stream("all"))

    def enqueue(_lane: Lane) -> Ready:
        device.stream("all").enqueue("work", took_ns=30)
        return NOW

    stages = [Stage(name, executor, enqueue) for name in ("first", "second")]
    start_line(stages, Stop(), lambda *_: None, recorder, 1)
    assert device.stream("all").outstanding_count == 3, "one hop: two pieces of work, one event"
    device.fire_all()
    spans = [span for span in recorder.spans() if span.started_ns >= FAR_NS]
    assert [(span.stage, span.started_ns - FAR_NS) for span in spans] == [
        ("first", 0),
        ("second", 30),
    ]


def test_a_traces_critical_path_goes_through_the_device() -> None:
    recorder = run_all(ManualStreams(), TOOK_NS, run_count=2)
    trace = Trace("net", "FAKE", recorder.spans("FAKE"), recorder.forgot_until_ns)
    (_, run) = trace.runs
    path = [(trace[part.span].lane, part.queue_ns) for part in trace.critical_path(run)]
    assert path[-3:] == [("upload", 20), ("compute", 30), ("download", 0)]


@pytest.mark.parametrize("run_count", [1, COUNT_AT])
def test_the_ring_of_the_device_forgets_as_the_hosts_does(run_count: int) -> None:
    device, recorder = ManualStreams(), SpanRecorder(capacity=6)
    device.host_ns = FAR_NS
    stages = stages_of(device, TOOK_NS)
    for number in range(1, run_count + 1):
        start_line(stages, Stop(), lambda *_: None, recorder, number)
        device.fire_all()
    spans = recorder.spans()
    assert len(spans) == min(12, 6 * run_count)
    assert {span.run_id for span in spans} == {run_count, max(1, run_count - 1)}
    assert recorder.forgot_until_ns < FAR_NS
