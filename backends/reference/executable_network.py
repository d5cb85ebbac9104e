"""A model on REFERENCE: a plan per shape signature, computed on the device's streams.

The template for a device with one compute stage: ``docs/add-a-device.md`` walks through it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import AioInferError
from ...executors import NOW, Lane, Ready, StreamsConfig
from ...runtime.devices.extension import Extension
from ...runtime.devices.plugin import CoreHandle
from ...runtime.graph import Graph, Model, copy_graph
from ...runtime.graph.node_failure import run_failure
from ...runtime.graph.stand_ins import release_constants
from ...runtime.interpretation.states_in_place import StatePlan, plan_states
from ...runtime.interpretation.steps import Steps, StepTime, compile_steps
from ...runtime.network.executable_network import ExecutableNetwork, Slot
from ...runtime.network.states.state_pairs import find_pairs
from ...runtime.passes import Pass, default_passes, specialize
from ...runtime.plans.capacity import refuse_what_cannot_fit
from ...runtime.plans.plan_cache import PendingPlan, PlanLimits
from ...runtime.plans.shape_plans import ShapePlans
from ...runtime.properties.properties import (
    EXPORTABLE,
    INPUT_SHAPES,
    NUM_STREAMS,
    Configuration,
    slot_count,
)
from ...runtime.runs.bindings import NodeProfile
from ...runtime.runs.stage import Again, Stage
from ...runtime.tensors.tensor import ports_of
from ...runtime.type_inference import has_static_types
from .finder import KernelFinder

__all__ = ["ReferenceNetwork", "passes_with"]


class ReferenceNetwork(ExecutableNetwork):
    """A model compiled for one REFERENCE device; by ``steps``, if they are known already.

    ``config`` says how many streams there are.
    """

    def __init__(
        self,
        model: Model,
        config: Configuration,
        core: CoreHandle,
        finder: KernelFinder,
        extensions: Sequence[Extension],
        steps: Steps | None = None,
    ) -> None:
        device, streams = f"REFERENCE.{config['DEVICE_ID']}", config[NUM_STREAMS]
        super().__init__(
            name=model.name,
            device=device,
            inputs=ports_of(model.inputs),
            outputs=ports_of(model.outputs),
            config=config,
            core=core,
        )
        self._model, self.finder, self._extensions = model, finder, extensions
        self._only_steps = steps
        self._keeps_model = config[EXPORTABLE] or not has_static_types(model.inputs)
        self._output_names = [port.name for port in self.outputs]
        self._pairs = find_pairs(model, config)
        foreign = self._extended = {(item.domain, item.op_type) for item in extensions}
        self.may_compute_inline = not any(
            node.bodies() or (node.domain, node.op_type) in foreign for node in model.graph.nodes
        )
        """True if shapes decide how long a run takes, and no code of users runs in it."""
        self._streams = core.executors.acquire(StreamsConfig(device, streams))
        self._compiler = core.executors.acquire(StreamsConfig("compile"))
        self._plans: ShapePlans[Steps] = ShapePlans(
            model,
            self.inputs,
            self.device,
            self._plan,
            self._compiler,
            limits=PlanLimits.of(config),
        )
        try:
            self._plans.compile_ahead(config[INPUT_SHAPES])
        except BaseException:
            self._abandon()
            raise
        # One run computes on each stream, and one more is bound and ready to follow it.
        slots = slot_count(config, 2 * streams)
        self._provide_slots([_ReferenceSlot(self) for _ in range(slots)])

    def _plan(self, shapes: Mapping[str, Sequence[int]], _contents: Mapping[str, Any]) -> Steps:
        if self._only_steps is not None:
            return self._only_steps
        passes = passes_with(self._extensions)
        model = specialize(self._model, shapes, passes, is_last=not self._keeps_model)
        refuse_what_cannot_fit(model.graph)
        steps = compile_steps(model.graph, self.finder, self._states_in_place(model.graph))
        release_constants(model.graph)  # the steps have them
        return steps

    def steps_for(self, model: Model) -> Steps | None:
        """Return its steps for a model that is alike; None if they are not of one signature."""
        plans = self._plans.plans() if has_static_types(self._model.inputs) else []
        return plans[0].named_by(model.graph) if len(plans) == 1 else None

    def _states_in_place(self, graph: Graph) -> list[StatePlan]:
        """List the states that no kernel of a user computes."""
        own = self._extended
        found = plan_states(graph, self._pairs)
        return [state for state in found if (state.node.domain, state.node.op_type) not in own]

    def request_plan(self, inputs: Mapping[str, Any]) -> PendingPlan[Steps]:
        """Return the token of the plan for these inputs."""
        return self._plans.request(inputs)

    @property
    def output_names(self) -> list[str]:
        """The outputs in the plan's order."""
        return self._output_names

    def forget_model(self) -> None:
        if has_static_types(self._model.inputs):
            release_constants(self._model.graph)
            self._keeps_model = False

    def _model_to_export(self) -> Model | None:
        return self._model if self._keeps_model else None

    def runtime_graph(self) -> Graph:
        return copy_graph(self._model.graph)

    def _release_device(self) -> None:
        self._core.executors.release(self._streams)
        self._core.executors.release(self._compiler)
        self._plans.clear()
        self._only_steps = None
        release_constants(self._model.graph)


class _ReferenceSlot(Slot):
    """One run, computed on a stream; it is called again once a missing plan has been built."""

    def __init__(self, network: ReferenceNetwork) -> None:
        self._network = network
        self.stages = (Stage("compute", network._streams, self._compute),)
        self.may_run_inline = network.may_compute_inline

    def _compute(self, _lane: Lane) -> Ready:
        bindings = self.bindings
        pending = bindings.awaited or self._network.request_plan(bindings.inputs)
        if not pending.is_built:
            bindings.awaited = pending
            return Again(pending)
        profile: list[StepTime] | None
        profile = None if bindings.profile is None else []
        network, plan, inputs = self._network, pending.plan, bindings.inputs
        memories = []
        if bindings.has_own_states and plan.states:
            owners = [network.model_inputs[state.input].name for state in plan.states]
            kept = [inputs[name] for name in owners]
            memories = [state.begin(array) for state, array in zip(plan.states, kept, strict=True)]
            plain = {name: np.asarray(array) for name, array in zip(owners, kept, strict=True)}
            inputs = {**inputs, **plain}
        try:
            results = plan.run(inputs, self.stop.raise_if_set, profile, memories)
        except AioInferError:
            raise
        except Exception as error:
            raise run_failure(error, f"{network.name!r} on {network.device}") from error
        copied_bytes = sum([memory.copied_bytes for memory in memories])
        for name, result in zip(network.output_names, results, strict=True):
            copied_bytes += bindings.deliver(name, result)
        if copied_bytes:
            bindings.note_copied(network.admission.recorder, "compute", "host", copied_bytes)
        if bindings.profile is not None:
            for names, op, start_ns, end_ns, _ in profile or ():
                node = names[0] if names else op
                bindings.profile.append(NodeProfile(node, op, names, start_ns, end_ns))
        return NOW


def passes_with(extensions: Iterable[Extension]) -> tuple[Pass, ...]:
    """List the passes; they leave alone what an extension computes in its own way."""
    return _passes_but(
        tuple([f"{item.domain}::{item.op_type}".removeprefix("::") for item in extensions])
    )


_passes_but = functools.lru_cache(maxsize=16)(default_passes)
"""Passes keep nothing of what they have seen, so all networks may share them."""
