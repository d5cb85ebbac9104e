"""What one slot has on the device: its arena, staging memory, and the plans bound to them.

Only the run that has the slot takes memory and binds plans here, so nothing is locked, and whatever
is replaced is not in use by the device any more. The arena grows to the largest plan that the slot
has run; then kernels are bound anew, because they hold addresses in it. A plan stays bound as long
as the network keeps it: building a plan takes the others out, which a run that still has one does
not notice. In a steady state nothing is allocated.

Where launches are captured, that runs them once on what happens to lie in the arena. It writes the
arena and staging memory alone, which are free: the run that binds has staged nothing yet. Launch
graphs hold addresses, too, so they are dropped before the memory behind those is given back. A plan
with little to copy is captured with its copies, and a run of it is one command; its launches alone
are captured when a run comes that has arrays of the device.

A driver may wait in a copy to memory that it has not allocated itself, and a queue's thread must
not. So on other devices than the host's processor results come to staging memory first.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from ..launching.launch_capture import LaunchCapture
from ..operand import Operand
from ..plan import LaunchArgument, Plan
from ..queues.driver import Argument, DeviceFacts, DriverError, HostMemory, Memory
from ..queues.opened_device import OpenedDevice
from .bound_plan import BoundInput, BoundLaunch, BoundOutput, BoundPlan, Staged
from .weight_store import WeightStore

__all__ = ["SlotMemory", "stages_outputs"]

_ROUND_TRIP_BYTES = 1 << 20
"""Up to this number of bytes of inputs and outputs, copies go with the launches: beside the
computing of other runs they take less than enqueueing them by themselves does."""


def stages_outputs(facts: DeviceFacts) -> bool:
    """True if results come to staging memory, and not at once to where they belong."""
    return facts.kind != "cpu"


class SlotMemory:
    """The memory of one slot; used by one run at a time. ``keep_only`` is for any thread.

    With a ``capture``, launches are captured when a plan is bound; without ``captures_copies``,
    they are always captured alone.
    """

    def __init__(
        self,
        device: OpenedDevice,
        weights: WeightStore,
        network: str,
        capture: LaunchCapture | None = None,
        *,
        captures_copies: bool = True,
    ) -> None:
        self._device, self._weights, self._capture = device, weights, capture
        self._captures_copies = captures_copies
        self._what = f"a slot of {network!r}"
        self._arena: Memory | None = None
        self._staging: HostMemory | None = None
        self._stages_outputs = stages_outputs(device.facts)
        self._bound: dict[Plan, BoundPlan] = {}

    @property
    def arena_bytes(self) -> int:
        """How much device memory the slot has."""
        return 0 if self._arena is None else self._arena.size_bytes

    @property
    def captured_count(self) -> int:
        """How many plans are bound with a launch graph."""
        return sum(bound.is_captured for bound in tuple(self._bound.values()))

    @property
    def eager_count(self) -> int:
        """How many plans are bound whose launches are enqueued one by one."""
        bound = tuple(self._bound.values())
        return sum(bool(item.launches) and not item.is_captured for item in bound)

    def find(self, plan: Plan) -> BoundPlan | None:
        """Return the plan as it is bound here; None if it is not. Never blocks."""
        return self._bound.get(plan)

    def bind(self, plan: Plan) -> BoundPlan:
        """Bind a plan, and take the memory that it needs. Blocks a little.

        Raises DeviceError; then the slot has what it needs for plans that are still bound, and can
        bind this one later.
        """
        found = self._bound.get(plan)
        if found is not None:
            return found
        self._grow(plan)
        try:
            bound = self._bound[plan] = self._with_addresses(plan)
        except DriverError as error:
            raise self._device.health.translate(error, f"binding {self._what}") from error
        return bound

    def capture_launches(self, bound: BoundPlan) -> None:
        """Capture the launches of a bound plan without its copies. Blocks a little."""
        bound.may_capture_launches = False
        if self._capture is not None:
            bound.exchange({})
            bound.launch_graph = self._capture.capture(bound.enqueue_launches)

    def keep_only(self, plans: Container[Plan]) -> None:
        """Drop all other plans, and so their kernel objects and parts of the arena."""
        for plan in [plan for plan in tuple(self._bound) if plan not in plans]:
            self._bound.pop(plan, None)

    def release(self) -> None:
        """Give all memory back, when the slot has no run."""
        self._bound.clear()
        if self._arena is not None:
            self._device.memory.release(self._arena)
        if self._staging is not None:
            self._staging.release()
        self._arena = self._staging = None

    def _grow(self, plan: Plan) -> None:
        if self._arena is None or self._arena.size_bytes < plan.arena_bytes:
            if self._arena is not None:
                self._bound.clear()
                self._device.memory.release(self._arena)
                self._arena = None
            self._arena = self._device.memory.buffer(max(1, plan.arena_bytes), self._what)
        needed = sum(_rounded(operand.size_bytes) for operand in self._staged_operands(plan))
        if self._staging is None or self._staging.array.nbytes < needed:
            if self._staging is not None:
                self._bound.clear()
                self._staging.release()
                self._staging = None
            self._staging = self._device.host_memory(max(1, needed))

    def _with_addresses(self, plan: Plan) -> BoundPlan:
        parts: dict[Operand, Memory] = {}

        def memory_of(operand: Operand) -> Memory:
            if operand not in parts:
                parts[operand] = self._memory_of(operand, plan)
            return parts[operand]

        def argument_of(given: LaunchArgument) -> Argument:
            return memory_of(given) if isinstance(given, Operand) else given

        launches = []
        for launch in plan.launches:
            kernel = self._device.programs.kernel(launch.source)
            arguments = [argument_of(given) for given in launch.arguments]
            kernel.set_arguments(arguments)
            launches.append(BoundLaunch(launch, kernel, arguments))
        staged = self._places(self._staged_operands(plan))
        inputs = [BoundInput(item, memory_of(item), next(staged)) for item in plan.inputs]
        outputs = [BoundOutput(item, memory_of(item), next(staged, None)) for item in plan.outputs]
        output_bytes = sum(operand.size_bytes for operand in plan.outputs)
        input_bytes = sum(operand.size_bytes for operand in plan.inputs)
        bound = BoundPlan(plan, inputs, outputs, launches, output_bytes, input_bytes)
        if self._capture is not None and launches and plan.can_be_replayed:
            copied_bytes = output_bytes + input_bytes
            is_small = copied_bytes <= _ROUND_TRIP_BYTES
            if is_small and self._stages_outputs and self._captures_copies:
                bound.round_trip = self._capture.capture(bound.enqueue_round_trip)
                bound.may_capture_launches = bound.round_trip is not None
            else:
                self.capture_launches(bound)
        return bound

    def _staged_operands(self, plan: Plan) -> list[Operand]:
        return [*plan.inputs, *(plan.outputs if self._stages_outputs else ())]

    def _places(self, operands: Sequence[Operand]) -> Iterator[Staged]:
        assert self._staging is not None
        start = 0
        for operand in operands:
            data = self._staging.array[start : start + operand.size_bytes]
            yield Staged(data.view(operand.dtype.numpy).reshape(operand.shape), data)
            start += _rounded(operand.size_bytes)

    def _memory_of(self, operand: Operand, plan: Plan) -> Memory:
        """Find where an operand begins, up to its buffer's end; never a part of a part."""
        start = operand.offset_bytes
        size = max(1, operand.buffer.size_bytes - start)
        if operand.buffer.kind == "constant":
            memory = self._weights.memory(operand.buffer)
            return memory.part(start, size) if start else memory
        assert self._arena is not None
        offset = plan.offsets[operand.buffer] + start if operand.buffer.size_bytes else 0
        return self._arena.part(offset, size)


def _rounded(size_bytes: int) -> int:
    """Place every array where its elements are aligned."""
    return -(-size_bytes // 64) * 64
