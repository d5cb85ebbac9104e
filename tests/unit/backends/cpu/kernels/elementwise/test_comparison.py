import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import helper

from exhaustive import drawn
from unit.backends.cpu.comparing import BF16_BOUND, assert_same_as_reference, model_of
from unit.backends.cpu.kernels.plans import implementations

EXAMPLES = settings(max_examples=drawn(30), derandomize=True)
COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")


def numbers(shape, seed, dtype=np.float32):
    made = np.random.default_rng(seed).integers(-3, 4, shape)
    if np.dtype(dtype).kind == "u":
        made = np.abs(made)
    return np.asarray(np.asarray(made) > 0 if dtype is np.bool_ else made, dtype)


def two(op_type, a, b, dynamic=False):
    node = helper.make_node(op_type, ["a", "b"], ["y"])
    return model_of([node], {"a": a, "b": b}, dynamic=dynamic), {"a": a, "b": b}


@pytest.mark.parametrize("op_type", COMPARISONS)
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint8, np.int32, np.int64])
def test_comparisons(core, op_type, dtype) -> None:
    model, inputs = two(op_type, numbers((5, 1, 4), 0, dtype), numbers((3, 4), 1, dtype))
    assert_same_as_reference(core, model, inputs)
    kind = "float_elementwise" if dtype is np.float32 else "integer_elementwise"
    assert implementations(core, model, inputs) == [f"native:{kind}"]


@pytest.mark.parametrize("op_type", COMPARISONS)
def test_nan_equals_nothing(core, op_type) -> None:
    edges = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], np.float32)
    assert_same_as_reference(core, *two(op_type, edges[:, None], edges[None]))


@pytest.mark.parametrize("op_type", ["And", "Or", "Xor", "Equal"])
def test_logic(core, op_type) -> None:
    assert_same_as_reference(
        core, *two(op_type, numbers((5, 1), 0, np.bool_), numbers((7,), 1, np.bool_))
    )


def test_not(core) -> None:
    x = numbers((3, 700), 0, np.bool_)
    model = model_of([helper.make_node("Not", ["x"], ["y"])], {"x": x})
    assert_same_as_reference(core, model, {"x": x})


CHOICES = [
    np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.bool_, np.int8, np.uint8, np.int16,
    np.int32, np.int64, np.uint64, np.complex64,
]  # fmt: skip


@pytest.mark.parametrize("dtype", CHOICES)
def test_where(core, dtype) -> None:
    condition, a, b = (
        numbers((6, 1, 5), 0, np.bool_),
        numbers((4, 5), 1, dtype),
        numbers((), 2, dtype),
    )
    inputs = {"c": condition, "a": a, "b": b}
    model = model_of([helper.make_node("Where", [*inputs], ["y"])], inputs)
    assert_same_as_reference(core, model, inputs)
    assert implementations(core, model, inputs) == ["native:where"]


def test_where_in_bfloat16(core) -> None:
    inputs = {"c": numbers((4, 9), 0, np.bool_), "a": numbers((4, 9), 1), "b": numbers((9,), 2)}
    nodes = [
        helper.make_node("LeakyRelu", ["a"], ["d"], alpha=0.5),
        helper.make_node("Where", ["c", "d", "b"], ["e"]),
        helper.make_node("LeakyRelu", ["e"], ["f"], alpha=0.5),
        helper.make_node("Where", ["c", "f", "low"], ["y"]),
    ]
    model = model_of(nodes, inputs, constants={"low": np.asarray(-9, np.float32)})
    assert_same_as_reference(core, model, inputs, bound=BF16_BOUND, INFERENCE_PRECISION_HINT="bf16")


@EXAMPLES
@given(
    arrays.mutually_broadcastable_shapes(num_shapes=3, min_side=0, max_side=4, max_dims=5),
    st.sampled_from([np.float32, np.int64, np.bool_]),
    st.booleans(),
    st.sampled_from([1, 2]),
)
def test_any_shapes(core, shapes, dtype, dynamic, threads) -> None:
    c, a, b = shapes.input_shapes
    inputs = {"c": numbers(c, 0, np.bool_), "a": numbers(a, 1, dtype), "b": numbers(b, 2, dtype)}
    nodes = [
        helper.make_node("Where", ["c", "a", "b"], ["y"]),
        helper.make_node("Equal", ["a", "b"], ["e"]),
        helper.make_node("Or", ["e", "c"], ["z"]),
    ]
    model = model_of(nodes, inputs, ["y", "e", "z"], dynamic=dynamic)
    assert_same_as_reference(core, model, inputs, INFERENCE_NUM_THREADS=threads)
