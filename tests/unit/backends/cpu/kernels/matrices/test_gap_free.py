"""Matmuls of operands that are parts of longer rows."""

from __future__ import annotations

import numpy as np
import onnx.numpy_helper
import pytest

import aioinfer
from aioinfer.backends.cpu.kernels.matrices.gap_free import gap_free_layout
from aioinfer.backends.cpu.onednn.bindings import open_engine
from aioinfer.backends.cpu.plans.operand_layout import Layout
from aioinfer.runtime.graph import DType
from onnx_text import parse_proto

AVX512 = 0x27

JOINED = """
g (float[2,9,96] x, float[96,96] w) => (float[2,9,32] y) {
    sizes = Constant <value_ints = [32, 32, 32]> ()
    heads = Constant <value_ints = [0, 0, 4, 8]> ()
    flat = Constant <value_ints = [0, 0, -1]> ()
    joined = MatMul (x, w)
    q, k, v = Split <axis = 2> (joined, sizes)
    q4 = Reshape (q, heads) k4 = Reshape (k, heads) v4 = Reshape (v, heads)
    qh = Transpose <perm = [0, 2, 1, 3]> (q4)
    kh = Transpose <perm = [0, 2, 3, 1]> (k4)
    vh = Transpose <perm = [0, 2, 1, 3]> (v4)
    scores = MatMul (qh, kh)
    shares = Softmax <axis = -1> (scores)
    mixed = MatMul (shares, vh)
    rows = Transpose <perm = [0, 2, 1, 3]> (mixed)
    y = Reshape (rows, flat)
}
"""


@pytest.mark.parametrize(
    ("shape", "strides", "wanted"),
    [
        ((1, 6, 32, 64), (36864, 64, 1152, 1), (12288, 64, 384, 1)),
        ((1, 6, 64, 32), (36864, 64, 1, 1152), (12288, 64, 1, 384)),
        ((2, 3, 4), (12, 4, 1), (12, 4, 1)),
        ((2, 1, 4), (4, 99, 1), (4, 99, 1)),
        ((8, 4), (9, 1), (4, 1)),
        ((8, 4), (1, 9), (1, 8)),
    ],
)
def test_gaps_are_left_out_and_the_order_of_axes_stays(
    shape: tuple[int, ...], strides: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    found = gap_free_layout(Layout.plain(shape, DType.FLOAT32, strides))
    assert found is not None
    assert found.strides is not None
    pairs = zip(shape, found.strides, wanted, strict=True)
    assert all(dim == 1 or step == other for dim, step, other in pairs)


@pytest.mark.parametrize(
    "layout",
    [
        Layout.plain((2, 4), DType.BFLOAT16, (9, 1)),
        Layout.plain((2, 2, 2, 2, 4), DType.FLOAT32),
        Layout.plain((2, 4), DType.FLOAT32, (0, 1)),
        Layout.plain((2, 4), DType.FLOAT32, (-4, 1)),
        Layout.plain((0, 4), DType.FLOAT32),
        Layout((8, 16), DType.FLOAT32, None),
    ],
    ids=["of 16 bits", "of five axes", "repeated", "backwards", "empty", "blocked"],
)
def test_what_has_no_such_layout_stays(layout: Layout) -> None:
    assert gap_free_layout(layout) is None


@pytest.mark.skipif(
    open_engine().instruction_set & AVX512 != AVX512, reason="oneDNN's kernels are for AVX-512"
)
def test_attention_to_joined_rows_needs_no_general_matmul(core: aioinfer.Core) -> None:
    chance = np.random.default_rng(0)
    model = parse_proto(JOINED)
    weights = chance.standard_normal((96, 96), np.float32) / 8
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    x = chance.standard_normal((2, 9, 96), np.float32)
    answers = []
    for device in ("CPU", "REFERENCE"):
        with core.load_network(model, device, {"PERF_COUNT": True}) as network:
            request = network.create_infer_request()
            answers.append(request.infer_sync(x)["y"])
            if device == "CPU":
                used = {row.implementation for row in request.profiling()}
    np.testing.assert_allclose(*answers, rtol=1e-4, atol=1e-5)
    assert any("brg:avx512" in name for name in used)
    assert not any("gemm:jit" in name for name in used)
