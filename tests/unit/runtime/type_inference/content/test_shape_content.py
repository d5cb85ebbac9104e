"""What is known of the content of lists of lengths: by hand, and beside what nodes compute."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.defs
import pytest

from aioinfer.runtime.graph import DType, Graph, Node, TensorType, Value
from aioinfer.runtime.operators import make_operator
from aioinfer.runtime.type_inference import Lengths, ShapeContent, infer_graph_types
from aioinfer.runtime.type_inference.content.lengths import Element
from unit.runtime.type_inference.typed_nodes import Given, make_node

OPSETS = {"": onnx.defs.onnx_opset_version()}


def ints(*items: int) -> np.ndarray:
    return np.array(items, np.int64)


def follow(
    op_type: str, inputs: Sequence[Given | Lengths], outputs: int = 1, **attributes: Any
) -> Lengths | None:
    """Follow one node, of which some inputs hold lengths that are known in part."""
    contents = ShapeContent()
    given: list[Given] = []
    for item in inputs:
        rank = "[]" if isinstance(item, Lengths) and item.is_scalar else "[9]"
        given.append(item.dtype.label + rank if isinstance(item, Lengths) else item)
    node = make_node(op_type, given, attributes, outputs)
    for value, item in zip(node.inputs, inputs, strict=True):
        if isinstance(item, Lengths) and value is not None:
            contents._known[value] = item
    return contents.follow(node)


def dims_after(op_type: str, *inputs: Given | Lengths, **attributes: Any) -> Any:
    found = follow(op_type, inputs, **attributes)
    return None if found is None else found.dims


SHAPE = Lengths(("n", 3, None))

PLACES: list[tuple[str, list[Given | Lengths], dict[str, Any], tuple[Element, ...] | None]] = [
    ("Shape", ["float32[n,3,?]"], {}, ("n", 3, None)),
    ("Shape", ["float32[n,3,?]"], {"start": -2}, (3, None)),
    ("Size", ["float32[2,3]"], {}, (6,)),
    ("Size", ["float32[n,3]"], {}, None),
    ("Size", ["float32[n,0]"], {}, (0,)),
    ("Gather", [SHAPE, ints(1, -3)], {}, (3, "n")),
    ("Gather", [SHAPE, ints(3)], {}, None),
    ("Gather", [SHAPE, "int64[1]"], {}, None),
    ("Slice", [SHAPE, ints(1), ints(9)], {}, (3, None)),
    ("Slice", [SHAPE, ints(-1), ints(-9), ints(0), ints(-1)], {}, (None, 3, "n")),
    ("Slice", [SHAPE, ints(-9), ints(-8), ints(0), ints(-1)], {}, None),
    ("Concat", [SHAPE, ints(7)], {"axis": 0}, ("n", 3, None, 7)),
    ("Concat", [SHAPE, "int64[2]"], {"axis": 0}, ("n", 3, None, None, None)),
    ("Concat", ["int64[2]", "int64[2]"], {"axis": 0}, None),
    ("Concat", [SHAPE, "int64[?]"], {"axis": 0}, None),
    ("Unsqueeze", [Lengths(("n",), True), ints(0)], {}, ("n",)),
    ("Unsqueeze", [SHAPE, ints(0)], {}, None),
    ("Squeeze", [Lengths(("n",))], {}, ("n",)),
    ("Squeeze", [SHAPE], {}, None),
    ("Reshape", [SHAPE, ints(-1)], {}, ("n", 3, None)),
    ("Reshape", [SHAPE, ints(1, -1)], {}, None),
    ("Transpose", [SHAPE], {}, ("n", 3, None)),
    ("Expand", [Lengths(("n",), True), ints(2)], {}, ("n", "n")),
    ("Expand", [SHAPE, ints(2)], {}, None),
    ("Tile", [Lengths(("n", 2)), ints(2)], {}, ("n", 2, "n", 2)),
    ("ConstantOfShape", [ints(2)], {"value": ints(7)}, (7, 7)),
    ("ConstantOfShape", [ints(2, 2)], {"value": ints(7)}, None),
    ("ConstantOfShape", [ints(65)], {"value": ints(7)}, None),
    ("Range", [np.array(5), np.array(0), np.array(-2)], {}, (5, 3, 1)),
    ("Range", [np.array(0), Lengths(("n",), True), np.array(1)], {}, None),
    ("Range", [np.array(0), np.array(2**40), np.array(1)], {}, None),
    ("Identity", ["int64[3]"], {}, None),
]
ARITHMETIC: list[tuple[str, list[Given | Lengths], tuple[Element, ...] | None]] = [
    ("Add", [SHAPE, np.array(0)], ("n", 3, None)),
    ("Add", [SHAPE, np.array(2)], (None, 5, None)),
    ("Add", [ints(2**62), ints(2**62)], (None,)),
    ("Add", [SHAPE, ints(1, 2)], None),
    ("Add", [SHAPE, "int64[3]"], None),
    ("Add", [SHAPE, np.int32([1])], None),
    ("Sub", [SHAPE, SHAPE], (0, 0, None)),
    ("Mul", [ints(1), SHAPE], ("n", 3, None)),
    ("Div", [SHAPE, ints(1)], ("n", 3, None)),
    ("Div", [ints(7, -7, 7, -7), ints(2, 2, -2, -2)], (3, -3, -3, 3)),
    ("Div", [ints(7), ints(0)], (None,)),
    ("Div", [ints(-(2**63)), ints(-1)], (None,)),
    ("Mod", [ints(-7), ints(0)], (None,)),
    ("Mod", [SHAPE, ints(1)], (0, 0, 0)),
    ("Max", [SHAPE, np.array(-1), np.array(0)], ("n", 3, None)),
    ("Max", [SHAPE, ints(1)], (None, 3, None)),
    ("Min", [SHAPE, SHAPE], ("n", 3, None)),
    ("Neg", [SHAPE], (None, -3, None)),
    ("Abs", [SHAPE], ("n", 3, None)),
    ("ReduceProd", [Lengths(("n", 1))], ("n",)),
    ("ReduceProd", [SHAPE], (None,)),
    ("ReduceSum", [ints(2, 3), ints(0)], (5,)),
    ("ReduceMin", [ints(2, 3)], (2,)),
    ("ReduceMax", [SHAPE], (None,)),
    ("ReduceProd", [ints(2**40, 2**40)], (None,)),
    ("Equal", [SHAPE, ints(-1)], (False, False, None)),
    ("Equal", [SHAPE, ints(3)], (None, True, None)),
    ("Equal", [SHAPE, SHAPE], (True, True, None)),
    ("Greater", [SHAPE, ints(-1)], (True, True, None)),
    ("Greater", [SHAPE, ints(0)], (None, True, None)),
    ("GreaterOrEqual", [ints(-1), SHAPE], (False, False, None)),
    ("LessOrEqual", [ints(0), SHAPE], (True, True, None)),
    ("Less", [Lengths(("n",)), Lengths(("m",))], (None,)),
    ("Not", [Lengths((True, None), dtype=DType.BOOL)], (False, None)),
    ("Where", [Lengths((True, False, None), dtype=DType.BOOL), ints(1), SHAPE], (1, 3, None)),
    ("Where", [Lengths((None,), dtype=DType.BOOL), SHAPE, SHAPE], ("n", 3, None)),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "expected"), PLACES)
def test_elements_are_followed_to_their_places(
    op_type: str,
    inputs: list[Given | Lengths],
    attributes: dict[str, Any],
    expected: tuple[Element, ...] | None,
) -> None:
    assert dims_after(op_type, *inputs, **attributes) == expected


@pytest.mark.parametrize(("op_type", "inputs", "expected"), ARITHMETIC)
def test_elements_are_computed_as_far_as_they_are_known(
    op_type: str, inputs: list[Given | Lengths], expected: tuple[Element, ...] | None
) -> None:
    assert dims_after(op_type, *inputs) == expected


def test_truth_is_joined_as_far_as_it_is_known() -> None:
    one = Lengths((True, False, None, None), dtype=DType.BOOL)
    other = np.array([True, True, True, False])
    assert dims_after("And", one, other) == (True, False, None, False)
    assert dims_after("Or", one, other) == (True, True, True, None)
    assert dims_after("And", one, ints(1)) is None


def test_casts_keep_lengths_and_what_fits() -> None:
    assert dims_after("Cast", SHAPE, to=1) == ("n", 3, None)
    assert dims_after("Cast", SHAPE, to=9) == (None, True, None)
    assert dims_after("Cast", ints(2**31), to=6) == (None,)
    assert dims_after("Cast", ints(2**24 + 1), to=1) == (None,)
    assert dims_after("Cast", np.float32([2.7, -2.7, np.inf]), to=7) == (2, -2, None)
    assert dims_after("Cast", SHAPE, to=10) is None


def test_a_content_of_another_type_than_the_graph_expects_is_not_taken() -> None:
    node = make_node("Neg", [ints(1)], {})
    node.outputs[0].type = TensorType(DType.INT32, (1,))
    assert ShapeContent().follow(node) is None


def test_every_part_of_a_split_list_is_known_but_none_is_the_nodes_only_one() -> None:
    shape = make_node("Shape", ["float32[n,3,4]"], {})
    parts = [Value("a"), Value("b")]
    split = Node("Split", shape.outputs, parts, {"num_outputs": 2}, name="split")
    contents = ShapeContent()
    contents.follow(shape)
    assert contents.follow(split) is None
    users = [Node("Identity", [part], [Value(f"{part.name}2")], name="user") for part in parts]
    assert [contents.dims(user, 0) for user in users] == [("n", 3), (4,)]


def number_cases() -> list[tuple[str, list[np.ndarray], dict[str, Any]]]:
    """Draw nodes whose inputs are all known."""
    chance = random.Random(3)
    cases: list[tuple[str, list[np.ndarray], dict[str, Any]]] = []
    integers, floats = (np.int64, np.int32), (np.float32, np.float64)

    def operand(dtype: type, count: int | None) -> np.ndarray:
        items = [chance.choice([*range(-9, 0), *range(1, 10)]) for _ in range(count or 1)]
        factor = chance.choice((1, 0.3, 1.7)) if dtype in floats else 1
        array = (np.array(items) * factor).astype(dtype)
        return array[0].reshape(()) if count is None else array

    for _ in range(6):
        a, b = chance.sample([None, 1, 4, 4], 2)
        for dtype in (*integers, *floats):
            pair = [operand(dtype, a), operand(dtype, b)]
            for op_type in ("Add", "Sub", "Mul", "Div", "Equal", "Greater", "LessOrEqual", "Less"):
                cases.append((op_type, pair, {}))
            condition = np.array([chance.random() < 0.5 for _ in range(4)])
            cases.append(("Where", [condition, *pair], {}))
            cases += [(op_type, pair[:1], {}) for op_type in ("Neg", "Abs")]
            cases += [("Cast", pair[:1], {"to": to}) for to in (1, 6, 7, 9, 11)]
        for dtype in integers:
            pair = [operand(dtype, a), operand(dtype, b)]
            cases += [("Mod", pair, {"fmod": fmod}) for fmod in (0, 1)]
            cases += [(op_type, pair, {}) for op_type in ("Max", "Min")]
            for kind in ("Max", "Min", "Prod", "Sum"):
                keepdims = chance.randint(0, 1)
                cases.append((f"Reduce{kind}", [operand(dtype, 4)], {"keepdims": keepdims}))
        for dtype in floats:
            for op_type in ("Ceil", "Floor", "Round"):
                cases.append((op_type, [operand(dtype, 4) / 2], {}))
    return cases


PLACE_CASES: list[tuple[str, list[np.ndarray], dict[str, Any]]] = [
    ("ConstantOfShape", [ints(2)], {}),
    ("ConstantOfShape", [ints()], {"value": np.array([True])}),
    ("Range", [np.int32(2).reshape(()), np.int32(9), np.int32(3)], {}),
    ("Expand", [np.array(4), ints(3)], {}),
    ("Expand", [ints(4, 5), ints(1)], {}),
    ("Expand", [ints(4), ints()], {}),
    ("Expand", [np.array(4), ints(1)], {}),
    ("Tile", [ints(4, 5), ints(2)], {}),
    ("Transpose", [ints(4, 5)], {}),
    ("Slice", [ints(4, 5, 6), ints(-1), ints(-9), ints(0), ints(-2)], {}),
    ("Gather", [np.float32([4, 5]), np.array(1)], {}),
    ("Reshape", [ints(4), ints()], {}),
    ("Squeeze", [ints(4), ints(0)], {}),
    ("Unsqueeze", [np.array(4), ints(0)], {}),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), PLACE_CASES + number_cases())
def test_a_content_is_exactly_what_the_node_computes(
    op_type: str, inputs: list[np.ndarray], attributes: dict[str, Any]
) -> None:
    node = make_node(op_type, [np.asarray(item) for item in inputs], attributes)
    found = ShapeContent().follow(node)
    assert found is not None
    array = found.as_array()
    (expected,) = make_operator(node, OPSETS)(*[value.constant for value in node.inputs if value])
    assert array is not None
    assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
    assert array.tobytes() == expected.tobytes()


class Chain:
    """A graph that is written node by node, each with one output."""

    def __init__(self, **inputs: TensorType) -> None:
        self.graph = Graph("chain", [Value(name, known) for name, known in inputs.items()])

    def add(self, op_type: str, *inputs: Value | np.ndarray, **attributes: Any) -> Value:
        values = [item if isinstance(item, Value) else _constant(item) for item in inputs]
        name = f"{op_type}_{len(self.graph)}"
        node = self.graph.append(Node(op_type, values, [Value(name)], attributes, name=name))
        return node.outputs[0]


def _constant(array: np.ndarray) -> Value:
    return Value("constant", TensorType(DType.of(array.dtype), array.shape), array)


def test_the_idiom_of_expand_with_minus_one_is_followed_in_one_walk() -> None:
    chain = Chain(x=TensorType(DType.FLOAT32, ("n", 1, 4)))
    (x,) = chain.graph.inputs
    first = chain.add("Gather", chain.add("Shape", x), ints(0))
    target = chain.add("Concat", first, ints(6, -1), axis=0)
    ones = chain.add("ConstantOfShape", ints(3), value=ints(1))
    hidden = chain.add("Equal", target, chain.add("Mul", ones, np.array(-1)))
    y = chain.add("Expand", x, chain.add("Where", hidden, ones, target))
    assert infer_graph_types(chain.graph)
    assert str(y.type) == "float32[n,6,4]"


@pytest.mark.parametrize(("length", "expected"), [(7, "[1,10]"), ("n", "[1,?]")])
def test_lengths_that_pass_through_floats_are_followed(length: int | str, expected: str) -> None:
    chain = Chain(x=TensorType(DType.FLOAT32, (1, length)))
    (x,) = chain.graph.inputs
    shape = chain.add("Cast", chain.add("Shape", x, start=1), to=1)
    scaled = chain.add("Floor", chain.add("Mul", shape, np.float32([1.5])))
    sizes = chain.add("Concat", ints(1), chain.add("Cast", scaled, to=7), axis=0)
    y = chain.add("Resize", x, np.float32([]), np.float32([]), sizes)
    assert infer_graph_types(chain.graph)
    assert str(y.type) == f"float32{expected}"


def test_positions_up_to_a_length_have_its_symbol() -> None:
    chain = Chain(x=TensorType(DType.INT64, ("n", "s")))
    (x,) = chain.graph.inputs
    length = chain.add("Gather", chain.add("Shape", x), np.array(1))
    y = chain.add("Unsqueeze", chain.add("Range", np.array(0), length, np.array(1)), ints(0))
    assert infer_graph_types(chain.graph)
    assert str(y.type) == "int64[1,s]"


def test_a_split_into_lengths_with_symbols_makes_parts_that_have_them() -> None:
    chain = Chain(x=TensorType(DType.FLOAT32, ("n", "d")))
    (x,) = chain.graph.inputs
    sizes = chain.add("Concat", chain.add("Shape", x, start=1), ints(0), axis=0)
    parts = [Value("a"), Value("b")]
    chain.graph.append(Node("Split", [x, sizes], parts, {"axis": 1}, name="split"))
    assert infer_graph_types(chain.graph)
    assert [str(part.type) for part in parts] == ["float32[n,d]", "float32[n,0]"]
