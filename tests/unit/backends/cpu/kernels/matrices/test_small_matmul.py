"""Small matmuls, which a native kernel computes without oneDNN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from aioinfer import Core
from aioinfer.backends.cpu.kernels.matrices.small_matmul import MOST_MULTIPLICATIONS, is_small
from aioinfer.backends.cpu.onednn.post_ops import PostOp
from aioinfer.backends.cpu.onednn.unary_steps import FLOAT32_MOST
from aioinfer.runtime.graph import DType
from unit.backends.cpu.comparing import model_of, run
from unit.backends.cpu.kernels.plans import implementations

CHANCE = np.random.default_rng(0)
RELU = PostOp.unary("relu")
SMALL = ((4, 8), (8, 16), (4, 16))


def _normal(*shape: int) -> np.ndarray:
    return CHANCE.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("sides", "dtype", "post_ops", "is_taken"),
    [
        (SMALL, DType.FLOAT32, (), True),
        (SMALL, DType.FLOAT32, (RELU,), True),
        (SMALL, DType.BFLOAT16, (), False),
        (SMALL, DType.FLOAT32, (PostOp.unary("relu", 0.1),), False),
        (SMALL, DType.FLOAT32, (RELU, RELU), False),
        (SMALL, DType.FLOAT32, (PostOp.unary("clip", 0.0, FLOAT32_MOST),), True),
        (SMALL, DType.FLOAT32, (PostOp.unary("clip", 0.0, 6.0),), False),
        (SMALL, DType.FLOAT32, (PostOp.binary("add", 2),), False),
        (((2, 4, 8), (2, 8, 4), (2, 4, 4)), DType.FLOAT32, (), False),
        (((1, MOST_MULTIPLICATIONS), (MOST_MULTIPLICATIONS, 1), (1, 1)), DType.FLOAT32, (), True),
        (((1, 65), (65, 64), (1, 64)), DType.FLOAT32, (), False),
    ],
)
def test_which_matmuls_are_small(
    sides: Any, dtype: DType, post_ops: tuple[PostOp, ...], is_taken: bool
) -> None:
    assert is_small(sides, dtype, post_ops) is is_taken


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("has_relu", [False, True])
@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 16, 32), (3, 7, 5), (1, 1, 1)])
def test_gemm(
    core: Core, rows: int, inner: int, columns: int, has_relu: bool, has_bias: bool, turned: int
) -> None:
    x, w, b = _normal(rows, inner), _normal(inner, columns), _normal(columns)
    names = ["x", "w", "b"][: 2 + has_bias]
    nodes = [helper.make_node("Gemm", names, ["p" if has_relu else "y"], transB=turned)]
    if has_relu:
        nodes.append(helper.make_node("Relu", ["p"], ["y"]))
    constants = {"w": np.ascontiguousarray(w.T) if turned else w, "b": b}
    constants = {name: constants[name] for name in names[1:]}
    model = model_of(nodes, {"x": x}, constants=constants)
    assert implementations(core, model, {"x": x}) == ["native:small_matmul"]
    wanted = x.astype(np.float64) @ w + (b if has_bias else 0)
    found = run(core, model, "CPU", {"x": x})["y"]
    np.testing.assert_allclose(
        found, np.maximum(wanted, 0) if has_relu else wanted, rtol=1e-5, atol=1e-5
    )


def test_rows_of_a_batch_are_rows_of_one_matmul(core: Core) -> None:
    x, w = _normal(2, 3, 8), _normal(8, 4)
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": x}, constants={"w": w})
    assert implementations(core, model, {"x": x}) == ["native:small_matmul"]
    np.testing.assert_allclose(run(core, model, "CPU", {"x": x})["y"], x @ w, rtol=1e-5, atol=1e-5)


def test_weights_that_are_an_input_are_onednns(core: Core) -> None:
    given = {"x": _normal(2, 8), "w": _normal(8, 4)}
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], given)
    assert "native:small_matmul" not in implementations(core, model, given)


def test_one_matrix_lying_otherwise_serves_both_ways_round(core: Core) -> None:
    x, w = _normal(2, 8), np.asfortranarray(_normal(8, 8))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["straight"]),
        helper.make_node("Gemm", ["x", "w"], ["turned"], transB=1),
    ]
    model = core.read_model(
        model_of(nodes, {"x": x}, constants={"w": w}, outputs=["straight", "turned"])
    )
    model.graph.initializers["w"].constant = w
    found = run(core, model, "CPU", {"x": x})
    np.testing.assert_allclose(found["straight"], x @ w, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["turned"], x @ w.T, rtol=1e-5, atol=1e-5)


def test_nan_is_not_cut_off(core: Core) -> None:
    x, w = np.array([[np.nan, 1], [-1, 0]], np.float32), np.eye(2, dtype=np.float32)
    nodes = [helper.make_node("Gemm", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    model = model_of(nodes, {"x": x}, constants={"w": w})
    found = run(core, model, "CPU", {"x": x})["y"]
    np.testing.assert_array_equal(found, [[np.nan, np.nan], [0, 0]])


def test_a_clip_from_zero_without_an_upper_bound_leaves_no_infinity(core: Core) -> None:
    x, w = np.array([[np.inf], [-np.inf], [2], [np.nan]], np.float32), np.ones((1, 1), np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["p"]),
        helper.make_node("Clip", ["p", "z"], ["y"]),
    ]
    model = model_of(nodes, {"x": x}, constants={"w": w, "z": np.array(0, np.float32)})
    assert implementations(core, model, {"x": x}) == ["native:small_matmul"]
    found = run(core, model, "CPU", {"x": x})["y"]
    np.testing.assert_array_equal(found, [[FLOAT32_MOST], [0], [2], [np.nan]])
