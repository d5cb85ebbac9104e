from __future__ import annotations

import threading

import pytest

from aioinfer.errors import ClosedError, RequestStateError
from aioinfer.executors import (
    NOW,
    CompletionThread,
    DeviceEvent,
    DeviceStream,
    DeviceStreamExecutor,
    HostReady,
    ImmediateExecutor,
    ManualStream,
    ManualStreams,
    ReadingHost,
    Ready,
    StreamsConfig,
    StreamsExecutor,
    hop,
)

WAIT_S = 20.0


@pytest.fixture
def device() -> ManualStreams:
    return ManualStreams()


def enqueue(device: ManualStreams, stream: str, label: str, action=None):
    """A stage function that enqueues one piece of work."""

    def function(lane):
        device.stream(stream).enqueue(label, action)
        return NOW

    return function


def executors(device: ManualStreams, *names: str) -> list[DeviceStreamExecutor]:
    return [DeviceStreamExecutor(device.stream(name)) for name in names]


def test_stages_are_enqueued_behind_tokens_that_are_not_ready(device, told, make_chain) -> None:
    upload, compute, download = executors(device, "upload", "compute", "download")
    make_chain(
        [
            (upload, enqueue(device, "upload", "copy in")),
            (compute, enqueue(device, "compute", "conv")),
            (download, enqueue(device, "download", "copy out")),
        ],
        told,
    ).start()
    ready, error = told.only  # the host is done with all three before the device has begun
    assert (error, ready.is_ready, device.done) == (None, False, [])
    assert device.enqueued == [
        "upload: copy in",
        "upload: record upload#1",
        "compute: wait upload#1",
        "compute: conv",
        "compute: record compute#1",
        "download: wait compute#1",
        "download: copy out",
        "download: record download#1",
    ]
    assert device.watched == []  # the host asked for none of them
    ready.when_ready(lambda error: None)
    assert [event.name for event in device.watched] == ["download#1"]
    assert device.fire_all() == 3
    assert ready.is_ready


def test_upload_of_the_next_request_overlaps_compute_of_the_one_before(
    device, make_told, make_chain
) -> None:
    upload, compute = executors(device, "upload", "compute")
    runs = [make_told(), make_told()]
    for told in runs:
        stages = [
            (upload, enqueue(device, "upload", "copy in")),
            (compute, enqueue(device, "compute", "conv")),
        ]
        make_chain(stages, told).start()
    device.fire_next("upload")
    device.fire_next("upload")
    assert device.stream("upload").outstanding_count == 0
    assert [told.only[0].is_ready for told in runs] == [False, False]
    device.fire_next("compute")
    assert [told.only[0].is_ready for told in runs] == [True, False]


def test_a_join_of_the_devices_own_events_is_waited_for_on_the_device(device, told) -> None:
    left, right, join = executors(device, "left", "right", "join")
    tokens: list[Ready] = []
    for executor in (left, right):
        executor.run(lambda lane: NOW, NOW, lambda ready, error: tokens.append(ready))
    join.run(enqueue(device, "join", "add"), Ready.join(tokens), told)
    assert device.enqueued[-4:-1] == ["join: wait left#1", "join: wait right#1", "join: add"]
    assert device.watched == []  # the host waits for neither
    assert told.only[1] is None


def test_functions_that_read_on_the_host_wait_there_for_events_of_their_own_device(
    device, told
) -> None:
    upload = ReadingHost(DeviceStreamExecutor(device.stream("upload")))
    written = device.stream("download").record_event()
    upload.run(enqueue(device, "upload", "copy in"), written, told)
    assert device.enqueued == ["download: record download#1"]
    device.fire_next("download")
    assert device.enqueued[1:] == ["upload: copy in", "upload: record upload#1"]
    assert told.only[1] is None


def test_after_a_join_of_host_and_device_only_the_host_part_is_waited_for(device, told) -> None:
    upload, compute = executors(device, "upload", "compute")
    tokens: list[Ready] = [HostReady()]
    upload.run(lambda lane: NOW, NOW, lambda ready, error: tokens.append(ready))
    compute.run(enqueue(device, "compute", "conv"), Ready.join(tokens), told)
    assert told.calls == []
    assert repr(compute) == "<DeviceStreamExecutor 'compute' 1 held by a token>"
    host = tokens[0]
    assert isinstance(host, HostReady)
    host.fire()
    assert device.enqueued[1:3] == ["compute: wait upload#1", "compute: conv"]
    assert not told.only[0].is_ready


def test_another_devices_event_is_waited_for_on_the_host(device, told) -> None:
    other = ManualStreams("MANUAL.1")
    (source,), (target,) = executors(other, "download"), executors(device, "upload")
    tokens: list[Ready] = []
    source.run(lambda lane: NOW, NOW, lambda ready, error: tokens.append(ready))
    target.run(enqueue(device, "upload", "copy in"), tokens[0], told)
    assert device.enqueued == []
    assert [event.name for event in other.watched] == ["download#1"]
    other.fire_all()
    assert device.enqueued == ["upload: copy in", "upload: record upload#1"]


def test_a_stage_that_enqueues_and_then_raises_hands_on_the_event(device, told) -> None:
    (compute,) = executors(device, "compute")
    error = ValueError("after the first kernel")

    def function(lane):
        lane.stream.enqueue("first kernel")
        raise error

    compute.run(function, NOW, told)
    ready, raised = told.only
    assert raised is error
    assert not ready.is_ready  # nobody may free what the first kernel still uses
    device.fire_all()
    assert ready.is_ready


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_system_exit_in_a_stage_stops_at_the_border(device, told, make_told, error) -> None:
    (compute,) = executors(device, "compute")
    later = make_told()

    def function(lane):
        raise error

    compute.run(function, NOW, told)
    compute.run(lambda lane: NOW, NOW, later)
    assert told.error is error
    assert later.error is None


def test_after_now_from_a_stage_that_waited_the_token_is_still_the_devices(device, told) -> None:
    """A stage that enqueues nothing may not claim that what it waited for has ended."""
    upload, compute = executors(device, "upload", "compute")
    tokens: list[Ready] = []
    upload.run(lambda lane: NOW, NOW, lambda ready, error: tokens.append(ready))
    compute.run(lambda lane: NOW, tokens[0], told)
    assert not told.only[0].is_ready


def test_a_stage_may_record_its_own_event(device, told) -> None:
    (compute,) = executors(device, "compute")
    events: list[Ready] = []

    def function(lane):
        events.append(lane.stream.record_event())
        return events[0]

    compute.run(function, NOW, told)
    assert told.only == (events[0], None)
    assert device.enqueued == ["compute: record compute#1"]


def test_an_error_on_the_device_reaches_the_last_token(device, told, make_chain) -> None:
    upload, compute = executors(device, "upload", "compute")
    make_chain(
        [
            (upload, enqueue(device, "upload", "copy in")),
            (compute, enqueue(device, "compute", "conv")),
        ],
        told,
    ).start()
    error = OSError("bad address")
    device.fail("upload", error)
    device.fire_all()
    assert told.only[0].error is error


def test_a_failed_token_means_that_nothing_is_enqueued(device, told) -> None:
    upload, compute = executors(device, "upload", "compute")
    tokens: list[Ready] = []
    upload.run(lambda lane: NOW, NOW, lambda ready, error: tokens.append(ready))
    host, error = HostReady(), OSError("decoder")
    compute.run(enqueue(device, "compute", "conv"), Ready.join([*tokens, host]), told)
    host.fire(error)
    ready, raised = told.only
    assert raised is error
    assert ready is tokens[0]  # the upload is still under way
    assert device.enqueued == ["upload: record upload#1"]


def test_an_event_that_has_failed_before_means_that_nothing_is_enqueued(device, told) -> None:
    upload, compute = executors(device, "upload", "compute")
    tokens: list[Ready] = []
    upload.run(lambda lane: NOW, NOW, lambda ready, error: tokens.append(ready))
    error = OSError("bad address")
    device.fail("upload", error)
    compute.run(enqueue(device, "compute", "conv"), tokens[0], told)
    assert told.only == (NOW, error)
    assert "compute: conv" not in device.enqueued


def test_cancel_with_work_on_the_device_ends_the_run_with_the_devices_token(
    device, told, make_chain
) -> None:
    upload, compute = executors(device, "upload", "compute")
    chain = make_chain(
        [
            (upload, enqueue(device, "upload", "copy in")),
            (compute, enqueue(device, "compute", "conv")),
        ],
        told,
    )

    def cancel_meanwhile(ready: Ready, error: BaseException | None) -> None:
        chain.stop_error = ClosedError("cancelled")

    hop(lambda: (chain.start(), cancel_meanwhile(NOW, None)))
    ready, error = told.only
    assert isinstance(error, ClosedError)
    assert device.enqueued == []
    assert ready is NOW


def test_cancel_between_two_stages_starts_no_second_one(device, told, make_chain) -> None:
    upload, compute = executors(device, "upload", "compute")

    def upload_and_cancel(lane):
        lane.stream.enqueue("copy in")
        chain.stop_error = ClosedError("cancelled")
        return NOW

    chain = make_chain(
        [(upload, upload_and_cancel), (compute, enqueue(device, "compute", "conv"))], told
    )
    chain.start()
    ready, error = told.only
    assert isinstance(error, ClosedError)
    assert not ready.is_ready  # the upload; the slot is not free yet
    assert "compute: conv" not in device.enqueued
    device.fire_all()
    assert ready.is_ready


def test_600_stages_on_a_device_do_not_recurse(device, told, make_chain) -> None:
    upload, compute = executors(device, "upload", "compute")
    stages = [(upload, lambda lane: NOW), (compute, lambda lane: NOW)] * 300
    make_chain(stages, told).start()
    assert told.error is None
    assert device.fire_all() == 600


def test_a_stage_that_brings_more_work_to_its_own_stream_is_finished_first(
    device, make_told
) -> None:
    (compute,) = executors(device, "compute")
    first, second = make_told(), make_told()

    def function(lane):
        compute.run(enqueue(device, "compute", "second"), NOW, second)
        lane.stream.enqueue("first")
        return NOW

    compute.run(function, NOW, first)
    assert device.enqueued == [
        "compute: first",
        "compute: record compute#1",
        "compute: second",
        "compute: record compute#2",
    ]
    assert (first.error, second.error) == (None, None)


def test_functions_of_one_stream_never_overlap_and_no_thread_waits_for_another(
    device, make_told
) -> None:
    (compute,) = executors(device, "compute")
    entered, may_end, second = threading.Event(), threading.Event(), make_told()

    def slow(lane):
        entered.set()
        assert may_end.wait(WAIT_S)
        return NOW

    first = threading.Thread(target=compute.run, args=(slow, NOW, make_told()), daemon=True)
    first.start()
    assert entered.wait(WAIT_S)
    compute.run(enqueue(device, "compute", "second"), NOW, second)  # returns at once
    assert second.calls == []
    may_end.set()
    first.join()
    assert second.error is None
    assert device.enqueued[-2] == "compute: second"


def test_close_waits_for_what_is_accepted_and_then_refuses(device, told) -> None:
    (compute,) = executors(device, "compute")
    token = HostReady()
    compute.run(enqueue(device, "compute", "conv"), token, told)
    closing = threading.Thread(target=compute.close, daemon=True)
    closing.start()
    token.fire()
    closing.join()
    compute.close()
    assert told.error is None
    with pytest.raises(ClosedError, match="executor 'compute' is closed"):
        compute.run(lambda lane: NOW, NOW, told)
    assert repr(compute) == "<DeviceStreamExecutor 'compute' closed>"


def test_closed_without_draining_it_hands_on_every_token_that_has_not_fired(device, told) -> None:
    upload, compute = executors(device, "upload", "compute")
    tokens: list[Ready] = [HostReady()]
    upload.run(lambda lane: NOW, NOW, lambda ready, error: tokens.append(ready))
    compute.run(enqueue(device, "compute", "conv"), Ready.join(tokens), told)
    compute.close(drain=False)
    ready, error = told.only
    assert isinstance(error, ClosedError)
    assert set(ready.parts) == set(tokens)
    host = tokens[0]
    assert isinstance(host, HostReady)
    host.fire()
    assert "compute: conv" not in device.enqueued
    assert len(told.calls) == 1


class BrokenStream(DeviceStream):
    """A stream of a device that is gone."""

    name, device = "broken", object()

    def wait_event(self, event: DeviceEvent) -> None:
        raise OSError("device lost")

    def record_event(self) -> DeviceEvent:
        raise OSError("device lost")


def test_a_lost_device_ends_the_run_with_its_error(told) -> None:
    executor = DeviceStreamExecutor(BrokenStream())
    executor.run(lambda lane: NOW, NOW, told)
    ready, error = told.only
    assert ready is NOW
    assert isinstance(error, OSError)


def test_what_a_stream_refuses_to_wait_for_is_still_waited_for(device, told) -> None:
    class Refusing(ManualStream):
        def wait_event(self, event: DeviceEvent) -> None:
            if event is first:
                super().wait_event(event)
            else:
                raise OSError("no more waits")

    first, second = (device.stream(name).record_event() for name in ("upload", "other"))
    compute = DeviceStreamExecutor(Refusing("compute", device))
    compute.run(enqueue(device, "compute", "conv"), Ready.join([first, second]), told)
    ready, error = told.only
    assert isinstance(error, OSError)
    assert second in ready.parts
    assert first not in ready.parts, "the stream's own event waits for it"
    assert "compute: conv" not in device.enqueued


def test_a_stages_own_error_is_not_hidden_by_a_lost_device(told) -> None:
    executor, own = DeviceStreamExecutor(BrokenStream()), ValueError("own")

    def function(lane):
        raise own

    executor.run(function, NOW, told)
    assert told.error is own


class HandDevice:
    """A device whose events a test lets pass, and whose completion thread is a real one."""

    def __init__(self) -> None:
        self.passed: dict[DeviceEvent, threading.Event] = {}
        self.errors: dict[DeviceEvent, BaseException] = {}
        self.completion = CompletionThread("HAND.0", self.wait_for)

    def event(self) -> DeviceEvent:
        event = DeviceEvent(self, self.completion.watch)
        self.passed[event] = threading.Event()
        return event

    def wait_for(self, event: DeviceEvent) -> None:
        assert self.passed[event].wait(WAIT_S)
        if event in self.errors:
            raise self.errors[event]


def test_no_completion_thread_exists_until_somebody_asks_for_an_event() -> None:
    device, fired = HandDevice(), threading.Event()
    before = threading.active_count()
    event = device.event()
    assert threading.active_count() == before
    event.when_ready(lambda error: fired.set())
    event.when_ready(lambda error: None)  # asked for once, however many ask
    device.passed[event].set()
    assert fired.wait(WAIT_S)
    assert event.is_ready
    device.completion.close()
    device.completion.close()


def test_a_host_stage_behind_an_event_is_started_by_the_completion_thread(told) -> None:
    device, threads = HandDevice(), []
    event, executor = device.event(), ImmediateExecutor()

    def function(lane):
        threads.append(threading.current_thread().name)
        return NOW

    executor.run(function, event, told)
    assert told.calls == []
    device.passed[event].set()
    assert told.wait() == (NOW, None)
    assert threads == ["HAND.0.0"]
    device.completion.close()


def test_a_device_error_fires_its_event_and_the_thread_goes_on(make_told) -> None:
    device, executor = HandDevice(), ImmediateExecutor()
    bad, good, error = device.event(), device.event(), OSError("bad kernel")
    device.errors[bad] = error
    first, second = make_told(), make_told()
    executor.run(lambda lane: NOW, bad, first)
    executor.run(lambda lane: NOW, good, second)
    device.passed[bad].set()
    device.passed[good].set()
    assert first.wait() == (NOW, error)
    assert second.wait() == (NOW, None)
    device.completion.close()


def test_a_closed_executor_met_on_the_completion_thread_settles_the_run(
    make_told, make_chain
) -> None:
    """The naive version raised there: the run never settled, and the device was dead."""
    device, closed = HandDevice(), StreamsExecutor(StreamsConfig("CPU"))
    first, second = device.event(), device.event()
    refused, later = make_told(), make_told()
    stages = [(ImmediateExecutor(), lambda lane: NOW), (closed, lambda lane: NOW)]
    make_chain(stages, refused).start(after=first)
    closed.close()
    device.passed[first].set()
    assert isinstance(refused.wait()[1], ClosedError)
    ImmediateExecutor().run(lambda lane: NOW, second, later)
    device.passed[second].set()
    assert later.wait() == (NOW, None)
    device.completion.close()


def test_work_parked_in_an_executor_that_closes_settles_once_whoever_is_first(make_told) -> None:
    device = HandDevice()
    for _ in range(50):
        executor, event, told = StreamsExecutor(StreamsConfig("CPU")), device.event(), make_told()
        executor.run(lambda lane: NOW, event, told)
        device.passed[event].set()  # now the completion thread and close race
        executor.close(drain=False)
        told.wait()
    device.completion.close()


def test_a_callback_that_raises_does_not_kill_the_completion_thread(told, caplog) -> None:
    device = HandDevice()
    first, second = device.event(), device.event()

    def broken(error: BaseException | None) -> None:
        raise RuntimeError("broken")

    first.when_ready(broken)
    ImmediateExecutor().run(lambda lane: NOW, second, told)
    device.passed[first].set()
    device.passed[second].set()
    assert told.wait() == (NOW, None)
    assert "RuntimeError: broken" in caplog.text
    device.completion.close()


def test_close_waits_for_the_events_that_are_watched() -> None:
    device, heard = HandDevice(), []
    event = device.event()
    event.when_ready(heard.append)
    closing = threading.Thread(target=device.completion.close, daemon=True)
    closing.start()
    device.passed[event].set()
    closing.join()
    assert heard == [None]


@pytest.mark.parametrize("error", [None, OSError("lost")])
def test_an_event_asked_for_after_close_is_waited_for_by_who_asks(error) -> None:
    device, heard = HandDevice(), []
    device.completion.close()
    event = device.event()
    if error is not None:
        device.errors[event] = error
    device.passed[event].set()
    event.when_ready(heard.append)
    assert heard == [error]


def test_an_event_that_came_while_the_thread_ended_does_not_fire_before_the_device() -> None:
    """To fire it with the thread's own ClosedError would free memory under the device."""
    device, heard = HandDevice(), []
    running, late = device.event(), device.event()
    running.when_ready(lambda error: None)
    late.when_ready(heard.append)
    ending = threading.Thread(
        target=lambda: device.completion._executor.close(drain=False), daemon=True
    )
    ending.start()
    device.passed[running].set()
    assert heard == []
    device.passed[late].set()
    ending.join()
    assert heard == [None]


def test_the_completion_thread_refuses_to_close_itself() -> None:
    device, raised, ended = HandDevice(), [], threading.Event()
    event = device.event()

    def closes(error: BaseException | None) -> None:
        try:
            device.completion.close()
        except RequestStateError as refused:
            raised.append(refused)
        ended.set()

    event.when_ready(closes)
    device.passed[event].set()
    assert ended.wait(WAIT_S)
    assert len(raised) == 1
    device.completion.close()
