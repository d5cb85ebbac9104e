from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from time import perf_counter_ns

import numpy as np
import pytest

from aioinfer.backends.accelerator.queues.device_health import DeviceHealth
from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.backends.accelerator.queues.queue_stream import QueueGroup, QueueStream
from aioinfer.errors import DeviceError
from aioinfer.executors import DeviceEvent
from unit.backends.accelerator.fake_driver import (
    FACTS,
    TOOK_NS,
    FakeContext,
    FakeDriver,
)
from unit.backends.accelerator.fake_launch_graph import FakeLaunchGraph

SLACK_NS = 10**10  # what a test takes on the host at most, a hundredth of what a command takes


class Times(list[tuple[int, int, int]]):
    """What was told: queued, began, ended."""


@pytest.fixture
def context() -> FakeContext:
    FakeContext.dropped.clear()
    made = FakeDriver(is_eager=False).open(FACTS)
    assert isinstance(made, FakeContext)
    return made


@pytest.fixture
def group(context: FakeContext) -> QueueGroup:
    return QueueGroup(context, DeviceHealth("FAKE.0"))


def stream_of(group: QueueGroup, name: str = "download") -> QueueStream:
    context = group.device
    assert isinstance(context, FakeContext)
    return QueueStream(name, context.queue(name), group, lambda event: None)


def test_a_copy_nobody_holds_is_kept_until_the_device_has_passed_it(
    context: FakeContext, group: QueueGroup
) -> None:
    stream = stream_of(group)
    stream.read(np.zeros(4, np.uint8), context.buffer(4))
    stream.record_event()
    gc.collect()
    assert (FakeContext.dropped, len(stream.unfinished)) == ([], 1)
    context.run_all()
    stream.forget_finished()
    assert len(stream.unfinished) == 0


def test_a_launch_graph_nobody_holds_is_kept_until_its_replay_is_over(
    context: FakeContext, group: QueueGroup
) -> None:
    stream, launch_graph = stream_of(group), FakeLaunchGraph([], FakeContext.dropped)
    found = weakref.ref(launch_graph)
    stream.replay(launch_graph)
    stream.record_event()
    del launch_graph
    gc.collect()
    assert (FakeContext.dropped, len(stream.unfinished)) == ([], 1)
    context.run_all()
    stream.forget_finished()
    assert (found(), FakeContext.dropped) == (None, [])


def test_a_replay_that_the_driver_refuses_keeps_nothing(
    context: FakeContext, group: QueueGroup
) -> None:
    stream, launch_graph = stream_of(group, "compute"), FakeLaunchGraph([], FakeContext.dropped)
    context.driver.command_errors[1] = DriverError(ErrorKind.OTHER, "no")
    with pytest.raises(
        DeviceError, match=r"FAKE\.0 failed while replaying launches on compute: no"
    ):
        stream.replay(launch_graph)
    stream.replay(launch_graph)
    stream.record_event()
    context.run_all()
    stream.forget_finished()
    assert launch_graph.replay_count == 1


def test_an_error_reaches_the_event_behind_it_and_the_stages_after(
    context: FakeContext, group: QueueGroup
) -> None:
    upload, compute = stream_of(group, "upload"), stream_of(group, "compute")
    context.driver.fails["upload: write"] = DriverError(ErrorKind.OTHER, "broken")
    upload.write(context.buffer(4), np.zeros(4, np.uint8))
    compute.wait_event(upload.record_event())
    last = compute.record_event()
    context.run_all(random.Random(1))
    with pytest.raises(DeviceError, match=r"computing \(upload\): broken"):
        last.wait()


def test_the_next_run_of_the_stream_knows_nothing_of_that_error(
    context: FakeContext, group: QueueGroup
) -> None:
    stream = stream_of(group, "upload")
    context.driver.fails["upload: write"] = DriverError(ErrorKind.OTHER, "broken")
    memory = context.buffer(4)
    for _ in range(2):
        stream.write(memory, np.zeros(4, np.uint8))
        event = stream.record_event()
    context.run_all()
    event.wait()


def test_what_the_driver_refuses_is_an_error_of_the_device(
    context: FakeContext, group: QueueGroup
) -> None:
    class Refusing:
        is_timed = True

        def write(self, target: object, source: object) -> None:
            raise DriverError(ErrorKind.OUT_OF_RESOURCES, "OUT_OF_RESOURCES")

    stream = QueueStream("upload", Refusing(), group, print)  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="failed while uploading on upload: OUT_OF_RESOURCES"):
        stream.write(context.buffer(1), np.zeros(1, np.uint8))


def stage(stream: QueueStream, work: Callable[[], object], told: Times) -> DeviceEvent:
    """Do what an executor does for a stage whose span is recorded."""
    work()
    stream.tell_times(lambda *times: told.append(times))
    return stream.record_event()


def test_what_the_device_did_is_told_by_the_hosts_clock(
    context: FakeContext, group: QueueGroup
) -> None:
    stream, told = stream_of(group), Times()
    before_ns = perf_counter_ns()
    stage(stream, lambda: [stream.read(np.zeros(4, np.uint8), context.buffer(4))] * 2, told)
    after_ns = perf_counter_ns()
    context.run_all()
    assert told == []  # it does not call by itself
    stream.forget_finished()
    ((queued_ns, began_ns, ended_ns),) = told
    assert before_ns <= queued_ns <= began_ns <= after_ns
    assert abs(ended_ns - began_ns - TOOK_NS) <= after_ns - before_ns


def test_a_stage_of_several_commands_has_the_begin_of_its_first_and_the_end_of_its_last(
    context: FakeContext, group: QueueGroup
) -> None:
    stream, told = stream_of(group), Times()
    memory = context.buffer(4)

    def work() -> None:
        for _ in range(3):
            stream.write(memory, np.zeros(4, np.uint8))

    for _ in range(2):
        stage(stream, work, told)
    context.run_all()
    stream.forget_finished()
    (_, first, second), (_, third, fourth) = told
    assert first + 3 * TOOK_NS == pytest.approx(second, abs=SLACK_NS)
    assert third == pytest.approx(second, abs=SLACK_NS)
    assert fourth == pytest.approx(third + 3 * TOOK_NS, abs=SLACK_NS)
    assert second <= third, "one queue does one thing at a time"


@pytest.mark.parametrize("seed", range(10))
def test_a_stage_behind_another_queues_is_queued_when_that_has_ended(
    seed: int, context: FakeContext, group: QueueGroup
) -> None:
    upload, compute = stream_of(group, "upload"), stream_of(group, "compute")
    uploads, computes = Times(), Times()
    order = random.Random(seed)
    for _ in range(3):
        memory = context.buffer(4)
        copied = stage(upload, lambda m=memory: upload.write(m, np.zeros(4, np.uint8)), uploads)
        compute.wait_event(copied)
        stage(compute, lambda m=memory: compute.read(np.zeros(4, np.uint8), m), computes)
        for _ in range(order.randrange(8)):
            context.advance(order)
    context.run_all(order)
    upload.forget_finished()
    compute.forget_finished()
    assert [queued for queued, _, _ in computes] == [ended for _, _, ended in uploads]
    for (_, began, ended), (_, copied_from, _) in zip(computes, uploads[1:], strict=False):
        assert copied_from < ended, "the next upload goes on beside it"
        assert began < copied_from + TOOK_NS


@pytest.mark.parametrize("reason", ["unknown", "failed"])
def test_a_stage_without_times_is_not_told_and_the_next_one_is(
    reason: str, context: FakeContext, group: QueueGroup
) -> None:
    stream, told = stream_of(group, "upload"), Times()
    if reason == "failed":
        context.driver.fails["upload: write"] = DriverError(ErrorKind.OTHER, "broken")
    else:
        context.driver.untimed.add("upload: write")
    memory = context.buffer(4)
    for _ in range(2):
        stage(stream, lambda: stream.write(memory, np.zeros(4, np.uint8)), told)
        context.run_all()
        context.driver.untimed.clear()
    stream.forget_finished()
    assert (len(told), len(stream.unfinished)) == (1, 0)


def test_a_stage_that_enqueues_nothing_has_no_times(
    context: FakeContext, group: QueueGroup
) -> None:
    stream, told = stream_of(group), Times()
    stage(stream, lambda: None, told)
    context.run_all()
    stream.forget_finished()
    assert told == []


@pytest.mark.parametrize("is_quick", [False, True])
def test_a_stage_that_recorded_its_own_event_is_told_too(
    is_quick: bool, context: FakeContext, group: QueueGroup
) -> None:
    stream, told = stream_of(group), Times()
    stream.read(np.zeros(4, np.uint8), context.buffer(4))
    stream.record_event()
    if is_quick:
        context.run_all()
        stream.forget_finished()
    stream.tell_times(lambda *times: told.append(times))
    context.run_all()
    stream.forget_finished()
    assert len(told) == 1


def test_commands_whose_end_nobody_can_ask_for_are_kept_until_later_ones_are_over(
    context: FakeContext, group: QueueGroup
) -> None:
    stream = stream_of(group)
    stream.record_event()
    context.queues[0].commands[-1].can_tell = False
    for expected in (1, 0):
        context.run_all()
        stream.forget_finished()
        assert len(stream.unfinished) == expected
        stream.record_event()


def test_whoever_has_waited_for_commands_need_not_ask_for_their_end(
    context: FakeContext, group: QueueGroup
) -> None:
    stream = stream_of(group)
    event = stream.record_event()
    context.queues[0].commands[-1].can_tell = False
    context.run_all()
    event.wait()
    assert len(stream.unfinished) == 0


def refuse_next(context: FakeContext) -> None:
    driver = context.driver
    driver.command_errors[driver.command_count + 1] = DriverError(
        ErrorKind.OUT_OF_MEMORY, "OUT_OF_HOST_MEMORY"
    )


def test_the_last_command_stands_in_for_a_marker_that_is_refused(
    context: FakeContext, group: QueueGroup
) -> None:
    upload, compute = stream_of(group, "upload"), stream_of(group, "compute")
    memory, read = context.buffer(4), np.zeros(4, np.uint8)
    for value in (1, 2):
        upload.write(memory, np.full(4, value, np.uint8))
    refuse_next(context)
    compute.wait_event(upload.record_event())
    compute.read(read, memory)
    last = compute.record_event()
    context.run_all(random.Random(0))
    last.wait()
    assert (read.tolist(), len(upload.unfinished), len(compute.unfinished)) == ([2] * 4, 0, 0)


@pytest.mark.parametrize("stages", [1, 2])
def test_a_command_that_fails_before_one_that_stands_in_fails_the_event(
    stages: int, context: FakeContext, group: QueueGroup
) -> None:
    upload, compute = stream_of(group, "upload"), stream_of(group, "compute")
    context.driver.fails["upload: write"] = DriverError(ErrorKind.OTHER, "broken")
    memory = context.buffer(4)
    for _ in range(2):
        upload.write(memory, np.zeros(4, np.uint8))
    refuse_next(context)
    event = upload.record_event()
    if stages == 2:
        compute.wait_event(event)
        event = compute.record_event()
    context.run_all()
    with pytest.raises(DeviceError, match=r"computing \(upload\): broken"):
        event.wait()


def test_a_marker_that_is_refused_behind_nothing_is_an_error_and_keeps_nothing(
    context: FakeContext, group: QueueGroup
) -> None:
    stream = stream_of(group)
    refuse_next(context)
    with pytest.raises(DeviceError, match="enqueueing on download: OUT_OF_HOST_MEMORY"):
        stream.record_event()
    assert len(stream.unfinished) == 0


def test_a_commands_own_error_says_that_the_device_is_lost(
    context: FakeContext, group: QueueGroup
) -> None:
    compute, download = stream_of(group, "compute"), stream_of(group, "download")
    memory = context.buffer(4)
    context.driver.fails["compute: write"] = DriverError(ErrorKind.LOST, "gone")
    compute.write(memory, np.zeros(4, np.uint8))
    download.wait_event(compute.record_event())
    download.read(np.zeros(4, np.uint8), memory)
    last = download.record_event()
    context.run_all()
    with pytest.raises(DeviceError, match=r"FAKE\.0 is lost \(computing \(compute\): gone\)"):
        last.wait()
    assert group.health.lost == "computing (compute): gone"


def test_times_are_told_before_anybody_sees_that_nothing_is_left(
    context: FakeContext, group: QueueGroup
) -> None:
    stream, seen = stream_of(group), []
    stream.read(np.zeros(4, np.uint8), context.buffer(4))
    stream.tell_times(lambda *_: seen.append((len(stream.unfinished), group.lock.locked())))
    stream.record_event()
    context.run_all()
    stream.forget_finished()
    assert seen == [(1, True)], "who comes meanwhile finds work, and waits for the lock"


def test_what_a_stage_waited_for_in_another_queue_is_told_before_it(
    context: FakeContext, group: QueueGroup
) -> None:
    upload, compute = stream_of(group, "upload"), stream_of(group, "compute")
    told, memory = Times(), context.buffer(4)
    copied = stage(upload, lambda: upload.write(memory, np.zeros(4, np.uint8)), told)
    compute.wait_event(copied)
    stage(compute, lambda: compute.read(np.zeros(4, np.uint8), memory), told)
    context.run_all()
    compute.forget_finished()
    (_, _, ended_ns), (queued_ns, _, _) = told
    assert ended_ns == queued_ns
    upload.forget_finished()
    assert (len(told), len(upload.unfinished)) == (2, 0)


def test_a_host_array_is_gone_when_its_copy_is_and_its_times_are_told(
    context: FakeContext, group: QueueGroup
) -> None:
    stream, told = stream_of(group, "upload"), Times()
    arrays = [np.zeros(4, np.uint8)]
    gone = weakref.ref(arrays[0])
    event = stage(stream, lambda: stream.write(context.buffer(4), arrays.pop()), told)
    assert gone() is not None
    context.run_all()
    stream.forget_finished()
    assert gone() is None
    assert (len(told), event.device) == (1, context)
