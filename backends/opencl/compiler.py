"""From a model and its input shapes to a plan: specialise, fuse, lower, build kernels, upload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import UnsupportedOpError
from ...runtime.capacity import refuse_what_cannot_fit
from ...runtime.content_inputs import with_contents
from ...runtime.graph import DType, Model, Node, check_graph
from ...runtime.graph.stand_ins import release_constants
from ...runtime.passes import ConstantFolding, DeadCode, run_passes, specialize
from .kernels.registry import content_inputs, find_kernel, find_refusal
from .opened_device import OpenedDevice
from .passes import plan_passes
from .plan import Plan
from .plan_builder import PlanBuilder
from .weight_store import WeightStore

__all__ = ["Compiler"]


class Compiler:
    """Builds the plans of one network. Thread-safe; plans share weights and kernels."""

    def __init__(self, model: Model, device: OpenedDevice, float_dtype: DType) -> None:
        self._model, self._device, self._float_dtype = model, device, float_dtype
        self.weights = WeightStore(device, model.name)
        self.latest: Plan | None = None
        self.content_inputs = content_inputs(model.graph)

    def compile(
        self,
        shapes: Mapping[str, Sequence[int]],
        contents: Mapping[str, np.ndarray[Any, Any]],
    ) -> Plan:
        """Build the plan for these input shapes, with its kernels and weights on the device.

        ``contents`` are those of ``content_inputs``: the plan is for these alone. Blocks, for up
        to seconds. Raises DeviceError where the plan does not fit the device, before it takes any
        memory there.
        """
        self._device.health.refuse_if_lost()
        model = specialize(with_contents(self._model, contents), shapes, check=False)
        run_passes(model, (*plan_passes(), ConstantFolding(), DeadCode()), check=False)
        check_graph(model.graph)
        facts = self._device.facts
        refuse_what_cannot_fit(model.graph, facts.memory_bytes)
        builder = PlanBuilder(
            model,
            self.weights,
            device=self._device.name,
            align_bytes=facts.align_bytes,
            work_group_size=facts.work_group_size,
            float_dtype=self._float_dtype,
        )
        plan = builder.build(self._lower)
        what = f"a run of {model.name!r}, weights included,"
        weights = [buffer.size_bytes for buffer in self.weights.missing(plan.constants)]
        self._device.memory.check_room(what, [plan.arena_bytes, *weights])
        self._device.programs.build(launch.source for launch in plan.launches)
        self.weights.upload(plan.constants)
        self.latest = plan
        return plan

    def release_weights(self) -> None:
        """Let go of the model's weights on the host; for a network whose only plan is built.

        Graphs show stand-ins, full of NaN, instead.
        """
        graphs = [self._model.graph]
        if self.latest is not None:
            graphs.append(self.latest.graph)
        for graph in graphs:
            release_constants(graph)
        self.weights.forget_sources()

    def _lower(self, node: Node, builder: PlanBuilder) -> None:
        reason = find_refusal(node)
        kernel = find_kernel(node)
        if reason is not None or kernel is None:
            raise UnsupportedOpError(
                node.name, node.op, self._device.name, reason or "it has no kernel"
            )
        kernel.lower(node, builder)
