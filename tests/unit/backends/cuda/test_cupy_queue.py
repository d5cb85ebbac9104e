"""Queues, events and the clock, against a GPU that does everything later and in its own order."""

from __future__ import annotations

import gc
import itertools
import random
import threading
import weakref
from collections import deque
from time import perf_counter_ns

import numpy as np
import pytest

from aioinfer.backends.accelerator.launching.kernel_source import KernelSource
from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind, Event, Queue
from aioinfer.backends.accelerator.queues.library_operation import LibraryOperation
from aioinfer.backends.accelerator.queues.submission import StageWork
from aioinfer.backends.cuda import cupy_event
from aioinfer.backends.cuda.cupy_event import CupyEvent
from aioinfer.backends.cuda.cupy_queue import _LONGEST_SPIN_NS
from aioinfer.executors import DeviceClock
from unit.backends.cuda.fake_gpu import TOOK_NS, FakeGpu, ManualEvent
from unit.backends.cuda.opened_gpu import BREAK, ONE, OpenedGpu

COUNT = 64
GRID = (COUNT,), (32,)


@pytest.fixture
def opened() -> OpenedGpu:
    return OpenedGpu()


def filled(value: int) -> np.ndarray:
    return np.full(COUNT, value, np.uint8)


@pytest.mark.parametrize("seed", range(8))
def test_queues_that_wait_for_each_other_upload_compute_and_download_in_order(
    opened: OpenedGpu, seed: int
) -> None:
    context, memory = opened.context, opened.context.buffer(COUNT)
    upload, compute, download = (context.queue(name) for name in ("upload", "compute", "download"))
    kernel = opened.kernel(ONE, memory, COUNT)
    result = np.zeros(COUNT, np.uint8)
    written = upload.write(memory, filled(4))
    sent = upload.marker([written])
    compute.wait_for([sent])
    compute.launch(kernel, *GRID)
    made = compute.marker([])
    download.wait_for([made])
    read = download.read(result, memory)
    ended = download.marker([read])
    assert not any(event.is_over for event in (written, sent, made, read, ended))
    opened.gpu.run_all(seed)
    assert all(event.is_over for event in (written, sent, made, read, ended))
    assert (result == 5).all()


@pytest.mark.parametrize("seed", range(8))
def test_runs_that_overlap_keep_apart_though_their_events_are_used_again(
    opened: OpenedGpu, seed: int
) -> None:
    """Events are dropped as soon as they are waited for, long before the device passes them."""
    context, order = opened.context, random.Random(seed)
    upload, compute, download = (context.queue(name) for name in ("upload", "compute", "download"))
    slots = [context.buffer(COUNT) for _ in range(3)]
    kernels = [opened.kernel(ONE, memory, COUNT) for memory in slots]
    busy: list[Event | None] = [None] * len(slots)
    given = [filled(number) for number in range(40)]
    results = []
    for number, array in enumerate(given):
        slot = number % len(slots)
        occupied = busy[slot]
        if occupied is not None:
            occupied.wait()
        result = np.zeros(COUNT, np.uint8)
        upload.write(slots[slot], array)
        compute.wait_for([upload.marker([])])
        compute.launch(kernels[slot], *GRID)
        download.wait_for([compute.marker([])])
        download.read(result, slots[slot])
        busy[slot] = download.marker([], is_last=True)
        results.append(result)
        for _ in range(order.randrange(12)):
            opened.gpu.advance(order)
    opened.gpu.run_all(seed)
    assert [set(result.tolist()) for result in results] == [{n + 1} for n in range(40)]


def test_waiting_for_an_event_has_everything_before_it_done(opened: OpenedGpu) -> None:
    queue, memory = opened.context.queue("setup"), opened.context.buffer(COUNT)
    events = [queue.write(memory.part(place, 1), filled(place)[:1]) for place in range(COUNT)]
    for event in events:
        event.wait()
    assert opened.bytes_of(memory).tolist() == list(range(COUNT))


def test_nobody_sleeps_for_what_has_passed(
    opened: OpenedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = opened.context.queue("compute").marker([], is_last=True)
    monkeypatch.setattr(ManualEvent, "synchronize", lambda self: pytest.fail("it has passed"))
    opened.gpu.run_all()
    event.wait()


def test_a_command_with_nothing_captured_behind_it_is_not_over_too_early(
    opened: OpenedGpu,
) -> None:
    queue, memory = opened.context.queue("setup"), opened.context.buffer(COUNT)
    event = queue.write(memory, filled(1))
    while not event.is_over:
        assert opened.gpu.streams
        opened.gpu.run_all()
    assert (opened.bytes_of(memory) == 1).all()


def test_an_unfinished_copy_keeps_the_host_array(opened: OpenedGpu) -> None:
    queue, memory = opened.context.queue("upload"), opened.context.buffer(COUNT)
    array = filled(1)
    alive = weakref.ref(array)
    event = queue.write(memory, array)
    del array
    gc.collect()
    assert alive() is not None
    event.wait()
    del event
    assert alive() is None


def test_events_are_made_once_and_used_again(opened: OpenedGpu) -> None:
    queue, memory = opened.context.queue("upload"), opened.context.buffer(COUNT)

    def run() -> None:
        queue.marker([queue.write(memory, filled(1))], is_last=True).wait()

    for _ in range(3):  # the clock keeps one
        run()
    made = len(opened.cupy.events)
    for _ in range(20):
        run()
    assert len(opened.cupy.events) == made


@pytest.mark.parametrize("is_timed", [False, True])
def test_a_stage_that_replays_costs_one_record_and_two_if_it_is_timed(
    opened: OpenedGpu, is_timed: bool
) -> None:
    memory = opened.context.buffer(COUNT)
    kernel = opened.kernel(ONE, memory, COUNT)

    def enqueue(queue: Queue) -> None:
        for _ in range(5):
            queue.launch(kernel, *GRID)

    launch_graph = opened.context.capture(enqueue)
    queue = opened.context.queue("compute")
    queue.is_timed = is_timed
    opened.cupy.calls.clear()
    queue.marker([queue.replay(launch_graph)])
    assert opened.cupy.calls == ["record", "replay", "record"][not is_timed :]


def test_a_queue_that_is_not_timed_knows_ends_and_no_times(opened: OpenedGpu) -> None:
    queue, memory = opened.context.queue("compute"), opened.context.buffer(COUNT)
    queue.is_timed, kernel = False, opened.kernel(ONE, memory, COUNT)
    opened.cupy.calls.clear()
    written = queue.write(memory, filled(1))
    launched = queue.launch(kernel, *GRID)
    last = queue.marker([], is_last=True)
    assert opened.cupy.calls == ["write", "launch", "record"]
    assert not any(event.is_over for event in (written, launched, last))
    last.wait()
    for event in (written, launched, last):
        assert event.is_over
        with pytest.raises(DriverError, match="the queue was not timed"):
            event.times_ns  # noqa: B018
    queue.is_timed = True
    timed = queue.write(memory, filled(1))
    queue.marker([], is_last=True).wait()
    began_ns, ended_ns = timed.times_ns
    assert ended_ns - began_ns == pytest.approx(TOOK_NS, abs=100)


def test_only_the_last_event_of_a_run_blocks_and_only_timed_ones_have_times(
    opened: OpenedGpu,
) -> None:
    queue, memory = opened.context.queue("compute"), opened.context.buffer(COUNT)
    for queue.is_timed in (False, True):
        for is_last in (False, True):
            opened.cupy.events.clear()
            queue.write(memory, filled(1))
            marker = queue.marker([], is_last=is_last)
            kinds = [(event.has_time, event.blocks) for event in opened.cupy.events]
            assert kinds[-1] == (queue.is_timed, is_last)
            assert not any(blocks for _, blocks in kinds[:-1])
            opened.gpu.run_all()
            marker.wait()


@pytest.mark.parametrize("in_flight", [1, 2, 3])
def test_a_queue_that_may_spin_does_until_a_wait_was_long_however_many_are_in_flight(
    opened: OpenedGpu, monkeypatch: pytest.MonkeyPatch, in_flight: int
) -> None:
    now_ns, took_ns = 1, 0
    synchronize = ManualEvent.synchronize

    def take_time(event: ManualEvent) -> None:
        nonlocal now_ns
        synchronize(event)
        now_ns += took_ns

    monkeypatch.setattr(cupy_event, "perf_counter_ns", lambda: now_ns)
    monkeypatch.setattr(ManualEvent, "synchronize", take_time)
    queue, memory = opened.context.queue("compute"), opened.context.buffer(COUNT)
    queue.is_timed, queue.spins, opened.cupy.may_spin = False, True, True
    runs: deque[Event] = deque()

    def sleeping() -> list[bool]:
        """Run five more, and say which of them are slept for."""
        blocks = []
        for _ in range(5):
            queue.write(memory, filled(1))
            marker = queue.marker([], is_last=True)
            assert isinstance(marker, CupyEvent)
            blocks.append(marker.end.raw.blocks)
            runs.append(marker)
            if len(runs) == in_flight:
                runs.popleft().wait()
        return blocks

    assert sleeping() == [False] * 5
    took_ns = _LONGEST_SPIN_NS
    assert sleeping() == [False] + [True] * 4
    took_ns = _LONGEST_SPIN_NS - 1
    assert sleeping() == [True] + [False] * 4


def test_the_event_of_a_run_that_is_over_is_the_next_ones(opened: OpenedGpu) -> None:
    queue, memory = opened.context.queue("compute"), opened.context.buffer(COUNT)
    queue.is_timed = False
    for _ in range(3):
        queue.write(memory, filled(1))
        opened.gpu.run_all()
        queue.marker([], is_last=True).wait()
        assert len(opened.cupy.events) == 1


def test_a_wait_for_an_event_that_does_not_block_asks_until_it_has_passed(
    opened: OpenedGpu,
) -> None:
    queue, memory = opened.context.queue("upload"), opened.context.buffer(COUNT)
    queue.write(memory, filled(1))
    marker = queue.marker([])
    device = threading.Timer(0.01, opened.gpu.run_all)
    device.start()
    marker.wait()
    device.join()
    assert (opened.bytes_of(memory) == 1).all()
    kernel = opened.kernel(BREAK)
    queue.launch(kernel, *GRID)
    broken = queue.marker([])
    opened.gpu.run_all()
    with pytest.raises(DriverError, match="719"):
        broken.wait()


def test_times_are_those_of_the_device_and_queued_before_they_began(opened: OpenedGpu) -> None:
    queue, memory = opened.context.queue("upload"), opened.context.buffer(COUNT)
    kernel = opened.kernel(ONE, memory, COUNT)
    copies = [queue.write(memory, filled(1)) for _ in range(3)]
    launches = [queue.launch(kernel, *GRID) for _ in range(2)]
    last = queue.marker([], is_last=True)
    last.wait()
    began_ns, ended_ns = copies[0].times_ns
    assert ended_ns - began_ns == pytest.approx(3 * TOOK_NS, abs=100)
    assert all(event.times_ns == (began_ns, ended_ns) for event in copies)
    for launch, number in zip(launches, (3, 4), strict=True):
        first, end = launch.times_ns
        assert first - began_ns == pytest.approx(number * TOOK_NS, abs=100)
        assert end - first == pytest.approx(TOOK_NS, abs=100)
    for event in (*copies, *launches, last):
        assert 0 < event.queued_ns <= event.times_ns[0] <= event.times_ns[1]


def test_times_that_are_not_there_yet_are_refused(opened: OpenedGpu) -> None:
    queue, memory = opened.context.queue("upload"), opened.context.buffer(COUNT)
    event = queue.write(memory, filled(1))
    queue.marker([event], is_last=True)
    for ask in (lambda: event.times_ns, lambda: event.queued_ns):
        with pytest.raises(DriverError, match="has not ended yet"):
            ask()
    event.wait()
    assert event.times_ns[0] < event.times_ns[1]


def test_waiting_is_no_part_of_a_command(opened: OpenedGpu) -> None:
    context, memory = opened.context, opened.context.buffer(COUNT)
    upload, compute = context.queue("upload"), context.queue("compute")
    first = upload.write(memory, filled(1))
    sent = upload.marker([first])
    before = compute.write(memory, filled(2))
    compute.wait_for([sent])
    behind = compute.write(memory, filled(3))
    compute.marker([], is_last=True).wait()
    assert behind.times_ns[0] >= first.times_ns[1]
    assert before.times_ns[1] <= behind.times_ns[0]
    for event in (first, before, behind):
        assert event.times_ns[1] - event.times_ns[0] <= 2 * TOOK_NS


def test_times_stay_exact_however_long_the_device_was_idle(opened: OpenedGpu) -> None:
    queue, memory = opened.context.queue("upload"), opened.context.buffer(COUNT)
    for _ in range(4):
        event = queue.write(memory, filled(1))
        queue.marker([event], is_last=True).wait()
        began_ns, ended_ns = event.times_ns
        assert ended_ns - began_ns == pytest.approx(TOOK_NS, abs=100)
        opened.gpu.now_ns += 3600 * 10**9


def test_moments_may_be_read_in_any_order(opened: OpenedGpu) -> None:
    queue, memory = opened.context.queue("upload"), opened.context.buffer(COUNT)
    events: list[Event] = []
    for _ in range(5):
        events.append(queue.write(memory, filled(1)))
        queue.marker([])
        opened.gpu.run_all()
        opened.gpu.now_ns += 2 * 10**9
    times = [event.times_ns for event in reversed(events)][::-1]
    for (began_ns, ended_ns), (next_ns, _) in itertools.pairwise(times):
        assert ended_ns - began_ns == pytest.approx(TOOK_NS, abs=200)
        assert next_ns - began_ns == pytest.approx(2 * 10**9 + TOOK_NS, abs=1000)


def test_a_stage_is_seen_between_its_enqueueing_and_its_end_by_the_host(
    opened: OpenedGpu,
) -> None:
    queue, memory = opened.context.queue("upload"), opened.context.buffer(COUNT)
    clock = DeviceClock()
    for _ in range(3):
        before_ns = perf_counter_ns()
        event = queue.write(memory, filled(1))
        work = StageWork(event, before_ns, perf_counter_ns())
        queue.marker([event], is_last=True).wait()
        work.read(clock, 0, 0)
        assert work.times is not None
        assert before_ns <= work.times[0] <= work.times[1] <= work.times[2]
        assert work.times[2] <= perf_counter_ns() + TOOK_NS


def test_a_command_that_fails_has_failed_for_all_who_ask(opened: OpenedGpu) -> None:
    context, memory = opened.context, opened.context.buffer(COUNT)
    early, queue, other = (context.queue(name) for name in ("early", "compute", "other"))
    done = early.write(memory, filled(1))
    early.marker([done], is_last=True).wait()
    kernel = opened.kernel(BREAK)
    failed = queue.launch(kernel, *GRID)
    marker = queue.marker([failed])
    bystander = other.marker([other.write(memory, filled(2))])
    opened.gpu.run_all()
    for event in (failed, marker, bystander):
        assert event.is_over
        assert event.failure is not None
        assert event.failure.kind is ErrorKind.LOST
        assert "719" in event.failure.text
        with pytest.raises(DriverError) as raised:
            event.wait()
        assert raised.value.kind is ErrorKind.WAITED_FOR_FAILURE
        with pytest.raises(DriverError):
            event.times_ns  # noqa: B018
    with pytest.raises(DriverError) as refused:
        queue.write(memory, filled(1))
    assert refused.value.kind is ErrorKind.LOST


def test_what_was_seen_to_pass_before_a_failure_has_not_failed(opened: OpenedGpu) -> None:
    queue, memory = opened.context.queue("compute"), opened.context.buffer(COUNT)
    marker = queue.marker([queue.write(memory, filled(1))], is_last=True)
    marker.wait()
    kernel = opened.kernel(BREAK)
    queue.launch(kernel, *GRID)
    opened.gpu.run_all()
    assert marker.is_over
    assert marker.failure is None
    marker.wait()


@pytest.mark.parametrize("refused", range(1, 4))
def test_a_launch_that_is_refused_raises_or_is_known(opened: OpenedGpu, refused: int) -> None:
    """Calls of a launch: the event before it, the kernel, and the event behind it."""
    queue, memory = opened.context.queue("compute"), opened.context.buffer(COUNT)
    kernel = opened.kernel(ONE, memory, COUNT)
    queue.write(memory, filled(1)).wait()
    queue.marker([])
    opened.cupy.calls.clear()
    opened.cupy.refuses = {refused: 9}
    if refused == 3:
        event = queue.launch(kernel, *GRID)
        opened.cupy.refuses = {}
        event.wait()
        assert (opened.bytes_of(memory) == 2).all()
        return
    with pytest.raises(DriverError) as raised:
        queue.launch(kernel, *GRID)
    assert raised.value.kind is ErrorKind.OTHER
    opened.cupy.refuses = {}
    queue.marker([], is_last=True).wait()
    assert (opened.bytes_of(memory) == 1).all()


def test_a_marker_that_is_refused_leaves_the_last_command_to_wait_for(opened: OpenedGpu) -> None:
    queue, memory = opened.context.queue("compute"), opened.context.buffer(COUNT)
    event = queue.write(memory, filled(1))
    opened.cupy.refuses = {len(opened.cupy.calls) + 1: 304}
    with pytest.raises(DriverError):
        queue.marker([event])
    event.wait()
    assert (opened.bytes_of(memory) == 1).all()


def test_a_kernel_runs_on_its_own_device_and_leaves_the_thread_its_own() -> None:
    opened = OpenedGpu(FakeGpu(), FakeGpu())
    memory = opened.context.buffer(COUNT)
    queue = opened.context.queue("compute")
    queue.write(memory, filled(1))
    kernel = opened.kernel(ONE, memory, COUNT)
    queue.launch(kernel, *GRID)
    queue.marker([], is_last=True).wait()
    assert opened.cupy.current == 0
    assert opened.gpu is opened.cupy.gpus[1]
    assert (opened.bytes_of(memory) == 2).all()


def test_arguments_and_grids_come_as_cuda_takes_them(opened: OpenedGpu) -> None:
    memory, queue = opened.context.buffer(COUNT), opened.context.queue("compute")
    seen: list[tuple[object, ...]] = []
    opened.cupy.functions["take"] = lambda gpu, *given: seen.append(given)
    taken = "__global uchar *x, const int shift, const float scale"
    source = KernelSource.of("take", f"__kernel void $name({taken}) {{}}")
    kernel = opened.kernel(source, memory.part(8, 8), -3, 0.5)
    queue.launch(kernel, (64, 12), (32, 4))
    queue.launch(kernel, (64, 70000), (64, 1))
    opened.gpu.run_all()
    address = np.uint64(memory.address + 8)
    passed = address, np.int32(-3), np.float32(0.5)
    assert seen[0] == ((2, 3, 1), (32, 4, 1), *passed, 0, 0)
    assert seen[1] == ((70000, 1, 1), (64, 1, 1), *passed, 1, 70000)
    assert [getattr(item, "dtype", None) for item in seen[0][2:]] == [
        np.uint64,
        np.int32,
        np.float32,
        np.uint32,
        np.uint32,
    ]
    with pytest.raises(DriverError, match="more than a launch can have"):
        queue.launch(kernel, (2**16, 2**16, 2), (1, 1, 1))


def test_a_library_operation_is_launched_with_addresses_on_the_stream(
    opened: OpenedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[object, ...]] = []

    class Plan:
        def enqueue(self, addresses: object, stream: int) -> None:
            calls.append((addresses, stream))

    monkeypatch.setattr(
        "aioinfer.backends.cuda.cupy_driver.plan_operation", lambda operation, index: Plan()
    )
    memory, queue = opened.context.buffer(COUNT), opened.context.queue("compute")
    operation = LibraryOperation.of("cublas", "matmul", m=1)
    kernel = opened.context.library_program(operation).kernel(operation.name)
    kernel.set_arguments([memory, memory.part(16, 8)])
    queue.launch(kernel, (), ())
    address = memory.address
    assert calls == [((address, address + 16), opened.gpu.streams[-1].ptr)]
