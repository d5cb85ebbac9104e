"""A model on REFERENCE: a plan per shape signature, computed on the device's streams.

The template for a device with one compute stage: ``docs/add-a-device.md`` walks through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...executors import NOW, ImmediateExecutor, Lane, Ready, StreamsConfig, allowed_cpus
from ...runtime.bindings import NodeProfile
from ...runtime.executable_network import ExecutableNetwork, Slot
from ...runtime.extension import Extension, infer_extension_types
from ...runtime.graph import Graph, Model, copy_graph
from ...runtime.passes import specialize
from ...runtime.pipeline import Stage
from ...runtime.plan_cache import PendingPlan, PlanCache
from ...runtime.plugin import CoreHandle
from ...runtime.properties import Configuration, stream_count
from ...runtime.tensor import Port, ports_of, shape_signature
from .execution import Steps, compile_steps
from .finder import KernelFinder

__all__ = ["ReferenceNetwork"]

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
        streams = stream_count(config, allowed_cpus().count)
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
        for shapes in self.config["INPUT_SHAPES"]:
            specialized = specialize(self._model, shapes)
            self._plans.build_now(_static_signature(specialized))
        signature = _static_signature(self._model)
        if None not in signature:
            self._plans.build_now(signature)

    def _plan(self, signature: Signature) -> Steps:
        shapes = {
            port.name: shape
            for port, shape in zip(self.inputs, signature, strict=True)
            if shape is not None
        }
        model = specialize(self._model, shapes)
        infer_extension_types(model, self._extensions)
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


def _static_signature(model: Model) -> Signature:
    return tuple(_static_shape(port) for port in ports_of(model.inputs))


def _static_shape(port: Port) -> tuple[int, ...] | None:
    dims = tuple(dim for dim in port.shape or () if isinstance(dim, int))
    return dims if port.shape is not None and len(dims) == len(port.shape) else None
