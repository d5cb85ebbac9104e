"""Conv and ConvTranspose equal REFERENCE in all forms, and run on oneDNN's fast kernels."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from aioinfer.backends.cpu.kernels.windows.convolution_choice import is_slow
from aioinfer.errors import UnsupportedOpError
from aioinfer.runtime.graph import DType
from exhaustive import drawn
from unit.backends.cpu.comparing import BF16_BOUND, F32_BOUND, assert_same_as_reference, model_of
from unit.backends.cpu.compiled_plans import BoundPlan, plan_of
from unit.backends.cpu.single_nodes import largest_error, run_fused

EXAMPLES = settings(max_examples=drawn(30), derandomize=True)

CONVOLUTIONS = {
    "plain": ((1, 3, 8, 8), (4, 3, 3, 3), {}),
    "pointwise": ((2, 24, 5, 7), (40, 24, 1, 1), {}),
    "narrow result": ((1, 32, 6, 6), (24, 32, 1, 1), {}),
    "first layer": ((1, 3, 24, 24), (8, 3, 7, 7), {"strides": [2, 2], "pads": [3, 3, 3, 3]}),
    "strided": ((2, 16, 9, 11), (8, 16, 3, 3), {"strides": [2, 3], "pads": [1, 1, 1, 1]}),
    "dilated": ((1, 8, 12, 12), (8, 8, 3, 3), {"dilations": [2, 3], "pads": [2, 3, 2, 3]}),
    "asymmetric": ((1, 4, 7, 9), (6, 4, 3, 2), {"pads": [0, 2, 3, 1]}),
    "grouped": ((1, 12, 6, 6), (8, 3, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    "wide groups": ((1, 64, 6, 6), (64, 16, 3, 3), {"group": 4}),
    "depthwise": ((2, 32, 9, 9), (32, 1, 3, 3), {"group": 32, "pads": [1, 1, 1, 1]}),
    "depthwise rest": ((1, 20, 9, 9), (20, 1, 5, 5), {"group": 20, "strides": [2, 2]}),
    "depthwise multiplied": ((1, 6, 9, 9), (18, 1, 3, 3), {"group": 6}),
    "one axis": ((2, 5, 20), (7, 5, 4), {"pads": [1, 2], "strides": [3]}),
    "one axis depthwise": ((1, 32, 20), (32, 1, 3), {"group": 32, "dilations": [2]}),
    "three axes": ((1, 3, 5, 6, 7), (4, 3, 2, 3, 3), {"pads": [0, 1, 1, 1, 0, 1]}),
    "three axes grouped": ((1, 4, 5, 5, 5), (4, 2, 3, 3, 3), {"group": 2}),
    "same upper": ((1, 3, 7, 8), (4, 3, 4, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "same lower": ((1, 3, 7, 8), (4, 3, 4, 3), {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    "valid": ((1, 3, 7, 8), (4, 3, 4, 3), {"auto_pad": "VALID"}),
    "unread end": ((1, 3, 8, 8), (4, 3, 1, 1), {"strides": [3, 3], "pads": [0, 0, 1, 1]}),
    "no images": ((0, 3, 8, 8), (4, 3, 3, 3), {}),
    "no channels": ((2, 0, 8, 8), (4, 0, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
    "no channels in groups": ((1, 0, 8), (4, 0, 3), {"group": 2}),
}
TRANSPOSED = {
    "plain": ((1, 3, 4, 5), (3, 4, 3, 3), {}),
    "doubling": ((2, 16, 5, 5), (16, 8, 2, 2), {"strides": [2, 2]}),
    "padded": ((1, 6, 5, 5), (6, 4, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "asymmetric": ((1, 3, 5, 6), (3, 4, 3, 3), {"strides": [2, 2], "pads": [0, 1, 2, 1]}),
    "output padding": (
        (1, 3, 5, 6),
        (3, 4, 3, 3),
        {"strides": [2, 3], "pads": [1, 1, 1, 1], "output_padding": [1, 2]},
    ),
    "more output than windows": ((1, 3, 3, 3), (3, 2, 2, 2), {"output_shape": [7, 6]}),
    "dilated output padding": (
        (1, 3, 4, 4),
        (3, 2, 2, 2),
        {"dilations": [3, 3], "output_padding": [2, 1]},
    ),
    "output shape": ((1, 3, 3, 3), (3, 2, 3, 3), {"output_shape": [10, 8], "strides": [3, 2]}),
    "same upper": ((1, 3, 5, 5), (3, 2, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "same lower": ((1, 3, 5, 5), (3, 2, 3, 4), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    "same output padding": (
        (1, 3, 5, 5),
        (3, 2, 3, 2),
        {"auto_pad": "SAME_UPPER", "strides": [2, 3], "output_padding": [1, 1]},
    ),
    "grouped": ((1, 6, 5, 5), (6, 2, 3, 3), {"group": 3, "strides": [2, 2]}),
    "depthwise": ((1, 16, 5, 5), (16, 1, 3, 3), {"group": 16, "strides": [2, 2]}),
    "dilated": ((1, 3, 5, 5), (3, 4, 3, 3), {"dilations": [2, 2]}),
    "one axis": ((2, 3, 9), (3, 4, 4), {"strides": [2], "pads": [1, 1]}),
    "three axes": ((1, 2, 3, 4, 3), (2, 3, 2, 2, 2), {"strides": [2, 1, 2]}),
    "no images": ((0, 3, 4, 5), (3, 4, 3, 3), {}),
    "no channels": ((2, 0, 4, 5), (0, 4, 3, 3), {"strides": [2, 1], "pads": [1, 0, 0, 1]}),
    "no channels in groups": ((1, 0, 5), (0, 2, 3), {"group": 2, "output_padding": [0]}),
}


def operands(shape, weight_shape, made, seed=0) -> dict[str, np.ndarray]:
    chance = np.random.default_rng(seed)
    shapes = {"x": shape, "w": weight_shape, "b": (made,)}
    return {name: chance.standard_normal(dims).astype(np.float32) for name, dims in shapes.items()}


def check(core, op, case, constants, has_bias=True, bound=F32_BOUND, **config) -> None:
    shape, weight_shape, attributes = case
    made = weight_shape[0] if op == "Conv" else weight_shape[1] * attributes.get("group", 1)
    every = operands(shape, weight_shape, made)
    names = ["x", "w", "b"] if has_bias else ["x", "w"]
    node = helper.make_node(op, names, ["y"], **attributes)
    inputs = {name: every[name] for name in names if name not in constants}
    model = model_of(
        [node],
        inputs,
        constants={name: every[name] for name in names if name in constants},
        dynamic=bool(constants),
    )
    assert_same_as_reference(core, model, inputs, bound=bound, **config)


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("constants", ["wb", "b", ""])
def test_convolutions_with_constant_and_computed_weights(core, name, constants) -> None:
    check(core, "Conv", CONVOLUTIONS[name], constants)


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("threads", [1, 2])
def test_convolutions_without_bias(core, name, threads) -> None:
    check(core, "Conv", CONVOLUTIONS[name], "w", False, INFERENCE_NUM_THREADS=threads)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_in_bfloat16(core, name) -> None:
    case = CONVOLUTIONS[name]
    check(core, "Conv", case, "wb", bound=BF16_BOUND, INFERENCE_PRECISION_HINT="bf16")
    check(core, "Conv", case, "", bound=BF16_BOUND, INFERENCE_PRECISION_HINT="bf16")


@pytest.mark.parametrize("name", TRANSPOSED)
@pytest.mark.parametrize(("constants", "has_bias"), [("wb", True), ("w", False), ("", True)])
def test_transposed_convolutions(core, name, constants, has_bias) -> None:
    check(core, "ConvTranspose", TRANSPOSED[name], constants, has_bias)


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolutions_in_bfloat16(core, name) -> None:
    case = TRANSPOSED[name]
    check(core, "ConvTranspose", case, "wb", bound=BF16_BOUND, INFERENCE_PRECISION_HINT="bf16")


@st.composite
def convolution_cases(draw, transposed=False):
    rank = draw(st.integers(1, 3))

    def numbers(low, high):
        return draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))

    groups = draw(st.sampled_from([1, 1, 2, 3]))
    read, made = groups * draw(st.integers(1, 5)), groups * draw(st.integers(1, 5))
    size, dilations, strides = numbers(1, 3), numbers(1, 2), numbers(1, 3)
    reach = [(k - 1) * d + 1 for k, d in zip(size, dilations, strict=True)]
    lengths = [length + span for length, span in zip(numbers(0, 6), reach, strict=True)]
    pads = [draw(st.integers(0, span - 1)) for span in (*reach, *reach)]
    attributes = {"group": groups, "dilations": dilations, "strides": strides}
    auto = draw(st.sampled_from(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    attributes |= {"pads": pads} if auto == "NOTSET" else {"auto_pad": auto}
    images = draw(st.integers(1, 2))
    if not transposed:
        return (images, read, *lengths), (made, read // groups, *size), attributes
    if auto.startswith("SAME"):  # shape inference and REFERENCE differ where windows leave gaps
        attributes["strides"] = [min(s, span) for s, span in zip(strides, reach, strict=True)]
    if auto == "NOTSET":
        most = [max(s, d) - 1 for s, d in zip(strides, dilations, strict=True)]
        attributes["output_padding"] = [draw(st.integers(0, extra)) for extra in most]
        # What is cut off has to leave something.
        attributes["pads"] = [
            min(pad, 1) if length > 2 else 0
            for pad, length in zip(pads, [*lengths, *lengths], strict=True)
        ]
    return (images, read, *lengths), (read, made // groups, *size), attributes


@EXAMPLES
@given(convolution_cases(), st.sampled_from(["wb", "b", ""]))
def test_any_convolution_equals_reference(core, case, constants) -> None:
    check(core, "Conv", case, constants)


@EXAMPLES
@given(convolution_cases(transposed=True), st.sampled_from(["wb", ""]))
def test_any_transposed_convolution_equals_reference(core, case, constants) -> None:
    check(core, "ConvTranspose", case, constants)


FAST = {
    "pointwise": ((1, 64, 14, 14), (128, 64, 1, 1), {}),
    "dense": ((1, 64, 14, 14), (64, 64, 3, 3), {"pads": [1, 1, 1, 1]}),
    "depthwise": ((1, 96, 14, 14), (96, 1, 3, 3), {"group": 96, "pads": [1, 1, 1, 1]}),
    "first": ((1, 3, 32, 32), (16, 3, 3, 3), {"strides": [2, 2], "pads": [0, 0, 1, 1]}),
    "one axis": ((1, 64, 100), (64, 64, 3), {"pads": [1, 1]}),
}


def plan_of_case(core, case, **options):
    shape, weight_shape, attributes = case
    every = operands(shape, weight_shape, weight_shape[0])
    node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    model = model_of([node], {"x": every["x"]}, constants={"w": every["w"]})
    return plan_of(core, model, {"x": every["x"]}, **options)


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("float_dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_hot_convolutions_are_compiled_for_their_shapes(core, name, float_dtype) -> None:
    plan = plan_of_case(core, FAST[name], float_dtype=float_dtype)
    assert not any(is_slow(step.implementation) for step in plan.steps)


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_whole_constants_behind_hot_convolutions_keep_them_compiled(core, name, op) -> None:
    shape, weight_shape, attributes = FAST[name]
    x, w, _ = epilogue_inputs(shape, weight_shape)
    conv = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    plain = model_of([conv], {"x": x}, constants={"w": w})
    made = assert_same_as_reference(core, plain, {"x": x})["y"]
    k = np.random.default_rng(1).standard_normal(made.shape).astype(np.float32)
    conv.output[0] = "c"
    nodes = [conv, helper.make_node(op, ["c", "k"], ["y"])]
    model = model_of(nodes, {"x": x}, constants={"w": w, "k": k})
    assert not any(is_slow(step.implementation) for step in plan_of(core, model, {"x": x}).steps)
    assert_same_as_reference(core, model, {"x": x})


def test_depthwise_convolutions_take_the_depthwise_kernel(core) -> None:
    implementations = [s.implementation for s in plan_of_case(core, FAST["depthwise"]).steps]
    has_wide_vectors = any("avx512" in name for name in implementations)
    wanted = "jit_dw:avx512_core" if has_wide_vectors else ("jit_dw", "brdgmm_dw")
    assert any(name.startswith(wanted) for name in implementations)


def test_a_chain_of_convolutions_is_reordered_at_its_ends_only(core) -> None:
    chance = np.random.default_rng(0)
    weights = {
        "w0": (16, 3, 3, 3),
        "w1": (96, 16, 1, 1),
        "w2": (96, 1, 3, 3),
        "w3": (24, 96, 1, 1),
        "w4": (48, 24, 3, 3),
    }
    constants = {n: chance.standard_normal(dims).astype(np.float32) for n, dims in weights.items()}
    nodes = [
        helper.make_node("Conv", ["x" if i == 0 else f"t{i}", f"w{i}"], [f"t{i + 1}"], **attributes)
        for i, attributes in enumerate([{}, {}, {"group": 96}, {}, {}])
    ]
    nodes.append(helper.make_node("GlobalAveragePool", ["t5"], ["p"]))
    nodes.append(helper.make_node("Flatten", ["p"], ["y"]))
    x = chance.standard_normal((1, 3, 20, 20)).astype(np.float32)
    model = model_of(nodes, {"x": x}, constants=constants)
    plan = plan_of(core, model, {"x": x})
    assert [step.origin.op.split(":")[-1] for step in plan.steps] == [
        "Conv",  # channels last
        *["Conv"] * 5,
        "GlobalAveragePool",
        "Output",
    ]
    assert_same_as_reference(core, model, {"x": x})


def epilogue_inputs(shape, weight_shape) -> list[np.ndarray]:
    every = operands(shape, weight_shape, weight_shape[0])
    return [every["x"], every["w"], every["b"]]


def convolved(core, inputs) -> np.ndarray:
    x, w, b = inputs
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"])
    model = model_of([node], {"x": x}, constants={"w": w, "b": b})
    return assert_same_as_reference(core, model, {"x": x})["y"]


@pytest.mark.parametrize("constants", [(1, 2), (1, 2, 3)])
@pytest.mark.parametrize("float_dtype", [DType.FLOAT32, DType.BFLOAT16])
@pytest.mark.parametrize("form", ["whole", "channels", "number"])
def test_operands_of_post_ops(core, form, constants, float_dtype) -> None:
    inputs = epilogue_inputs((2, 8, 5, 5), (24, 8, 1, 1))
    dims = {"whole": (2, 24, 5, 5), "channels": (24, 1, 1), "number": ()}[form]
    other = np.random.default_rng(1).standard_normal(dims).astype(np.float32)
    attributes = {"post_ops": ["mul(3)", "relu", "sub(3)"]}
    found, _ = run_fused(
        "Conv", [*inputs, other], (2, 24, 5, 5), attributes, constants, float_dtype=float_dtype
    )
    wanted = np.maximum(convolved(core, inputs) * other, 0) - other
    bound = F32_BOUND if float_dtype is DType.FLOAT32 else BF16_BOUND
    assert largest_error(found, wanted) <= bound


@pytest.mark.parametrize("text", ["relu", "clip(0.0,6.0)", "swish", "hardswish", "gelu_erf"])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_activations_are_applied_last(core, op, text) -> None:
    inputs = epilogue_inputs((1, 16, 6, 6), (16, 16, 1, 1))
    plain = {"relu": lambda x: np.maximum(x, 0), "clip(0.0,6.0)": lambda x: np.clip(x, 0, 6)}
    smooth = {
        "swish": lambda x: x / (1 + np.exp(-x)),
        "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
        "gelu_erf": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    }
    found, _ = run_fused(op, inputs, (1, 16, 6, 6), {"post_ops": [text]}, (1, 2))
    if op == "ConvTranspose":
        inputs[1] = np.ascontiguousarray(inputs[1].transpose(1, 0, 2, 3))
    wanted = {**plain, **smooth}[text](convolved(core, inputs))
    assert largest_error(found, wanted) <= F32_BOUND


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_what_is_fused_stays_where_there_are_no_channels(core, op) -> None:
    w = np.zeros((6, 0, 1, 1) if op == "Conv" else (0, 6, 1, 1), np.float32)
    inputs = [np.zeros((1, 0, 3, 3), np.float32), w, np.linspace(-2, 2, 6, dtype=np.float32)]
    other = np.random.default_rng(1).standard_normal((1, 6, 3, 3)).astype(np.float32)
    attributes = {"post_ops": ["mul(3)", "relu", "sub(3)"]}
    found, _ = run_fused(op, [*inputs, other], other.shape, attributes, (1, 2))
    wanted = np.maximum(inputs[2].reshape(6, 1, 1) * other, 0) - other
    assert largest_error(found, wanted) <= F32_BOUND


def residual_model(source, *, is_needed_later=False):
    """x - Conv -> a - Conv -> b, and a + b: a dies in the sum, unless something else reads it."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Conv", ["a", "w"], ["b"]),
        helper.make_node("Add", ["b", "a"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
    ]
    last = "a" if is_needed_later else "r"
    nodes.append(helper.make_node("Mul", ["r", last], ["y"]))
    w = np.random.default_rng(5).standard_normal((16, 16, 1, 1)).astype(np.float32)
    return model_of(nodes, {"x": source}, constants={"w": w}), {"x": source}


@pytest.mark.parametrize("is_needed_later", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_residual_is_added_in_place_only_if_nobody_reads_it_later(
    core, is_needed_later, threads
) -> None:
    source = np.random.default_rng(3).standard_normal((2, 16, 6, 6)).astype(np.float32)
    model, inputs = residual_model(source, is_needed_later=is_needed_later)
    assert_same_as_reference(core, model, inputs, INFERENCE_NUM_THREADS=threads)


def test_a_residual_that_dies_costs_no_step(core) -> None:
    source = np.random.default_rng(3).standard_normal((2, 16, 6, 6)).astype(np.float32)
    model, inputs = residual_model(source)
    plan = plan_of(core, model, inputs)
    ops = [step.origin.op.split(":")[-1] for step in plan.steps]
    assert ops[:3] == ["Conv", "Conv", "Conv"]  # channels last, and two convolutions
    assert "Add" not in ops
    first, second = (BoundPlan(plan).run(inputs)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_what_cannot_be_convolved_is_refused_with_a_reason(core) -> None:
    x, w = np.zeros((1, 2, 3, 3, 3, 3), np.float32), np.zeros((2, 2, 1, 1, 1, 1), np.float32)
    model = model_of([helper.make_node("Conv", ["x", "w"], ["y"])], {"x": x}, constants={"w": w})
    result = core.query_network(model, "CPU")
    assert "spatial axes" in str(result)


@pytest.mark.parametrize("channels", [3, "c"])
def test_a_length_that_is_not_agreed_upon_is_no_matter_of_data(core, channels) -> None:
    """A bias that is an input tells nothing; channels that a run brings are known when it comes."""
    node = helper.make_node(
        "ConvTranspose", ["x", "w", "b"], ["y"], name="up", auto_pad="SAME_UPPER", strides=[4, 4]
    )
    shapes = {"x": ["n", channels, 5, 5], "w": [3, 2, 3, 3], "b": [2]}
    ports = [helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()]
    made = [helper.make_tensor_value_info("y", 1, [None] * 4)]
    graph = helper.make_graph([node], "g", ports, made)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    x = {"x": (1, 3, 5, 5), "w": (3, 2, 3, 3), "b": (2,)}
    arrays = {name: np.ones(shape, np.float32) for name, shape in x.items()}
    with pytest.raises(UnsupportedOpError, match="leave open which shape 'y' has") as raised:
        core.load_network(proto, "CPU").create_infer_request().infer_sync(arrays)
    assert raised.value.node == "up"
    query = core.query_network(proto, "HETERO:CPU,REFERENCE")
    if channels == 3:
        assert query["up"].reason.startswith("on REFERENCE")


def test_a_depthwise_convolution_of_one_axis_is_seen_as_one_of_two(core) -> None:
    case = ((1, 64, 100), (64, 1, 3), {"group": 64, "pads": [1, 1]})
    implementations = [step.implementation for step in plan_of_case(core, case).steps]
    assert any(name.startswith(("jit_dw", "brdgmm_dw")) for name in implementations)


@pytest.mark.parametrize("float_dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_depthwise_blocks_of_one_axis_keep_their_layout(core, float_dtype) -> None:
    chance = np.random.default_rng(0)
    shapes = {"w0": (32, 16, 1), "w1": (32, 1, 5), "w2": (32, 32, 1), "b": (32,), "x": (2, 16, 50)}
    arrays = {n: chance.standard_normal(dims).astype(np.float32) for n, dims in shapes.items()}
    x = arrays.pop("x")
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b"], ["a"]),
        helper.make_node("Conv", ["a", "w1", "b"], ["d"], "depthwise", group=32, pads=[2, 2]),
        helper.make_node("Add", ["d", "a"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("Conv", ["r", "w2", "b"], ["y"]),
    ]
    model = model_of(nodes, {"x": x}, constants=arrays)
    plan = plan_of(core, model, {"x": x}, float_dtype=float_dtype)
    assert len(plan.steps) == 5  # channels last, three convolutions, row-major
    if float_dtype is DType.FLOAT32:
        assert_same_as_reference(core, model, {"x": x})
    else:
        bound = {"bound": BF16_BOUND, "INFERENCE_PRECISION_HINT": "bf16"}
        assert_same_as_reference(core, model, {"x": x}, **bound)


@pytest.mark.parametrize("float_dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_the_epilogue_of_a_depthwise_convolution_of_one_axis(core, float_dtype) -> None:
    inputs = epilogue_inputs((2, 24, 20), (24, 1, 3))
    chance = np.random.default_rng(1)
    whole, factors = (chance.standard_normal(n).astype(np.float32) for n in ((2, 24, 18), (24, 1)))
    attributes = {"post_ops": ["mul(4)", "add(3)", "relu"], "group": 24}
    found, _ = run_fused(
        *("Conv", [*inputs, whole, factors], (2, 24, 18), attributes, (1, 2, 4)),
        float_dtype=float_dtype,
    )
    x, w, b = inputs
    plain = sum(w[:, 0, tap, None] * x[:, :, tap : tap + 18] for tap in range(3)) + b[:, None]
    bound = F32_BOUND if float_dtype is DType.FLOAT32 else BF16_BOUND
    assert largest_error(found, np.maximum(plain * factors + whole, 0)) <= bound


SPREAD = {
    "dilated": ((1, 16, 9, 9), (16, 8, 3, 3), {"dilations": [2, 2], "strides": [2, 2]}),
    "other steps": (
        (2, 6, 5, 7),
        (6, 4, 2, 3),
        {"dilations": [3, 2], "strides": [2, 3], "output_padding": [1, 2], "pads": [1, 0, 2, 1]},
    ),
    "one axis": ((1, 64, 500), (64, 1, 4), {"group": 64, "strides": [2], "pads": [1, 1]}),
}


@pytest.mark.parametrize("name", SPREAD)
@pytest.mark.parametrize(("constants", "has_bias"), [("wb", True), ("w", False), ("", True)])
def test_zeros_between_elements_stand_for_strides(core, name, constants, has_bias) -> None:
    check(core, "ConvTranspose", SPREAD[name], constants, has_bias)
    check(
        *(core, "ConvTranspose", SPREAD[name], constants, has_bias, BF16_BOUND),
        INFERENCE_PRECISION_HINT="bf16",
    )


@pytest.mark.parametrize("name", SPREAD)
def test_transposed_convolutions_run_compiled(core, name) -> None:
    shape, weight_shape, attributes = SPREAD[name]
    x, w = np.ones(shape, np.float32), np.ones(weight_shape, np.float32)
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attributes)
    plan = plan_of(core, model_of([node], {"x": x}, constants={"w": w}), {"x": x})
    names = [step.implementation for step in plan.steps]
    assert not any("ref:" in name for name in names)
    assert {"native:fill", "native:fold_columns", "native:copy"} & {*names}
