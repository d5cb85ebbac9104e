"""Launches captured when a slot is bound: with its addresses, or not at all, and what then."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from aioinfer.backends.accelerator.launching.kernel_source import KernelSource
from aioinfer.backends.accelerator.launching.launch_capture import LaunchCapture
from aioinfer.backends.accelerator.launching.reach import whole
from aioinfer.backends.accelerator.memory import slot_memory
from aioinfer.backends.accelerator.memory.slot_memory import BoundPlan, SlotMemory
from aioinfer.backends.accelerator.plan import Plan
from aioinfer.backends.accelerator.plan_builder import PlanBuilder
from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.errors import DeviceError
from aioinfer.runtime.graph import Node
from unit.backends.accelerator.fake_driver import FakeContext
from unit.backends.accelerator.fake_memory import FakeMemory
from unit.backends.accelerator.opened import Opened, typed

WAIT_S = 20.0
SOURCE = KernelSource.of("add", "__kernel void $name() {}")
STEP_COUNT = 6
"""Of capturing two launches: the begin, two run for nothing, two captured, the end."""


def add(x: Any, w: Any, y: Any, count: int) -> None:
    x, w, y = (item.use().view(np.float32) for item in (x, w, y))
    y[:count] = x[:count] + w[0]


@pytest.fixture(autouse=True)
def _only_launches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no copies captured, but for the tests that are about them."""
    if "round_trip" not in request.node.name:
        monkeypatch.setattr(slot_memory, "_ROUND_TRIP_BYTES", 0)


@pytest.fixture
def opened() -> Iterator[Opened]:
    FakeContext.dropped.clear()
    made = Opened(can_capture=True)
    made.driver.functions["add"] = add
    yield made
    made.close()
    assert FakeContext.dropped == []


@pytest.fixture
def slot(opened: Opened) -> SlotMemory:
    return slot_of(opened)


def slot_of(opened: Opened, network: str = "net") -> SlotMemory:
    return SlotMemory(opened.device, opened.weights, network, LaunchCapture(opened.device, network))


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
    assert bound.launch_graph is not None
    given = np.full(bound.inputs[0].operand.shape, value, np.float32)
    got = np.empty_like(given)
    queue.write(bound.inputs[0].memory, given.view(np.uint8))
    queue.replay(bound.launch_graph)  # type: ignore[arg-type]
    queue.read(got.view(np.uint8), bound.outputs[0].memory)  # type: ignore[arg-type]
    opened.context.run_all()
    return sorted(set(got.tolist()))


def failing(opened: Opened, step: int, kind: ErrorKind, text: str = "it broke") -> None:
    """Have a step of the next capture fail."""
    driver = opened.driver
    driver.capture_errors[driver.capture_step_count + step] = DriverError(kind, text)


def test_a_launch_graph_has_the_slots_addresses(opened: Opened) -> None:
    plan, slots = plan_of(opened, 16), [slot_of(opened) for _ in range(2)]
    bound = [slot.bind(plan) for slot in slots]
    assert len(opened.context.launch_graphs) == 2
    assert [run(opened, item, value) for item, value in zip(bound, (1, 2), strict=True)] == [
        [5],
        [6],
    ]
    assert run(opened, bound[0], 3) == [7]
    assert (slots[0].captured_count, slots[0].eager_count) == (1, 0)


def test_a_plan_is_recorded_once(opened: Opened, slot: SlotMemory) -> None:
    plan = plan_of(opened, 16)
    slot.bind(plan)
    assert opened.driver.capture_step_count == STEP_COUNT
    slot.bind(plan)
    assert opened.driver.capture_step_count == STEP_COUNT


def test_a_plan_without_launches_is_not_recorded(opened: Opened, slot: SlotMemory) -> None:
    plan = opened.builder(typed("g (float[2] x) => (float[2] x) {}")).build(lower)
    assert slot.bind(plan).launch_graph is None
    assert (slot.captured_count, slot.eager_count) == (0, 0)


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
        match=rf"FAKE\.0 failed while capturing the launches of a slot of 'net': {words}",
    ):
        slot.bind(plan)
    assert slot.find(plan) is None
    assert (slot.captured_count, slot.eager_count) == (0, 0)
    assert run(opened, slot.bind(plan), 1) == [5]
    slot.release()
    assert opened.context.launch_graphs == []
    assert opened.taken_bytes == opened.weights.uploaded_bytes


def test_a_device_that_is_lost_while_capturing_is_refused_from_then_on(
    opened: Opened, slot: SlotMemory
) -> None:
    failing(opened, 3, ErrorKind.LOST, "an illegal address")
    with pytest.raises(DeviceError, match=r"FAKE\.0 is lost \(capturing .*: an illegal address\)"):
        slot.bind(plan_of(opened, 16))
    with pytest.raises(DeviceError, match="is lost"):
        opened.device.health.refuse_if_lost()


@pytest.mark.parametrize("step", range(1, STEP_COUNT + 1))
@pytest.mark.parametrize("kind", [ErrorKind.OTHER, ErrorKind.WAITED_FOR_FAILURE])
def test_a_plan_that_the_driver_does_not_capture_is_bound_without_a_launch_graph(
    kind: ErrorKind, step: int, opened: Opened, slot: SlotMemory
) -> None:
    plan = plan_of(opened, 16)
    failing(opened, step, kind)
    bound = slot.bind(plan)
    assert bound.launch_graph is None
    assert len(bound.launches) == 2
    assert slot.bind(plan) is slot.find(plan) is bound
    assert (slot.captured_count, slot.eager_count) == (0, 1)
    slot.bind(plan_of(opened, 8))
    assert (slot.captured_count, slot.eager_count) == (1, 1)


def test_a_network_says_once_that_its_launches_are_not_recorded(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    capture = LaunchCapture(opened.device, "net")
    slots = [SlotMemory(opened.device, opened.weights, "net", capture) for _ in range(2)]
    plan = plan_of(opened, 16)
    with caplog.at_level(logging.WARNING, "aioinfer.FAKE.0"):
        for slot in slots:
            failing(opened, 1, ErrorKind.OTHER, "no graphs here")
            slot.bind(plan)
    (record,) = caplog.records
    assert record.getMessage() == (
        "FAKE.0 refused capturing the launches of a slot of 'net': no graphs here; they are "
        "enqueued one by one, which takes the host longer"
    )


def test_launch_graphs_are_gone_before_the_arena_that_they_have_addresses_in(
    opened: Opened, slot: SlotMemory
) -> None:
    small, large = plan_of(opened, 10), plan_of(opened, 100)
    slot.bind(small)
    (first,) = opened.context.launch_graphs
    del first
    slot.bind(large)  # the fake driver looks for launch graphs when memory is released
    assert len(opened.context.launch_graphs) == 1
    assert run(opened, slot.bind(small), 1) == [5]
    assert slot.captured_count == 2
    slot.release()
    assert opened.context.launch_graphs == []


def test_an_arena_that_cannot_grow_leaves_no_launch_graph_of_the_old_one(
    opened: Opened, slot: SlotMemory
) -> None:
    small, large = plan_of(opened, 10), plan_of(opened, 100)
    slot.bind(small)
    opened.driver.allocation_errors[opened.driver.allocation_count + 1] = DriverError(
        ErrorKind.OUT_OF_MEMORY, "no room"
    )
    with pytest.raises(DeviceError, match="no room"):
        slot.bind(large)
    assert opened.context.launch_graphs == []
    assert run(opened, slot.bind(small), 1) == [5]


def test_a_launch_graph_goes_with_a_plan_that_is_not_kept(opened: Opened, slot: SlotMemory) -> None:
    plans = [plan_of(opened, count) for count in (16, 8)]
    for plan in plans:
        slot.bind(plan)
    slot.keep_only({plans[1]})
    gc.collect()
    assert len(opened.context.launch_graphs) == slot.captured_count == 1


def test_a_round_trip_has_the_copies_from_and_to_staging_memory(opened: Opened) -> None:
    plan, slots = plan_of(opened, 16), [slot_of(opened) for _ in range(2)]
    for value, slot in enumerate(slots):
        bound = slot.bind(plan)
        assert (bound.launch_graph, slot.captured_count, slot.eager_count) == (None, 1, 0)
        for given in (value, value + 7):
            bound.inputs[0].staged.array[:] = given
            opened.context.queue("a queue").replay(bound.round_trip)  # type: ignore[arg-type]
            opened.context.run_all()
            assert bound.outputs[0].staged is not None
            assert set(bound.outputs[0].staged.array.tolist()) == {given + 4}
    assert len(opened.context.launch_graphs) == 2


def test_launches_of_a_round_trip_are_captured_alone_when_they_are_asked_for(
    opened: Opened, slot: SlotMemory
) -> None:
    bound = slot.bind(plan_of(opened, 16))
    assert bound.may_capture_launches
    slot.capture_launches(bound)
    assert not bound.may_capture_launches
    assert run(opened, bound, 1) == [5]
    assert slot.captured_count == 1
    del bound
    slot.release()
    assert opened.context.launch_graphs == []


def test_a_round_trip_that_the_driver_refuses_leaves_launches_one_by_one(
    opened: Opened, slot: SlotMemory
) -> None:
    failing(opened, 2, ErrorKind.OTHER)
    bound = slot.bind(plan_of(opened, 16))
    assert (bound.launch_graph, bound.round_trip, bound.may_capture_launches) == (None, None, False)
    assert (slot.captured_count, slot.eager_count) == (0, 1)


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
    monkeypatch.setattr(opened.device, "_capture_lock", lock)
    other = threading.Thread(target=slots[1].bind, args=[plan])
    hooks = [other.start, lambda: lock.is_wanted.wait(WAIT_S)]

    def meanwhile() -> None:
        while hooks:
            hooks.pop(0)()

    opened.driver.while_capturing = meanwhile
    slots[0].bind(plan)
    other.join(WAIT_S)
    assert lock.is_wanted.is_set()
    assert [slot.captured_count for slot in slots] == [1, 1]


class TestTheFakeDriver:
    """It finds out who breaks the contract of launch graphs."""

    def test_a_launch_graph_that_is_dropped_during_its_replay(
        self, opened: Opened, slot: SlotMemory
    ) -> None:
        opened.driver.is_eager = False
        queue, bound = opened.context.queue("a queue"), slot.bind(plan_of(opened, 16))
        queue.replay(bound.launch_graph)  # type: ignore[arg-type]
        del bound
        slot.keep_only(())
        assert FakeContext.dropped == ["launch graph"]
        FakeContext.dropped.clear()
        with pytest.raises(AssertionError, match="a launch graph is replayed that was dropped"):
            opened.context.run_all()

    def test_a_launch_graph_that_is_replayed_twice_at_once(
        self, opened: Opened, slot: SlotMemory
    ) -> None:
        opened.driver.is_eager = False
        queue, bound = opened.context.queue("a queue"), slot.bind(plan_of(opened, 16))
        queue.replay(bound.launch_graph)  # type: ignore[arg-type]
        with pytest.raises(AssertionError, match="it is replayed already"):
            queue.replay(bound.launch_graph)  # type: ignore[arg-type]
        opened.context.run_all()

    def test_memory_that_goes_before_its_launch_graph(
        self, opened: Opened, slot: SlotMemory
    ) -> None:
        bound = slot.bind(plan_of(opened, 16))
        memory = bound.inputs[0].memory
        assert isinstance(memory, FakeMemory)
        arena = memory.base
        assert arena is not None
        with pytest.raises(AssertionError, match="a launch graph has the address"):
            arena.release()

    def test_launches_that_are_recorded_while_their_arena_is_in_use(
        self, opened: Opened, slot: SlotMemory
    ) -> None:
        opened.driver.is_eager = False
        queue, bound = opened.context.queue("a queue"), slot.bind(plan_of(opened, 16))
        queue.write(bound.inputs[0].memory, np.zeros(64, np.uint8))  # type: ignore[arg-type]
        with pytest.raises(AssertionError, match="the arena of a launch graph is in use"):
            slot.bind(plan_of(opened, 8))
        opened.context.run_all()

    def test_launches_that_write_a_constant(self, opened: Opened, slot: SlotMemory) -> None:
        def spoil_weights(x: Any, w: Any, y: Any, count: int) -> None:
            w.use()[:] = 0

        opened.driver.functions["add"] = spoil_weights
        with pytest.raises(AssertionError, match="a launch graph has written beyond its arena"):
            slot.bind(plan_of(opened, 16))
