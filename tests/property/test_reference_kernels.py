"""The device's kernels give exactly what onnx.reference gives, where that is right."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx.reference import ReferenceEvaluator

from aioinfer.backends.reference.kernels import find_kernel
from aioinfer.runtime.graph import DType, Node, Value
from aioinfer.runtime.onnx_writer import node_to_proto
from aioinfer.runtime.operators import make_operator
from aioinfer.runtime.operators.plain_operators import find_plain
from exhaustive import drawn

EXAMPLES = settings(max_examples=drawn(40))
FLOATS = (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)
INTEGERS = (np.int8, np.uint8, np.int32, np.int64)


def both(op_type, *inputs, **attributes):
    """Run our kernel and onnx.reference's class on the same inputs; give both first outputs."""
    values = [
        Value(f"x{index}") if array is not None else None for index, array in enumerate(inputs)
    ]
    node = Node(op_type, values, [Value("y")], attributes, name="n")
    kernel, plain = find_kernel(node), find_plain(node, {})
    assert kernel is not None or plain is not None
    compute = make_operator(node, {}) if kernel is None else kernel.bind(node)
    feeds = {f"x{index}": array for index, array in enumerate(inputs) if array is not None}
    with np.errstate(all="ignore"):
        (made,) = compute(*inputs)
        (expected,) = ReferenceEvaluator(node_to_proto(node)).run(None, feeds)
    return made, np.asarray(expected)


def assert_same(made, expected) -> None:
    assert type(made) is np.ndarray
    assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
    if made.dtype == ml_dtypes.bfloat16:  # its NaN equals nothing in numpy.testing
        made, expected = made.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_array_equal(made, expected)


def array_of(draw, dtype, shape, low=-20, high=20):
    numbers = draw(arrays.arrays(np.int64, shape, elements=st.integers(low, high)))
    if np.dtype(dtype).kind == "u":
        numbers = np.abs(numbers)
    scale = 4.0 if dtype in FLOATS else 1
    return np.asarray(numbers / scale if scale != 1 else numbers).astype(dtype)


@st.composite
def broadcast_pairs(draw, dtypes):
    dtype = draw(st.sampled_from(dtypes))
    shapes = draw(arrays.mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=3))
    return tuple(array_of(draw, dtype, shape) for shape in shapes.input_shapes)


@st.composite
def tensors(draw, dtypes, min_dims=0):
    dtype = draw(st.sampled_from(dtypes))
    shape = draw(arrays.array_shapes(min_dims=min_dims, max_dims=4, min_side=0, max_side=3))
    return array_of(draw, dtype, shape)


@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div"])
@EXAMPLES
@given(pair=broadcast_pairs(FLOATS + INTEGERS))
def test_arithmetic(op_type, pair) -> None:
    assert_same(*both(op_type, *pair))


@pytest.mark.parametrize("op_type", ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
@EXAMPLES
@given(pair=broadcast_pairs((np.float32, np.int64)))
def test_comparisons(op_type, pair) -> None:
    assert_same(*both(op_type, *pair))


@pytest.mark.parametrize("op_type", ["And", "Or", "Xor"])
@EXAMPLES
@given(pair=broadcast_pairs((np.bool_,)))
def test_logic(op_type, pair) -> None:
    assert_same(*both(op_type, *pair))
    assert_same(*both("Not", pair[0]))


@pytest.mark.parametrize(
    "op_type",
    ["Abs", "Ceil", "Cos", "Exp", "Floor", "Log", "Neg", "Reciprocal", "Relu", "Sin", "Sqrt",
     "Tanh", "Sigmoid", "LeakyRelu", "Identity"],
)  # fmt: skip
@EXAMPLES
@given(x=tensors(FLOATS[:3]))
def test_functions_of_one_number(op_type, x) -> None:
    assert_same(*both(op_type, x))


@pytest.mark.parametrize("op_type", ["Max", "Min"])
@EXAMPLES
@given(pair=broadcast_pairs((np.float32, np.int32)))
def test_extremes_of_many(op_type, pair) -> None:
    assert_same(*both(op_type, *pair))
    assert_same(*both(op_type, *pair, pair[0]))
    assert_same(*both(op_type, pair[1]))


@EXAMPLES
@given(pair=broadcast_pairs((np.float32, np.float64)))
def test_powers(pair) -> None:
    assert_same(*both("Pow", *pair))


@pytest.mark.parametrize("bounds", [(None, None), (-1, None), (None, 2), (-1, 2), (2, -1)])
@EXAMPLES
@given(x=tensors((np.float32, np.int32)))
def test_clip(bounds, x) -> None:
    low, high = (None if bound is None else np.asarray(bound, x.dtype) for bound in bounds)
    assert_same(*both("Clip", x, low, high))


@EXAMPLES
@given(x=tensors((np.float32, np.int64, np.bool_)), to=st.sampled_from([1, 6, 7, 9, 10, 11]))
def test_casts(x, to) -> None:
    assert_same(*both("Cast", x, to=to))


@EXAMPLES
@given(pair=broadcast_pairs((np.float32, np.int32)))
def test_where(pair) -> None:
    assert_same(*both("Where", np.asarray(pair[0] > 0), *pair))


@EXAMPLES
@given(
    st.tuples(*[st.integers(0, 4)] * 3), st.booleans(), st.booleans(),
    st.sampled_from([1.0, 0.5]), st.sampled_from([1.0, 0.0, 0.25]), st.data(),
)  # fmt: skip
def test_gemm(sizes, trans_a, trans_b, alpha, beta, data) -> None:
    m, k, n = sizes
    dtype = data.draw(st.sampled_from((np.float32, np.float64, np.float16)))
    a = array_of(data.draw, dtype, (k, m) if trans_a else (m, k))
    b = array_of(data.draw, dtype, (n, k) if trans_b else (k, n))
    c = data.draw(st.sampled_from([None, (), (n,), (m, 1)]))
    extra = None if c is None else array_of(data.draw, dtype, c)
    attributes = {"alpha": alpha, "beta": beta, "transA": int(trans_a), "transB": int(trans_b)}
    assert_same(*both("Gemm", a, b, extra, **attributes))


@EXAMPLES
@given(st.data())
def test_matmul(data) -> None:
    shapes = data.draw(
        arrays.mutually_broadcastable_shapes(signature="(m?,k),(k,n?)->(m?,n?)", max_side=3)
    ).input_shapes
    dtype = data.draw(st.sampled_from((np.float32, np.float64, np.int64)))
    assert_same(*both("MatMul", *[array_of(data.draw, dtype, shape) for shape in shapes]))


@EXAMPLES
@given(st.data())
def test_matmul_of_integers(data) -> None:
    a = array_of(data.draw, np.uint8, (2, 3))
    b = array_of(data.draw, np.int8, (3, 4))
    zero_a = data.draw(st.sampled_from([None, np.asarray(np.uint8(3))]))
    zero_b = data.draw(st.sampled_from([None, np.array([1, 2, 3, 4], np.int8)]))
    assert_same(*both("MatMulInteger", a, b, zero_a, zero_b))


@EXAMPLES
@given(x=tensors(FLOATS[:3], min_dims=2))
def test_batch_normalization(x) -> None:
    random = np.random.default_rng(0)
    statistics = [random.random(x.shape[1]).astype(x.dtype) for _ in range(4)]
    assert_same(*both("BatchNormalization", x, *statistics, epsilon=1e-3))


@EXAMPLES
@given(x=tensors(FLOATS[:3], min_dims=1), axis=st.sampled_from([-1, 0]))
def test_softmax(x, axis) -> None:
    assert_same(*both("Softmax", x, axis=axis))


@EXAMPLES
@given(x=tensors((np.float32, np.int64)), data=st.data())
def test_views(x, data) -> None:
    perm = data.draw(st.permutations(range(x.ndim)))
    assert_same(*both("Transpose", x, perm=list(perm)) if x.ndim else both("Transpose", x))
    assert_same(*both("Reshape", x, np.array([x.size]), allowzero=1))
    assert_same(*both("Shape", x))
    assert_same(*both("Shape", x, start=-2, end=1))
    axes = np.array(sorted({0, x.ndim}))
    wide, expected = both("Unsqueeze", x, axes)
    assert_same(wide, expected)
    assert_same(*both("Squeeze", wide, axes))
    assert_same(*both("Squeeze", wide, None))


@EXAMPLES
@given(x=tensors((np.float32,), min_dims=2), axis=st.integers(-2, 2))
def test_flatten(x, axis) -> None:
    if x.size:
        assert_same(*both("Flatten", x, axis=axis))


@EXAMPLES
@given(x=tensors((np.float32, np.int64), min_dims=1))
def test_concat(x) -> None:
    assert_same(*both("Concat", x, x, axis=x.ndim - 1))
    assert_same(*both("Concat", x, axis=-1))


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceProd", "ReduceMean"])
@pytest.mark.parametrize("keepdims", [0, 1])
@EXAMPLES
@given(x=tensors((np.float32, np.float64), min_dims=2))
def test_reductions(op_type, keepdims, x) -> None:
    if x.size:
        assert_same(*both(op_type, x, None, keepdims=keepdims))
        assert_same(*both(op_type, x, np.array([-1]), keepdims=keepdims))
        noop = {"keepdims": keepdims, "noop_with_empty_axes": 1}
        assert_same(*both(op_type, x, np.array([], np.int64), **noop))


@EXAMPLES
@given(x=tensors((np.float32,), min_dims=3))
def test_global_average(x) -> None:
    if x.size:
        made, expected = both("GlobalAveragePool", x)
        assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(made, expected, rtol=1e-6, atol=1e-6)


def test_zero_and_minus_one_in_a_shape() -> None:
    x = np.zeros((2, 3, 4))
    assert_same(*both("Reshape", x, np.array([0, -1])))
    assert_same(*both("Reshape", x, np.array([4, 0, -1])))
    empty = np.zeros((0, 3))
    assert_same(*both("Reshape", empty, np.array([3, 0]), allowzero=1))


@pytest.mark.parametrize("op_type", ["Add", "Div", "MatMul", "Max", "Where", "Less"])
def test_types_are_never_mixed(op_type) -> None:
    inputs = [np.ones((2, 2), np.float32), np.ones((2, 2), np.float64)]
    if op_type == "Where":
        inputs.insert(0, np.ones((2, 2), np.bool_))
    node = Node(op_type, [Value("a")], [Value("y")], name="n")
    kernel = find_kernel(node)
    assert kernel is not None
    with pytest.raises(TypeError, match="float64"):
        kernel.bind(node)(*inputs)


def test_a_mean_of_nothing_is_zero_and_warns_nobody() -> None:
    node = Node("ReduceMean", [Value("x")], [Value("y")], {"keepdims": 0}, name="n")
    kernel = find_kernel(node)
    assert kernel is not None
    (made,) = kernel.bind(node)(np.zeros((0, 2), np.float32), np.array([0]))
    assert made.tolist() == [0, 0]


def test_neighbouring_channels_are_normalized_in_every_channel() -> None:
    x = np.random.default_rng(0).random((1, 6, 2, 2), np.float32)
    node = Node("LRN", [Value("x")], [Value("y")], {"size": 3, "alpha": 0.3}, name="n")
    squares = np.pad(x.astype(np.float64) ** 2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    sums = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    expected = x / (1.0 + 0.1 * sums) ** 0.75
    np.testing.assert_allclose(make_operator(node, {})(x)[0], expected, rtol=1e-5)


def test_casting_to_strings_or_small_floats_is_left_to_onnx() -> None:
    for to in (DType.STRING, DType.FLOAT8E4M3FN, DType.INT4):
        node = Node("Cast", [Value("x")], [Value("y")], {"to": to.value}, name="n")
        assert find_kernel(node) is None


def test_training_is_left_to_onnx() -> None:
    inputs = [Value(name) for name in "xsbmv"]
    node = Node("BatchNormalization", inputs, [Value("y")], {"training_mode": 1}, name="n")
    assert find_kernel(node) is None
