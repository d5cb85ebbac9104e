"""What one slot has on the device: its arena, staging memory, and the plans bound to them.

Theory of operation. Only the run that has the slot touches this, so nothing here is locked, and
whatever is replaced is not in use by the device any more. The arena grows to the largest plan that
the slot has run; then kernels are bound anew, because they hold addresses in it. In a steady state
nothing is allocated.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .driver import Argument, Bytes, HostMemory, Kernel, Memory
from .opened_device import OpenedDevice
from .operand import Operand
from .plan import Launch, LaunchArgument, Plan
from .weight_store import WeightStore

__all__ = ["BoundInput", "BoundLaunch", "BoundOutput", "BoundPlan", "SlotMemory"]

_BOUND_COUNT = 8  # plans of other shapes that a slot can switch to without binding them anew


@dataclass(frozen=True)
class BoundInput:
    """An input's place: ``staged`` is host memory as an array, ``staged_bytes`` the same."""

    operand: Operand
    memory: Memory
    staged: np.ndarray[Any, Any]
    staged_bytes: Bytes


@dataclass(frozen=True)
class BoundOutput:
    """An output's place on the device."""

    operand: Operand
    memory: Memory


@dataclass(frozen=True)
class BoundLaunch:
    """A kernel object with its arguments set."""

    launch: Launch
    kernel: Kernel


@dataclass(frozen=True)
class BoundPlan:
    """A plan with addresses in one slot."""

    plan: Plan
    inputs: Sequence[BoundInput]
    outputs: Sequence[BoundOutput]
    launches: Sequence[BoundLaunch]


class SlotMemory:
    """The memory of one slot; used by one run at a time."""

    def __init__(self, device: OpenedDevice, weights: WeightStore, network: str) -> None:
        self._device, self._weights = device, weights
        self._what = f"a slot of {network!r}"
        self._arena: Memory | None = None
        self._staging: HostMemory | None = None
        self._bound: OrderedDict[Plan, BoundPlan] = OrderedDict()

    @property
    def arena_bytes(self) -> int:
        """How much device memory the slot has."""
        return 0 if self._arena is None else self._arena.size_bytes

    def find(self, plan: Plan) -> BoundPlan | None:
        """Return the plan as it is bound here; None if it is not. Never blocks."""
        return self._bound.get(plan)

    def bind(self, plan: Plan) -> BoundPlan:
        """Bind a plan, and take the memory that it needs; raises DeviceError. Blocks a little."""
        found = self._bound.get(plan)
        if found is not None:
            return found
        self._grow(plan)
        bound = self._bound[plan] = self._with_addresses(plan)
        while len(self._bound) > _BOUND_COUNT:
            self._bound.popitem(last=False)
        return bound

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
        needed = _staging_bytes(plan)
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
            kernel.set_arguments([argument_of(given) for given in launch.arguments])
            launches.append(BoundLaunch(launch, kernel))
        inputs = []
        start = 0
        assert self._staging is not None
        for operand in plan.inputs:
            staged_bytes = self._staging.array[start : start + operand.size_bytes]
            staged = staged_bytes.view(operand.dtype.numpy).reshape(operand.shape)
            inputs.append(BoundInput(operand, memory_of(operand), staged, staged_bytes))
            start += _rounded(operand.size_bytes)
        outputs = [BoundOutput(operand, memory_of(operand)) for operand in plan.outputs]
        return BoundPlan(plan, inputs, outputs, launches)

    def _memory_of(self, operand: Operand, plan: Plan) -> Memory:
        if operand.buffer.kind == "constant":
            return self._weights.memory(operand.buffer)
        assert self._arena is not None
        size = max(1, operand.buffer.size_bytes)
        offset = plan.offsets[operand.buffer] if operand.buffer.size_bytes else 0
        return self._arena.part(offset, size)


def _rounded(size_bytes: int) -> int:
    """Let every input start where its elements are aligned."""
    return -(-size_bytes // 64) * 64


def _staging_bytes(plan: Plan) -> int:
    return sum(_rounded(operand.size_bytes) for operand in plan.inputs)
