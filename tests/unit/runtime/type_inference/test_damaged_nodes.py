"""Rules read nodes of files that nobody has checked: they say None or types, or refuse the node."""

import random

import numpy as np
import onnx
import pytest

from aioinfer.runtime.graph import DType, Node, TensorType, Value
from aioinfer.runtime.type_inference import ContradictionError, ShapeContent, find_rule
from exhaustive import drawn

ARRAYS = [np.array([1, 2]), np.array([], np.float32), np.array(1), np.array([["x"]], object)]
ODD = [0, -1, 1 << 40, 1.5, "x", b"x", [], [0], [-1, -1], [1, 1], [1.5, 2.0], ["x"], [[1]], None]
ODD += ARRAYS
NUMBERS = [-9, -1, 0, 1, 2, 3, 1 << 40]
FLOATS = [-1e308, -1.0, 0.0, 1e-308, 0.5, 1.0, 3e38, 1e308, np.inf, np.nan]
DIMS = [0, 1, 2, 3, 6, "n", None]
DTYPES = [DType.FLOAT32, DType.INT64, DType.UINT8, DType.STRING]
SCHEMAS = {
    schema.name: schema
    for schema in sorted(onnx.defs.get_all_schemas(), key=lambda schema: schema.name)
    if not schema.domain and find_rule(Node(schema.name, (), (), name="node")) is not None
}


def odd_value(chance: random.Random, name: str) -> Value | None:
    if chance.random() < 0.1:
        return None
    shape = tuple(chance.choice(DIMS) for _ in range(chance.choice([0, 1, 1, 2, 3, 4, 4])))
    value = Value(name, TensorType(chance.choice(DTYPES), shape))
    if len(shape) < 2 and not any(dim is None or isinstance(dim, str) for dim in shape):
        dtype = chance.choice([np.int64, np.int64, np.float32, np.float64])
        numbers = NUMBERS if dtype is np.int64 else FLOATS
        with np.errstate(over="ignore"):
            content = np.array([chance.choice(numbers) for _ in range(sum(shape) or 1)], dtype)
        array = content[: shape[0]] if shape else content[0].reshape(())
        value = Value(name, TensorType(DType.of(array.dtype), array.shape), array)
    return value


@pytest.mark.parametrize("op_type", SCHEMAS)
def test_no_node_makes_a_rule_fail(op_type: str) -> None:
    chance = random.Random(op_type)
    schema = SCHEMAS[op_type]
    for _ in range(drawn(1000)):
        most = min(schema.max_input, 4)
        count = chance.choice([most, most, most, chance.randint(0, most)])
        inputs = [odd_value(chance, f"in{index}") for index in range(count)]
        attributes = {
            name: chance.choice(ODD) for name in sorted(schema.attributes) if chance.random() < 0.4
        }
        node = Node(op_type, inputs, [Value("out")], attributes, name="node")
        rule = find_rule(node)
        assert rule is not None
        try:
            types = rule(node, ShapeContent())
        except ContradictionError:
            continue
        assert types is None or all(is_sound(found) for found in types), (inputs, attributes)


def is_sound(found: object) -> bool:
    """True for a tensor type without negative lengths."""
    if not isinstance(found, TensorType) or found.shape is None:
        return False
    return all(dim is None or isinstance(dim, str) or dim >= 0 for dim in found.shape)
