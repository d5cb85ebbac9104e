"""Which operations of cuDNN, and which launches, convolutions become; and the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.plan import Plan
from aioinfer.backends.accelerator.precision import F32, Precision
from aioinfer.backends.cuda.kernels.library_call import WORKSPACE_BYTES
from aioinfer.runtime.graph import DType
from unit.backends.comparing import Arrays, assert_same_on, model_of, operator
from unit.backends.cuda.kernels.plans import labels_of, operations_of, plan_of

HALF = Precision(DType.FLOAT16)


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def conv(
    image: tuple[int, ...], filters: tuple[int, ...], **attributes: Any
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Make a convolution with a bias, its input and its constants."""
    node = operator("Conv", "x", "w", "b", outputs=["c"], **attributes)
    return node, {"x": drawn(*image)}, {"w": drawn(*filters), "b": drawn(filters[0])}


def planned(
    nodes: list[Any], inputs: Arrays, constants: Arrays, precision: Precision = F32
) -> Plan:
    return plan_of(model_of(nodes, inputs, constants=constants), inputs, precision=precision)


def test_a_convolution_says_all_that_its_plan_depends_on() -> None:
    node, inputs, constants = conv(
        (2, 8, 9, 7),
        (6, 4, 3, 2),
        group=2,
        strides=[2, 1],
        pads=[1, 0, 2, 1],
        dilations=[1, 2],
    )
    plan = planned([node, operator("Relu", "c")], inputs, constants)
    (operation,) = operations_of(plan)
    assert (operation.library, operation.label) == ("cudnn", "conv")
    assert dict(operation.parameters) == {
        "dtype": "float32",
        "image": (2, 8, 9, 7),
        "filters": (6, 4, 3, 2),
        "strides": (2, 1),
        "pads_begin": (1, 0),
        "pads_end": (2, 1),
        "dilations": (1, 2),
        "groups": 2,
        "has_bias": True,
        "has_residual": False,
        "activation": "relu",
        "number": 0.0,
        "has_tf32": False,
        "workspace_bytes": WORKSPACE_BYTES,
    }
    assert labels_of(plan) == ["transpose", "CONV", "copy"]
    (call,) = (launch for launch in plan.launches if launch.source is operation)
    assert [item.shape for item in call.operands] == [
        (2, 9, 7, 8),
        (6, 3, 2, 4),
        (6,),
        (2, 5, 6, 6),
        (WORKSPACE_BYTES,),
    ]


def test_precisions_are_those_of_the_network() -> None:
    node, inputs, constants = conv((1, 4, 5, 5), (4, 4, 1, 1))
    nodes = [node, operator("Relu", "c")]
    found = [
        operations_of(planned(nodes, inputs, constants, precision))[0]
        for precision in (
            F32,
            Precision(has_tf32=True),
            HALF,
            Precision(DType.BFLOAT16, has_tf32=True),
        )
    ]
    assert [operation["dtype"] for operation in found] == [
        *("float32", "float32", "float16", "bfloat16")
    ]
    assert [operation["has_tf32"] for operation in found] == [False, True, False, False]


def test_a_residual_comes_before_the_bias_and_the_activation() -> None:
    node, inputs, constants = conv((1, 4, 5, 5), (4, 4, 3, 3), pads=[1, 1, 1, 1])
    nodes = [node, operator("Add", "x", "c", outputs=["s"]), operator("Relu", "s")]
    plan = planned(nodes, inputs, constants)
    (operation,) = operations_of(plan)
    assert (operation["has_residual"], operation["has_bias"]) == (True, True)
    assert operation["activation"] == "relu"
    assert labels_of(plan) == ["to_last", "CONV", "copy"]


def test_what_cudnn_does_not_compute_is_one_more_launch() -> None:
    node, inputs, constants = conv((1, 4, 5, 5), (4, 4, 3, 3), pads=[1, 1, 1, 1])
    nodes = [node, operator("Exp", "c", outputs=["e"]), operator("Mul", "e", "x")]
    plan = planned(nodes, inputs, constants)
    assert operations_of(plan)[0]["activation"] is None
    assert labels_of(plan) == ["to_last", "CONV", "fused", "copy"]


def test_a_first_convolution_reads_four_channels() -> None:
    node, inputs, constants = conv((1, 3, 8, 8), (8, 3, 3, 3))
    plan = planned([node, operator("Relu", "c")], inputs, constants)
    (operation,) = operations_of(plan)
    assert operation["image"] == (1, 4, 8, 8)
    assert operation["filters"] == (8, 4, 3, 3)


def test_one_axis_is_the_second_of_two() -> None:
    node, inputs, constants = conv((2, 4, 9), (8, 4, 3), strides=[2], pads=[1, 2])
    (operation,) = operations_of(planned([node, operator("Relu", "c")], inputs, constants))
    assert operation["image"] == (2, 4, 1, 9)
    assert operation["filters"] == (8, 4, 1, 3)
    assert (operation["strides"], operation["dilations"]) == ((1, 2), (1, 1))
    assert (operation["pads_begin"], operation["pads_end"]) == ((0, 1), (0, 2))


def test_filters_of_each_channel_are_a_kernel_with_any_activation() -> None:
    node, inputs, constants = conv((1, 8, 5, 5), (16, 1, 3, 3), group=8)
    plan = planned([node, operator("Softplus", "c")], inputs, constants)
    assert operations_of(plan) == []
    assert labels_of(plan) == ["transpose", "conv_last", "transpose"]


def test_three_axes_are_left_to_the_kernel_of_all_accelerators() -> None:
    node, inputs, constants = conv((1, 4, 5, 5, 5), (4, 4, 3, 3, 3))
    plan = planned([node, operator("Relu", "c")], inputs, constants)
    assert labels_of(plan) == ["conv"]


def test_without_cudnn_channels_stay_first() -> None:
    node, inputs, constants = conv((1, 4, 5, 5), (4, 4, 3, 3))
    model = model_of([node, operator("Relu", "c")], inputs, constants=constants)
    assert labels_of(plan_of(model, inputs, frozenset())) == ["conv"]


def test_plans_share_the_filters_of_a_model() -> None:
    node, inputs, constants = conv((1, 3, 8, 8), (8, 3, 3, 3))
    plan = planned([node, operator("Relu", "c")], inputs, constants)
    assert sum(buffer.size_bytes for buffer in plan.constants) == (8 * 3 * 3 * 4 + 8) * 4


@pytest.mark.parametrize("hint", ["f32", "f16", "bf16"])
def test_filters_that_come_with_the_run(stand_in_core: Core, hint: str) -> None:
    nodes = [operator("Conv", "x", "w", "b", group=2, outputs=["c"]), operator("Relu", "c")]
    inputs = {"x": drawn(2, 4, 7, 6), "w": drawn(6, 2, 3, 2), "b": drawn(6)}
    bound = {"f32": 1e-5, "f16": 4e-3, "bf16": 3e-2}[hint]
    config = {"INFERENCE_PRECISION_HINT": hint}
    assert_same_on("STANDIN", stand_in_core, model_of(nodes, inputs), inputs, bound=bound, **config)


def test_uint8_images_are_normalised_on_the_way(stand_in_core: Core) -> None:
    chance = np.random.default_rng(5)
    inputs = {"x": chance.integers(0, 256, (2, 3, 9, 8)).astype(np.uint8)}
    constants = {
        "m": drawn(3, 1, 1) * 10 + 100,
        "s": np.float32(50),
        "w": drawn(8, 3, 3, 3),
    }
    nodes = [
        operator("Cast", "x", outputs=["f"], to=1),
        operator("Sub", "f", "m", outputs=["d"]),
        operator("Div", "d", "s", outputs=["n"]),
        operator("Conv", "n", "w"),
    ]
    model = model_of(nodes, inputs, constants=constants)
    assert_same_on("STANDIN", stand_in_core, model, inputs)
