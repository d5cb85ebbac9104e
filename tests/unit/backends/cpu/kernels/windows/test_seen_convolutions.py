"""What is fused behind convolutions that oneDNN sees in another form: more axes, a spread input."""

import numpy as np
import pytest
from onnx import helper

from aioinfer.backends.cpu.kernels.windows.convolution_choice import is_slow
from aioinfer.backends.cpu.plans.steps import PrimitiveStep
from unit.backends.cpu.comparing import (
    BF16_BOUND,
    F32_BOUND,
    assert_same_as_reference,
    has_wide_vectors,
    model_of,
)
from unit.backends.cpu.compiled_plans import plan_of

# op, input, weights, attributes, result
SEEN = {
    "depthwise over one axis": (
        "Conv",
        *((2, 24, 30), (24, 1, 5), {"group": 24, "pads": [2, 2]}, (2, 24, 30)),
    ),
    "strided depthwise over one axis": (
        "Conv",
        *((1, 40, 31), (40, 1, 3), {"group": 40, "strides": [2], "dilations": [2]}, (1, 40, 14)),
    ),
    "spread": (
        "ConvTranspose",
        (1, 16, 6, 7),
        (16, 24, 3, 3),
        {"dilations": [2, 2], "strides": [2, 3]},
        (1, 24, 15, 23),
    ),
    "spread with pads": (
        "ConvTranspose",
        (2, 8, 5, 5),
        (8, 16, 3, 2),
        {"dilations": [2, 3], "strides": [3, 2], "pads": [2, 1, 1, 0], "output_padding": [1, 1]},
        (2, 16, 15, 12),
    ),
    "spread over one axis": (
        "ConvTranspose",
        *((1, 32, 20), (32, 1, 4), {"group": 32, "strides": [2], "pads": [1, 1]}, (1, 32, 40)),
    ),
}
ACTIVATIONS = {
    "Relu": [helper.make_node("Relu", ["s"], ["y"])],
    "Swish": [
        helper.make_node("Sigmoid", ["s"], ["g"]),
        helper.make_node("Mul", ["s", "g"], ["y"]),
    ],
    "LeakyRelu": [helper.make_node("LeakyRelu", ["s"], ["y"], alpha=0.1)],
}
CONSTANT = ["wb", "b", ""]


def network(name, activation, constant, has_residual):
    """x -> convolution with a bias -> + r -> activation; r is computed: it may be written over."""
    op, shape, weight_shape, attributes, made = SEEN[name]
    chance = np.random.default_rng(0)
    channels = made[1]
    shapes = {"x": shape, "w": weight_shape, "b": (channels,), "o": made}
    arrays = {key: chance.standard_normal(dims).astype(np.float32) for key, dims in shapes.items()}
    nodes = [
        helper.make_node("Tanh", ["o"], ["r"]),
        helper.make_node(op, ["x", "w", "b"], ["c"], **attributes),
        helper.make_node("Add", ["c", "r"] if has_residual else ["c", "k"], ["s"]),
        *ACTIVATIONS[activation],
    ]
    constants = {"k": np.full((channels, *[1] * (len(made) - 2)), 0.5, np.float32)}
    constants.update({key: arrays[key] for key in constant})
    inputs = {key: array for key, array in arrays.items() if key not in constant}
    if not has_residual:
        nodes.pop(0)
        del inputs["o"]
    return model_of(nodes, inputs, constants=constants), inputs


@pytest.mark.parametrize("name", SEEN)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("constant", CONSTANT)
@pytest.mark.parametrize("has_residual", [True, False])
def test_bias_residual_and_activation_are_applied(
    core, name, activation, constant, has_residual
) -> None:
    model, inputs = network(name, activation, constant, has_residual)
    assert_same_as_reference(core, model, inputs, INFERENCE_NUM_THREADS=2, bound=F32_BOUND)


@pytest.mark.parametrize("name", SEEN)
@pytest.mark.parametrize("constant", CONSTANT)
def test_they_are_applied_in_bfloat16(core, name, constant) -> None:
    model, inputs = network(name, "Relu", constant, True)
    config = {"INFERENCE_PRECISION_HINT": "bf16"}
    assert_same_as_reference(core, model, inputs, bound=BF16_BOUND, **config)


UNFOLDED = ("strided depthwise over one axis", "spread over one axis")
"""What oneDNN unfolds into memory without wide vectors; it has nothing faster."""


@pytest.mark.parametrize("name", SEEN)
@pytest.mark.parametrize("constant", CONSTANT)
def test_they_cost_no_step_and_the_convolution_is_compiled(core, name, constant) -> None:
    model, inputs = network(name, "Swish", constant, True)
    steps = plan_of(core, model, inputs).steps
    ops = {step.origin.op.split(":")[-1] for step in steps}
    assert ops <= {"Tanh", "Eltwise", SEEN[name][0], "Output"}
    is_matmul = [isinstance(step, PrimitiveStep) and step.desc.call == "matmul" for step in steps]
    names = [step.implementation for step, other in zip(steps, is_matmul, strict=True) if not other]
    convolutions = [name for name in names if not name.startswith(("native:", "numpy", "jit:uni"))]
    assert convolutions
    assert not any("ref:" in name for name in convolutions)
    if has_wide_vectors() or name not in UNFOLDED:
        assert not any(map(is_slow, convolutions))


@pytest.mark.parametrize("name", SEEN)
def test_two_runs_of_a_plan_give_the_same(core, name) -> None:
    """What was spread stays spread: zeros are written for every run, into memory that is shared."""
    model, inputs = network(name, "Relu", "wb", True)
    with core.load_network(model, "CPU") as loaded:
        request = loaded.create_infer_request()
        first = request.infer_sync(inputs)["y"].copy()
        request.infer_sync({key: np.full_like(array, 1e30) for key, array in inputs.items()})
        np.testing.assert_array_equal(request.infer_sync(inputs)["y"], first)


DIVIDED = {
    "many channels": (512, 4, 2, 256, 4, 1),
    "a wide window": (256, 6, 2, 16, 4, 1),
    "a stride of three": (160, 5, 3, 64, 4, 4),
    "few channels": (48, 11, 3, 48, 4, 1),
    "few places": (256, 4, 2, 64, 2, 2),
}
"""Channels, window, stride, channels made, side and pads of sums that oneDNN divides on AVX2."""


@pytest.mark.parametrize("name", DIVIDED)
@pytest.mark.parametrize(("has_bias", "has_residual"), [(True, True), (True, False), (False, True)])
def test_what_follows_a_strided_transposed_convolution_is_applied_once(
    core, name, has_bias, has_residual
) -> None:
    channels, window, stride, made, side, pads = DIVIDED[name]
    chance = np.random.default_rng(0)
    length = (side - 1) * stride + window - 2 * pads
    shapes = {
        "x": (1, channels, side, side),
        "r": (1, made, length, length),
        "w": (channels, made, window, window),
        "b": (made,),
    }
    arrays = {key: chance.standard_normal(dims).astype(np.float32) for key, dims in shapes.items()}
    given = ["x", "w", "b"] if has_bias else ["x", "w"]
    nodes = [
        helper.make_node("ConvTranspose", given, ["c"], strides=[stride] * 2, pads=[pads] * 4),
        helper.make_node("Add", ["c", "r"], ["a"]),
        helper.make_node("Relu", ["a" if has_residual else "c"], ["y"]),
    ]
    inputs = {"x": arrays["x"]} | ({"r": arrays["r"]} if has_residual else {})
    constants = {name: arrays[name] for name in given[1:]}
    kept = nodes if has_residual else [nodes[0], nodes[2]]
    assert_same_as_reference(core, model_of(kept, inputs, constants=constants), inputs)
