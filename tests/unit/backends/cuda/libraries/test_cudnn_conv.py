"""What cuDNN is told of a convolution: tensors, the order of steps, the engines left out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aioinfer.backends.accelerator.queues.driver import DriverError
from aioinfer.backends.cuda.libraries.cudnn_builder import make_graph
from aioinfer.backends.cuda.libraries.cudnn_conv import (
    ACTIVATIONS,
    describe_conv,
    find_refusal,
)
from aioinfer.backends.cuda.libraries.cudnn_graph import GraphDescription
from unit.backends.cuda.libraries.conv_operation import conv_operation
from unit.backends.cuda.libraries.fake_cudnn import FakeFrontend


def operators(**given: Any) -> list[str]:
    return [step.operator for step in describe_conv(conv_operation(**given)).steps]


def dims(description: GraphDescription) -> dict[str, tuple[int, ...]]:
    return {tensor.name: tensor.dims for tensor in description.tensors}


def test_the_residual_comes_before_the_bias_and_the_activation_last() -> None:
    assert operators(has_residual=True, activation="relu") == ["conv_fprop", "add", "bias", "relu"]
    assert operators(activation="silu") == ["conv_fprop", "bias", "swish"]
    assert operators(has_bias=False) == ["conv_fprop"]


def test_tensors_stand_in_the_order_of_the_arguments() -> None:
    description = describe_conv(conv_operation(has_residual=True))
    assert list(dims(description)) == ["x", "w", "bias", "residual", "y"]
    assert len({tensor.uid for tensor in description.tensors}) == 5
    assert list(dims(describe_conv(conv_operation(has_bias=False)))) == ["x", "w", "y"]


def test_sizes_follow_from_asymmetric_pads_strides_and_dilations() -> None:
    operation = conv_operation(
        image=(2, 6, 20, 11),
        filters=(9, 2, 3, 4),
        strides=(2, 3),
        pads_begin=(0, 1),
        pads_end=(1, 2),
        dilations=(2, 1),
        groups=3,
        has_residual=True,
    )
    made = dims(describe_conv(operation))
    assert made["y"] == made["residual"] == (2, 9, (20 + 1 - 5) // 2 + 1, (11 + 3 - 4) // 3 + 1)
    assert made["w"] == (9, 2, 3, 4)
    assert made["bias"] == (1, 9, 1, 1)


def test_all_tensors_have_channels_last() -> None:
    for tensor in describe_conv(conv_operation(has_residual=True)).tensors:
        count, channels, height, width = tensor.dims
        memory = np.empty((count, height, width, channels), np.uint8).transpose(0, 3, 1, 2)
        assert tensor.strides == memory.strides


def test_strict_float32_leaves_out_engines_that_round_and_tf32_does_not() -> None:
    strict = describe_conv(conv_operation(dtype="float32"))
    tf32 = describe_conv(conv_operation(dtype="float32", has_tf32=True))
    half = describe_conv(conv_operation(dtype="float16"))
    assert {"TENSOR_CORE", "DOWN_CONVERT_INPUTS"} < set(strict.excluded_notes)
    assert "TENSOR_CORE" not in {*tf32.excluded_notes, *half.excluded_notes}
    for description in (strict, tf32, half):
        assert {"NONDETERMINISTIC", "WINOGRAD"} < set(description.excluded_notes)


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "relu": lambda x: max(x, 0.0),
    "relu6": lambda x: min(max(x, 0.0), 6.0),
    "silu": lambda x: x / (1.0 + math.exp(-x)),
    "gelu": lambda x: x * (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0,
    "leaky_relu": lambda x: x if x > 0.0 else 0.25 * x,
    "sigmoid": lambda x: 1.0 / (1.0 + math.exp(-x)),
    "tanh": math.tanh,
    "hardswish": lambda x: x * min(max(x / 6.0 + 0.5, 0.0), 1.0),
}

METHODS: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "min": lambda input0, input1: min(input0, input1),
    "relu": lambda input: max(input, 0.0),
    "swish": lambda input: input / (1.0 + math.exp(-input)),
    "gelu": lambda input: input * (1.0 + math.erf(input / math.sqrt(2.0))) / 2.0,
    "leaky_relu": lambda input, negative_slope: input * (1.0 if input > 0.0 else negative_slope),
    "sigmoid": lambda input: 1.0 / (1.0 + math.exp(-input)),
    "tanh": lambda input: math.tanh(input),
}


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_the_steps_of_an_activation_compute_it(activation: str) -> None:
    description = describe_conv(conv_operation(activation=activation, number=0.25))
    for x in (-7.0, -2.5, 0.0, 1.5, 4.0, 9.0):
        values = {"sum": x, **dict(description.scalars)}
        for step in description.steps[2:]:
            given = {parameter: values[name] for parameter, name in step.inputs}
            values[step.result] = METHODS[step.operator](**given, **dict(step.settings))
        assert values["activated"] == pytest.approx(FUNCTIONS[activation](x))


def test_every_activation_has_at_most_two_constants() -> None:
    for activation in ACTIVATIONS:
        assert len(describe_conv(conv_operation(activation=activation)).scalars) <= 2


def test_a_description_survives_json() -> None:
    description = describe_conv(conv_operation(activation="hardswish", has_residual=True))
    read = GraphDescription.from_json(json.loads(json.dumps(description.to_json())))
    assert read == description
    assert hash(read) == hash(description)


def test_the_frontend_is_told_what_the_description_says() -> None:
    frontend = FakeFrontend()
    operation = conv_operation(activation="relu6", pads_begin=(0, 1), has_residual=True)
    description = describe_conv(operation)
    graph: Any = make_graph(frontend, description, device_property="p")
    assert graph.settings == {
        "io_data_type": "HALF",
        "intermediate_data_type": "FLOAT",
        "compute_data_type": "FLOAT",
        "device_property": "p",
    }
    (name, conv), (_, add), (_, bias), (_, relu), (_, least) = graph.calls
    assert name == "conv_fprop"
    assert conv["image"].fields["uid"] == 1
    assert conv["weight"].fields["stride"] == [576, 1, 192, 64]
    assert (conv["pre_padding"], conv["post_padding"]) == ([0, 1], [1, 1])
    assert add["a"].fields["made_by"] == "conv_fprop"
    assert add["b"].fields["name"] == "residual"
    assert bias["input"].fields["made_by"] == "add"
    assert relu["input"].fields["made_by"] == "bias"
    assert least["input1"].fields["value"] == 6.0


def test_the_last_step_writes_the_output() -> None:
    description = describe_conv(conv_operation(activation="tanh"))
    graph: Any = make_graph(FakeFrontend(), description)
    *inner, last = (tensor.fields for tensor in graph.made)
    assert inner == [{"made_by": "conv_fprop"}, {"made_by": "bias"}]
    assert last == {
        "made_by": "tanh",
        "output": True,
        "data_type": "HALF",
        "uid": 5,
        "dim": [8, 64, 56, 56],
        "stride": [64 * 56 * 56, 1, 56 * 64, 64],
    }


def test_what_cudnn_has_no_engine_for_is_refused_before_it_is_asked() -> None:
    assert find_refusal("bfloat16", 1, 96, True, "silu") is not None
    assert find_refusal("bfloat16", 1, 96, False, "relu") is not None
    assert find_refusal("bfloat16", 1, 96, True, "relu") is None
    assert find_refusal("bfloat16", 1, 96, False, None) is None
    assert find_refusal("bfloat16", 1, 1, False, "silu") is None
    assert find_refusal("bfloat16", 2, 48, False, "silu") is None
    assert find_refusal("float16", 1, 96, True, "silu") is None
    assert find_refusal("float16", 64, 1, True, "mish") is not None
    with pytest.raises(DriverError, match=r"conv of bfloat16 8x96x.*in bfloat16 with silu"):
        describe_conv(
            conv_operation(
                dtype="bfloat16",
                image=(8, 96, 56, 56),
                filters=(96, 1, 3, 3),
                groups=96,
                activation="silu",
            )
        )


@pytest.mark.parametrize(
    "given", [{"image": (8, 63, 56, 56)}, {"image": (8, 64, 1, 1), "pads_end": (0, 0)}]
)
def test_parameters_that_mean_no_convolution_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(DriverError, match="is no convolution"):
        describe_conv(conv_operation(**given))
