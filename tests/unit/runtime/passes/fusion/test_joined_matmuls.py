"""Matmuls that can be joined, and what becomes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer.runtime.graph import Model
from aioinfer.runtime.passes.folding.constant_cache import ConstantCache
from aioinfer.runtime.passes.fusion.joined_matmuls import (
    JoinableMatmul,
    join_matmuls,
    match_matmul,
    may_join,
)
from unit.runtime.passes.transformer_models import assert_same, lines, typed

HEAD = """g (float[3,2] x, float[2,2] z) => (float q, float k) <
    float[2,2] a = {1, 2, 3, 4}, float[2,3] b = {-1, 0, 2, 1, 5, 6}, float[2] a1 = {10, 20},
    float[2,0] none = {}, float[1,2,2] stack = {1, 0, 2, 1}, float one = {1}
> {"""


def model_of(nodes: str) -> Model:
    return typed(f"{HEAD} {nodes} }}")


def matmuls_of(model: Model) -> list[JoinableMatmul]:
    found = (match_matmul(node) for node in model.graph.nodes)
    return [matmul for matmul in found if matmul is not None]


def test_a_bias_belongs_to_its_matmul() -> None:
    model = model_of("xa = MatMul(x, a) q = Add(a1, xa) k = MatMul(x, b)")
    first, second = matmuls_of(model)
    assert first.bias is not None
    assert first.bias.tolist() == [10, 20]
    assert [node.op_type for node in first.nodes] == ["MatMul", "Add"]
    assert (second.bias, second.nodes, second.width) == (None, (second.node,), 3)


@pytest.mark.parametrize(
    "nodes",
    [
        "xa = MatMul(x, a) q = Add(xa, one) k = Neg(x)",
        "xa = MatMul(x, a) q = Add(xa, a1) k = Neg(xa)",
        "xa = MatMul(x, a) q = Add(xa, xa) k = Neg(x)",
    ],
    ids=["a number", "seen before it", "itself"],
)
def test_what_is_added_otherwise_is_no_bias(nodes: str) -> None:
    (matmul,) = matmuls_of(model_of(nodes))
    assert matmul.bias is None
    assert matmul.last is matmul.node


@pytest.mark.parametrize("node", ["MatMul(x, z)", "MatMul(a, z)", "MatMul(x, stack)", "Gemm(x, a)"])
def test_other_nodes_are_no_matmuls(node: str) -> None:
    assert not matmuls_of(model_of(f"q = {node} k = Neg(x)"))


def test_joined_they_are_split_in_the_order_that_is_given() -> None:
    model = model_of("q = MatMul(x, a) xb = MatMul(x, b) k = Neg(xb)")
    matmuls, before = matmuls_of(model), model.copy()
    join_matmuls(matmuls[::-1], ConstantCache()).apply(model.graph)
    assert lines(model)[:2] == [
        "xb_joined = MatMul(x, MatMul_1_joined_MatMul_constant)",
        "xb, q = Split(xb_joined, MatMul_1_joined_Split_constant) {axis=-1}",
    ]
    assert_same(before, model)


@pytest.mark.parametrize(("change", "is_joined"), [({}, True), ({"affinity": "CPU.1"}, False)])
def test_only_matmuls_of_one_device_may_join(change: dict[str, Any], is_joined: bool) -> None:
    first, second = matmuls_of(model_of("q = MatMul(x, a) k = MatMul(x, b)"))
    for name, value in change.items():
        setattr(second.node, name, value)
    assert may_join(first, second) is is_joined


def test_only_matmuls_of_one_type_may_join() -> None:
    first, second = matmuls_of(model_of("q = MatMul(x, a) k = MatMul(x, b)"))
    half = JoinableMatmul(second.node, second.weights.astype(np.float16), None, second.last)
    assert not may_join(first, half)
