"""From a model and its input shapes to a plan: specialise, fuse, lower, build kernels, upload."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...runtime.graph import Model, check_graph, constant_values
from ...runtime.graph.stand_ins import release_constants
from ...runtime.lowering.kernel_registry import KernelRegistry
from ...runtime.passes import ConstantFolding, DeadCode, Pass, run_passes, specialize
from ...runtime.plans.capacity import COUNTED_IN_32_BITS, refuse_what_cannot_fit
from ...runtime.plans.shape_tensors import with_contents
from .launching.kernel_programs import BuiltProgram, LibraryRefusedError
from .memory.weight_store import WeightStore
from .operand import Buffer
from .plan import Plan
from .plan_builder import PlanBuilder
from .precision import Precision
from .queues.opened_device import OpenedDevice

__all__ = ["CompileRules", "Compiler"]

_log = logging.getLogger("aioinfer")


@dataclass(frozen=True)
class CompileRules:
    """What a device does with the model of one network.

    ``passes`` fuse, once a plan, and may keep what they make of weights; ``kernels`` lower nodes.
    """

    kernels: KernelRegistry[PlanBuilder]
    passes: tuple[Pass, ...]


@dataclass(frozen=True)
class _Holding:
    """What stays on the device as long as the cache, a slot or a run has the plan."""

    plan: weakref.ref[Plan]
    constants: Sequence[Buffer]
    programs: Sequence[BuiltProgram]


class Compiler:
    """Builds the plans of one network, one at a time; plans share weights and kernels.

    What only plans had that are gone is given back before the next one is built, because the thread
    that builds may block, and the one that drops a plan may turn an event loop.
    """

    def __init__(
        self, model: Model, device: OpenedDevice, precision: Precision, rules: CompileRules
    ) -> None:
        self._model, self._device, self._precision = model, device, precision
        self._rules = rules
        constants = [value.constant for value in constant_values(model.graph)]
        own = [array for array in constants if array is not None]
        self.weights = WeightStore(device, model.name, own)
        self._holdings: list[_Holding] = []
        self._refused: set[tuple[str, str]] = set()
        """Libraries, and the nodes that they have refused."""
        self.latest: Plan | None = None
        self.states: Mapping[str, str] = {}
        """Pairs input -> output that requests keep and that grow; before the first plan."""
        self.shape_tensors = rules.kernels.shape_tensors(model.graph)

    def compile(
        self,
        shapes: Mapping[str, Sequence[int]],
        contents: Mapping[str, np.ndarray[Any, Any]],
    ) -> Plan:
        """Build the plan for these input shapes, with its kernels and weights on the device.

        ``contents`` are those of ``shape_tensors``: the plan is for these alone. Blocks, for up
        to seconds. Raises DeviceError where the plan does not fit the device, before it takes any
        memory there.
        """
        self._device.health.refuse_if_lost()
        self._forget_gone_plans()
        model = specialize(with_contents(self._model, contents), shapes, check=False)
        run_passes(model, (*self._rules.passes, ConstantFolding(), DeadCode()), check=False)
        check_graph(model.graph)
        facts = self._device.facts
        refuse_what_cannot_fit(model.graph, facts.memory_bytes, COUNTED_IN_32_BITS)
        self._rules.kernels.refuse_open_outputs(model.graph, self._device.name)
        plan, programs = self._built(model)
        self.weights.upload(plan.constants)
        self._holdings.append(_Holding(weakref.ref(plan), plan.constants, programs))
        self.latest = plan
        return plan

    def _built(self, model: Model) -> tuple[Plan, Sequence[BuiltProgram]]:
        """Lower a model and build its programs, without the libraries that refuse its nodes."""
        what = f"a run of {model.name!r}, weights included,"
        held: list[BuiltProgram] = []  # what was built before a refusal is not built again
        while True:
            builder = PlanBuilder(
                model,
                self.weights,
                device=self._device.name,
                facts=self._device.facts,
                precision=self._precision,
                refused=frozenset(self._refused),
                states=self.states,
            )
            plan = builder.build(self._rules.kernels.lower)
            weights = [buffer.size_bytes for buffer in self.weights.missing(plan.constants)]
            self._device.memory.check_room(what, [plan.arena_bytes, *weights])
            try:
                return plan, self._device.programs.build(plan.launches)
            except LibraryRefusedError as refusal:
                if refusal.nodes <= self._refused:  # their kernels know no other way
                    raise
                for reason in refusal.reasons:
                    _log.warning("%s; kernels without the library do it", reason)
                self._refused |= refusal.nodes
                held += refusal.held

    def release_weights(self) -> None:
        """Release the model's weights on the host; for a network whose only plan is built.

        Graphs show stand-ins, full of NaN, instead.
        """
        graphs = [self._model.graph]
        if self.latest is not None:
            graphs.append(self.latest.graph)
        for graph in graphs:
            release_constants(graph)
        self.weights.forget_sources()
        self._rules = replace(self._rules, passes=())  # they have what they made of weights

    def release(self) -> None:
        """Give back all that plans have on device and host, when no run is left."""
        self.release_weights()
        self._holdings.clear()
        self.weights.release()

    def _forget_gone_plans(self) -> None:
        self._holdings = [item for item in self._holdings if item.plan() is not None]
        self.weights.keep_only(buffer for item in self._holdings for buffer in item.constants)
