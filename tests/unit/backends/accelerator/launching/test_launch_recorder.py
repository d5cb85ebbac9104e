"""Launches recorded when a slot is bound: with its addresses, or not at all, and what then."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from aioinfer.backends.accelerator.launching.kernel_source import KernelSource
from aioinfer.backends.accelerator.launching.launch_recorder import LaunchRecorder
from aioinfer.backends.accelerator.launching.reach import whole
from aioinfer.backends.accelerator.memory.slot_memory import BoundPlan, SlotMemory
from aioinfer.backends.accelerator.plan import Plan
from aioinfer.backends.accelerator.plan_builder import PlanBuilder
from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.errors import DeviceError
from aioinfer.runtime.graph import Node
from unit.backends.accelerator.fake_driver import FakeContext
from unit.backends.accelerator.opened import Opened, typed

WAIT_S = 20.0
SOURCE = KernelSource.of("add", "__kernel void $name() {}")
STEP_COUNT = 6
"""Of recording two launches: the begin, two run for nothing, two recorded, the end."""


def add(x: Any, w: Any, y: Any, count: int) -> None:
    x, w, y = (item.use().view(np.float32) for item in (x, w, y))
    y[:count] = x[:count] + w[0]


@pytest.fixture
def opened() -> Iterator[Opened]:
    FakeContext.dropped.clear()
    made = Opened(can_record=True)
    made.driver.functions["add"] = add
    yield made
    made.close()
    assert FakeContext.dropped == []


@pytest.fixture
def slot(opened: Opened) -> SlotMemory:
    return slot_of(opened)


def slot_of(opened: Opened, network: str = "net") -> SlotMemory:
    return SlotMemory(
        opened.device, opened.weights, network, LaunchRecorder(opened.device, network)
    )


def lower(node: Node, builder: PlanBuilder) -> None:
    x, w = (builder.operand(value) for value in node.inputs if value is not None)
    made = builder.result(node.outputs[0])
    reaches = [whole(item) for item in (x, w, made)]
    builder.launch(SOURCE, [x, w, made, made.count], (made.count,), (64,), reaches)


def plan_of(opened: Opened, count: int) -> Plan:
    """Plan x -> x + w + w of so many floats, in two launches."""
    text = (
        f"g (float[{count}] x) => (float[{count}] y) <float[1] w = {{2}}>"
        " { z = Add(x, w) y = Add(z, w) }"
    )
    return opened.plan(text, lower)


def run(opened: Opened, bound: BoundPlan, value: float) -> list[float]:
    """Upload a value, replay, and download the result."""
    queue = opened.context.queue("a queue")
    assert bound.recording is not None
    given = np.full(bound.inputs[0].operand.shape, value, np.float32)
    got = np.empty_like(given)
    queue.write(bound.inputs[0].memory, given.view(np.uint8))
    queue.replay(bound.recording)  # type: ignore[arg-type]
    queue.read(got.view(np.uint8), bound.outputs[0].memory)  # type: ignore[arg-type]
    opened.context.run_all()
    return sorted(set(got.tolist()))


def failing(opened: Opened, step: int, kind: ErrorKind, text: str = "it broke") -> None:
    """Let a step of the next recording fail."""
    driver = opened.driver
    driver.recording_errors[driver.recording_step_count + step] = DriverError(kind, text)


def test_a_recording_has_the_slots_addresses(opened: Opened) -> None:
    plan, slots = plan_of(opened, 16), [slot_of(opened) for _ in range(2)]
    bound = [slot.bind(plan) for slot in slots]
    assert len(opened.context.recordings) == 2
    assert [run(opened, item, value) for item, value in zip(bound, (1, 2), strict=True)] == [
        [5],
        [6],
    ]
    assert run(opened, bound[0], 3) == [7]
    assert (slots[0].recorded_count, slots[0].eager_count) == (1, 0)


def test_a_plan_is_recorded_once(opened: Opened, slot: SlotMemory) -> None:
    plan = plan_of(opened, 16)
    slot.bind(plan)
    assert opened.driver.recording_step_count == STEP_COUNT
    slot.bind(plan)
    assert opened.driver.recording_step_count == STEP_COUNT


def test_a_plan_without_launches_is_not_recorded(opened: Opened, slot: SlotMemory) -> None:
    plan = opened.builder(typed("g (float[2] x) => (float[2] x) {}")).build(lower)
    assert slot.bind(plan).recording is None
    assert (slot.recorded_count, slot.eager_count) == (0, 0)


@pytest.mark.parametrize("step", range(1, STEP_COUNT + 1))
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (ErrorKind.OUT_OF_MEMORY, "it broke; close other networks on it"),
        (ErrorKind.OUT_OF_RESOURCES, "it broke; look at the driver's log"),
    ],
)
def test_a_device_without_room_says_so_and_the_slot_is_bound_later(
    kind: ErrorKind, words: str, step: int, opened: Opened, slot: SlotMemory
) -> None:
    plan = plan_of(opened, 16)
    failing(opened, step, kind)
    with pytest.raises(
        DeviceError,
        match=rf"FAKE\.0 failed while recording the launches of a slot of 'net': {words}",
    ):
        slot.bind(plan)
    assert slot.find(plan) is None
    assert (slot.recorded_count, slot.eager_count) == (0, 0)
    assert run(opened, slot.bind(plan), 1) == [5]
    slot.release()
    assert opened.context.recordings == []
    assert opened.taken_bytes == opened.weights.uploaded_bytes


def test_a_device_that_is_lost_while_recording_is_refused_from_then_on(
    opened: Opened, slot: SlotMemory
) -> None:
    failing(opened, 3, ErrorKind.LOST, "an illegal address")
    with pytest.raises(DeviceError, match=r"FAKE\.0 is lost \(recording .*: an illegal address\)"):
        slot.bind(plan_of(opened, 16))
    with pytest.raises(DeviceError, match="is lost"):
        opened.device.health.refuse_if_lost()


@pytest.mark.parametrize("step", range(1, STEP_COUNT + 1))
@pytest.mark.parametrize("kind", [ErrorKind.OTHER, ErrorKind.WAITED_FOR_FAILURE])
def test_a_plan_that_the_driver_does_not_record_is_bound_without_a_recording(
    kind: ErrorKind, step: int, opened: Opened, slot: SlotMemory
) -> None:
    plan = plan_of(opened, 16)
    failing(opened, step, kind)
    bound = slot.bind(plan)
    assert bound.recording is None
    assert len(bound.launches) == 2
    assert slot.bind(plan) is slot.find(plan) is bound
    assert (slot.recorded_count, slot.eager_count) == (0, 1)
    slot.bind(plan_of(opened, 8))
    assert (slot.recorded_count, slot.eager_count) == (1, 1)


def test_a_network_says_once_that_its_launches_are_not_recorded(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = LaunchRecorder(opened.device, "net")
    slots = [SlotMemory(opened.device, opened.weights, "net", recorder) for _ in range(2)]
    plan = plan_of(opened, 16)
    with caplog.at_level(logging.WARNING, "aioinfer.FAKE.0"):
        for slot in slots:
            failing(opened, 1, ErrorKind.OTHER, "no graphs here")
            slot.bind(plan)
    (record,) = caplog.records
    assert record.getMessage() == (
        "FAKE.0 refused recording the launches of a slot of 'net': no graphs here; they are "
        "enqueued one by one, which takes the host longer"
    )


def test_recordings_are_gone_before_the_arena_that_they_have_addresses_in(
    opened: Opened, slot: SlotMemory
) -> None:
    small, large = plan_of(opened, 10), plan_of(opened, 100)
    slot.bind(small)
    (first,) = opened.context.recordings
    del first
    slot.bind(large)  # the fake driver looks for recordings when memory is released
    assert len(opened.context.recordings) == 1
    assert run(opened, slot.bind(small), 1) == [5]
    assert slot.recorded_count == 2
    slot.release()
    assert opened.context.recordings == []


def test_an_arena_that_cannot_grow_leaves_no_recording_of_the_old_one(
    opened: Opened, slot: SlotMemory
) -> None:
    small, large = plan_of(opened, 10), plan_of(opened, 100)
    slot.bind(small)
    opened.driver.allocation_errors[opened.driver.allocation_count + 1] = DriverError(
        ErrorKind.OUT_OF_MEMORY, "no room"
    )
    with pytest.raises(DeviceError, match="no room"):
        slot.bind(large)
    assert opened.context.recordings == []
    assert run(opened, slot.bind(small), 1) == [5]


def test_a_recording_goes_with_a_plan_that_is_not_kept(opened: Opened, slot: SlotMemory) -> None:
    plans = [plan_of(opened, count) for count in (16, 8)]
    for plan in plans:
        slot.bind(plan)
    slot.keep_only({plans[1]})
    gc.collect()
    assert len(opened.context.recordings) == slot.recorded_count == 1


class WatchedLock:
    """A lock that tells when somebody is about to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_wanted = threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.is_wanted.set()
            assert self._lock.acquire(timeout=WAIT_S)

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_two_networks_record_one_after_the_other(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, lock = plan_of(opened, 16), WatchedLock()
    slots = [slot_of(opened, name) for name in ("one", "two")]
    monkeypatch.setattr(opened.device, "_recording_lock", lock)
    other = threading.Thread(target=slots[1].bind, args=[plan])
    hooks = [other.start, lambda: lock.is_wanted.wait(WAIT_S)]

    def meanwhile() -> None:
        while hooks:
            hooks.pop(0)()

    opened.driver.while_recording = meanwhile
    slots[0].bind(plan)
    other.join(WAIT_S)
    assert lock.is_wanted.is_set()
    assert [slot.recorded_count for slot in slots] == [1, 1]


class TestTheFakeDriver:
    """It finds out who breaks the contract of recordings."""

    def test_a_recording_that_is_dropped_during_its_replay(
        self, opened: Opened, slot: SlotMemory
    ) -> None:
        opened.driver.is_eager = False
        queue, bound = opened.context.queue("a queue"), slot.bind(plan_of(opened, 16))
        queue.replay(bound.recording)  # type: ignore[arg-type]
        del bound
        slot.keep_only(())
        assert FakeContext.dropped == ["recording"]
        FakeContext.dropped.clear()
        with pytest.raises(AssertionError, match="a recording is replayed that was dropped"):
            opened.context.run_all()

    def test_a_recording_that_is_replayed_twice_at_once(
        self, opened: Opened, slot: SlotMemory
    ) -> None:
        opened.driver.is_eager = False
        queue, bound = opened.context.queue("a queue"), slot.bind(plan_of(opened, 16))
        queue.replay(bound.recording)  # type: ignore[arg-type]
        with pytest.raises(AssertionError, match="it is replayed already"):
            queue.replay(bound.recording)  # type: ignore[arg-type]
        opened.context.run_all()

    def test_memory_that_goes_before_its_recording(self, opened: Opened, slot: SlotMemory) -> None:
        bound = slot.bind(plan_of(opened, 16))
        (arena,) = {memory.base for memory in (bound.inputs[0].memory,)}  # type: ignore[attr-defined]
        with pytest.raises(AssertionError, match="a recording has the address"):
            arena.release()

    def test_launches_that_are_recorded_while_their_arena_is_in_use(
        self, opened: Opened, slot: SlotMemory
    ) -> None:
        opened.driver.is_eager = False
        queue, bound = opened.context.queue("a queue"), slot.bind(plan_of(opened, 16))
        queue.write(bound.inputs[0].memory, np.zeros(64, np.uint8))  # type: ignore[arg-type]
        with pytest.raises(AssertionError, match="the arena of a recording is in use"):
            slot.bind(plan_of(opened, 8))
        opened.context.run_all()

    def test_launches_that_write_a_constant(self, opened: Opened, slot: SlotMemory) -> None:
        def spoil_weights(x: Any, w: Any, y: Any, count: int) -> None:
            w.use()[:] = 0

        opened.driver.functions["add"] = spoil_weights
        with pytest.raises(AssertionError, match="a recording has written beyond its arena"):
            slot.bind(plan_of(opened, 16))
