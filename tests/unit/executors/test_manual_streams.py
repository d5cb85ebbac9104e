from __future__ import annotations

import math
import random

import pytest

from aioinfer.errors import AioInferError
from aioinfer.executors import ManualStreams


def test_nothing_is_done_until_an_event_is_fired_and_then_in_order() -> None:
    device, done = ManualStreams(), []
    upload = device.stream("upload")
    upload.enqueue("copy a", lambda: done.append("a"))
    upload.enqueue("copy b", lambda: done.append("b"))
    event = upload.record_event()
    assert (done, event.is_ready) == ([], False)
    device.fire_next("upload")
    assert (done, event.is_ready) == (["a", "b"], True)
    assert device.enqueued == ["upload: copy a", "upload: copy b", "upload: record upload#1"]
    assert device.done == device.enqueued


def test_an_event_fires_only_after_the_events_that_its_stream_waits_for() -> None:
    device = ManualStreams()
    upload, compute = device.stream("upload"), device.stream("compute")
    compute.wait_event(upload.record_event())
    event = compute.record_event()
    with pytest.raises(AioInferError, match="'compute' waits for upload#1; fire that first"):
        device.fire_next("compute")
    device.fire_next("upload")
    device.fire_next("compute")
    assert event.is_ready


def test_firing_where_no_event_is_recorded_says_so() -> None:
    device = ManualStreams("MANUAL.1")
    with pytest.raises(AioInferError, match=r"MANUAL.1: stream 'upload' has no event to fire"):
        device.fire_next("upload")


@pytest.mark.parametrize("order", [None, random.Random(1)], ids=["turns", "drawn"])
def test_fire_all_follows_the_waits_across_streams(order) -> None:
    device = ManualStreams()
    streams = [device.stream(name) for name in ("upload", "compute", "download")]
    for _ in range(3):
        event = None
        for stream in streams:
            if event is not None:
                stream.wait_event(event)
            event = stream.record_event()
    assert device.fire_all(order) == 9
    assert repr(device) == (
        "<ManualStreams 'MANUAL.0' upload: 0 enqueued, compute: 0 enqueued, download: 0 enqueued>"
    )


def test_a_failure_reaches_the_events_that_wait_for_it_and_no_others() -> None:
    device, error = ManualStreams(), OSError("bad kernel")
    upload, compute = device.stream("upload"), device.stream("compute")
    first = upload.record_event()
    compute.wait_event(first)
    dependent, second = compute.record_event(), upload.record_event()
    unrelated = compute.record_event()
    device.fail("upload", error)
    device.fire_all()
    assert (first.error, dependent.error) == (error, error)
    assert (second.error, unrelated.error) == (None, None)


def test_work_that_raises_fails_its_event_and_the_rest_of_its_stage_is_left_out() -> None:
    device, done = ManualStreams(), []
    stream = device.stream("compute")

    def bad() -> None:
        raise ValueError("bad")

    stream.enqueue("bad", bad)
    stream.enqueue("after", lambda: done.append("after"))
    event = stream.record_event()
    device.fire_all()
    assert isinstance(event.error, ValueError)
    assert done == []


def test_a_stream_refuses_another_devices_event() -> None:
    event = ManualStreams("MANUAL.1").stream("upload").record_event()
    with pytest.raises(AioInferError, match="not an event of its device; wait on the host"):
        ManualStreams().stream("upload").wait_event(event)


def test_what_is_read_before_its_event_is_poison() -> None:
    device, output = ManualStreams(), [0.0]
    stream = device.stream("compute")

    def write(value: float) -> None:
        output[0] = value

    stream.enqueue("relu", lambda: write(1.0), poison=lambda: write(math.nan))
    stream.record_event()
    assert math.isnan(output[0])
    device.fire_all()
    assert output == [1.0]


@pytest.mark.parametrize("seed", range(5))
def test_streams_work_side_by_side_in_invented_time_whatever_fires_first(seed) -> None:
    device, told = ManualStreams(), {}
    streams = {name: device.stream(name) for name in ("upload", "compute", "download")}
    for run in range(2):
        event = None
        for name, took_ns in (("upload", 20), ("compute", 50), ("download", 10)):
            if event is not None:
                streams[name].wait_event(event)
            streams[name].enqueue(name, took_ns=took_ns)
            streams[name].tell_times(lambda *times, key=(name, run): told.update({key: times}))
            event = streams[name].record_event()
        device.host_ns = 5
    device.fire_all(random.Random(seed))
    assert told == {
        ("upload", 0): (0, 0, 20),
        ("compute", 0): (20, 20, 70),
        ("download", 0): (70, 70, 80),
        ("upload", 1): (5, 20, 40),
        ("compute", 1): (40, 70, 120),
        ("download", 1): (120, 120, 130),
    }


def test_times_are_told_before_the_event_behind_the_work_fires() -> None:
    device, told = ManualStreams(), []
    stream = device.stream("upload")
    stream.enqueue("first half", took_ns=3)
    stream.enqueue("second half", took_ns=4)
    stream.tell_times(lambda *times: told.append(times))
    stream.record_event().when_ready(lambda _error: told.append("fired"))
    device.fire_all()
    assert told == [(0, 0, 7), "fired"]


def test_times_of_work_that_fails_or_has_none_are_never_told() -> None:
    device, told = ManualStreams(), []
    stream = device.stream("upload")
    for took_ns in (3, None):
        stream.enqueue("copy", took_ns=took_ns)
        stream.tell_times(lambda *times: told.append(times))
        stream.record_event()
    device.fail("upload", OSError("bad copy"))
    device.fire_all()
    assert told == []
