"""A slot's arena and staging memory: taken for its largest plan, and what is bound to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aioinfer.backends.accelerator.launching.kernel_source import KernelSource
from aioinfer.backends.accelerator.launching.reach import whole
from aioinfer.backends.accelerator.memory.bound_plan import BoundLaunch
from aioinfer.backends.accelerator.memory.slot_memory import SlotMemory
from aioinfer.backends.accelerator.plan import Plan
from aioinfer.backends.accelerator.plan_builder import PlanBuilder
from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.backends.accelerator.queues.library_operation import LibraryOperation
from aioinfer.errors import DeviceError
from aioinfer.runtime.graph import DType, Node
from unit.backends.accelerator.fake_driver import FACTS, FakeKernel, FakeMemory
from unit.backends.accelerator.opened import Opened, typed

ALIGN = FACTS.align_bytes
SOURCE = KernelSource.of("negate", "__kernel void $name() {}")


@pytest.fixture
def opened() -> Iterator[Opened]:
    made = Opened()
    made.driver.functions["negate"] = lambda *arguments: None
    yield made
    made.close()


@pytest.fixture
def slot(opened: Opened) -> SlotMemory:
    return SlotMemory(opened.device, opened.weights, "net")


def lower(node: Node, builder: PlanBuilder) -> None:
    operands = [builder.operand(value) for value in node.inputs if value is not None]
    made = builder.result(node.outputs[0])
    reaches = [whole(item) for item in (*operands, made)]
    builder.launch(SOURCE, [*operands, made, made.count, 0.5], (made.count,), (64,), reaches)


def plan_of(opened: Opened, count: int) -> Plan:
    """Plan x -> x + w of so many floats; its kernel is built and w is uploaded."""
    text = f"g (float[{count}] x) => (float[{count}] y) <float[1] w = {{2}}> {{ y = Add(x, w) }}"
    return opened.plan(text, lower)


def arguments_of(launch: BoundLaunch) -> tuple[Any, ...]:
    assert isinstance(launch.kernel, FakeKernel)
    return launch.kernel.arguments


def test_binding_gives_every_argument_an_address(opened: Opened, slot: SlotMemory) -> None:
    plan = plan_of(opened, 16)
    bound = slot.bind(plan)
    (arena,) = [memory for memory in opened.context.buffers if memory.size_bytes > 4]
    (launch,) = bound.launches
    x, w, y, count, factor = arguments_of(launch)
    assert (x.base, y.base) == (arena, arena)
    assert (count, factor) == (16, 0.5)
    assert w is opened.weights.memory(plan.constants[0])
    assert bound.inputs[0].memory is x
    assert bound.outputs[0].memory is y
    assert not np.shares_memory(x.data, y.data)


def test_what_is_staged_is_seen_as_an_array_and_as_bytes(opened: Opened, slot: SlotMemory) -> None:
    (place,) = slot.bind(plan_of(opened, 3)).inputs
    place.staged.array[:] = [1, 2, 3]
    assert place.staged.array.dtype == np.float32
    assert place.staged.data.tobytes() == np.float32([1, 2, 3]).tobytes()


def test_a_plan_is_bound_once(opened: Opened, slot: SlotMemory) -> None:
    plan = plan_of(opened, 16)
    assert slot.find(plan) is None
    bound = slot.bind(plan)
    count = opened.driver.allocation_count
    assert slot.bind(plan) is slot.find(plan) is bound
    assert opened.driver.allocation_count == count


def test_a_smaller_plan_takes_no_memory_and_both_stay_bound(
    opened: Opened, slot: SlotMemory
) -> None:
    large, small = plan_of(opened, 100), plan_of(opened, 10)
    first = slot.bind(large)
    count, arena_bytes = opened.driver.allocation_count, slot.arena_bytes
    slot.bind(small)
    assert (opened.driver.allocation_count, slot.arena_bytes) == (count, arena_bytes)
    assert slot.find(large) is first


def test_a_larger_plan_gives_the_old_arena_back_before_it_takes_its_own(
    opened: Opened, slot: SlotMemory
) -> None:
    small, large = plan_of(opened, 10), plan_of(opened, 100)
    slot.bind(small)
    weights = opened.weights.uploaded_bytes
    slot.bind(large)
    assert slot.find(small) is None
    assert slot.arena_bytes == large.arena_bytes
    assert opened.taken_bytes == weights + large.arena_bytes
    assert len(opened.context.alive) == 2 + len(small.constants) + len(large.constants)


def test_a_slot_grows_where_old_and_new_together_do_not_fit() -> None:
    opened = Opened(memory_bytes=10_000)
    opened.driver.functions["negate"] = lambda *arguments: None
    slot = SlotMemory(opened.device, opened.weights, "net")
    slot.bind(plan_of(opened, 700))
    slot.bind(plan_of(opened, 1000))
    assert slot.arena_bytes > 5000
    opened.close()


def test_plans_stay_bound_until_they_are_said_not_to_be_kept(
    opened: Opened, slot: SlotMemory
) -> None:
    plans = [plan_of(opened, count) for count in range(40, 0, -1)]
    for plan in plans:
        slot.bind(plan)
    assert all(slot.find(plan) is not None for plan in plans)
    slot.keep_only({*plans[20:], plan_of(opened, 50)})
    assert [plan for plan in plans if slot.find(plan) is not None] == plans[20:]


def test_results_are_staged_behind_inputs_where_the_device_is_no_processor(
    opened: Opened, slot: SlotMemory
) -> None:
    plan = plan_of(opened, 17)
    bound = slot.bind(plan)
    (came,), (goes,) = bound.inputs, bound.outputs
    assert goes.staged is not None
    assert (goes.staged.array.shape, goes.staged.data.nbytes) == ((17,), 68)
    (staging,) = opened.context.host_memories
    for staged in (came.staged, goes.staged):
        assert np.shares_memory(staged.array, staging.array)
        assert np.shares_memory(staged.array, staged.data)
    assert not np.shares_memory(came.staged.data, goes.staged.data)


def test_a_processor_needs_staging_memory_for_inputs_alone() -> None:
    opened = Opened(kind="cpu")
    opened.driver.functions["negate"] = lambda *arguments: None
    slot = SlotMemory(opened.device, opened.weights, "net")
    (goes,) = slot.bind(plan_of(opened, 16)).outputs
    assert goes.staged is None
    (staging,) = opened.context.host_memories
    assert staging.array.nbytes == 64
    opened.close()


@pytest.mark.parametrize("failing", [1, 2], ids=["the arena", "the staging memory"])
def test_memory_that_fails_leaves_a_slot_that_can_be_bound_later(
    failing: int, opened: Opened, slot: SlotMemory
) -> None:
    plan = plan_of(opened, 16)
    opened.driver.allocation_errors[opened.driver.allocation_count + failing] = DriverError(
        ErrorKind.OUT_OF_MEMORY, "no room"
    )
    with pytest.raises(DeviceError, match=r"FAKE\.0 failed while taking .*: no room"):
        slot.bind(plan)
    assert slot.find(plan) is None
    assert len(slot.bind(plan).launches) == 1
    slot.release()
    assert opened.taken_bytes == opened.weights.uploaded_bytes
    assert len(opened.context.alive) == len(plan.constants)


def test_memory_that_fails_while_growing_is_not_counted_twice(
    opened: Opened, slot: SlotMemory
) -> None:
    small, large = plan_of(opened, 10), plan_of(opened, 100)
    slot.bind(small)
    opened.driver.allocation_errors[opened.driver.allocation_count + 1] = DriverError(
        ErrorKind.OUT_OF_MEMORY, "no room"
    )
    with pytest.raises(DeviceError, match="taking memory for a slot of 'net': no room"):
        slot.bind(large)
    assert slot.arena_bytes == 0
    assert slot.find(small) is None  # it lay in the arena that was given back
    slot.bind(small)
    slot.release()
    assert opened.taken_bytes == opened.weights.uploaded_bytes


@pytest.mark.parametrize("method", ["kernel", "part"])
def test_a_driver_that_fails_while_binding_is_explained(
    method: str, opened: Opened, slot: SlotMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(opened, 16)

    def fail(*_: object) -> None:
        raise DriverError(ErrorKind.OUT_OF_MEMORY, "OUT_OF_HOST_MEMORY")

    owners: dict[str, Callable[[], object]] = {
        "kernel": lambda: opened.device.programs,
        "part": lambda: type(opened.context.buffers[0]),
    }
    with monkeypatch.context() as patch:
        patch.setattr(owners[method](), method, fail)
        with pytest.raises(
            DeviceError, match="failed while binding a slot of 'net': OUT_OF_HOST_MEMORY; close"
        ):
            slot.bind(plan)
    assert slot.find(plan) is None
    assert len(slot.bind(plan).launches) == 1


def test_a_released_slot_has_nothing(opened: Opened, slot: SlotMemory) -> None:
    plan = plan_of(opened, 16)
    slot.bind(plan)
    slot.release()
    slot.release()
    assert (slot.arena_bytes, slot.find(plan)) == (0, None)
    assert opened.taken_bytes == opened.weights.uploaded_bytes
    assert all(memory.is_released for memory in opened.context.host_memories)


def test_a_plan_without_inputs_can_be_bound(opened: Opened, slot: SlotMemory) -> None:
    text = "g () => (float[2] y) <float[2] w = {1, 2}> { y = Identity(w) }"
    plan = opened.builder(typed(text)).build(lower)
    opened.held += opened.device.programs.build(plan.launches)
    opened.weights.upload(plan.constants)
    bound = slot.bind(plan)
    assert bound.inputs == []
    assert bound.outputs[0].memory.size_bytes == 8


def test_a_librarys_operation_is_bound_like_a_kernel() -> None:
    opened = Opened(libraries=frozenset({"cudnn"}))
    opened.driver.functions["double"] = double
    operation = LibraryOperation.of("cudnn", "double", n=16)

    def call(node: Node, builder: PlanBuilder) -> None:
        (source,) = (builder.operand(value) for value in node.inputs if value is not None)
        workspace = builder.temporary((64,), DType.UINT8)
        builder.call(operation, [source, builder.result(node.outputs[0]), workspace])

    plan = opened.builder(typed("g (float[16] x) => (float[16] y) { y = Relu(x) }")).build(call)
    opened.held += opened.device.programs.build(plan.launches)
    bound = SlotMemory(opened.device, opened.weights, "net").bind(plan)
    queue, given = opened.context.queue("a queue"), np.arange(16, dtype=np.float32)
    got = np.empty_like(given)
    queue.write(bound.inputs[0].memory, given.view(np.uint8))  # type: ignore[arg-type]
    (item,) = bound.launches
    queue.launch(item.kernel, item.launch.global_size, item.launch.local_size)  # type: ignore[arg-type]
    queue.read(got.view(np.uint8), bound.outputs[0].memory)  # type: ignore[arg-type]
    np.testing.assert_array_equal(got, 2 * given)
    opened.close()


def double(x: FakeMemory, y: FakeMemory, workspace: FakeMemory) -> None:
    workspace.use()[:] = 0
    y.use().view(np.float32)[:16] = 2 * x.use().view(np.float32)[:16]


def test_a_part_of_an_operand_has_its_own_address_in_the_arena(opened: Opened) -> None:
    """The launch reads its input and its weights whole, and the second half of each."""
    slot = SlotMemory(opened.device, opened.weights, "net")

    def lower_parts(node: Node, builder: PlanBuilder) -> None:
        operands = [builder.operand(value) for value in node.inputs if value is not None]
        parts = [part for item in operands if (part := builder.part(item, 16)) is not None]
        assert len(parts) == len(operands)
        given = [*operands, *parts, builder.result(node.outputs[0])]
        builder.launch(SOURCE, given, (32,), (64,), [whole(item) for item in given])

    weights = ", ".join(map(str, range(32)))
    text = f"g (float[32] x) => (float[32] y) <float[32] w = {{{weights}}}> {{ y = Add(x, w) }}"
    plan = opened.builder(typed(text)).build(lower_parts)
    opened.held += opened.device.programs.build(plan.launches)
    opened.weights.upload(plan.constants)
    bound = slot.bind(plan)
    x, w, x_part, w_part, y = arguments_of(bound.launches[0])
    assert x_part.base is x.base is y.base
    assert w_part.base is w
    for all_of_it, part in ((x, x_part), (w, w_part)):
        assert part.size_bytes == all_of_it.size_bytes - 64
        assert np.shares_memory(all_of_it.data[64:65], part.data[:1])
    assert bound.inputs[0].memory is x
    slot.release()
