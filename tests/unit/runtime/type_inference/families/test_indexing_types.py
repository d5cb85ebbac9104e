"""Types of what is picked and put by index, by hand and beside onnx's."""

import random
from typing import Any

import numpy as np
import pytest

from unit.runtime.type_inference.beside_onnx import assert_like_onnx
from unit.runtime.type_inference.typed_nodes import Given, ruled

TWO = np.array([2])
CASES: list[tuple[str, list[Given], dict[str, int], list[str] | None]] = [
    ("Gather", ["float32[v,64]", "int64[n,s]"], {}, ["float32[n,s,64]"]),
    ("Gather", ["float32[n,3,4]", "int64[]"], {"axis": -2}, ["float32[n,4]"]),
    ("Gather", ["float32[n,3]", "int64[]"], {"axis": 2}, None),
    ("Gather", ["float32[]", "int64[]"], {}, None),
    ("GatherElements", ["float32[n,3]", "int64[n,1]"], {"axis": 1}, ["float32[n,1]"]),
    ("GatherElements", ["float32[n,3]", "int64[n]"], {}, None),
    ("GatherElements", ["float32[n,3]", "int64[n,1]"], {"axis": 2}, None),
    ("GatherND", ["float32[4,n,3]", "int64[m,2]"], {}, ["float32[m,3]"]),
    ("GatherND", ["float32[b,n,3]", "int64[b,m,1]"], {"batch_dims": 1}, ["float32[b,m,3]"]),
    ("GatherND", ["float32[2,3]", "int64[m,k]"], {}, None),
    ("GatherND", ["float32[2,3]", "int64[m,3]"], {}, None),
    ("GatherND", ["float32[2,3]", "int64[]"], {}, None),
    ("GatherND", ["float32[2,3]", "int64[4,1]"], {"batch_dims": 1}, None),
    ("GatherND", ["float32[2,3]", "int64[2,1]"], {"batch_dims": 2}, None),
    ("ScatterElements", ["float32[n,3]", "int64[1,1]", "float32[1,1]"], {}, ["float32[n,3]"]),
    ("ScatterElements", ["float32[n,3]", "int64[1]", "float32[1]"], {}, None),
    ("ScatterElements", ["float32[n,3]", "int64[1,1]", "float32[1,2]"], {}, None),
    ("ScatterElements", ["float32[n,3]", "int64[1,1]", "float32[1,1]"], {"axis": 2}, None),
    ("ScatterND", ["float32[n,3]", "int64[4,1]", "float32[4,3]"], {}, ["float32[n,3]"]),
    ("ScatterND", ["float32[n,3]", "int64[4,k]", "float32[4,3]"], {}, ["float32[n,3]"]),
    ("ScatterND", ["float32[n,3]", "int64[4,1]", "float32[4,2]"], {}, None),
    ("ScatterND", ["float32[n,3]", "int64[4,3]", "float32[4]"], {}, None),
    ("ScatterND", ["float32[n,3]", "int64[4,1]"], {}, None),
    ("TensorScatter", ["float32[n,9,4]", "float32[n,1,4]"], {}, ["float32[n,9,4]"]),
    ("OneHot", ["int64[n,3]", np.array(5), "float16[2]"], {}, ["float16[n,3,5]"]),
    ("OneHot", ["int64[n,3]", np.float32([5]), "int8[2]"], {"axis": 0}, ["int8[5,n,3]"]),
    ("OneHot", ["int64[n,3]", np.array(5), "int8[2]"], {"axis": 3}, None),
    ("OneHot", ["int64[n,3]", "int64[]", "int8[2]"], {}, None),
    ("OneHot", ["int64[n,3]", np.array(-5), "int8[2]"], {}, None),
    ("TopK", ["float32[n,9]", TWO], {}, ["float32[n,2]", "int64[n,2]"]),
    ("TopK", ["float32[n,9]", TWO], {"axis": 0}, ["float32[2,9]", "int64[2,9]"]),
    ("TopK", ["float32[n,1]", TWO], {}, None),
    ("TopK", ["float32[n,1]", -TWO], {}, None),
    ("TopK", ["float32[n,9]", TWO], {"axis": 2}, None),
    ("TopK", ["float32[n,9]", "int64[1]"], {}, None),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "expected"), CASES)
def test_indices_decide_on_the_shape(
    op_type: str, inputs: list[Given], attributes: dict[str, int], expected: list[str] | None
) -> None:
    assert ruled(op_type, inputs, attributes, 2 if op_type == "TopK" else 1) == expected


def text(dtype: str, shape: list[int]) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"


def lengths(chance: random.Random, least: int, most: int) -> list[int]:
    return [chance.randint(1, 4) for _ in range(chance.randint(least, most))]


@pytest.mark.parametrize("seed", range(20))
def test_random_nodes_are_typed_as_onnx_types_them(seed: int) -> None:
    chance = random.Random(seed)
    data, indices = lengths(chance, 1, 4), lengths(chance, 0, 3)
    given = text("float32", data)
    axis = {"axis": chance.randrange(-len(data), len(data))}
    assert_like_onnx("Gather", [given, text("int64", indices)], axis)
    same_rank = [chance.randint(1, dim) for dim in data]
    assert_like_onnx("GatherElements", [given, text("int64", same_rank)], axis)
    scattered: list[Given] = [given, text("int64", same_rank), text("float32", same_rank)]
    assert_like_onnx("ScatterElements", scattered, axis)
    batch = chance.randrange(0, len(data))
    depth = chance.randint(1, len(data) - batch)
    places = [*data[:batch], *indices, depth]
    assert_like_onnx("GatherND", [given, text("int64", places)], {"batch_dims": batch})
    depth = chance.randint(1, len(data))
    updates = text("float32", [*indices, *data[depth:]])
    assert_like_onnx("ScatterND", [given, text("int64", [*indices, depth]), updates], {})
    kept = np.array([chance.randint(0, data[axis["axis"]])])
    assert_like_onnx("TopK", [given, kept], axis, 2)
    wide: dict[str, Any] = {"axis": chance.randint(-len(data) - 1, len(data))}
    assert_like_onnx("OneHot", [text("int32", data), np.array(6), "float32[2]"], wide)
