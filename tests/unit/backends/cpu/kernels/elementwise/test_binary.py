import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import helper

from aioinfer.errors import UnsupportedOpError
from exhaustive import drawn
from unit.backends.cpu.comparing import BF16_BOUND, assert_same_as_reference, model_of, run
from unit.backends.cpu.kernels.plans import implementations

EXAMPLES = settings(max_examples=drawn(30), derandomize=True)
ARITHMETIC = ("Add", "Sub", "Mul", "Div")
FOLDED = ("Max", "Min", "Sum", "Mean")
INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32)


def numbers(shape, seed=0, dtype=np.float32):
    found = np.random.default_rng(seed).standard_normal(shape) * 4
    made = np.asarray(found, np.float32)
    return made if dtype is np.float32 else np.asarray(made, np.int64).astype(dtype)


def two(op_type, a, b, *, dynamic=False, **attributes):
    node = helper.make_node(op_type, ["a", "b"], ["y"], **attributes)
    return model_of([node], {"a": a, "b": b}, dynamic=dynamic), {"a": a, "b": b}


SHAPES = [
    ((), ()), ((3,), ()), ((), (3,)), ((2, 3), (3,)), ((3,), (2, 3)), ((2, 1), (1, 3)),
    ((2, 8, 5, 5), (8, 1, 1)), ((1, 8, 1, 1), (2, 8, 5, 5)), ((2, 8, 5, 5), (2, 8, 1, 1)),
    ((2, 3, 0), (1, 3, 1)), ((4, 1, 6, 1), (3, 1, 5)), ((300, 700), (700,)), ((300, 3), (300, 1)),
    ((1, 2, 1, 3, 1, 4, 2), (5, 1, 2, 1, 1, 4, 1)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", SHAPES)
def test_broadcasting(core, shapes) -> None:
    inputs = {"a": numbers(shapes[0]), "b": numbers(shapes[1], 1)}
    inputs["base"] = np.asarray(np.abs(inputs["a"]))
    inputs["exponent"] = np.asarray(inputs["b"] / np.float32(4))
    op_types = [*ARITHMETIC, "Max", "Min", "Sum"]
    nodes = [helper.make_node(op_type, ["a", "b"], [op_type]) for op_type in op_types]
    nodes.append(helper.make_node("Pow", ["base", "exponent"], ["Pow"]))
    if np.broadcast_shapes(*shapes) == shapes[0]:
        nodes.append(helper.make_node("PRelu", ["a", "b"], ["PRelu"]))
    outputs = [node.output[0] for node in nodes]
    assert_same_as_reference(core, model_of(nodes, inputs, outputs), inputs)


def test_slopes_of_channels_may_lack_axes(core) -> None:
    inputs = {"x": numbers((2, 3, 4, 5))}
    node = helper.make_node("PRelu", ["x", "s"], ["y"])
    model = model_of([node], inputs, constants={"s": numbers((3,), 1)})
    assert_same_as_reference(core, model, inputs)


def test_mean_broadcasts(core) -> None:  # which REFERENCE's does not
    inputs = {"a": numbers((2, 1)), "b": numbers((3,), 1), "c": numbers((), 2)}
    model = model_of([helper.make_node("Mean", [*inputs], ["y"])], inputs)
    found = run(core, model, "CPU", inputs)["y"]
    np.testing.assert_allclose(found, sum(inputs.values()) / 3, rtol=1e-6)


@pytest.mark.parametrize("op_type", [*ARITHMETIC, "Max", "Min", "Sum", "Pow"])
def test_nan_and_infinities(core, op_type) -> None:
    edges = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0, -2.5], np.float32)
    assert_same_as_reference(core, *two(op_type, edges[:, None], edges[None]))


@pytest.mark.parametrize("op_type", [*ARITHMETIC, "Max", "Min"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(core, op_type, dtype) -> None:
    limits = np.iinfo(dtype)
    a = np.array([limits.min, limits.max, 7, 8, 100, limits.min, 1], dtype)
    b = np.array([3, 2, 0, 3, 7, 1, limits.max], dtype)
    if limits.min < 0:
        a, b = np.append(a, [-7, 7, -8]).astype(dtype), np.append(b, [2, -2, -3]).astype(dtype)
    assert_same_as_reference(core, *two(op_type, a, b))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("fmod", [0, 1])
def test_remainders_of_integers(core, dtype, fmod) -> None:
    a = np.array([7, 8, 9, 100], dtype)
    b = np.array([3, 3, 4, 7], dtype)
    if np.iinfo(dtype).min < 0:
        a, b = np.concatenate([a, -a, a, -a]), np.concatenate([b, b, -b, -b])
    assert_same_as_reference(core, *two("Mod", a, b, fmod=fmod))


def test_remainders_of_floats(core) -> None:
    a, b = numbers((40,)), numbers((40,), 1)
    assert_same_as_reference(core, *two("Mod", a, b, fmod=1))


@pytest.mark.parametrize("exponent", [2.0, 0.5, -1.0, 3.0, 1.7, 0.0])
def test_power_with_a_constant(core, exponent) -> None:
    x = np.abs(numbers((5, 7))) + np.float32(0.1)
    node = helper.make_node("Pow", ["x", "e"], ["y"])
    constants = {"e": np.asarray(exponent, np.float32)}
    assert_same_as_reference(core, model_of([node], {"x": x}, constants=constants), {"x": x})


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_power_with_an_exponent_of_another_type(core, dtype) -> None:
    assert_same_as_reference(core, *two("Pow", numbers((5,)), np.arange(5).astype(dtype)))
    if dtype is not np.float64:
        assert_same_as_reference(
            core, *two("Pow", np.arange(5, dtype=np.int32), np.arange(5).astype(dtype))
        )


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_negative_power_of_integers_is_cut_off(core, device, dtype) -> None:
    base, exponent = np.array([3, 2, 1, -1, -1, 0, 2, -3]), np.array([-1, -9, -5, -3, -2, -1, 3, 3])
    model, inputs = two("Pow", base.astype(dtype), exponent.astype(dtype))
    with core.load_network(model, device) as network:
        (found,) = network.create_infer_request().infer_sync(inputs).values()
    assert found.tolist() == [0, 0, 1, -1, 1, 0, 8, -27]


def test_a_power_of_integers_with_a_float_is_refused(core) -> None:
    model, _ = two("Pow", np.arange(3), numbers((3,)))
    with pytest.raises(UnsupportedOpError, match="integers to integers only"):
        core.load_network(model, "CPU")


@pytest.mark.parametrize("op_type", FOLDED)
@pytest.mark.parametrize("count", [1, 3, 60])
def test_many_inputs(core, op_type, count) -> None:
    lengths = [5 if op_type == "Mean" or index % 2 else 1 for index in range(count)]
    inputs = {f"x{index}": numbers((3, n), index) for index, n in enumerate(lengths)}
    model = model_of([helper.make_node(op_type, [*inputs], ["y"])], inputs)
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize("op_type", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.int64])
def test_bits(core, op_type, dtype) -> None:
    assert_same_as_reference(
        core, *two(op_type, numbers((3, 1), 0, dtype), numbers((4,), 1, dtype))
    )
    node = helper.make_node("BitwiseNot", ["a"], ["y"])
    a = numbers((9,), 2, dtype)
    assert_same_as_reference(core, model_of([node], {"a": a}), {"a": a})


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_shifts(core, direction, dtype) -> None:
    a = np.array([1, 2, 200, np.iinfo(dtype).max], dtype)
    assert_same_as_reference(
        core, *two("BitShift", a, np.arange(4, dtype=dtype), direction=direction)
    )


@pytest.mark.parametrize("op_type", [*ARITHMETIC, "Max", "Min", "Pow"])
def test_in_bfloat16(core, op_type) -> None:
    nodes = [
        helper.make_node("LeakyRelu", ["a"], ["c"], alpha=0.5),
        helper.make_node(op_type, ["c", "b"], ["d"]),
        helper.make_node("LeakyRelu", ["d"], ["e"], alpha=0.5),
        helper.make_node("Flatten", ["e"], ["y"]),
    ]
    a, b = (
        np.abs(numbers((4, 3, 9))) + np.float32(0.5),
        np.abs(numbers((3, 1), 1)) / 4 + np.float32(1),
    )
    inputs = {"a": a, "b": b}
    model = model_of(nodes, inputs)
    assert_same_as_reference(core, model, inputs, bound=BF16_BOUND, INFERENCE_PRECISION_HINT="bf16")


@EXAMPLES
@given(
    st.sampled_from([*ARITHMETIC, "Max", "Min"]),
    arrays.mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=4, max_dims=6),
    st.sampled_from([np.float32, np.int32, np.int64, np.uint8]),
    st.booleans(),
    st.sampled_from([1, 2]),
)
def test_any_shapes(core, op_type, shapes, dtype, dynamic, threads) -> None:
    a, b = (numbers(shape, seed, dtype) for seed, shape in enumerate(shapes.input_shapes))
    if dtype is not np.float32 and op_type == "Div":
        b = np.where(b == 0, np.asarray(1, dtype), b)
    model, inputs = two(op_type, a, b, dynamic=dynamic)
    assert_same_as_reference(core, model, inputs, INFERENCE_NUM_THREADS=threads)


def test_a_value_and_its_own_transpose_do_not_overwrite_each_other(core) -> None:
    x = numbers((40, 40))
    nodes = [
        helper.make_node("LeakyRelu", ["x"], ["a"], alpha=0.5),
        helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0]),
        helper.make_node("Sub", ["a", "b"], ["c"]),
        helper.make_node("LeakyRelu", ["c"], ["d"], alpha=0.5),
        helper.make_node("Transpose", ["d"], ["y"], perm=[1, 0]),
    ]
    assert_same_as_reference(core, model_of(nodes, {"x": x}), {"x": x})


def test_parts_of_one_value_do_not_overwrite_each_other(core) -> None:
    x = numbers((6, 40))
    nodes = [
        helper.make_node("LeakyRelu", ["x"], ["a"], alpha=0.5),
        helper.make_node("Split", ["a"], ["b", "c"], axis=1, num_outputs=2),
        helper.make_node("Mul", ["b", "c"], ["d"]),
        helper.make_node("Add", ["d", "b"], ["e"]),
        helper.make_node("Sub", ["e", "c"], ["y"]),
    ]
    assert_same_as_reference(core, model_of(nodes, {"x": x}), {"x": x})


def test_an_operand_that_is_used_later_is_kept(core) -> None:
    x = numbers((6, 40))
    nodes = [
        helper.make_node("LeakyRelu", ["x"], ["a"], alpha=0.5),
        helper.make_node("Mul", ["a", "a"], ["b"]),
        helper.make_node("Sub", ["b", "a"], ["c"]),
        helper.make_node("Add", ["c", "b"], ["y"]),
    ]
    assert_same_as_reference(core, model_of(nodes, {"x": x}), {"x": x})


@pytest.mark.parametrize("shape", [(2, 8, 5, 5), (8, 1, 1), (2, 8, 1, 1), (), (1, 1, 5, 5)])
@pytest.mark.parametrize("is_left", [True, False])
def test_one_native_step_whatever_broadcasts(core, shape, is_left) -> None:
    a, b = numbers((2, 8, 5, 5)), numbers(shape, 1)
    model, inputs = two("Sub", a, b) if is_left else two("Sub", b, a)
    assert implementations(core, model, inputs) == ["native:float_elementwise"]


def test_results_are_the_same_from_run_to_run(core) -> None:
    a, b = numbers((300, 400)), numbers((400,), 1)
    model, inputs = two("Div", a, b)
    results = [run(core, model, "CPU", inputs, INFERENCE_NUM_THREADS=2)["y"] for _ in range(3)]
    assert all(np.array_equal(results[0], result) for result in results)
