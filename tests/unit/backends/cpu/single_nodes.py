"""Lowers and runs one node, also of the CPU's own domain, without passes before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aioinfer.backends.cpu.kernels.registry import KERNELS
from aioinfer.backends.cpu.native.step_runner import step_runner
from aioinfer.backends.cpu.onednn.bindings import open_engine
from aioinfer.backends.cpu.onednn.post_ops import CPU_DOMAIN
from aioinfer.backends.cpu.plans.packed_weights import WeightStore
from aioinfer.backends.cpu.plans.plan import Plan
from aioinfer.backends.cpu.plans.plan_builder import PlanBuilder
from aioinfer.backends.cpu.programs.lane_programs import LanePrograms
from aioinfer.executors import Lane
from aioinfer.runtime.graph import DType, Graph, Model, Node, TensorType, Value
from unit.backends.cpu.comparing import skip_without_bfloat16

Arrays = Mapping[str, np.ndarray]


def value_of(name: str, array: np.ndarray, *, is_constant: bool = False) -> Value:
    """Make a value of an array's type, and with its content."""
    kind = TensorType(DType.of(array.dtype), array.shape)
    return Value(name, kind, array if is_constant else None)


def model_of_nodes(
    nodes: Sequence[Node], inputs: Sequence[Value], outputs: Sequence[Value]
) -> Model:
    """Make a model of nodes whose values have their types already."""
    graph = Graph("g", inputs, outputs)
    for node in nodes:
        for value in node.inputs:
            if value is not None and value.is_constant:
                graph.initializers[value.name] = value
        graph.append(node)
    return Model(graph, {"": 21})


def plan_of(model: Model, *, thread_count: int = 1, float_dtype: DType = DType.FLOAT32) -> Plan:
    """Lower a model as it is; skips the test where the processor cannot compute so."""
    if float_dtype is DType.BFLOAT16:
        skip_without_bfloat16()
    engine = open_engine()
    builder = PlanBuilder(
        model,
        engine,
        WeightStore(),
        thread_count=thread_count,
        float_dtype=float_dtype,
    )
    for node in model.graph.nodes:
        assert KERNELS.find_unsupported(node) is None
    with engine.with_threads(thread_count):
        return builder.build(KERNELS.lower)


def run_plan(plan: Plan, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run a plan once, and return its outputs."""
    lane = Lane("test", 0, plan.thread_count)
    program = LanePrograms(step_runner(plan.engine)).program(plan, lane)
    outputs = [np.full(item.shape, 77, item.dtype.numpy) for item in plan.outputs]
    program.run((*map(np.ascontiguousarray, inputs), *outputs))
    return outputs


def run_fused(
    op_type: str,
    inputs: Sequence[np.ndarray | None],
    shape: Sequence[int],
    attributes: Mapping[str, Any],
    constants: Sequence[int] = (),
    **config: Any,
) -> tuple[np.ndarray, list[str]]:
    """Run a node of the CPU's domain; inputs at ``constants`` are weights.

    Returns the result and the implementations of the steps.
    """
    values = [
        None if array is None else value_of(f"x{index}", array, is_constant=index in constants)
        for index, array in enumerate(inputs)
    ]
    result = Value("y", TensorType(DType.FLOAT32, tuple(shape)))
    node = Node(op_type, values, [result], dict(attributes), name="node", domain=CPU_DOMAIN)
    given = [index for index, item in enumerate(values) if item and not item.is_constant]
    model = model_of_nodes([node], [values[index] for index in given], [result])
    plan = plan_of(model, **config)
    (found,) = run_plan(plan, [inputs[index] for index in given])
    return found, [step.implementation for step in plan.steps]


def largest_error(found: np.ndarray, wanted: np.ndarray) -> float:
    """Give the largest error over the largest value."""
    assert found.shape == wanted.shape
    if not found.size:
        return 0.0
    scale = max(float(np.abs(wanted).max()), 1e-30)
    return float(np.abs(found.astype(np.float64) - wanted).max()) / scale
