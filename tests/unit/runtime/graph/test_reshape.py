"""Pinning and renaming dimensions of a model before it is loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer import Core, Model
from aioinfer.errors import TensorError
from aioinfer.runtime.graph import TensorType
from onnx_text import parse

# As PyTorch exports them: a symbol of its own for each axis of each input.
ENCODER = """g (int64[batch,seq] ids, int64[batch_1,seq_1] mask, float[16,8] table)
    => (float[batch,seq,8] y) {
    rows = Gather<axis=0>(table, ids)
    axes = Constant<value_ints=[2]>()
    column = Unsqueeze(mask, axes)
    weight = Cast<to=1>(column)
    y = Mul(rows, weight)
}"""

FLATTENED = """g (float[batch,3,side] x) => (float[batch,flat] y) {
    shape = Shape(x)
    zero = Constant<value_ints=[0]>()
    rest = Constant<value_ints=[-1]>()
    length = Gather(shape, zero)
    target = Concat<axis=0>(length, rest)
    y = Reshape(x, target)
}"""

PAIRS = "g (float[n,4] x) => (float[m,8] y) { s = Constant<value_ints=[-1,8]>() y = Reshape(x, s) }"

SUM = "g (float[n] a, float[n] b) => (float[n] c) { r = Relu(a) c = Add(r, b) }"


def shapes(model: Model) -> dict[str, object]:
    values = [*model.inputs, *(value for node in model.graph.nodes for value in node.outputs)]
    return {value.name: value.type.shape for value in values if isinstance(value.type, TensorType)}


def test_a_length_pins_a_dimension_and_all_that_follows_from_it() -> None:
    model = parse(SUM)
    model.reshape({"a": (5,)})
    assert shapes(model) == {"a": (5,), "b": (5,), "r": (5,), "c": (5,)}


def test_one_shape_is_enough_for_a_model_of_one_input() -> None:
    model = parse(FLATTENED)
    model.reshape([2, 3, 5])
    assert shapes(model)["x"] == (2, 3, 5)
    assert shapes(model)["y"] == (2, 15)


def test_none_and_minus_one_leave_a_dimension_open() -> None:
    for left in (None, -1):
        model = parse(ENCODER)
        model.reshape({"ids": (4, left)})
        assert shapes(model)["ids"] == (4, "seq")
        assert shapes(model)["mask"] == ("batch_1", "seq_1")


def test_one_name_makes_two_symbols_one() -> None:
    model = parse(ENCODER)
    model.reshape({"ids": ("N", "L"), "mask": ("N", "L")})
    assert shapes(model)["ids"] == shapes(model)["mask"] == ("N", "L")
    assert shapes(model)["y"] == ("N", "L", 8)
    model.reshape({"mask": (2, None)})
    assert shapes(model)["ids"] == shapes(model)["mask"] == (2, "L")
    assert shapes(model)["y"] == (2, "L", 8)


def test_a_symbol_of_another_input_is_that_inputs_dimension() -> None:
    model = parse(ENCODER)
    model.reshape({"mask": ("batch", "seq"), "ids": (None, 7)})
    assert shapes(model)["ids"] == shapes(model)["mask"] == ("batch", 7)


def test_symbols_that_are_one_cannot_have_two_lengths() -> None:
    model = parse(ENCODER)
    model.reshape({"ids": ("N", None), "mask": ("N", None)})
    before = shapes(model)
    with pytest.raises(TensorError, match=r"'N' would be 2 .*'ids' \[2,\?\].* and 3 .*'mask'"):
        model.reshape({"ids": (2, None), "mask": (3, None)})
    assert shapes(model) == before


@pytest.mark.parametrize("first", [("N", 2), (2, "N")])
def test_a_name_and_a_length_meet_in_either_order(first: tuple[int | str, int | str]) -> None:
    model = parse("g (float[a,b] x, float[c,d] y) => (float[e,f] z) { z = Add(x, y) }")
    model.reshape({"x": first, "y": ("N", "N")})
    assert shapes(model)["x"] == (("N", 2) if first == ("N", 2) else (2, "N"))
    assert shapes(model)["y"] == ("N", "N")
    with pytest.raises(TensorError, match="give shapes that agree"):
        model.reshape({"y": (3, 4)})
    model.reshape({"y": (2, None)})
    assert shapes(model)["x"] == shapes(model)["y"] == (2, 2)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"x": (2, 3)}, r"'x' cannot have the shape \[2,3\]: .*float32\[batch,3,side\], 3 axes"),
        ({"x": (2, 4, 5)}, r"'x' cannot have the shape \[2,4,5\]: axis 1 of .* is 3"),
        ({"x": (2, None, 5)}, r"axis 1 of float32\[batch,3,side\] is fixed"),
        ({"x": (2, "C", 5)}, r"axis 1 of float32\[batch,3,side\] is fixed"),
        ({"X": (2, 3, 5)}, "no input 'X'.*x"),
        ({0: (2, 3, 5)}, r"no input 0; it has \['x'\]"),
        ({None: (2, 3, 5)}, r"no input None; it has \['x'\]"),
        ({"x": (-2, 3, 5)}, "axis 0 is -2"),
        ({"x": (1.5, 3, 5)}, "axis 0 is 1.5"),
        ({"x": (True, 3, 5)}, "axis 0 is True"),
        ({"x": ("", 3, 5)}, "axis 0 is ''"),
        ({"x": "2,3,5"}, "tuple or list"),
        ({"x": 5}, "tuple or list"),
        (7, "tuple or list"),
    ],
)
def test_what_contradicts_the_model_is_refused_and_changes_nothing(
    asked: object, message: str
) -> None:
    model = parse(FLATTENED)
    before = str(model)
    with pytest.raises(TensorError, match=message):
        model.reshape(asked)
    assert str(model) == before


@pytest.mark.parametrize(
    ("asked", "tensor", "shape", "wanted"),
    [
        ({"x": (2, 3)}, "x", (2, 3), ("batch", 3, "side")),
        ({"x": (2, 4, 5)}, "x", (2, 4, 5), ("batch", 3, "side")),
        ({"X": (2, 3, 5)}, "X", None, None),
        ({"x": (-2, 3, 5)}, "x", None, None),
        ({"x": 5}, "x", None, None),
        ({0: (2, 3, 5)}, "", None, None),
    ],
)
def test_an_error_says_which_input_and_which_shape_as_attributes(
    asked: Any, tensor: str, shape: object, wanted: object
) -> None:
    with pytest.raises(TensorError) as caught:
        parse(FLATTENED).reshape(asked)
    error = caught.value
    assert (error.tensor, error.shape, error.wanted_shape) == (tensor, shape, wanted)


def test_one_shape_does_not_say_which_of_two_inputs_is_meant() -> None:
    with pytest.raises(TensorError, match=r"this one has 2.*\['a', 'b'\]"):
        parse(SUM).reshape((4,))


def test_a_length_that_a_node_makes_impossible_is_refused_at_once() -> None:
    model = parse(PAIRS)
    before = str(model)
    with pytest.raises(TensorError, match=r"inputs 'x' \[3,4\] do not fit .*Reshape"):
        model.reshape((3, 4))
    assert str(model) == before
    model.reshape((6, 4))
    assert shapes(model)["y"] == (3, 8)


def test_bodies_follow() -> None:
    model = parse(
        """g (bool c, float[n] x) => (float[n] y) {
            y = If(c) <then_branch = t () => (float[n] a) { a = Relu(x) },
                       else_branch = e () => (float[n] b) { b = Neg(x) }>
        }"""
    )
    model.reshape({"x": (6,)})
    (node,) = model.graph.nodes
    assert [str(body.outputs[0].type) for body in node.bodies()] == ["float32[6]"] * 2
    assert shapes(model)["y"] == (6,)


def test_a_network_of_a_pinned_model_is_static_and_computes(core: Core) -> None:
    model = parse(ENCODER)
    original = str(model)
    pinned = model.copy()
    pinned.reshape({"ids": (2, 3), "mask": (2, 3)})
    assert str(model) == original
    given = {
        "ids": np.arange(6).reshape(2, 3),
        "mask": np.ones((2, 3), np.int64),
        "table": np.ones((16, 8), np.float32),
    }
    with core.load_network(pinned, "REFERENCE") as network:
        assert [port.shape for port in network.outputs] == [(2, 3, 8)]
        request = network.create_infer_request()
        np.testing.assert_array_equal(request.infer_sync(given)["y"], np.ones((2, 3, 8)))
        with pytest.raises(TensorError):
            request.infer_sync({**given, "ids": np.zeros((1, 3), np.int64)})
