"""Attention as exporters write it, fused to one node, compared with REFERENCE."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from exhaustive import all_but
from unit.backends.accelerator.comparing import (
    F16_BOUND,
    assert_same_as_reference,
    model_of,
    operator,
)

BF16_BOUND = 3e-2

HEADS = [
    ((2, 3, 5, 70, 8), None),
    ((2, 3, 5, 70, 8), (0, 1, 1, 0)),
    ((1, 4, 40, 3, 2), (0, 0, 0, 0)),
    ((3, 1, 2, 2, 5), (1, 0, 0, 1)),
    ((1, 1, 1, 1, 1), (1, 1, 1, 1)),
]


def attention(
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    depth: int,
    mask: np.ndarray[Any, Any] | None = None,
    *,
    is_guarded: bool = False,
    dtype: str = "float32",
) -> tuple[Any, dict[str, Any]]:
    """Make softmax(Q K' / 2 + mask) V of heads that are split off; zeros for NaN if guarded."""
    chance, width = np.random.default_rng(0), heads * depth
    lengths = {"q": queries, "k": keys, "v": keys}
    inputs = {
        name: chance.normal(size=(batch, rows, width)).astype(dtype)
        for name, rows in lengths.items()
    }
    constants = {name: np.array(number, dtype) for name, number in (("two", 2), ("zero", 0))}
    nodes = []
    for name, rows in lengths.items():
        constants[f"{name}_shape"] = np.array([batch, rows, heads, depth])
        perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes.append(operator("Reshape", name, f"{name}_shape", outputs=[f"{name}4"]))
        nodes.append(operator("Transpose", f"{name}4", outputs=[f"{name}h"], perm=perm))
    nodes.append(operator("MatMul", "qh", "kh", outputs=["matmuls"]))
    nodes.append(operator("Div", "matmuls", "two", outputs=["scores"]))
    scores = "scores"
    if mask is not None:
        inputs["mask"] = mask.astype(dtype)
        nodes.append(operator("Add", "scores", "mask", outputs=["masked"]))
        scores = "masked"
    nodes.append(operator("Softmax", scores, outputs=["p"], axis=-1))
    if is_guarded:
        nodes.append(operator("IsNaN", "p", outputs=["bad"]))
        nodes.append(operator("Where", "bad", "zero", "p", outputs=["guarded"]))
    nodes.append(operator("MatMul", "guarded" if is_guarded else "p", "vh", outputs=["mixed"]))
    nodes.append(operator("Transpose", "mixed", outputs=["merged"], perm=[0, 2, 1, 3]))
    constants["shape"] = np.array([batch, queries, width])
    nodes.append(operator("Reshape", "merged", "shape"))
    for number, node in enumerate(nodes):
        node.name = f"{node.op_type}_{number}"
    return model_of(nodes, inputs, constants=constants), inputs


def ops(core: Core, model: Any) -> list[str]:
    with core.load_network(model, "OPENCL") as network:
        return [node.op for node in network.runtime_graph().nodes]


@pytest.mark.parametrize(("lengths", "mask"), all_but(HEADS[1:3], HEADS))
def test_heads_attend(core: Core, lengths: tuple[int, ...], mask: tuple[int, ...] | None) -> None:
    whole = lengths[:4]
    added = None
    if mask is not None:
        shape = tuple(1 if is_one else length for is_one, length in zip(mask, whole, strict=True))
        chance = np.random.default_rng(1)
        added = np.where(chance.random(shape) < 0.3, -1e4, chance.normal(size=shape))
        added = added.astype(np.float32)
    batch, heads, queries, keys, depth = lengths
    model, inputs = attention(batch, heads, queries, keys, depth, added)
    assert_same_as_reference(core, model, inputs)


def test_the_whole_is_one_node(core: Core) -> None:
    model, _ = attention(2, 3, 5, 7, 8, np.zeros((2, 1, 1, 7), np.float32))
    assert ops(core, model) == ["aioinfer.accelerator::Attention"]


def test_half_precision_is_summed_in_float32(core: Core) -> None:
    model, inputs = attention(1, 2, 3, 300, 4)
    assert_same_as_reference(core, model, inputs, bound=BF16_BOUND, INFERENCE_PRECISION_HINT="bf16")


def test_a_query_without_a_key_gets_zeros_if_the_model_says_so(core: Core) -> None:
    mask = np.zeros((1, 1, 3, 5), np.float32)
    mask[0, 0, 1] = -np.inf
    model, inputs = attention(1, 2, 3, 5, 4, mask, is_guarded=True)
    assert ops(core, model) == ["aioinfer.accelerator::Attention"]
    found = assert_same_as_reference(core, model, inputs)
    assert not found["y"][0, 1].any()


def test_without_that_it_gets_nan(core: Core) -> None:
    mask = np.zeros((1, 1, 3, 5), np.float32)
    mask[0, 0, 1] = -np.inf
    model, inputs = attention(1, 2, 3, 5, 4, mask)
    assert np.isnan(assert_same_as_reference(core, model, inputs)["y"][0, 1]).all()


def test_models_of_float16_are_fused_as_well(core: Core) -> None:
    mask = np.where(np.arange(7) < 5, 0, -np.inf).reshape(1, 1, 1, 7)
    model, inputs = attention(2, 3, 5, 7, 8, mask, dtype="float16")
    assert ops(core, model) == ["aioinfer.accelerator::Attention"]
    assert_same_as_reference(core, model, inputs, bound=F16_BOUND)
