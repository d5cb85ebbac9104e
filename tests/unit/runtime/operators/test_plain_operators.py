"""Operators without onnx: which nodes they take, and that they give what onnx.reference gives."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
import pytest

from aioinfer.runtime.graph import DType, Graph, Node, Value
from aioinfer.runtime.operators import OperatorError, find_unsupported, make_operator
from aioinfer.runtime.operators.onnx_operators import make_onnx_operator
from aioinfer.runtime.operators.operator import as_operator
from aioinfer.runtime.operators.plain_operators import (
    _attribute_names,
    _entries,
    _families,
    find_plain,
    plain,
)

NEWEST = {"": onnx.defs.onnx_opset_version()}
FLOATS = ("float16", "float32", "float64", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS = (*FLOATS, *INTEGERS)
ALL = (*NUMBERS, "bool")


def node_of(op_type, inputs, output_count=1, domain="", **attributes):
    names = [None if item is None else Value(f"x{index}") for index, item in enumerate(inputs)]
    outputs = [Value(f"y{index}") for index in range(output_count)]
    return Node(op_type, names, outputs, attributes, name="n", domain=domain)


def evaluate(op_type, *inputs, output_count=1, opsets=NEWEST, **attributes):
    node = node_of(op_type, inputs, output_count, **attributes)
    assert find_plain(node, opsets) is not None
    return make_operator(node, opsets)(*inputs)


def by_onnx(op_type, *inputs, output_count=1, opsets=NEWEST, **attributes):
    node = node_of(op_type, inputs, output_count, **attributes)
    return as_operator(make_onnx_operator(node, opsets), {})(*inputs)


def dtype_of(name):
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def array_of(name, *shape, seed=0):
    """Make numbers of a type, with the odd ones that it has; on integers the extremes."""
    dtype = dtype_of(name)
    random = np.random.default_rng([seed, *shape])
    if name == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if name in INTEGERS:
        bounds = np.iinfo(dtype)
        made = random.integers(-5 if bounds.min else 0, 6, shape).astype(dtype)
        made.reshape(-1)[:2] = [bounds.min, bounds.max][: made.size]
        return made
    made = (random.standard_normal(shape) * 3).astype(dtype)
    made.reshape(-1)[:5] = np.array([-np.inf, 0.0, np.nan, -0.0, np.inf])[: made.size]
    return made


def assert_same(op_type, *inputs, **options):
    with np.errstate(all="ignore"):
        made, expected = evaluate(op_type, *inputs, **options), by_onnx(op_type, *inputs, **options)
    assert len(made) == len(expected)
    for ours, theirs in zip(made, expected, strict=True):
        assert type(ours) is np.ndarray
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        if ours.dtype == object:
            assert ours.tolist() == theirs.tolist()
        else:
            assert ours.tobytes() == theirs.tobytes()


def numbers(*names, shape=(2, 3, 4)):
    return pytest.mark.parametrize("x", [array_of(name, *shape) for name in names], ids=names)


@pytest.mark.parametrize(
    "shapes", [((2, 3, 4),) * 2, ((3, 1), (2, 1, 4)), ((), ()), ((0, 3), (3,))]
)
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div"])
def test_arithmetic(op_type, dtype, shapes) -> None:
    a, b = (array_of(dtype, *shape, seed=seed) for seed, shape in enumerate(shapes))
    assert_same(op_type, a, b)


def test_integers_are_divided_towards_zero() -> None:
    a, b = np.array([7, -7, 7, -7, 2**62 + 1, 5]), np.array([2, 2, -2, -2, -1, 0])
    assert_same("Div", a, b)
    with np.errstate(all="ignore"):
        assert evaluate("Div", a, b)[0].tolist() == [3, -3, -3, 3, -(2**62) - 1, 0]


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize(
    "op_type", ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or"]
)
def test_comparison(op_type, dtype) -> None:
    assert_same(op_type, array_of(dtype, 3, 4), array_of(dtype, 3, 4, seed=1))
    assert_same(op_type, array_of(dtype, 3, 1), array_of(dtype, 4))
    assert_same(op_type, array_of(dtype), array_of(dtype))


def test_strings_are_compared_and_moved() -> None:
    names = np.array([["a", "b"], ["", "d"]], object)
    assert_same("Equal", names, names[:, :1])
    assert_same("Where", np.array([True, False]), names, names[::-1])
    assert_same("Concat", names, names, axis=-1)
    assert_same("Reshape", names, np.array([-1]))
    assert_same("Tile", names, np.array([2, 1]))
    assert_same("Identity", names)
    assert_same("Cast", np.array(["1.5", "nan"], object), to=DType.FLOAT32.value)


@numbers(*FLOATS)
@pytest.mark.parametrize("op_type", ["Neg", "Abs", "Exp", "Log", "Reciprocal", "Floor", "Ceil"])
def test_functions_of_floats(op_type, x) -> None:
    assert_same(op_type, x)
    assert_same(op_type, x[0, 0, 0])
    assert_same(op_type, x[:, :0])


OF_ANGLES = ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan")


@numbers("float16", "float32", "float64")
@pytest.mark.parametrize("op_type", [*OF_ANGLES, "Tanh", "Sign"])
def test_functions_of_angles(op_type, x) -> None:
    assert_same(op_type, x)
    assert_same(op_type, x[0, 0, 0])
    assert_same(op_type, x[:, :0])


@numbers("float32", "float64", "int64", "bool", shape=(2, 3, 4))
@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, -1, 0, 2, 9])
def test_triangles(x, upper, k) -> None:
    diagonal = () if k is None else (np.array(k),)
    assert_same("Trilu", x, *diagonal, upper=upper)
    assert_same("Trilu", x[:, :0], *diagonal, upper=upper)


@numbers(*INTEGERS)
@pytest.mark.parametrize("op_type", ["Neg", "Abs"])
def test_functions_of_integers(op_type, x) -> None:
    assert_same(op_type, x)


@numbers(*ALL)
def test_what_takes_every_type(x) -> None:
    assert_same("Identity", x)
    assert_same("Size", x)
    assert_same("Not", x)
    assert_same("Where", array_of("bool", 3, 1), x, x[::-1])


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("op_type", ["Min", "Max"])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_extremes_of_any_number_of_inputs(op_type, dtype, count) -> None:
    shapes = [(2, 1, 4), (3, 1), (4,), ()]
    assert_same(op_type, *[array_of(dtype, *shapes[at], seed=at) for at in range(count)])


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", FLOATS)
def test_means_of_any_number_of_inputs(dtype, count) -> None:
    shapes = [(2, 3, 4), (3, 1), (4,), ()]
    assert_same("Mean", *[array_of(dtype, *shapes[at], seed=at) for at in range(count)])


def test_a_mean_may_be_larger_than_each_of_its_inputs() -> None:
    # onnx.reference sums up in the first input
    columns, rows = np.arange(3.0).reshape(3, 1, 1), np.arange(4.0).reshape(2, 2)
    (made,) = evaluate("Mean", columns, rows)
    assert made.tolist() == [
        [[column / 2 + n / 2 for n in row] for row in ([0, 1], [2, 3])] for column in range(3)
    ]


@pytest.mark.parametrize("op_type", ["Add", "Div", "Less", "And", "Max", "Where"])
def test_inputs_of_different_types_are_refused(op_type) -> None:
    inputs = [np.zeros(2, np.float32), np.zeros(2, np.float64)]
    if op_type == "Where":
        inputs.insert(0, np.array([True, False]))
    with pytest.raises(TypeError, match=r"float32.*float64"):
        evaluate(op_type, *inputs)


@numbers(*ALL)
@pytest.mark.parametrize("to", [name for name in ALL if name != "bfloat16"])
def test_casts(x, to) -> None:
    number = DType[to.upper()].value
    assert_same("Cast", x, to=number)
    assert_same("Cast", x, to=number, saturate=0)


@pytest.mark.parametrize("to", [DType.BFLOAT16, DType.FLOAT8E4M3FN, DType.INT4])
def test_casts_to_types_that_numpy_lacks_are_left_to_onnx(to) -> None:
    node = node_of("Cast", [0], to=to.value)
    assert find_plain(node, NEWEST) is None
    assert find_unsupported(node, NEWEST) is None
    (made,) = make_operator(node, NEWEST)(np.array([1.0, 2.0], np.float32))
    assert DType.of(made.dtype) is to


@pytest.mark.parametrize(
    "attributes",
    [{}, {"start": 1}, {"end": 2}, {"start": -2, "end": -1}, {"start": -9, "end": 9}, {"start": 3}],
)
def test_shapes(attributes) -> None:
    assert_same("Shape", array_of("int8", 2, 3, 4), **attributes)


def test_a_shape_that_ends_before_the_first_axis_is_empty() -> None:
    # onnx.reference counts such an end from the last axis a second time; ONNX clamps it to 0
    assert evaluate("Shape", np.zeros((2, 3, 4, 5, 6)), end=-7)[0].tolist() == []


@pytest.mark.parametrize("lengths", [[4, -1], [0, -1, 2], [24], [0, 0, 0], [2, 3, 2, 2]])
def test_reshapes(lengths) -> None:
    assert_same("Reshape", array_of("float32", 2, 3, 4), np.array(lengths))
    assert_same("Reshape", array_of("int16", 2, 3, 4), np.array(lengths), allowzero=0)


def test_reshapes_of_nothing() -> None:
    assert_same("Reshape", array_of("float32", 0, 3), np.array([3, 0]), allowzero=1)
    assert_same("Reshape", array_of("float32", 1), np.array([], np.int64))


@pytest.mark.parametrize("axis", [-3, -1, 0, 1, 2, 3])
def test_flattenings(axis) -> None:
    assert_same("Flatten", array_of("uint8", 2, 3, 4), axis=axis)


def test_flattening_without_elements_or_axes() -> None:
    assert_same("Flatten", array_of("float32", 2, 3))
    assert_same("Flatten", array_of("float32"))
    assert evaluate("Flatten", np.zeros((0, 3, 2)))[0].shape == (0, 6)


@pytest.mark.parametrize("axes", [[1], [-1], [1, 3], [-3, 3], [], None])
def test_squeezes(axes) -> None:
    x = array_of("float64", 2, 1, 3, 1)
    assert_same("Squeeze", x, None if axes is None else np.array(axes, np.int64))
    assert_same("Squeeze", x)


@pytest.mark.parametrize("axes", [[0], [-1], [0, 3], [4, 1], [-2, 0]])
def test_unsqueezes(axes) -> None:
    assert_same("Unsqueeze", array_of("int32", 2, 3, 4), np.array(axes))


def test_transpositions() -> None:
    x = array_of("float16", 2, 3, 4)
    for options in ({}, {"perm": []}, {"perm": [2, 0, 1]}):
        assert_same("Transpose", x, **options)
    assert_same("Transpose", array_of("bool"))


@pytest.mark.parametrize("axis", [0, 1, -1, -3])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_concatenations(axis, count) -> None:
    assert_same("Concat", *[array_of("int8", 2, 3, 4, seed=at) for at in range(count)], axis=axis)


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([1], [3], None, None),
        ([0, 1, 0], [2, 9, -1], None, None),
        ([0, 3], [2, 0], None, [1, -2]),
        ([1, -3], [2, -1], [2, 0], None),
        ([-1, 5], [-(2**63), 1], [-1, -2], [-1, -3]),
        ([-(2**63)], [2**63 - 1], [1], [2]),
        ([4], [2], [0], None),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_slices(starts, ends, axes, steps, dtype) -> None:
    inputs = [None if item is None else np.array(item) for item in (starts, ends, axes, steps)]
    assert_same("Slice", array_of(dtype, 4, 5, 6), *inputs)


@pytest.mark.parametrize(
    ("start", "end", "step", "expected"),
    [(-10, -(2**63), -1, [0]), (-10, -9, -2, [0]), (-10, 0, -1, []), (-4, -(2**63), -1, [0])],
)
def test_a_slice_backwards_starts_at_the_first_element_at_least(start, end, step, expected) -> None:
    # onnx.reference slices as numpy, which finds nothing; ONNX clamps start to [0, length - 1]
    bounds = [np.array([item]) for item in (start, end, 0, step)]
    assert evaluate("Slice", np.arange(4), *bounds)[0].tolist() == expected
    assert evaluate("Slice", np.arange(0), *bounds)[0].tolist() == []


@pytest.mark.parametrize("sizes", [[1, 1], [3, 3], [5, -1], [-1, 5]])
def test_parts_that_do_not_make_up_the_axis_are_refused(sizes) -> None:
    with pytest.raises(ValueError, match="length 4"):
        evaluate("Split", np.arange(4), np.array(sizes), output_count=2)


@pytest.mark.parametrize(
    ("output_count", "sizes", "attributes"),
    [
        (2, None, {}),
        (2, None, {"num_outputs": 2}),
        (4, None, {"num_outputs": 4, "axis": 1}),
        (3, None, {"num_outputs": 3, "axis": -2}),
        (2, [1, 3], {}),
        (3, [2, 0, 3], {"axis": 1}),
        (1, None, {"num_outputs": 1}),
    ],
)
def test_splits(output_count, sizes, attributes) -> None:
    inputs = [array_of("float32", 4, 5), *([] if sizes is None else [np.array(sizes)])]
    assert_same("Split", *inputs, output_count=output_count, **attributes)


@pytest.mark.parametrize("op_type", ["CumSum", "CumProd"])
@pytest.mark.parametrize("attributes", [{}, {"exclusive": 1}, {"reverse": 1, "exclusive": 1}])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_scans(op_type, attributes, axis, dtype) -> None:
    x = array_of(dtype, 3, 0 if axis == 0 else 4, 5)
    assert_same(op_type, x, np.array(axis), **attributes)


@pytest.mark.parametrize("op_type", ["CumSum", "CumProd"])
def test_the_axis_of_a_scan_may_be_a_list_of_one(op_type) -> None:
    x = array_of("int32", 3, 4)
    (made,) = evaluate(op_type, x, np.array([1]), reverse=1)
    (expected,) = by_onnx(op_type, x, np.array(1), reverse=1)
    assert made.tolist() == expected.tolist()
    for axes in ([0, 1], [], [[1]]):
        with pytest.raises(ValueError, match=r"one is wanted|no list"):
            evaluate(op_type, x, np.array(axes, np.int64))


@pytest.mark.parametrize(
    ("op_type", "others", "at"),
    [
        ("Reshape", [[12]], 0),
        ("Unsqueeze", [[0]], 0),
        ("Squeeze", [[0]], 0),
        ("Slice", [[0], [1], [1], [1]], 0),
        ("Slice", [[0], [1], [1], [1]], 2),
        ("Split", [[1, 3]], 0),
        ("Tile", [[1, 2, 1]], 0),
        ("Expand", [[2, 3, 4]], 0),
        ("Pad", [[1, 0, 0, 0, 0, 1]], 0),
        ("ConstantOfShape", [], 0),
        ("ReduceSum", [[1]], 0),
        ("ReduceLogSum", [[1]], 0),
        ("Resize", [None, None, [1, 6, 4]], 2),
    ],
)
def test_what_has_two_axes_is_no_list(op_type, others, at) -> None:
    x = array_of("int32", 1, 3, 4)
    lists = [None if item is None else np.array(item, np.int64) for item in others]
    given = [x, *lists] if others else [np.array([1, 2])]
    options = {"output_count": 2, "axis": 2} if op_type == "Split" else {}
    evaluate(op_type, *given, **options)
    place = at + bool(others)
    given[place] = given[place][:, None]
    with pytest.raises(ValueError, match="the shape of no list"):
        evaluate(op_type, *given, **options)


@pytest.mark.parametrize("repeats", [[], [2], [1, 1, 1]], ids=str)
def test_what_is_repeated_has_a_count_for_each_axis(repeats) -> None:
    with pytest.raises(ValueError, match="repeats are given for 2 axes"):
        evaluate("Tile", np.ones((1, 4)), np.array(repeats, np.int64))


@pytest.mark.parametrize("op_type", ["ConstantOfShape", "Expand", "Reshape", "Tile"])
def test_one_number_is_no_list(op_type) -> None:
    number = np.array(4, np.int64)
    given = [number] if op_type == "ConstantOfShape" else [array_of("int32", 4), number]
    with pytest.raises(ValueError, match=r"\[\] is the shape of no list"):
        evaluate(op_type, *given)


@pytest.mark.parametrize("op_type", ["Squeeze", "Unsqueeze", "ReduceSum", "ReduceLogSum"])
def test_one_number_may_stand_for_a_list_of_axes(op_type) -> None:
    x = array_of("int32", 1, 4)
    (made,) = evaluate(op_type, x, np.array(0, np.int64))
    (expected,) = evaluate(op_type, x, np.array([0], np.int64))
    assert made.tolist() == expected.tolist()


@pytest.mark.parametrize("x", [np.array("cat", object), np.array(1.5, np.float32)])
def test_a_resize_needs_scales_or_sizes_even_without_axes(x) -> None:
    (made,) = evaluate("Resize", x, None, np.zeros(0, np.float32))
    assert made.tolist() == x.tolist()
    with pytest.raises(ValueError, match="one of them is wanted"):
        evaluate("Resize", x, np.array("s", object))


@pytest.mark.parametrize("repeats", [[1, 1], [2, 3], [0, 1]])
def test_tiles(repeats) -> None:
    assert_same("Tile", array_of("uint16", 2, 3), np.array(repeats))


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("lengths", [[2, 3], [], [0, 4]])
def test_constants_of_a_shape(dtype, lengths) -> None:
    shape = np.array(lengths, np.int64)
    assert_same("ConstantOfShape", shape)
    assert_same("ConstantOfShape", shape, value=np.array([1], dtype_of(dtype)))


def test_a_shape_is_filled_with_one_element_only() -> None:
    with pytest.raises(ValueError, match="size 2"):
        evaluate("ConstantOfShape", np.array([2]), value=np.array([1, 2]))


@pytest.mark.parametrize("dtype", ["int16", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("bounds", [(0, 10, 3), (9, -2, -2), (1, 1, 1), (5, 1, 1)])
def test_ranges(dtype, bounds) -> None:
    assert_same("Range", *[np.array(item, dtype) for item in bounds])
    if dtype.startswith("float"):
        assert_same("Range", *[np.array(item / 7, dtype) for item in bounds])


@pytest.mark.parametrize("sign", [1, -1])
def test_whole_numbers_are_counted_where_floats_cannot_tell_them_apart(sign) -> None:
    bounds = [np.array(sign * item) for item in (0, 2**62, 2**62 - 1)]
    (made,) = evaluate("Range", *bounds)
    assert made.tolist() == [0, sign * (2**62 - 1)]


REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")


@pytest.mark.parametrize("op_type", REDUCTIONS)
@numbers(*NUMBERS)
def test_reductions(op_type, x) -> None:
    for axes in (None, [], [1], [0, -1], [0, 1, 2]):
        given = [] if axes is None else [np.array(axes, np.int64)]
        for attributes in ({}, {"keepdims": 0}, {"noop_with_empty_axes": 1}, {"keepdims": 1}):
            assert_same(op_type, x, *given, **attributes)
    assert_same(op_type, x[0, 0, 0])


@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMin"])
def test_extremes_of_truth_values(op_type) -> None:
    assert_same(op_type, array_of("bool", 3, 4), np.array([1]), keepdims=0)


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_reductions_of_nothing(op_type, dtype) -> None:
    assert_same(op_type, array_of(dtype, 2, 0, 3), np.array([1]))
    assert_same(op_type, array_of(dtype, 0), keepdims=0)
    assert_same(op_type, array_of(dtype, 2, 0, 3), np.array([0]))


def test_the_extreme_of_no_truth_values_is_the_opposite_one() -> None:
    # onnx.reference makes True of minus infinity; ONNX has the lowest value of the type, False
    assert evaluate("ReduceMax", np.zeros(0, bool), keepdims=0)[0].tolist() is False
    assert evaluate("ReduceMin", np.zeros(0, bool), keepdims=0)[0].tolist() is True


@pytest.mark.parametrize("dtype", ALL)
def test_paddings(dtype) -> None:
    x = array_of(dtype, 2, 3)
    one = np.array(1, dtype_of(dtype))
    assert_same("Pad", x, np.array([1, 0, 2, 3]))
    assert_same("Pad", x, np.array([0, 2, 0, 0]), one, mode="constant")
    assert_same("Pad", x, np.array([2, 1]), one, np.array([-1]))
    assert_same("Pad", x, np.array([1, 0, 0, 2]), None, np.array([1, 0], np.int32))


def test_negative_pads_take_elements_off() -> None:
    x = np.arange(12).reshape(3, 4)
    (made,) = evaluate("Pad", x, np.array([-1, 2, 1, -3]), np.array(7))
    assert made.tolist() == [[7, 7, 4], [7, 7, 8], [7, 7, 7]]
    assert evaluate("Pad", np.arange(3), np.array([-5, 3]))[0].tolist() == [0]


def test_strings_are_padded_with_empty_ones() -> None:
    assert evaluate("Pad", np.array(["a"], object), np.array([1, 0]))[0].tolist() == ["", "a"]


def test_pads_that_do_not_fit_the_axes_are_refused() -> None:
    with pytest.raises(ValueError, match="3 pads are given for 1 axes"):
        evaluate("Pad", np.zeros(4), np.array([1, 2, 3]))
    with pytest.raises(ValueError, match="name one twice"):
        evaluate("Pad", np.zeros((4, 2)), np.array([1, 2, 3, 4]), None, np.array([-1, 1]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_where_there_are_no_numbers_and_infinities(dtype) -> None:
    x = array_of(dtype, 3, 4)
    assert_same("IsNaN", x)
    for negative in (0, 1):
        for positive in (0, 1):
            found = evaluate("IsInf", x, detect_negative=negative, detect_positive=positive)
            wide = x.astype(np.float64)
            wanted = (negative & np.isneginf(wide)) | (positive & np.isposinf(wide))
            np.testing.assert_array_equal(found[0], wanted.astype(bool))


@numbers(*ALL)
def test_what_is_not_zero(x) -> None:
    assert_same("NonZero", x)


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_slices_whose_condition_is_true(axis) -> None:
    attributes = {} if axis is None else {"axis": axis}
    assert_same("Compress", array_of("float32", 2, 3), np.array([True, False]), **attributes)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_layers_are_normalised(dtype, axis) -> None:
    x = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(dtype)
    scale, bias = (np.linspace(low, 2, x[0].size, dtype=dtype).reshape(3, 4) for low in (-1, 1))
    scale, bias = (item if axis != -1 else item[0] for item in (scale, bias))
    for inputs in ((x, scale), (x, scale, bias)):
        made = evaluate("LayerNormalization", *inputs, output_count=3, axis=axis, epsilon=1e-3)
        wanted = by_onnx(
            "LayerNormalization", *inputs, output_count=3, axis=axis, epsilon=1e-3, stash_type=1
        )
        assert [item.dtype for item in made] == [x.dtype, np.float32, np.float32]
        for ours, theirs in zip(made, wanted, strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
def test_layers_without_elements_have_no_statistics(dtype) -> None:
    x, scale = array_of(dtype, 2, 0), array_of(dtype, 0)
    with np.errstate(all="ignore"):
        made, mean, factor = evaluate("LayerNormalization", x, scale, output_count=3)
    assert (made.shape, made.dtype) == ((2, 0), x.dtype)
    for told in (mean, factor):
        assert (told.shape, told.dtype) == ((2, 1), np.float32)
        assert np.isnan(told).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_statistics_of_halves_are_those_of_float32(dtype) -> None:
    # onnx.reference sums up in the halves themselves; ONNX says float32
    x = (np.random.default_rng(1).standard_normal((2, 768)) + 1).astype(dtype)
    scale = np.ones(768, dtype)
    made, mean, factor = evaluate("LayerNormalization", x, scale, output_count=3)
    wide = x.astype(np.float64)
    wanted = (wide - wide.mean(1, keepdims=True)) / wide.std(1, keepdims=True)
    assert made.dtype == dtype
    np.testing.assert_allclose(made.astype(np.float64), wanted, rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(mean, wide.mean(1, keepdims=True), rtol=1e-5)
    assert mean.dtype == factor.dtype == np.float32


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_roots_of_mean_squares_are_divided_by(dtype, axis) -> None:
    x = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(dtype)
    scale = np.linspace(-1, 2, x[0].size, dtype=dtype).reshape(3, 4)
    scale = scale if axis != -1 else scale[0]
    (made,) = evaluate("RMSNormalization", x, scale, axis=axis, epsilon=1e-3)
    mean = (x * x).mean(axis=tuple(range(axis % 3, 3)), keepdims=True)
    assert made.dtype == x.dtype
    np.testing.assert_allclose(made, x / np.sqrt(mean + 1e-3) * scale, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_squares_of_halves_do_not_overflow(dtype) -> None:
    x, scale = np.full((1, 4), 300, dtype), np.ones(4, dtype)
    (made,) = evaluate("RMSNormalization", x, scale)
    np.testing.assert_array_equal(made, np.ones((1, 4), dtype), strict=True)


class TestTheTable:
    def test_attributes_and_operators_are_those_of_the_schemas(self) -> None:
        _families.load_all()
        for (domain, op_type), entry in _entries.items():
            newest = max(
                schema.since_version
                for schema in onnx.defs.get_all_schemas()
                if schema.domain == domain
            )
            required, named = _attribute_names(entry.function)
            known = named | entry.further
            assert entry.later.keys() <= known
            for version in range(entry.since, newest + 1):
                attributes = onnx.defs.get_schema(op_type, version, domain).attributes
                there = {name for name in known if entry.later.get(name, 0) <= version}
                assert there <= attributes.keys(), (op_type, version)
                needed = {name for name, item in attributes.items() if item.required}
                assert needed <= required, (op_type, version)

    @pytest.mark.parametrize(
        ("op_type", "first", "attributes"),
        [
            ("Add", 7, {}),
            ("Cast", 6, {"to": 1}),
            ("Cast", 19, {"to": 1, "saturate": 0}),
            ("Pad", 11, {}),
            ("ReduceMean", 18, {}),
            ("ReduceSum", 13, {}),
            ("Reshape", 5, {}),
            ("Reshape", 14, {"allowzero": 1}),
            ("Shape", 15, {"start": 1}),
            ("Slice", 10, {}),
            ("Split", 13, {}),
            ("Split", 18, {"num_outputs": 2}),
            ("Squeeze", 13, {}),
        ],
    )
    def test_an_older_opset_is_left_to_onnx(self, op_type, first, attributes) -> None:
        node = node_of(op_type, [0], **attributes)
        assert find_plain(node, {"": first}) is not None
        assert find_plain(node, {}) is not None
        assert find_plain(node, {"": first - 1}) is None

    def test_axes_as_an_attribute_are_still_evaluated(self) -> None:
        node = node_of("Squeeze", [0], axes=[0])
        assert make_operator(node, {"": 11})(np.zeros((1, 2, 1)))[0].shape == (2, 1)

    @pytest.mark.parametrize(
        ("op_type", "attributes"),
        [
            ("Add", {"volume": 11}),
            ("Concat", {}),
            ("Constant", {"sparse_value": None}),
            ("Cast", {"to": 1, "round_mode": "up"}),
            ("Cast", {"to": "float"}),
            ("Pad", {"mode": "melt"}),
        ],
    )
    def test_attributes_that_do_not_fit_are_left_to_onnx(self, op_type, attributes) -> None:
        assert find_plain(node_of(op_type, [0], **attributes), NEWEST) is None

    def test_the_number_of_outputs_is_no_attribute(self) -> None:
        node = Node("Split", [Value("x")], [Value("y")], {"output_count": 1}, name="n")
        assert find_plain(node, NEWEST) is None
        assert "'output_count'" in (find_unsupported(node, NEWEST) or "")

    def test_other_domains_are_left_to_onnx(self) -> None:
        node = node_of("Add", [0, 0], domain="com.acme")
        assert find_plain(node, NEWEST) is None
        with pytest.raises(OperatorError, match=r"com\.acme"):
            make_operator(node, NEWEST)

    def test_a_body_is_nothing_that_is_evaluated(self) -> None:
        node = node_of("Optional", [0], type=Graph("g"))
        assert "bodies" in (find_unsupported(node, NEWEST) or "")

    def test_an_operator_has_one_function(self) -> None:
        _families.load_all()
        with pytest.raises(ValueError, match="Add has two"):
            plain("Add", since=7)(lambda a, b: a)


def test_folding_plain_nodes_loads_neither_onnx_nor_protobuf() -> None:
    code = """
import sys
import numpy as np
from aioinfer.runtime.graph import Node, Value
from aioinfer.runtime.operators import find_unsupported, make_operator

def fold(op_type, *inputs, **attributes):
    names = [Value(f"x{index}") for index in range(len(inputs))]
    node = Node(op_type, names, [Value("y")], attributes, name="n")
    assert find_unsupported(node, {"": 17}) is None, op_type
    return make_operator(node, {"": 17})(*inputs)[0]

shape = fold("Shape", np.zeros((2, 3, 4), np.float32), start=1)
length = fold("Gather", shape, np.array(0), axis=0)
whole = fold("Concat", fold("Unsqueeze", length, np.array([0])), np.array([-1]), axis=0)
made = fold("Reshape", fold("Constant", value=np.zeros((4, 3), np.float32)), whole)
made = fold("Expand", fold("Sqrt", fold("Cast", made, to=11)), np.array([2, 3, 4]))
assert (made.shape, made.dtype) == ((2, 3, 4), np.float64)
sys.exit(any(name in sys.modules for name in ("onnx", "google.protobuf")))
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_a_list_of_nothing_has_no_shape_to_speak_of() -> None:
    x, sizes = np.ones((1, 1, 2, 2), np.float32), np.array([1, 1, 4, 4])
    nothing = np.empty((2, 0), np.float32)
    (made,) = evaluate("Resize", x, None, nothing, sizes)
    assert made.shape == (1, 1, 4, 4)
