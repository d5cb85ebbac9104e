"""TOY: a device of your own for aioinfer, in one module and one entry point.

It computes four operators on numpy, one node after the other. docs/add-a-device.md walks through
it; a real device differs in what its stages do, and in little else.
"""

from time import perf_counter_ns

import numpy as np

from aioinfer import DType, ExecutableNetwork, NodeProfile, Plugin, TensorType
from aioinfer.errors import PropertyError, TensorError, UnsupportedOpError
from aioinfer.executors import NOW, StreamsConfig
from aioinfer.plugins import (
    Property,
    Slot,
    Stage,
    copy_graph,
    parse_boolean,
    ports_of,
    stream_count,
)

KERNELS = {
    "Add": np.add,
    "MatMul": np.matmul,
    "Mul": np.multiply,
    "Relu": lambda x: np.maximum(x, 0),
}
"""Operator -> what computes it; each makes a new array of its inputs."""


def find_reason(node):
    """Return why TOY cannot run a node; None if it can."""
    if node.op not in KERNELS:
        return f"TOY has no kernel for {node.op}; it has {', '.join(KERNELS)}"
    for value in (*node.inputs, *node.outputs):
        if not isinstance(value.type, TensorType) or value.type.dtype is not DType.FLOAT32:
            return f"TOY computes float32 tensors, and {value.name!r} is {value.type or 'unknown'}"
    return None


TOY_CHECK_FINITE = Property(
    "TOY_CHECK_FINITE",
    parse_boolean,
    False,
    "Whether a run ends with an error, which names the node, at the first infinity or NaN.",
)


class ToyPlugin(Plugin):
    """Says which devices there are and what they can, and compiles for them."""

    properties = (TOY_CHECK_FINITE,)

    def device_ids(self):
        return ["0"]  # ask the driver here; raise DeviceError in __init__ if there is none

    def full_device_name(self, device_id):
        return "a toy made of numpy"

    def stream_range(self):
        return (1, 2)

    def check_values(self, config):
        for key, wanted in (("INFERENCE_PRECISION_HINT", "f32"), ("INFERENCE_NUM_THREADS", 0)):
            if config[key] != wanted:
                raise PropertyError(
                    f"{self.name} cannot do {key}={config[key]!r}; leave it at {wanted!r}",
                    key,
                    self.name,
                )

    def find_unsupported(self, model, config):
        reasons = {node.name: find_reason(node) for node in model.graph.nodes}
        return {name: reason for name, reason in reasons.items() if reason is not None}

    def compile_network(self, model, config):
        for name, reason in self.find_unsupported(model, config).items():
            raise UnsupportedOpError(name, model.node(name).op, config.device, reason)
        return ToyNetwork(model, config, self.core, stream_count(config, self.stream_range()[1]))


class ToyNetwork(ExecutableNetwork):
    """A model compiled for TOY: the order of its nodes, and the streams that compute it."""

    def __init__(self, model, config, core, streams):
        super().__init__(
            name=model.name,
            device=config.device,
            inputs=ports_of(model.inputs),
            outputs=ports_of(model.outputs),
            config=config,
            core=core,
        )
        self.graph = model.graph
        self.nodes = list(model.graph.nodes)
        self.constants = {
            value: value.constant
            for node in self.nodes
            for value in node.inputs
            if value.is_constant
        }
        self.streams = core.executors.acquire(StreamsConfig(config.device, streams))
        self._provide_slots([ToySlot(self) for _ in range(2 * streams)])

    def runtime_graph(self):
        return copy_graph(self.graph)

    def _release_device(self):
        self._core.executors.release(self.streams)


class ToySlot(Slot):
    """Where one run lives: its stages, each a function bound to an executor."""

    def __init__(self, network):
        self.network = network
        self.stages = (Stage("compute", network.streams, self.compute),)

    def compute(self, lane):
        network, bindings = self.network, self.bindings
        values = dict(network.constants)
        for value in network.graph.inputs:
            values[value] = bindings.inputs[value.name]
        for node in network.nodes:
            self.stop.raise_if_set()  # a cancelled run ends here, and not when all is computed
            started_ns = perf_counter_ns()
            try:
                with np.errstate(all="ignore"):
                    result = KERNELS[node.op](*(values[value] for value in node.inputs))
            except ValueError as error:  # shapes that contradict each other
                raise TensorError(f"{node.op} (node {node.name!r}) failed: {error}") from error
            self.check(node, result)
            values[node.outputs[0]] = result
            if bindings.profile is not None:  # PERF_COUNT is on
                bindings.profile.append(
                    NodeProfile(node.name, node.op, node.fused_from, started_ns, perf_counter_ns())
                )
        for value in network.graph.outputs:
            # What leaves is the caller's own: no input, no constant, and no array twice.
            bindings.deliver(value.name, np.array(values[value]))
        return NOW

    def check(self, node, result):
        if self.network.config[TOY_CHECK_FINITE] and not np.isfinite(result).all():
            raise TensorError(f"{node.op} (node {node.name!r}) made a value that is not finite")
