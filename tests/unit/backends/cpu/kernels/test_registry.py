"""The registry: what is taken, what is refused and why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from aioinfer import Core
from aioinfer.backends.cpu.kernels.registry import KERNELS
from aioinfer.backends.cpu.onednn.post_ops import CPU_DOMAIN
from aioinfer.backends.cpu.passes import plan_passes
from aioinfer.runtime.graph import Node
from aioinfer.runtime.passes import run_passes
from unit.backends.cpu.comparing import model_of

X = np.zeros((2, 3), np.float32)
node = helper.make_node


def first(core: Core, *nodes: Any, x: np.ndarray = X, **options: Any) -> Node:
    """Read a model and return its first node."""
    return next(core.read_model(model_of(nodes, {"x": x}, **options)).graph.nodes)


def test_both_names_of_the_standard_domain_are_one(core: Core) -> None:
    plain = first(core, node("Relu", ["x"], ["y"]))
    named = first(core, node("Relu", ["x"], ["y"], domain="ai.onnx"))
    assert KERNELS.find_kernel(named) is KERNELS.find_kernel(plain)


def test_an_operator_without_a_kernel_is_named(core: Core) -> None:
    found = first(core, node("Bernoulli", ["x"], ["y"]), x=np.zeros((3, 3), np.float32))
    assert KERNELS.find_kernel(found) is None
    assert KERNELS.find_unsupported(found) == "CPU has no kernel for Bernoulli"


def test_another_element_type_is_named_with_those_there_are(core: Core) -> None:
    found = first(core, node("Softmax", ["x"], ["y"]), x=np.zeros((2, 3), np.float16))
    reason = KERNELS.find_unsupported(found)
    assert reason is not None
    assert reason.startswith("CPU has Softmax for ")
    assert reason.endswith(", not for float16")
    assert "float32" in reason


def test_sequences_are_refused_by_name(core: Core) -> None:
    sequence = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None)
    y = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([node("Identity", ["x"], ["y"])], "g", [sequence], [y])
    opsets = [helper.make_opsetid("", 21)]
    model = core.read_model(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    reason = KERNELS.find_unsupported(next(model.graph.nodes))
    assert reason == "'x' is seq(float32[...]), and CPU takes tensors only"


@pytest.mark.parametrize("op", ["Conv", "MatMul"])
def test_fused_nodes_are_told_by_their_domain(core: Core, op: str) -> None:
    x = np.zeros((1, 3, 4, 4), np.float32)
    weights = np.ones((3, 3, 1, 1) if op == "Conv" else (4, 4), np.float32)
    nodes = [node(op, ["x", "w"], ["a"]), node("Relu", ["a"], ["y"])]
    model = core.read_model(model_of(nodes, {"x": x}, constants={"w": weights})).copy()
    run_passes(model, plan_passes())
    (fused,) = model.graph.nodes
    assert fused.domain == CPU_DOMAIN
    assert KERNELS.find_unsupported(fused) is None
