"""Which attention is cuDNN's, what it is told, and that the numbers agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.precision import F32, Precision
from aioinfer.backends.cuda.kernels.library_call import WORKSPACE_BYTES
from aioinfer.runtime.graph import DType
from exhaustive import all_but
from unit.backends.accelerator.kernels.test_attention import attention
from unit.backends.comparing import assert_same_on, model_of, operator
from unit.backends.cuda.kernels.plans import CUDNN, labels_of, operations_of, plan_of

HALF = Precision(DType.FLOAT16)
GENERATED = ["matmul", "softmax", "matmul", "copy"]
LIBRARIES = frozenset({"cublaslt", "cudnn"})
BOUNDS = {"f32": 1e-5, "f16": 1e-2, "bf16": 6e-2}
PACKED = [(4, 32), (8, 16), (3, 8), (3, 5), (2, 136)]


def launched(
    model: Any, inputs: Any, precision: Precision = HALF, libraries: frozenset[str] = CUDNN
) -> list[str]:
    return labels_of(plan_of(model, inputs, libraries, precision))


def test_an_attention_says_all_that_its_plan_depends_on() -> None:
    model, inputs = attention(2, 3, 5, 7, 8, np.zeros((2, 1, 1, 7), np.float32))
    plan = plan_of(model, inputs, CUDNN, HALF)
    (operation,) = operations_of(plan)
    assert (operation.library, operation.label) == ("cudnn", "attention")
    assert dict(operation.parameters) == {
        **{"dtype": "float16", "batch": 2, "heads": 3, "queries": 5, "keys": 7, "head": 8},
        **{"scale": 0.5, "has_mask": True, "mask_shape": (2, 1, 1, 7)},
        **{"q_strides": (120, 8, 24, 1), "k_strides": (168, 8, 24, 1)},
        **{"v_strides": (168, 8, 24, 1), "o_strides": (120, 8, 24, 1)},
        "workspace_bytes": WORKSPACE_BYTES,
    }
    (call,) = (launch for launch in plan.launches if launch.source is operation)
    shapes = [item.shape for item in call.operands]
    query, key = (2, 5, 24), (2, 7, 24)
    assert shapes == [query, key, key, (2, 1, 1, 7), query, (WORKSPACE_BYTES,)]


@pytest.mark.parametrize(
    ("lengths", "mask", "precision", "libraries"),
    [
        ((2, 3, 5, 7, 8), None, F32, CUDNN),
        ((2, 3, 5, 7, 6), None, HALF, CUDNN),
        ((1, 1, 5, 7, 136), None, HALF, CUDNN),
        ((2, 3, 5, 7, 8), (1, 1, 5, 1), HALF, CUDNN),
        ((2, 3, 5, 7, 8), None, HALF, frozenset({"cublaslt"})),
    ],
    ids=["float32", "odd columns", "many columns", "a mask of queries", "no cuDNN"],
)
def test_what_cudnn_does_not_have_is_generated(
    lengths: tuple[int, int, int, int, int],
    mask: tuple[int, ...] | None,
    precision: Precision,
    libraries: frozenset[str],
) -> None:
    added = None if mask is None else np.zeros(mask, np.float32)
    model, inputs = attention(*lengths, added)
    found = launched(model, inputs, precision, libraries)
    assert [label for label in found if label != "fused"] == GENERATED


def test_zeros_for_a_query_without_a_key_are_generated() -> None:
    model, inputs = attention(1, 2, 3, 5, 8, np.zeros((1, 1, 3, 5), np.float32), is_guarded=True)
    assert "ATTENTION" not in launched(model, inputs)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(5))
def test_random_heads_give_what_reference_gives(seed: int, stand_in_core: Core) -> None:
    chance = np.random.default_rng(seed)
    batch, heads, queries = (int(number) for number in chance.integers(1, 5, 3))
    keys, depth = int(chance.integers(1, 80)), int(chance.choice([3, 8, 16]))
    added = None
    if seed:
        whole = np.array([batch, heads, queries, keys])
        mask = tuple(map(int, np.where(chance.random(4) < 0.5, 1, whole)))
        added = np.where(chance.random(mask) < 0.3, -1e4, chance.normal(size=mask))
        added = added.astype(np.float32)
    model, inputs = attention(batch, heads, queries, keys, depth, added)
    for hint, bound in BOUNDS.items():
        config = {"INFERENCE_PRECISION_HINT": hint}
        assert_same_on("STANDIN", stand_in_core, model, inputs, bound=bound, **config)


@pytest.mark.parametrize("mask", [None, (2, 3, 5, 70), (2, 1, 1, 70)])
def test_heads_attend_in_one_launch(stand_in_core: Core, mask: tuple[int, ...] | None) -> None:
    added = None
    if mask is not None:
        chance = np.random.default_rng(1)
        added = np.where(chance.random(mask) < 0.3, -1e4, chance.normal(size=mask))
        added = added.astype(np.float32)
    model, inputs = attention(2, 3, 5, 70, 8, added)
    assert "ATTENTION" in launched(model, inputs)
    for hint in ("f16", "bf16"):
        config = {"INFERENCE_PRECISION_HINT": hint}
        assert_same_on("STANDIN", stand_in_core, model, inputs, bound=BOUNDS[hint], **config)


def test_models_of_float16_need_no_hint(stand_in_core: Core) -> None:
    model, inputs = attention(2, 3, 5, 7, 8, dtype="float16")
    assert "ATTENTION" in launched(model, inputs, F32)
    assert_same_on("STANDIN", stand_in_core, model, inputs, bound=BOUNDS["f16"])


def packed(heads: int, depth: int, order: str = "qkv") -> tuple[Any, dict[str, Any]]:
    """Make the attention of heads that are split off one matmul, in this order."""
    chance, width = np.random.default_rng(0), heads * depth
    inputs = {"x": chance.normal(size=(2, 5, width)).astype(np.float32)}
    constants = {
        "w": (chance.normal(size=(width, 3 * width)) / width**0.5).astype(np.float32),
        "sizes": np.array([width] * 3),
        "parted": np.array([2, 5, heads, depth]),
        "joined": np.array([2, 5, width]),
    }
    nodes = [
        operator("MatMul", "x", "w", outputs=["xw"]),
        operator("Split", "xw", "sizes", outputs=list(order), axis=2),
    ]
    for name in "qkv":
        perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes.append(operator("Reshape", name, "parted", outputs=[f"{name}4"]))
        nodes.append(operator("Transpose", f"{name}4", outputs=[f"{name}h"], perm=perm))
    nodes.append(operator("MatMul", "qh", "kh", outputs=["scores"]))
    nodes.append(operator("Softmax", "scores", outputs=["p"], axis=-1))
    nodes.append(operator("MatMul", "p", "vh", outputs=["mixed"]))
    nodes.append(operator("Transpose", "mixed", outputs=["merged"], perm=[0, 2, 1, 3]))
    nodes.append(operator("Reshape", "merged", "joined"))
    for number, node in enumerate(nodes):
        node.name = f"{node.op_type}_{number}"
    return model_of(nodes, inputs, constants=constants), inputs


def test_packed_heads_are_addressed_in_their_matmul() -> None:
    model, inputs = packed(4, 8, "vqk")
    plan = plan_of(model, inputs, LIBRARIES, HALF)
    assert [label for label in labels_of(plan) if label != "fused"] == ["MATMUL", "ATTENTION"]
    operation = operations_of(plan)[-1]
    strides = (5 * 96, 8, 96, 1)
    assert [operation[f"{name}_strides"] for name in "qkv"] == [strides] * 3
    assert operation["o_strides"] == (5 * 32, 8, 32, 1)
    call = next(launch for launch in plan.launches if launch.source is operation)
    query, key, value = call.operands[:3]
    assert [item.offset_bytes for item in (query, key, value)] == [64, 128, 0]
    assert query.buffer is key.buffer is value.buffer


def test_packed_heads_that_have_no_address_are_copied() -> None:
    """Rows of 24 columns: keys are 48 bytes behind queries, and values 96."""
    model, inputs = packed(3, 8)
    plan = plan_of(model, inputs, LIBRARIES, HALF)
    found = [label for label in labels_of(plan) if label != "fused"]
    assert found == ["MATMUL", "copy", "copy", "ATTENTION"]
    operation = operations_of(plan)[-1]
    assert operation["q_strides"] == (5 * 72, 8, 72, 1)
    assert operation["k_strides"] == operation["v_strides"] == (5 * 24, 8, 24, 1)


def test_what_is_generated_needs_no_address_of_packed_heads() -> None:
    model, inputs = packed(3, 8)
    assert launched(model, inputs, F32) == ["matmul", *GENERATED]


@pytest.mark.parametrize("order", all_but(["vqk"], ["qkv", "vqk"]))
@pytest.mark.parametrize(("heads", "depth"), all_but([(4, 32), (3, 8)], PACKED))
def test_packed_heads_give_what_reference_gives(
    heads: int, depth: int, order: str, stand_in_core: Core
) -> None:
    model, inputs = packed(heads, depth, order)
    for hint, bound in BOUNDS.items():
        config = {"INFERENCE_PRECISION_HINT": hint}
        assert_same_on("STANDIN", stand_in_core, model, inputs, bound=bound, **config)
