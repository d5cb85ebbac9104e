"""Matmuls and convolutions, alone and with what devices fuse behind them."""

from __future__ import annotations

from typing import Any

from hypothesis.extra import numpy as arrays

from property.operators.cases import Case, fused, generator, given
from property.operators.elementwise import draw_steps


def add_matmul(case: Case, dtype: Any, least: int = 0) -> tuple[str, tuple[int, ...]]:
    """Add a matmul; matrices may be larger than a tile."""
    most = case.one_of([5, 40])
    drawn = case.draw(
        arrays.mutually_broadcastable_shapes(
            signature="(m?,k),(k,n?)->(m?,n?)", max_dims=2, min_side=least, max_side=most
        )
    )
    left, right = (case.array(shape, dtype) for shape in drawn.input_shapes)
    (name,) = case.node("MatMul", case.feed(left, known=False), case.feed(right))
    return name, tuple(drawn.result_shape)


def add_gemm(case: Case, dtype: Any) -> tuple[str, tuple[int, ...]]:
    m, k, n = case.numbers(3, 0, case.one_of([5, 40]))
    is_turned = case.flag(), case.flag()
    a = case.array((k, m) if is_turned[0] else (m, k), dtype)
    b = case.array((n, k) if is_turned[1] else (k, n), dtype)
    c_shape = case.one_of([None, (), (n,), (m, 1), (1, n), (m, n)])
    c = "" if c_shape is None else case.feed(case.array(c_shape, dtype))
    attributes = {
        "alpha": case.one_of([None, 0.5]),
        "beta": case.one_of([None, 0.0, 0.25]),
        "transA": int(is_turned[0]),
        "transB": int(is_turned[1]),
    }
    (name,) = case.node("Gemm", case.feed(a, known=False), case.feed(b), c, **given(attributes))
    return name, (m, n)


def draw_window(case: Case, rank: int, *, may_be_same: bool = True) -> dict[str, Any]:
    """Draw the attributes that say how a window of ``kernel_shape`` moves."""
    kernel = case.numbers(rank, 1, 3)
    auto_pad = case.one_of([None, "SAME_UPPER", "SAME_LOWER", "VALID"]) if may_be_same else None
    has_pads = auto_pad is None and case.flag()
    return given(
        {
            "kernel_shape": kernel,
            "strides": case.numbers(rank, 1, 3) if case.flag() else None,
            "dilations": case.numbers(rank, 1, 2) if case.flag() else None,
            "pads": [case.number(0, size - 1) for size in kernel * 2] if has_pads else None,
            "auto_pad": auto_pad,
        }
    )


def made_lengths(lengths: list[int], window: dict[str, Any]) -> list[int]:
    """Say how many places the window has along each axis."""
    rank, found = len(lengths), []
    auto_pad = window.get("auto_pad")
    for axis, length in enumerate(lengths):
        stride = window.get("strides", [1] * rank)[axis]
        pads = window.get("pads", [0] * 2 * rank)
        reach = (window["kernel_shape"][axis] - 1) * window.get("dilations", [1] * rank)[axis] + 1
        whole = length + pads[axis] + pads[axis + rank]
        is_same = auto_pad in ("SAME_UPPER", "SAME_LOWER")
        found.append(-(-length // stride) if is_same else (whole - reach) // stride + 1)
    return found


def add_conv(case: Case, dtype: Any) -> tuple[str, tuple[int, ...]]:
    """Add a convolution: of one to three axes, grouped, of each channel alone, of 1 x 1."""
    rank, groups = case.number(1, 3), case.number(1, 3)
    channels, filters = groups * case.number(1, 3), groups * case.number(1, 5)
    window = draw_window(case, rank)
    lengths, batch = case.numbers(rank, 5, 9), case.number(1, 2)
    x = case.array((batch, channels, *lengths), dtype)
    w = case.array((filters, channels // groups, *window["kernel_shape"]), dtype, -2, 2)
    bias = case.feed(case.array((filters,), dtype)) if case.flag() else ""
    names = case.feed(x, known=False), case.feed(w), bias
    (name,) = case.node("Conv", *names, group=groups, **window)
    return name, (batch, filters, *made_lengths(lengths, window))


def add_transposed(case: Case, dtype: Any) -> str:
    rank, groups = case.number(1, 3), case.number(1, 3)
    channels, filters = groups * case.number(1, 3), case.number(1, 3)
    window = draw_window(case, rank, may_be_same=case.flag())
    strides = window.get("strides", [1] * rank)
    if "SAME" in window.get("auto_pad", ""):  # what is shorter than its stride, ONNX leaves open
        window["strides"] = strides = [min(2, size) for size in window["kernel_shape"]]
    if "auto_pad" not in window and case.flag():
        window["output_padding"] = [case.number(0, stride - 1) for stride in strides]
    x = case.array((case.number(1, 2), channels, *case.numbers(rank, 3, 6)), dtype)
    w = case.array((channels, filters, *window["kernel_shape"]), dtype, -2, 2)
    bias = case.feed(case.array((filters * groups,), dtype)) if case.flag() else ""
    names = case.feed(x, known=False), case.feed(w), bias
    return case.node("ConvTranspose", *names, group=groups, **window)[0]


@generator("MatMul")
def draw_matmul(case: Case, op_type: str) -> None:
    case.outputs.append(add_matmul(case, case.dtype())[0])


@generator("Gemm")
def draw_gemm(case: Case, op_type: str) -> None:
    case.outputs.append(add_gemm(case, case.dtype())[0])


@generator("Conv")
def draw_conv(case: Case, op_type: str) -> None:
    case.outputs.append(add_conv(case, case.dtype())[0])


@generator("ConvTranspose")
def draw_transposed(case: Case, op_type: str) -> None:
    case.outputs.append(add_transposed(case, case.dtype()))


@fused("MatMul", "Gemm", "Conv")
def draw_fused(case: Case, op_type: str) -> None:
    dtype = case.float_dtype()
    add = {"MatMul": add_matmul, "Gemm": add_gemm, "Conv": add_conv}[op_type]
    name, shape = add(case, dtype)
    draw_steps(case, name, shape, dtype)


@fused("ConvTranspose")
def draw_fused_transposed(case: Case, op_type: str) -> None:
    dtype = case.float_dtype()
    draw_steps(case, add_transposed(case, dtype), (), dtype)


@fused("PackedMatMul")
def draw_packed(case: Case, op_type: str) -> None:
    """Add a matmul with weights that a DequantizeLinear makes, block by block."""
    block, blocks, columns = case.one_of([16, 32, 64]), case.number(1, 3), case.number(1, 9)
    is_signed = case.flag()
    low = -5 if is_signed else 0
    dtype = "int8" if is_signed else "uint8"
    weights = case.array((block * blocks, columns), dtype, low, 9)
    scales = case.array((blocks, columns), "float32", 0.25, 2)
    has_zeros = case.flag()
    zeros = case.array((blocks, columns), dtype, low, 9) if has_zeros else None
    constants = [
        case.feed(item, known=True) for item in (weights, scales, zeros) if item is not None
    ]
    (name,) = case.node("DequantizeLinear", *constants, axis=0, block_size=block)
    data = case.array((case.one_of([1, 5, 20]), block * blocks), "float32", -2, 2)
    case.outputs.append(case.node("MatMul", case.feed(data, known=False), name)[0])


@fused("Attention")
def draw_attention(case: Case, op_type: str) -> None:
    """Add an attention as exporters write it: heads split off, masked scores, heads merged."""
    batch, heads, queries, keys = case.numbers(4, 1, 4)
    depth = case.one_of([1, 3, 8])
    if case.flag():
        keys = case.number(30, 70)
    width = heads * depth

    def split(rows: int, perm: list[int]) -> str:
        x = case.feed(case.array((batch, rows, width), "float32", -2, 2), known=False)
        shape = case.integers([batch, rows, heads, depth], known=True)
        return case.node("Transpose", case.node("Reshape", x, shape)[0], perm=perm)[0]

    query, key, value = (
        split(rows, perm)
        for rows, perm in ((queries, [0, 2, 1, 3]), (keys, [0, 2, 3, 1]), (keys, [0, 2, 1, 3]))
    )
    (scores,) = case.node("MatMul", query, key)
    if case.flag():
        scale = case.feed(case.array((), "float32", 0.5, 2), known=True)
        (scores,) = case.node("Mul", scores, scale)
    if case.flag():
        whole = (batch, heads, queries, keys)
        shape = tuple(case.one_of([1, length]) for length in whole)
        mask = case.array(shape, "float32", -2, 2)
        mask[case.array(shape, "bool")] = -1e4
        (scores,) = case.node("Add", scores, case.feed(mask))
    (weights,) = case.node("Softmax", scores, axis=-1)
    (mixed,) = case.node("MatMul", weights, value)
    (merged,) = case.node("Transpose", mixed, perm=[0, 2, 1, 3])
    case.give("Reshape", merged, case.integers([batch, queries, width], known=True))
