"""A model on an accelerator: a plan per shape signature, run in slots through three queues.

Theory of operation. A run goes through the stages of its slot. The host copies its inputs into
memory that the device reads at full speed; then upload, the plan's launches, and download are
enqueued one after the other, each on a queue of its own and each behind the event of the one
before. The host waits for none of them. What the device does for several slots overlaps. What takes
memory, binds or copies much is done on the executor of copies, which never compiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...executors import NOW, DeviceLane, HostReady, ImmediateExecutor, Lane, Ready, StreamsConfig
from ..executable_network import ExecutableNetwork, Slot
from ..graph import Graph, Model, copy_graph, is_static
from ..output_pool import OutputPool
from ..pipeline import Stage
from ..plan_cache import PendingPlan
from ..plugin import CoreHandle
from ..properties import INPUT_SHAPES, Configuration, Metric, slot_count
from ..shape_plans import ShapePlans
from ..tensor import ports_of
from .chosen_executor import ChosenExecutor
from .compiler import Compiler, CompileRules
from .driver import Event
from .launch_times import LaunchTimes
from .opened_device import OpenedDevice
from .plan import Plan
from .precision import Precision
from .queue_stream import QueueStream
from .run_arrays import output_array, stage_input
from .slot_memory import BoundPlan, SlotMemory, stages_outputs
from .weight_store import bytes_of

__all__ = ["AcceleratorNetwork"]

SLOT_COUNT = 3
"""One run is uploaded, one computed and one downloaded."""
LATENCY_SLOT_COUNT = 2
"""One run is computed, and one more is there when it ends."""
_LIGHT_BYTES = 64 << 10
"""Copies up to this many are made on the calling thread, which may turn an event loop."""


class AcceleratorNetwork(ExecutableNetwork):
    """A model compiled for an accelerator; ``records``: a run replays launches as one command."""

    def __init__(
        self,
        model: Model,
        device: OpenedDevice,
        precision: Precision,
        rules: CompileRules,
        config: Configuration,
        core: CoreHandle,
        *,
        records: bool = False,
    ) -> None:
        super().__init__(
            name=model.name,
            device=device.name,
            inputs=ports_of(model.inputs),
            outputs=ports_of(model.outputs),
            config=config,
            core=core,
        )
        self._model, self.opened = model, device
        self._compiler = Compiler(model, device, precision, rules)
        self.compile_executor = core.executors.acquire(StreamsConfig("compile"))
        self.copy_executor = core.executors.acquire(StreamsConfig(f"{device.name} copies"))
        self.inline = ImmediateExecutor("inline")
        self._plans = ShapePlans(
            model,
            self.inputs,
            self.device,
            self._build,
            self.compile_executor,
            self._compiler.content_inputs,
        )
        is_for_latency = config["PERFORMANCE_HINT"] == "LATENCY"
        count = slot_count(config, LATENCY_SLOT_COUNT if is_for_latency else SLOT_COUNT)
        self._memories = [
            SlotMemory(device, self._compiler.weights, model.name, records=records)
            for _ in range(count)
        ]
        self.pool = OutputPool(most_free=count * max(1, len(self.outputs)))
        try:
            self.only_plan = self._compile_ahead()
        except BaseException:
            self._abandon()
            raise
        self._provide_slots([_Slot(self, memory) for memory in self._memories])

    @property
    def shape_plans(self) -> ShapePlans[Plan]:
        """The plans by shape signature."""
        assert self._plans is not None
        return self._plans

    def _build(
        self, shapes: Mapping[str, Sequence[int]], contents: Mapping[str, np.ndarray[Any, Any]]
    ) -> Plan:
        """Build a plan, once the slots have let go of plans that are not kept any more."""
        kept = frozenset(self.shape_plans.plans())
        for memory in self._memories:
            memory.keep_only(kept)
        return self._compiler.compile(shapes, contents)

    def _compile_ahead(self) -> Plan | None:
        """Build plans, and bind the slots to the only one where all inputs are static."""
        plans = self.shape_plans.compile_ahead(self.config[INPUT_SHAPES])
        if len(plans) != 1 or not all(is_static(port.shape) for port in self.inputs):
            return None
        (plan,) = plans
        what = f"{len(self._memories)} slots of {self.name!r}"
        self.opened.memory.check_room(what, [plan.arena_bytes] * len(self._memories))
        for memory in self._memories:
            memory.bind(plan)
        self._compiler.release_weights()
        return plan

    def runtime_graph(self) -> Graph:
        """Return a copy of the graph that is executed: of the latest plan, fused nodes and all."""
        plan = self._compiler.latest
        return copy_graph(self._model.graph if plan is None else plan.graph)

    def _release_device(self) -> None:
        self._core.executors.release(self.compile_executor)
        self._core.executors.release(self.copy_executor)
        for memory in self._memories:
            memory.release()
        self._compiler.release()

    def _metrics(self) -> list[Metric]:
        plan = self._compiler
        return [
            Metric(
                "PLAN_COUNT",
                lambda _: len(self.shape_plans),
                "Shape signatures whose plans are kept.",
            ),
            Metric(
                "WEIGHTS_BYTES",
                lambda _: plan.weights.uploaded_bytes,
                "Device memory of the weights, shared by all slots and plans.",
            ),
            Metric(
                "ARENA_BYTES",
                lambda _: sum(memory.arena_bytes for memory in self._memories),
                "Device memory of all slots.",
            ),
        ]


class _Slot(Slot):
    """One run: plan, bind, copy on the host; upload, compute, download on the device; deliver."""

    def __init__(self, network: AcceleratorNetwork, memory: SlotMemory) -> None:
        self._network, self._memory = network, memory
        self._pending: PendingPlan[Plan] | None = None
        self._bound: BoundPlan | None = None
        self._times: LaunchTimes | None = None
        device, inline = network.opened, network.inline
        copies = network.copy_executor
        fill = ChosenExecutor("copies", self._has_much_to_fill, inline, copies)
        self.stages = (
            Stage("bind", inline, self._bind),
            Stage("fill", fill, self._fill),
            Stage("upload", device.upload, self._upload),
            Stage("compute", device.compute, self._compute),
        )
        if network.only_plan is None:
            self.stages = (Stage("plan", inline, self._find_plan), *self.stages)
        if stages_outputs(device.facts):
            deliver = ChosenExecutor("copies", self._has_much_to_deliver, inline, copies)
            download = Stage("download", device.download, self._download_staged)
            self.stages = (*self.stages, download, Stage("deliver", deliver, self._deliver))
        else:
            self.stages = (*self.stages, Stage("download", device.download, self._download))

    def _find_plan(self, _lane: Lane) -> Ready:
        self._pending = self._network.shape_plans.request(self.bindings.inputs)
        return self._pending

    def _bind(self, _lane: Lane) -> Ready:
        """Bind the slot to the run's plan; what allocates is done on the executor of copies."""
        network = self._network
        network.opened.health.refuse_if_lost()
        plan = network.only_plan if self._pending is None else self._pending.plan
        assert plan is not None
        self._bound = self._memory.find(plan)
        if self._bound is not None:
            return NOW
        ended = HostReady()
        network.copy_executor.run(
            partial(self._bind_now, plan), NOW, lambda _ready, error: ended.fire(error)
        )
        return ended

    def _bind_now(self, plan: Plan, _lane: Lane) -> Ready:
        self._bound = self._memory.bind(plan)
        return NOW

    def _has_much_to_fill(self) -> bool:
        given = self.bindings.inputs.values()
        return sum(int(getattr(array, "nbytes", 0)) for array in given) > _LIGHT_BYTES

    def _fill(self, _lane: Lane) -> Ready:
        bound = self._plan()
        for port, place in zip(self._network.inputs, bound.inputs, strict=True):
            stage_input(port.name, self.bindings.inputs[port.name], place.staged.array)
        return NOW

    def _upload(self, lane: Lane) -> Ready:
        stream = _stream(lane)
        for place in self._plan().inputs:
            if place.staged.data.size:
                stream.write(place.memory, place.staged.data)
        return NOW

    def _compute(self, lane: Lane) -> Ready:
        stream, bound = _stream(lane), self._plan()
        if bound.recording is not None and self.bindings.profile is None:
            stream.replay(bound.recording)
            return NOW
        events: list[Event] = []
        for item in bound.launches:
            launch = item.launch
            events.append(stream.launch(item.kernel, launch.global_size, launch.local_size))
        if self.bindings.profile is not None:
            self._times = LaunchTimes(bound.plan, events, stream.stage_work)
        return NOW

    def _download_staged(self, lane: Lane) -> Ready:
        stream = _stream(lane)
        for place in self._plan().outputs:
            if place.staged is not None and place.staged.data.size:
                stream.read(place.staged.data, place.memory)
        return NOW

    def _has_much_to_deliver(self) -> bool:
        assert self._bound is not None
        return sum(operand.size_bytes for operand in self._bound.plan.outputs) > _LIGHT_BYTES

    def _deliver(self, _lane: Lane) -> Ready:
        """Copy results to where they belong: memory that the caller has bound, or a new array."""
        bindings = self.bindings
        for port, place in zip(self._network.outputs, self._plan().outputs, strict=True):
            assert place.staged is not None
            array = place.staged.array
            if port.name not in bindings.bound:
                array = self._network.pool.empty(array.shape, array.dtype)
                np.copyto(array, place.staged.array)
            bindings.deliver(port.name, array)
        return NOW

    def _download(self, lane: Lane) -> Ready:
        """Let the device write results straight to where they belong, if it can."""
        stream, bindings = _stream(lane), self.bindings
        late: list[tuple[str, np.ndarray[Any, Any]]] = []
        for port, place in zip(self._network.outputs, self._plan().outputs, strict=True):
            operand, given = place.operand, bindings.bound.get(port.name)
            form = operand.shape, operand.dtype.numpy
            array = output_array(port.name, given, *form, self._network.pool.empty)
            if array.nbytes:
                stream.read(bytes_of(array), place.memory)
            if given is None or given is array:
                bindings.results[port.name] = array
            else:
                late.append((port.name, array))
        if not late:
            return NOW
        return self._delivered_later(stream.record_event(), late)

    def _delivered_later(self, ready: Ready, late: list[tuple[str, np.ndarray[Any, Any]]]) -> Ready:
        """Copy to bound memory that the device cannot write, once the device is done."""
        bindings, ended = self.bindings, HostReady()

        def deliver(_lane: Lane) -> Ready:
            for name, array in late:
                bindings.deliver(name, array)
            return NOW

        self._network.copy_executor.run(deliver, ready, lambda _ready, error: ended.fire(error))
        return ended

    def _plan(self) -> BoundPlan:
        assert self._bound is not None
        self.stop.raise_if_set()
        return self._bound

    def release(self) -> None:
        if self._times is not None and self.bindings.profile is not None:
            self.bindings.profile.extend(self._times.profiles())
        self._pending = self._bound = self._times = None
        super().release()


def _stream(lane: Lane) -> QueueStream:
    assert isinstance(lane, DeviceLane)
    assert isinstance(lane.stream, QueueStream)
    return lane.stream
