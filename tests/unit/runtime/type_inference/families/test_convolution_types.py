"""Types of convolutions and pools: by hand, where they contradict themselves, and beside onnx's."""

import random
from typing import Any

import numpy as np
import pytest

from unit.runtime.type_inference.typed_nodes import Given, inferred_by_onnx, ruled

X = "float32[n,4,9,8]"
W = "float32[6,4,3,3]"
ONES = {"pads": [1, 1, 1, 1]}

CONVOLUTIONS: list[tuple[list[Given], dict[str, Any], str]] = [
    ([X, W], {}, "float32[n,6,7,6]"),
    ([X, W, "float32[6]"], ONES, "float32[n,6,9,8]"),
    ([X, W], ONES | {"strides": [2, 2]}, "float32[n,6,5,4]"),
    ([X, W], {"dilations": [2, 1]}, "float32[n,6,5,6]"),
    ([X, W], {"auto_pad": "SAME_UPPER", "strides": [2, 3]}, "float32[n,6,5,3]"),
    ([X, W], {"auto_pad": "SAME_LOWER"}, "float32[n,6,9,8]"),
    ([X, W], {"auto_pad": "VALID", "strides": [3, 3]}, "float32[n,6,3,2]"),
    ([X, "float32[8,2,1,1]"], {"group": 2}, "float32[n,8,9,8]"),
    ([X, "float32[?,?,3,3]"], {"group": 4}, "float32[n,?,7,6]"),
    ([X, "float32[6,4,?,?]"], {"kernel_shape": [2, 2]}, "float32[n,6,8,7]"),
    (["float16[?,4,h,w]", "float16[6,4,3,3]"], ONES, "float16[?,6,h,w]"),
    (["float32[n,c,h,w]", W], {"pads": [0, 0, 2, 1]}, "float32[n,6,h,?]"),
    (["float32[n,4,h,w]", W], ONES | {"strides": [2, 1]}, "float32[n,6,?,w]"),
    (["float32[n,4,h,w]", W], {"auto_pad": "SAME_UPPER"}, "float32[n,6,h,w]"),
    (["float32[2,3,5]", "float32[4,3,5]"], {}, "float32[2,4,1]"),
]


@pytest.mark.parametrize(("inputs", "attributes", "expected"), CONVOLUTIONS)
def test_a_convolution_moves_its_window_over_each_axis(
    inputs: list[Given], attributes: dict[str, Any], expected: str
) -> None:
    assert ruled("Conv", inputs, attributes) == [expected]


IMPOSSIBLE_CONVOLUTIONS: list[tuple[list[Given], dict[str, Any]]] = [
    ([X, "float32[6,3,3,3]"], {}),
    ([X, W], {"group": 2}),
    ([X, W], {"group": 0}),
    ([X, "float32[6,1,3,3]"], {"group": 4}),
    ([X, W, "float32[5]"], {}),
    ([X, W, "float32[6,1]"], {}),
    ([X, "float32[6,4,3]"], {}),
    ([X, "float16[6,4,3,3]"], {}),
    ([X, "float32[6,4,?,3]"], {}),
    ([X, "float32[6,4,0,3]"], {}),
    ([X, "float32[6,4,10,3]"], {}),
    (["float32[n,4,9,0]", W], {"pads": [0, 1, 0, 1]}),
    ([X, W], {"kernel_shape": [2, 3]}),
    ([X, W], {"kernel_shape": [3]}),
    ([X, W], {"strides": [1]}),
    ([X, W], {"strides": [0, 1]}),
    ([X, W], {"strides": 1}),
    ([X, W], {"strides": [1.0, 1.0]}),
    ([X, W], {"dilations": [1, 1, 1]}),
    ([X, W], {"pads": [1, 1]}),
    ([X, W], {"pads": [-1, 0, 0, 0]}),
    ([X, W], {"auto_pad": "SAME"}),
    ([X, W], {"auto_pad": np.array([1, 2])}),
    ([X, W], ONES | {"auto_pad": "SAME_UPPER"}),
    ([X], {}),
    ([X, None, "float32[6]"], {}),
    (["float32[n,4]", "float32[6,4]"], {}),
]


@pytest.mark.parametrize(("inputs", "attributes"), IMPOSSIBLE_CONVOLUTIONS)
def test_a_convolution_that_contradicts_itself_has_no_type(
    inputs: list[Given], attributes: dict[str, Any]
) -> None:
    assert ruled("Conv", inputs, attributes) is None


def test_other_convolutions_have_other_element_types() -> None:
    x, w = "uint8[n,4,9,8]", "int8[6,4,3,3]"
    scale = "float32[]"
    given = [x, scale, "uint8[]", w, scale, "int8[]", scale, "int8[]", "int32[6]"]
    assert ruled("ConvInteger", [x, w, "uint8[]"], {}) == ["int32[n,6,7,6]"]
    assert ruled("QLinearConv", given, {}) == ["int8[n,6,7,6]"]
    assert ruled("QLinearConv", given[:7], {}) is None
    for place in (1, 4, 6):
        wide = [*given[:place], "float32[1,1]", *given[place + 1 :]]
        assert ruled("QLinearConv", wide, {}) is None
    assert ruled("QLinearConv", [*given[:3], "uint32[6,4,3,3]", *given[4:]], {}) is None
    for wide in ([x, "uint32[6,4,3,3]"], ["int32[n,4,9,8]", w]):
        assert ruled("ConvInteger", wide, {}) is None
    assert ruled("QLinearConv", [*given[:2], "int8[]", *given[3:]], {}) is None
    assert ruled("DeformConv", [X, W, "float32[n,18,7,6]", "float32[6]"], {}) == [
        "float32[n,6,7,6]"
    ]
    assert ruled("DeformConv", [X, W], {}) is None


V = "float32[4,3,3,3]"
TRANSPOSED: list[tuple[list[Given], dict[str, Any], str | None]] = [
    ([X, V], {}, "float32[n,3,11,10]"),
    ([X, V, "float32[3]"], {"strides": [2, 2]}, "float32[n,3,19,17]"),
    ([X, V], {"strides": [2, 2], "output_padding": [1, 1]}, "float32[n,3,20,18]"),
    ([X, V], {"strides": [3, 2], "output_shape": [28, 20]}, "float32[n,3,28,20]"),
    ([X, V], {"strides": [2, 2], "auto_pad": "SAME_UPPER"}, "float32[n,3,18,16]"),
    ([X, V], {"dilations": [2, 2]}, "float32[n,3,13,12]"),
    ([X, V], {"group": 2} | ONES, "float32[n,6,9,8]"),
    (["float32[n,4,h,w]", V], ONES, "float32[n,3,h,w]"),
    (["float32[n,4,h,w]", V], {}, "float32[n,3,?,?]"),
    (["float32[n,4,h,w]", V], {"output_shape": [7, 8]}, "float32[n,3,7,8]"),
    ([X, "float32[4,m,3,3]"], ONES, "float32[n,m,9,8]"),
    ([X, "float32[4,m,3,3]"], ONES | {"group": 2}, "float32[n,?,9,8]"),
    ([X, "float32[5,3,3,3]"], {}, None),
    ([X, V], {"group": 3}, None),
    ([X, V, "float32[4]"], {}, None),
    ([X, V], {"output_shape": [8, 8]}, None),
    ([X, V], {"output_shape": [1, 3, 28, 20]}, None),
    ([X, V], {"output_padding": [1]}, None),
    ([X, V], {"strides": [4, 4], "auto_pad": "SAME_UPPER"}, None),
    (
        [X, V],
        {"strides": [2, 4], "auto_pad": "SAME_UPPER", "output_padding": [1, 1]},
        "float32[n,3,18,32]",
    ),
    ([X, V], {"strides": [2, 5], "auto_pad": "SAME_LOWER", "output_padding": [1, 1]}, None),
    ([X, V], {"pads": [9, 9, 9, 9]}, None),
    ([X, "float32[4,3,3]"], {}, None),
]


@pytest.mark.parametrize(("inputs", "attributes", "expected"), TRANSPOSED)
def test_a_transposed_convolution_makes_what_a_convolution_came_from(
    inputs: list[Given], attributes: dict[str, Any], expected: str | None
) -> None:
    found = ruled("ConvTranspose", inputs, attributes)
    assert found == (None if expected is None else [expected])


TWO: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
POOLS: list[tuple[str, dict[str, Any], str | None]] = [
    (X, TWO, "[n,4,4,4]"),
    (X, TWO | {"ceil_mode": 1}, "[n,4,5,4]"),
    (X, TWO | {"ceil_mode": 1, "pads": [0, 0, 1, 0]}, "[n,4,5,4]"),
    (X, {"kernel_shape": [1, 1], "strides": [2, 2], "ceil_mode": 1}, "[n,4,5,4]"),
    (X, {"kernel_shape": [3, 3], "dilations": [2, 2]}, "[n,4,5,4]"),
    (X, TWO | {"auto_pad": "SAME_LOWER", "ceil_mode": 1}, "[n,4,5,4]"),
    ("float32[n,c,h,w]", {"kernel_shape": [3, 1]} | {"pads": [1, 0, 1, 0]}, "[n,c,h,w]"),
    ("float32[n,c,h,w]", TWO, "[n,c,?,?]"),
    (X, {}, None),
    (X, {"kernel_shape": [2]}, None),
    (X, {"kernel_shape": [10, 2]}, None),
    (X, TWO | {"ceil_mode": -9}, "[n,4,5,4]"),
    ("float32[n,4]", {"kernel_shape": []}, None),
]


@pytest.mark.parametrize(("x", "attributes", "shape"), POOLS)
def test_pools_move_their_window_as_convolutions_do(
    x: str, attributes: dict[str, Any], shape: str | None
) -> None:
    for op_type in ("AveragePool", "LpPool", "MaxPool"):
        expected = None if shape is None else [f"float32{shape}"]
        assert ruled(op_type, [x], attributes) == expected
    indices = None if shape is None else [f"float32{shape}", f"int64{shape}"]
    assert ruled("MaxPool", [x], attributes, outputs=2) == indices


def test_a_global_pool_leaves_one_element_a_channel() -> None:
    for op_type in ("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"):
        assert ruled(op_type, ["float16[n,c,h,7]"], {}) == ["float16[n,c,1,1]"]
        assert ruled(op_type, ["float16[n]"], {}) is None


def test_an_unpool_gives_what_the_pool_came_from() -> None:
    x, indices = "float32[n,4,4,3]", "int64[n,4,4,3]"
    assert ruled("MaxUnpool", [x, indices], TWO) == ["float32[n,4,8,6]"]
    assert ruled("MaxUnpool", [x, "int64[n,4,4,4]"], TWO) is None
    told = np.array([2, 4, 9, 7])
    assert ruled("MaxUnpool", [x, indices, told], TWO) == ["float32[2,4,9,7]"]
    assert ruled("MaxUnpool", [x, indices, told[:3]], TWO) is None
    assert ruled("MaxUnpool", [x, indices, "int64[4]"], TWO) is None


@pytest.mark.parametrize("seed", range(150))
def test_random_windows_are_where_onnx_finds_them(seed: int) -> None:
    chance = random.Random(seed)
    op_type = chance.choice(["Conv", "ConvTranspose", "MaxPool", "AveragePool"])
    axes = chance.randint(1, 3)
    lengths = [chance.randint(1, 12) for _ in range(axes)]
    kernel = [chance.randint(1, min(3, length)) for length in lengths]
    attributes: dict[str, Any] = {"kernel_shape": kernel}
    attributes["strides"] = [chance.randint(1, size) for size in kernel]
    if all(2 * (size - 1) < length for size, length in zip(kernel, lengths, strict=True)):
        attributes["dilations"] = [chance.randint(1, 2) for _ in kernel]
    padding = chance.choice(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
    if padding == "NOTSET" and op_type != "ConvTranspose":
        attributes["pads"] = [chance.randrange(size) for _ in range(2) for size in kernel]
    else:
        attributes["auto_pad"] = padding
    group, inside, made = chance.randint(1, 3), chance.randint(1, 3), chance.randint(1, 3)
    shape = [chance.randint(1, 3), group * inside, *lengths]
    weights = [group * made, inside, *kernel]
    if op_type == "ConvTranspose":
        weights[:2] = group * inside, made
    inputs = ["float32" + str(shape).replace(" ", ""), "float32" + str(weights).replace(" ", "")]
    if op_type in ("Conv", "ConvTranspose"):
        attributes["group"] = group
    else:
        attributes["ceil_mode"] = chance.randint(0, 1)
        del inputs[1:]
    assert ruled(op_type, inputs, attributes) == inferred_by_onnx(op_type, inputs, attributes)
