"""A model on an accelerator: a plan per shape signature, run in slots through the device's queues.

Where rows of a batch keep apart, a run of any number of them takes the plan of the next bucket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...executors import ImmediateExecutor, StreamsConfig, StreamsExecutor, allowed_cpus
from ...runtime.devices.plugin import CoreHandle
from ...runtime.graph import Graph, Model, copy_graph, is_static
from ...runtime.network.executable_network import ExecutableNetwork
from ...runtime.network.states.state_pairs import find_pairs
from ...runtime.network.warm_up import run_in_slots
from ...runtime.plans.batch_buckets import choose_buckets
from ...runtime.plans.plan_cache import PlanLimits
from ...runtime.plans.shape_plans import ShapePlans
from ...runtime.properties.properties import (
    EXPORTABLE,
    INPUT_SHAPES,
    Configuration,
    Metric,
    slot_count,
)
from ...runtime.runs.stage import Stop
from ...runtime.tensors.output_pool import OutputPool
from ...runtime.tensors.tensor import ports_of
from .compiler import Compiler, CompileRules
from .device_slot import AcceleratorSlot
from .launching.launch_capture import LaunchCapture
from .memory.kept_blocks import KeptBlocks
from .memory.lent_memory import LentMemory
from .memory.slot_memory import SlotMemory
from .plan import Plan
from .precision import Precision
from .properties import BATCH_BUCKETS
from .queues.opened_device import ComputeStream, OpenedDevice

__all__ = ["AcceleratorNetwork", "useful_slot_count"]

_MOST_COPYING = 8
"""Threads that copy for a device; 1, 2, 4, 8 filled an H200's staging memory at 5.5, 10, 20 and
31 GB/s, beside a link of 55."""


def useful_slot_count(stream_count: int, *, is_for_latency: bool) -> int:
    """Return how many runs keep this many compute streams busy. Pure.

    Each stream computes one run; one more is there when one of them ends. For throughput another
    one is on its way to each stream, and one on its way back.
    """
    return stream_count + 1 if is_for_latency else 2 * stream_count + 1


class AcceleratorNetwork(ExecutableNetwork):
    """A model compiled for an accelerator.

    Its slots share ``stream_count`` compute queues. ``captures``: where the device can, a run
    replays its launches as one command. ``spins``: threads that wait for its runs may keep a core
    busy.
    """

    def __init__(
        self,
        model: Model,
        device: OpenedDevice,
        precision: Precision,
        rules: CompileRules,
        config: Configuration,
        core: CoreHandle,
        *,
        stream_count: int = 1,
        captures: bool = False,
        spins: bool = False,
    ) -> None:
        super().__init__(
            name=model.name,
            device=device.name,
            inputs=ports_of(model.inputs),
            outputs=ports_of(model.outputs),
            config=config,
            core=core,
            adopt_array=device.adopt,
        )
        self._model, self.opened, self.spins = model, device, spins
        self._compiler = Compiler(model, device, precision, rules)
        self.compile_executor = core.executors.acquire(StreamsConfig("compile"))
        copies = StreamsConfig(f"{device.name} copies", min(_MOST_COPYING, allowed_cpus().count), 1)
        self.copy_executor = core.executors.acquire(copies)
        binding = StreamsConfig(f"{device.name} binding", thread_count=1)
        self.binding_executor = core.executors.acquire(binding)
        self.users_executor = self._acquire_users_executor(stream_count)
        """Where users' functions are called; None where the model has none."""
        self.inline = ImmediateExecutor("inline")
        self._streams: Sequence[ComputeStream] = ()
        self._has_weights = self._needs_weights = True
        self.lent = LentMemory(device)
        contents = self.shape_tensors = self._compiler.shape_tensors
        """Inputs whose content plans depend on."""
        self.host_inputs = frozenset(contents)
        pairs = find_pairs(model, config).items()
        states = {name: made for name, made in pairs if name not in self.host_inputs}
        self.kept_outputs |= {*states.values()}
        sizes: tuple[int, ...] = config.value_or_default(BATCH_BUCKETS)
        self.buckets, self._bucket_refusal = choose_buckets(model, self.inputs, sizes, contents)
        if self.buckets is None:  # padding's rows would be a state's
            self._compiler.states = states
        self._plans = ShapePlans(
            model,
            self.inputs,
            self.device,
            self._build,
            self.compile_executor,
            contents,
            None if self.buckets is None else self.buckets.signature_of_plan,
            dropped=Plan.release_graph,
            limits=PlanLimits.of(config),
        )
        is_for_latency = config["PERFORMANCE_HINT"] == "LATENCY"
        count = slot_count(config, useful_slot_count(stream_count, is_for_latency=is_for_latency))
        is_capturing = captures and device.facts.can_capture
        self._capture = LaunchCapture(device, model.name) if is_capturing else None
        self._memories = [
            SlotMemory(
                device,
                self._compiler.weights,
                model.name,
                self._capture,
                captures_copies=not self.kept_outputs,
            )
            for _ in range(count)
        ]
        self.pool = OutputPool(most_free=count * max(1, len(self.outputs)))
        what = f"an output of {model.name!r} that stays on {device.name}"
        self.kept_blocks = KeptBlocks(device.memory, what, (count + 1) * max(1, len(self.outputs)))
        try:
            self.only_plan = self._compile_ahead()
            self._streams = device.take_streams(stream_count)
            self._provide_slots(
                [
                    AcceleratorSlot(self, memory, self._streams[number % stream_count])
                    for number, memory in enumerate(self._memories)
                ]
            )
        except BaseException:
            self._abandon()
            raise

    def _acquire_users_executor(self, stream_count: int) -> StreamsExecutor | None:
        if not any(node.user_kernel is not None for node in self._model.graph.nodes):
            return None
        config = StreamsConfig(f"{self.opened.name} extensions", stream_count, 1)
        return self._core.executors.acquire(config)

    @property
    def shape_plans(self) -> ShapePlans[Plan]:
        """The plans by shape signature."""
        assert self._plans is not None
        return self._plans

    def _build(
        self, shapes: Mapping[str, Sequence[int]], contents: Mapping[str, np.ndarray[Any, Any]]
    ) -> Plan:
        """Build a plan, once the slots have dropped plans that are not kept any more."""
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
        self._needs_weights = False
        if not self.config[EXPORTABLE]:
            self.forget_model()
        return plan

    @property
    def lends_memory(self) -> bool:
        return self.opened.facts.can_lend_host_memory

    def input_memory(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        return self.lent.zeros(shape, dtype)

    def run_everywhere(self, inputs: Mapping[str, Any], stop: Stop) -> None:
        run_in_slots(self, inputs, self.admission.slot_count, stop)

    def forget_model(self) -> None:
        if not self._needs_weights:
            self._compiler.release_weights()
            self._has_weights = False

    def _model_to_export(self) -> Model | None:
        return self._model if self._has_weights else None

    def runtime_graph(self) -> Graph:
        """Return a copy of the graph that is executed: of the latest plan, fused nodes and all."""
        plan = self._compiler.latest
        return copy_graph(self._model.graph if plan is None else plan.graph)

    def _release_device(self) -> None:
        self._core.executors.release(self.compile_executor)
        self._core.executors.release(self.copy_executor)
        self._core.executors.release(self.binding_executor)
        if self.users_executor is not None:
            self._core.executors.release(self.users_executor)
        self.opened.give_back(self._streams)
        for memory in self._memories:
            memory.release()
        self.kept_blocks.close()
        self.shape_plans.clear()
        self.only_plan = None
        self._compiler.release()

    def _metrics(self) -> list[Metric]:
        plan = self._compiler
        captured = [
            Metric(
                "CAPTURED_PLAN_COUNT",
                lambda _: sum(memory.captured_count for memory in self._memories),
                "Plans whose launches a slot replays as one command, over all slots.",
            ),
            Metric(
                "EAGER_PLAN_COUNT",
                lambda _: sum(memory.eager_count for memory in self._memories),
                "Plans that the driver refused to capture for a slot, or that call users' kernels, "
                "over all slots; their launches are enqueued one by one.",
            ),
        ]
        return [
            *(captured if self._capture is not None else ()),
            Metric(
                "PLAN_COUNT",
                lambda _: len(self.shape_plans),
                "Shape signatures whose plans are kept.",
            ),
            Metric(
                "BATCH_BUCKETS_REFUSAL",
                lambda _: self._bucket_refusal,
                "Why each batch has a plan of its own; '' where batches are padded to buckets.",
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
