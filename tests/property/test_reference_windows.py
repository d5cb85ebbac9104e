"""Convolutions and pools equal literal loops over ONNX's definition, and onnx.reference."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

from aioinfer.runtime.operators.windows.convolutions import (
    conv,
    conv_integer,
    conv_transpose,
    qlinear_conv,
)
from aioinfer.runtime.operators.windows.pools import average_pool, lp_pool, max_pool
from exhaustive import drawn

EXAMPLES = settings(max_examples=drawn(60))


@st.composite
def windows(draw, *, has_auto_pad=True, max_rank=3):
    """Draw the lengths of spatial axes, and attributes that fit them."""
    rank = draw(st.integers(1, max_rank))
    upto = {1: 9, 2: 6, 3: 4}[rank]

    def numbers(low, high):
        return draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))

    lengths, kernel = numbers(1, upto), numbers(1, 3)
    attributes = {"strides": numbers(1, 3), "dilations": numbers(1, 2)}
    choices = ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"] if has_auto_pad else ["NOTSET"]
    attributes["auto_pad"] = draw(st.sampled_from(choices))
    if attributes["auto_pad"] == "NOTSET":
        begins = [draw(st.integers(0, size - 1)) for size in kernel]
        ends = [draw(st.integers(0, size - 1)) for size in kernel]
        attributes["pads"] = begins + ends
    else:
        begins = ends = [0] * rank
    for length, size, dilation, begin, end in zip(
        lengths, kernel, attributes["dilations"], begins, ends, strict=True
    ):
        assume((size - 1) * dilation + 1 <= length + begin + end)
    return lengths, kernel, attributes


def layout(lengths, kernel, attributes, ceil_mode=0):
    """Give (begin, end, window count) for each axis, straight from ONNX's formulas."""
    rank = len(lengths)
    found = []
    for i in range(rank):
        stride = attributes["strides"][i]
        span = (kernel[i] - 1) * attributes["dilations"][i] + 1
        kind = attributes["auto_pad"]
        if kind in ("SAME_UPPER", "SAME_LOWER"):
            count = math.ceil(lengths[i] / stride)
            total = max((count - 1) * stride + span - lengths[i], 0)
            begin = total // 2 if kind == "SAME_UPPER" else total - total // 2
            found.append((begin, total - begin, count))
            continue
        begin, end = (0, 0)
        if kind == "NOTSET":
            begin, end = attributes["pads"][i], attributes["pads"][rank + i]
        exact = (lengths[i] + begin + end - span) / stride + 1
        count = math.floor(exact)
        if ceil_mode:
            count = math.ceil(exact)
            if (count - 1) * stride >= lengths[i] + begin:
                count -= 1
        found.append((begin, end, count))
    return found


def window_positions(place, kernel, attributes, begins):
    """Walk (offset in the kernel, position in the input) of one window."""
    for offset in itertools.product(*[range(size) for size in kernel]):
        position = tuple(
            place[i] * attributes["strides"][i] + offset[i] * attributes["dilations"][i] - begins[i]
            for i in range(len(kernel))
        )
        yield offset, position


def is_inside(position, lengths):
    return all(0 <= at < length for at, length in zip(position, lengths, strict=True))


def slow_conv(x, w, bias, group, attributes):
    lengths, kernel = x.shape[2:], w.shape[2:]
    plan = layout(lengths, kernel, attributes)
    begins, counts = [axis[0] for axis in plan], [axis[2] for axis in plan]
    out = np.zeros((x.shape[0], w.shape[0], *counts))
    for n, m in itertools.product(range(x.shape[0]), range(w.shape[0])):
        first = m // (w.shape[0] // group) * w.shape[1]
        for place in itertools.product(*[range(count) for count in counts]):
            total = float(bias[m])
            for offset, position in window_positions(place, kernel, attributes, begins):
                if is_inside(position, lengths):
                    for c in range(w.shape[1]):
                        total += float(x[(n, first + c, *position)]) * float(w[(m, c, *offset)])
            out[(n, m, *place)] = total
    return out


def run_onnx(op_type, *inputs, output_count=1, **attributes):
    """Evaluate one node with onnx.reference's own class."""
    names = [f"x{index}" if array is not None else "" for index, array in enumerate(inputs)]
    outputs = [f"y{index}" for index in range(output_count)]
    node = helper.make_node(op_type, names, outputs, **attributes)
    feeds = {name: array for name, array in zip(names, inputs, strict=True) if name}
    return ReferenceEvaluator(node).run(None, feeds)


@EXAMPLES
@given(windows(), st.sampled_from([(1, 1, 1), (1, 2, 3), (2, 1, 1), (2, 2, 2)]), st.integers(0, 9))
def test_conv_is_what_onnx_defines(drawn, groups, seed) -> None:
    lengths, kernel, attributes = drawn
    group, inner, multiplier = groups
    random = np.random.default_rng(seed)
    x = random.standard_normal((2, group * inner, *lengths)).astype(np.float32)
    w = random.standard_normal((group * multiplier, inner, *kernel)).astype(np.float32)
    bias = random.standard_normal(group * multiplier).astype(np.float32)
    made = conv(x, w, bias, group=group, kernel_shape=kernel, **attributes)
    assert made.dtype == np.float32
    expected = slow_conv(x, w, bias, group, attributes)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


@EXAMPLES
@given(windows(has_auto_pad=False), st.integers(0, 9))
def test_conv_agrees_with_onnx_reference(drawn, seed) -> None:
    lengths, kernel, attributes = drawn
    random = np.random.default_rng(seed)
    x = random.standard_normal((1, 2, *lengths)).astype(np.float32)
    w = random.standard_normal((3, 2, *kernel)).astype(np.float32)
    (expected,) = run_onnx("Conv", x, w, kernel_shape=kernel, **attributes)
    np.testing.assert_allclose(conv(x, w, **attributes), expected, rtol=1e-4, atol=1e-5)


@EXAMPLES
@given(windows(has_auto_pad=False, max_rank=2), st.sampled_from([(1, 2, 3), (2, 1, 2)]), st.data())
def test_conv_transpose_is_the_adjoint_of_conv(drawn, groups, data) -> None:
    lengths, kernel, attributes = drawn
    group, inner, multiplier = groups
    counts = [axis[2] for axis in layout(lengths, kernel, attributes)]
    random = np.random.default_rng(data.draw(st.integers(0, 9)))
    x = random.standard_normal((2, group * inner, *lengths))
    w = random.standard_normal((group * multiplier, inner, *kernel))
    y = random.standard_normal((2, group * multiplier, *counts))
    attributes = {key: item for key, item in attributes.items() if key != "auto_pad"}
    # What a stride left over at the end of x has to be asked for.
    rank = len(lengths)
    extra = [
        length
        - (
            (count - 1) * attributes["strides"][i]
            + (kernel[i] - 1) * attributes["dilations"][i]
            + 1
        )
        + attributes["pads"][i]
        + attributes["pads"][rank + i]
        for i, (length, count) in enumerate(zip(lengths, counts, strict=True))
    ]
    back = conv_transpose(y, w, group=group, output_padding=extra, **attributes)
    assert back.shape == x.shape
    forward = conv(x, w, group=group, **attributes)
    np.testing.assert_allclose(np.sum(forward * y), np.sum(x * back), rtol=1e-8, atol=1e-8)


@EXAMPLES
@given(
    windows(has_auto_pad=False, max_rank=2),
    st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER"]),
    st.integers(0, 9),
)
def test_conv_transpose_agrees_with_onnx_reference(drawn, auto_pad, seed) -> None:
    lengths, kernel, attributes = drawn
    attributes = {key: item for key, item in attributes.items() if key != "auto_pad"}
    if auto_pad != "NOTSET":
        attributes.pop("pads")
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, attributes["dilations"], strict=True)]
        assume(all(span >= s for span, s in zip(spans, attributes["strides"], strict=True)))
    random = np.random.default_rng(seed)
    x = random.standard_normal((2, 2, *lengths)).astype(np.float32)
    w = random.standard_normal((2, 3, *kernel)).astype(np.float32)
    bias = random.standard_normal(3).astype(np.float32)
    made = conv_transpose(x, w, bias, auto_pad=auto_pad, **attributes)
    assume(made.size)
    (expected,) = run_onnx("ConvTranspose", x, w, bias, auto_pad=auto_pad, **attributes)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("output_shape", [[7, 7], [8, 9]])
def test_conv_transpose_can_be_told_its_shape(output_shape) -> None:
    x = np.random.default_rng(3).random((1, 1, 3, 3), np.float32)
    w = np.random.default_rng(4).random((1, 2, 3, 3), np.float32)
    made = conv_transpose(x, w, strides=[3, 3], output_shape=output_shape, auto_pad="SAME_UPPER")
    assert made.shape == (1, 2, *output_shape)


@EXAMPLES
@given(windows(has_auto_pad=False, max_rank=2), st.integers(0, 9))
def test_integer_convolutions_agree_with_onnx_reference(drawn, seed) -> None:
    lengths, kernel, attributes = drawn
    random = np.random.default_rng(seed)
    x = random.integers(0, 256, (1, 2, *lengths), np.uint8)
    w = random.integers(0, 256, (3, 2, *kernel), np.uint8)
    zero, zero_w = np.uint8(7), np.uint8(9)
    points = np.asarray(zero), np.asarray(zero_w)
    (expected,) = run_onnx("ConvInteger", x, w, *points, **attributes)
    made = conv_integer(x, w, *points, **attributes)
    assert made.dtype == np.int32
    np.testing.assert_array_equal(made, expected)
    scales = [np.asarray(scale, np.float32) for scale in (0.02, 0.03, 1.5)]
    arguments = [x, scales[0], points[0], w, scales[1], points[1], scales[2], points[0]]
    (expected,) = run_onnx("QLinearConv", *arguments, **attributes)
    made = qlinear_conv(*arguments, **attributes)
    assert made.dtype == np.uint8
    np.testing.assert_allclose(made.astype(int), expected.astype(int), atol=1)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_conv_keeps_the_type(dtype) -> None:
    x, w = np.ones((1, 2, 5), dtype), np.full((1, 2, 3), 2, dtype)
    made = conv(x, w)
    assert made.dtype == dtype
    assert made.tolist() == [[[12.0] * 3]]


@pytest.mark.parametrize(
    ("x", "w", "group"),
    [((1, 3, 5), (2, 2, 3), 1), ((1, 4, 5), (3, 2, 3), 2), ((1, 4), (4, 4), 1)],
)
def test_conv_refuses_shapes_that_do_not_fit(x, w, group) -> None:
    with pytest.raises(ValueError, match=str(w[0])):
        conv(np.zeros(x, np.float32), np.zeros(w, np.float32), group=group)


@pytest.mark.parametrize("shape", [(0, 2, 5), (1, 0, 5)])
def test_conv_of_nothing(shape) -> None:
    made = conv(np.zeros(shape, np.float32), np.zeros((3, shape[1], 2), np.float32))
    assert made.shape == (shape[0], 3, 4)
    assert not made.any()


@EXAMPLES
@given(windows(), st.booleans(), st.booleans(), st.integers(0, 9))
def test_max_pool_and_its_indices_are_what_onnx_defines(drawn, ceil, by_columns, seed) -> None:
    lengths, kernel, attributes = drawn
    plan = layout(lengths, kernel, attributes, ceil)
    begins, counts = [axis[0] for axis in plan], [axis[2] for axis in plan]
    x = np.random.default_rng(seed).integers(-9, 9, (2, 2, *lengths)).astype(np.float32)
    order = "F" if by_columns else "C"
    best = np.full((2, 2, *counts), -np.inf)
    where = np.full((2, 2, *counts), -1)
    for n, c in itertools.product(range(2), range(2)):
        for place in itertools.product(*[range(count) for count in counts]):
            for _, position in window_positions(place, kernel, attributes, begins):
                at = (n, c, *place)
                if is_inside(position, lengths) and x[(n, c, *position)] > best[at]:
                    best[at] = x[(n, c, *position)]
                    inner = int(np.ravel_multi_index(position, lengths, order=order))
                    where[at] = (n * 2 + c) * math.prod(lengths) + inner
    assume(np.isfinite(best).all())
    arguments = {"kernel_shape": kernel, "ceil_mode": int(ceil), **attributes}
    np.testing.assert_array_equal(max_pool(x, **arguments), best)
    made, indices = max_pool(x, storage_order=int(by_columns), output_count=2, **arguments)
    np.testing.assert_array_equal(made, best)
    np.testing.assert_array_equal(indices, where)


@EXAMPLES
@given(windows(has_auto_pad=False), st.booleans(), st.integers(0, 9))
def test_max_pool_agrees_with_onnx_reference(drawn, ceil, seed) -> None:
    lengths, kernel, attributes = drawn
    # onnx.reference takes another way, with other padding, where all strides and dilations are 1.
    assume(max(*attributes["strides"], *attributes["dilations"]) > 1)
    x = np.random.default_rng(seed).standard_normal((1, 2, *lengths)).astype(np.float32)
    arguments = {"kernel_shape": kernel, "ceil_mode": int(ceil), **attributes}
    made, indices = max_pool(x, output_count=2, **arguments)
    assume((indices >= 0).all())
    expected = run_onnx("MaxPool", x, output_count=2, **arguments)
    np.testing.assert_array_equal(made, expected[0])
    np.testing.assert_array_equal(indices, expected[1])


@EXAMPLES
@given(windows(), st.booleans(), st.booleans(), st.integers(0, 9))
def test_average_and_norm_pools_are_what_onnx_defines(drawn, ceil, counts_padding, seed) -> None:
    lengths, kernel, attributes = drawn
    plan = layout(lengths, kernel, attributes, ceil)
    begins, ends, counts = zip(*plan, strict=True)
    x = np.random.default_rng(seed).standard_normal((1, 2, *lengths)).astype(np.float32)
    average = np.zeros((1, 2, *counts))
    norm = np.zeros((1, 2, *counts))
    for c in range(2):
        for place in itertools.product(*[range(count) for count in counts]):
            read, number = [], 0
            for _, position in window_positions(place, kernel, attributes, begins):
                if is_inside(position, lengths):
                    read.append(float(x[(0, c, *position)]))
                    number += 1
                elif counts_padding:
                    shifted = [at + begin for at, begin in zip(position, begins, strict=True)]
                    padded = [sum(item) for item in zip(lengths, begins, ends, strict=True)]
                    number += is_inside(shifted, padded)
            assume(number)
            average[(0, c, *place)] = sum(read) / number
            norm[(0, c, *place)] = sum(abs(value) ** 2 for value in read) ** 0.5
    arguments = {"kernel_shape": kernel, "ceil_mode": int(ceil), **attributes}
    made = average_pool(x, count_include_pad=int(counts_padding), **arguments)
    np.testing.assert_allclose(made, average, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(lp_pool(x, **arguments), norm, rtol=1e-4, atol=1e-6)


@EXAMPLES
@given(windows(has_auto_pad=False, max_rank=2), st.booleans(), st.integers(0, 9))
def test_average_pool_agrees_with_onnx_reference(drawn, counts_padding, seed) -> None:
    lengths, kernel, attributes = drawn
    x = np.random.default_rng(seed).standard_normal((1, 2, *lengths)).astype(np.float32)
    arguments = {"kernel_shape": kernel, "count_include_pad": int(counts_padding), **attributes}
    with np.errstate(invalid="ignore"):  # a window that lies in the padding alone is 0/0
        made = average_pool(x, **arguments)
    assume(np.isfinite(made).all())
    (expected,) = run_onnx("AveragePool", x, **arguments)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.float16, np.float64])
def test_pools_keep_the_type(dtype) -> None:
    x = np.array([[[1, 3, 2, 2]]], dtype)
    assert max_pool(x, kernel_shape=[2], pads=[1, 1]).dtype == dtype
    assert max_pool(x, kernel_shape=[2], pads=[1, 1]).tolist() == [[[1, 3, 3, 2, 2]]]


def test_max_pool_of_minus_infinity_finds_its_place() -> None:
    x = np.full((1, 1, 3), -np.inf, np.float32)
    made, indices = max_pool(x, kernel_shape=[2], pads=[1, 0], output_count=2)
    assert (made == -np.inf).all()
    assert indices.tolist() == [[[0, 0, 1]]]
