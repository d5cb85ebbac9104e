"""A model on REFERENCE: a plan per shape signature, computed on the device's streams.

The template for a device with one compute stage: ``docs/add-a-device.md`` walks through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...errors import PropertyError, TensorError
from ...executors import NOW, ImmediateExecutor, Lane, Ready, StreamsConfig, allowed_cpus
from ...runtime.bindings import NodeProfile
from ...runtime.executable_network import ExecutableNetwork, Slot
from ...runtime.extension import Extension, infer_extension_types
from ...runtime.graph import Graph, Model, TensorType, copy_graph, is_static
from ...runtime.passes import (
    Pass,
    bound_input_shapes,
    default_passes,
    specialize_with_report,
)
from ...runtime.pipeline import Stage
from ...runtime.plan_cache import PendingPlan, PlanCache
from ...runtime.plugin import CoreHandle
from ...runtime.properties import INPUT_SHAPES, NUM_STREAMS, Configuration, stream_count
from ...runtime.tensor import ports_of, shape_signature
from .capacity import refuse_what_cannot_fit
from .execution import Steps, compile_steps
from .finder import KernelFinder

__all__ = ["ReferenceNetwork", "passes_with"]

Signature = tuple[tuple[int, ...] | None, ...]


class ReferenceNetwork(ExecutableNetwork):
    """A model compiled for one REFERENCE device."""

    def __init__(
        self,
        model: Model,
        config: Configuration,
        core: CoreHandle,
        finder: KernelFinder,
        extensions: Sequence[Extension],
    ) -> None:
        device = f"REFERENCE.{config['DEVICE_ID']}"
        streams = stream_count(config, allowed_cpus().count)
        config = config.with_defaults({NUM_STREAMS: streams})
        super().__init__(
            name=model.name,
            device=device,
            inputs=ports_of(model.inputs),
            outputs=ports_of(model.outputs),
            config=config,
            core=core,
        )
        self._model, self._finder, self._extensions = model, finder, extensions
        self._output_names = [port.name for port in self.outputs]
        self._streams = core.executors.acquire(StreamsConfig(device, streams))
        self._compiler = core.executors.acquire(StreamsConfig("compile"))
        self._inline = ImmediateExecutor("inline")
        self._plans: PlanCache[Signature, Steps] = PlanCache(self._plan, self._compiler)
        try:
            self._compile_ahead()
        except BaseException:
            self._release_device()
            raise
        # One run computes on each stream, and one more is bound and ready to follow it.
        self._provide_slots([_ReferenceSlot(self) for _ in range(2 * streams)])

    def _compile_ahead(self) -> None:
        for shapes in self.config[INPUT_SHAPES]:
            self._plans.build_now(self._signature_of(shapes))
        if all(is_static(port.shape) for port in self.inputs):
            self._plans.build_now(self._signature_of({}))

    def _signature_of(self, shapes: Mapping[str, Sequence[int]]) -> Signature:
        """Complete an item of INPUT_SHAPES, which may leave out what the others determine."""
        try:
            bound = bound_input_shapes(self._model.inputs, shapes)
        except TensorError as error:
            raise self._bad_shapes(shapes, str(error)) from error
        signature: list[tuple[int, ...] | None] = []
        for port in self.inputs:
            dims = bound.get(port.name)
            lengths = tuple(dim for dim in dims or () if isinstance(dim, int))
            is_known = dims is not None and len(lengths) == len(dims)
            if not is_known and isinstance(port.type, TensorType):
                raise self._bad_shapes(shapes, f"it leaves input {port} open; give its shape, too")
            signature.append(lengths if is_known else None)
        return tuple(signature)

    def _bad_shapes(self, shapes: Mapping[str, Sequence[int]], why: str) -> PropertyError:
        text = f"{self.device}: bad value {dict(shapes)} for {INPUT_SHAPES.key}: {why}"
        return PropertyError(text, INPUT_SHAPES.key, self.device)

    def _plan(self, signature: Signature) -> Steps:
        shapes = {
            port.name: shape
            for port, shape in zip(self.inputs, signature, strict=True)
            if shape is not None
        }
        model, _ = specialize_with_report(self._model, shapes, passes_with(self._extensions))
        infer_extension_types(model, self._extensions)
        refuse_what_cannot_fit(model.graph)
        return compile_steps(model.graph, self._finder)

    def request_plan(self, inputs: dict[str, Any]) -> PendingPlan[Steps]:
        """Return the token of the plan for these inputs."""
        return self._plans.request(shape_signature(inputs, self.inputs))

    @property
    def output_names(self) -> list[str]:
        """The outputs in the plan's order."""
        return self._output_names

    def runtime_graph(self) -> Graph:
        return copy_graph(self._model.graph)

    def _release_device(self) -> None:
        self._core.executors.release(self._streams)
        self._core.executors.release(self._compiler)


class _ReferenceSlot(Slot):
    """One run: find the plan on the calling thread, compute on a stream."""

    def __init__(self, network: ReferenceNetwork) -> None:
        self._network = network
        self._pending: PendingPlan[Steps] | None = None
        self.stages = (
            Stage("plan", network._inline, self._find_plan),
            Stage("compute", network._streams, self._compute),
        )

    def _find_plan(self, _lane: Lane) -> Ready:
        self._pending = self._network.request_plan(self.bindings.inputs)
        return self._pending

    def _compute(self, _lane: Lane) -> Ready:
        bindings, pending = self.bindings, self._pending
        assert pending is not None
        profile: list[tuple[tuple[str, ...], str, int, int]] | None
        profile = None if bindings.profile is None else []
        results = pending.plan.run(bindings.inputs, self.stop.raise_if_set, profile)
        for name, result in zip(self._network.output_names, results, strict=True):
            bindings.deliver(name, result)
        if bindings.profile is not None:
            for names, op, start_ns, end_ns in profile or ():
                node = names[0] if names else op
                bindings.profile.append(NodeProfile(node, op, names, start_ns, end_ns))
        return NOW

    def release(self) -> None:
        self._pending = None
        super().release()


def passes_with(extensions: Iterable[Extension]) -> tuple[Pass, ...]:
    """List the passes; they leave alone what an extension computes in its own way."""
    ops = [f"{item.domain}::{item.op_type}" if item.domain else item.op_type for item in extensions]
    return default_passes(ops)
