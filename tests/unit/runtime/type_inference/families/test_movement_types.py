"""Types of what moves elements, by hand and beside onnx's."""

import random
from typing import Any

import numpy as np
import pytest

from unit.runtime.type_inference.beside_onnx import assert_like_onnx
from unit.runtime.type_inference.typed_nodes import Given, ruled

Case = tuple[str, list[Given], dict[str, Any], str | None]
FAR = np.iinfo(np.int64).max


def ints(*items: int) -> np.ndarray:
    return np.array(items, np.int64)


RESHAPES: list[Case] = [
    ("Reshape", ["float32[n,128]", ints(0, 4, 32)], {}, "[n,4,32]"),
    ("Reshape", ["float32[0,4]", ints(4, 0)], {"allowzero": 1}, "[4,0]"),
    ("Reshape", ["float32[4]", ints(3)], {}, None),
    ("Reshape", ["float32[4]", "int64[1]"], {}, None),
    ("Reshape", ["float32[4]"], {}, None),
    ("Flatten", ["float32[n,3,4]"], {}, "[n,12]"),
    ("Flatten", ["float32[n,3,4]"], {"axis": -1}, "[?,4]"),
    ("Flatten", ["float32[n,3]"], {"axis": 0}, "[1,?]"),
    ("Flatten", ["float32[n,3]"], {"axis": 3}, None),
    ("Squeeze", ["float32[1,3,1]"], {}, "[3]"),
    ("Squeeze", ["float32[n,3,1]"], {}, None),
    ("Squeeze", ["float32[n,3,1]", ints(-1)], {}, "[n,3]"),
    ("Squeeze", ["float32[n,3,1]", ints(0)], {}, "[3,1]"),
    ("Squeeze", ["float32[n,3,1]", ints(1)], {}, None),
    ("Squeeze", ["float32[n,3,1]", ints(3)], {}, None),
    ("Squeeze", ["float32[n,3,1]", "int64[1]"], {}, None),
    ("Unsqueeze", ["float32[n,3]", ints(3, 0)], {}, "[1,n,3,1]"),
    ("Unsqueeze", ["float32[n,3]", ints(0, -4)], {}, None),
    ("Unsqueeze", ["float32[n,3]"], {}, None),
    ("Transpose", ["float32[n,3,4]"], {}, "[4,3,n]"),
    ("Transpose", ["float32[n,3,4]"], {"perm": [0, 2, 1]}, "[n,4,3]"),
    ("Transpose", ["float32[n,3,4]"], {"perm": [0, 1]}, None),
    ("Transpose", ["float32[n,3,4]"], {"perm": [0, 1, 1]}, None),
]
JOINS: list[Case] = [
    ("Concat", ["float32[n,3]", "float32[n,4]"], {"axis": 1}, "[n,7]"),
    ("Concat", ["float32[n,3]", "float32[2,m]"], {"axis": -1}, "[2,?]"),
    ("Concat", ["float32[n,3]"], {"axis": 0}, "[n,3]"),
    ("Concat", ["float32[n,3]", "float32[n]"], {"axis": 0}, None),
    ("Concat", ["float32[2,3]", "float32[3,3]"], {"axis": 1}, None),
    ("Concat", ["float32[2]", "int32[2]"], {"axis": 0}, None),
    ("Concat", ["float32[2]"], {"axis": 1}, None),
    ("Concat", ["float32[2]"], {}, None),
    ("Expand", ["float32[n,1]", ints(2, 1, 4)], {}, "[2,n,4]"),
    ("Expand", ["float32[3]", ints(2)], {}, None),
    ("Expand", ["float32[3]", "int64[2]"], {}, "[?,3]"),
    ("Expand", ["float32[1,n]", "int64[2]"], {}, "[?,?]"),
    ("Expand", ["float32[3]", "int64[?]"], {}, None),
    ("Tile", ["float32[n,3]", ints(1, 2)], {}, "[n,6]"),
    ("Tile", ["float32[n,3]", ints(2, 0)], {}, "[?,0]"),
    ("Tile", ["float32[n,3]", "int64[2]"], {}, "[?,?]"),
    ("Tile", ["float32[n,3]", ints(2)], {}, None),
    ("Tile", ["float32[3]", ints(-1)], {}, None),
    ("Pad", ["float32[n,3]", ints(0, 1, 0, 2)], {}, "[n,6]"),
    ("Pad", ["float32[n,3]", ints(1, 0, 0, -2)], {}, "[?,1]"),
    ("Pad", ["float32[n,3]", ints(1, 2), None, ints(-1)], {}, "[n,6]"),
    ("Pad", ["float32[n,3]", ints(0, -2, 0, -2)], {}, None),
    ("Pad", ["float32[n,3]", ints(0, 0)], {}, None),
    ("Pad", ["float32[n,3]", ints(0, 1, 0, 2), "float32[2,5]"], {"mode": "wrap"}, "[n,6]"),
    ("Pad", ["float32[n,3]", "int64[4]"], {}, "[?,?]"),
    ("Pad", ["float32[n,3]", "int64[2]", None, ints(-1)], {}, "[n,?]"),
    ("Pad", ["float32[n,3]", ints(0, 1), None, "int64[1]"], {}, "[?,?]"),
]
SLICES: list[Case] = [
    ("Slice", ["float32[9,4]", ints(1), ints(7), ints(0), ints(2)], {}, "[3,4]"),
    ("Slice", ["float32[9]", ints(-1), ints(-FAR - 1), ints(0), ints(-2)], {}, "[5]"),
    ("Slice", ["float32[9]", ints(-3), ints(FAR)], {}, "[3]"),
    ("Slice", ["float32[9]", ints(7), ints(2)], {}, "[0]"),
    ("Slice", ["float32[n,4]", ints(0), ints(FAR), ints(0)], {}, "[n,4]"),
    ("Slice", ["float32[n,4]", ints(-1), ints(-FAR), ints(0), ints(-1)], {}, "[n,4]"),
    ("Slice", ["float32[n,4]", ints(1), ints(FAR), ints(0)], {}, "[?,4]"),
    ("Slice", ["float32[n,4]", ints(0, 1), ints(3, 3)], {}, "[?,2]"),
    ("Slice", ["float32[9]", ints(0), ints(1), ints(0), ints(0)], {}, None),
    ("Slice", ["float32[9]", ints(0), ints(1), ints(1)], {}, None),
    ("Slice", ["float32[9]", ints(0), ints(1, 2)], {}, None),
    ("Slice", ["float32[9]", "int64[1]", ints(1)], {}, "[?]"),
    ("Slice", ["float32[9,4]", "int64[1]", ints(1), ints(1)], {}, "[9,?]"),
    ("Slice", ["float32[9,4]", "int64[1]", ints(1), "int64[1]"], {}, "[?,?]"),
    ("Slice", ["float32[9,4]", "int64[1]", "int64[1]"], {}, "[?,4]"),
    ("Slice", ["float32[9,4]", "int64[?]", "int64[?]"], {}, "[?,?]"),
    ("Slice", ["float32[9,4]", ints(0), ints(1), ints(0), "int64[1]"], {}, "[?,4]"),
]
IMAGES: list[Case] = [
    ("DepthToSpace", ["float32[n,8,2,w]"], {"blocksize": 2}, "[n,2,4,?]"),
    ("DepthToSpace", ["float32[n,9,2,2]"], {"blocksize": 2}, None),
    ("DepthToSpace", ["float32[n,8,2]"], {"blocksize": 2}, None),
    ("DepthToSpace", ["float32[n,8,2,2]"], {}, None),
    ("SpaceToDepth", ["float32[n,2,4,w]"], {"blocksize": 2}, "[n,8,2,?]"),
    ("SpaceToDepth", ["float32[n,2,3,4]"], {"blocksize": 2}, None),
    ("Resize", ["float32[n,3,5,5]", None, np.float32([1, 1, 2, 0.5])], {}, "[n,3,10,2]"),
    ("Resize", ["float32[n,3,5,5]", None, None, ints(1, 3, 7, 9)], {}, "[1,3,7,9]"),
    ("Resize", ["float32[n,3,5,5]", None, None, ints(7, 9)], {"axes": [2, 3]}, "[n,3,7,9]"),
    ("Resize", ["float32[5]", np.float32([]), np.float32([]), ints(7)], {}, "[7]"),
    (
        "Resize",
        ["float32[n,3,4,2]", None, None, ints(7, 8)],
        {"axes": [-2, -1], "keep_aspect_ratio_policy": "not_larger"},
        "[n,3,7,4]",
    ),
    (
        "Resize",
        ["float32[8]", np.float32([0, 0.5]), np.float32([1])],
        {"coordinate_transformation_mode": "tf_crop_and_resize"},
        "[8]",
    ),
    (
        "Resize",
        ["float32[8]", np.float32([]), np.float32([0.5])],
        {"coordinate_transformation_mode": "tf_crop_and_resize"},
        "[4]",
    ),
    (
        "Resize",
        ["float32[8]", np.float32([0]), np.float32([0.5])],
        {"coordinate_transformation_mode": "tf_crop_and_resize"},
        None,
    ),
    ("Resize", ["float32[5]", None, np.float32([2]), ints(7)], {}, None),
    ("Resize", ["float32[5]", None, np.float32([-2])], {}, None),
    ("Resize", ["float32[n,5]", None, "float32[1]"], {"axes": [1]}, "[n,?]"),
    ("Resize", ["float32[n,5]", np.float32([]), np.float32([]), "int64[2]"], {}, "[?,?]"),
    ("Resize", ["float32[5]", None, None, ints(7)], {"keep_aspect_ratio_policy": "x"}, None),
    ("Resize", ["float32[5]", None, None, ints(7)], {"axes": [1]}, None),
    ("CenterCropPad", ["float32[n,3,4]", ints(9)], {"axes": [-1]}, "[n,3,9]"),
    ("CenterCropPad", ["float32[n,3,4]", "int64[1]"], {"axes": [-1]}, "[n,3,?]"),
    ("CenterCropPad", ["float32[n,3,4]", ints(9)], {}, None),
    ("ReverseSequence", ["float32[s,n,4]", "int64[n]"], {}, "[s,n,4]"),
    ("ReverseSequence", ["float32[4]", "int64[4]"], {}, None),
]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "expected"), [*RESHAPES, *JOINS, *SLICES, *IMAGES]
)
def test_lengths_follow_the_elements(
    op_type: str, inputs: list[Given], attributes: dict[str, Any], expected: str | None
) -> None:
    expected_types = None if expected is None else [f"float32{expected}"]
    assert ruled(op_type, inputs, attributes) == expected_types


SPLITS: list[tuple[list[Given], dict[str, int], int, list[str] | None]] = [
    (["int8[9,n]"], {}, 3, ["int8[3,n]"] * 3),
    (["int8[7]"], {"num_outputs": 3}, 3, ["int8[3]", "int8[3]", "int8[1]"]),
    (["int8[n,7]", ints(2, 5)], {"axis": -1}, 2, ["int8[n,2]", "int8[n,5]"]),
    (["int8[n]", ints(2, 5)], {}, 2, ["int8[2]", "int8[5]"]),
    (["int8[n]"], {}, 2, ["int8[?]", "int8[?]"]),
    (["int8[n]"], {"num_outputs": 1}, 1, ["int8[n]"]),
    (["int8[7]", ints(2, 4)], {}, 2, None),
    (["int8[7]", ints(2, 5)], {}, 3, None),
    (["int8[7]", ints(-2, 9)], {}, 2, None),
    (["int8[7]", "int64[2]"], {}, 2, None),
    (["int8[7]"], {"num_outputs": 2}, 3, None),
    (["int8[7]"], {"axis": 1}, 1, None),
    (["int8[5]"], {}, 4, None),
]


@pytest.mark.parametrize(("inputs", "attributes", "count", "expected"), SPLITS)
def test_a_split_shares_an_axis_out(
    inputs: list[Given], attributes: dict[str, int], count: int, expected: list[str] | None
) -> None:
    assert ruled("Split", inputs, attributes, count) == expected


def text(shape: list[int]) -> str:
    return f"float32[{','.join(map(str, shape))}]"


def signed(chance: random.Random, axis: int, rank: int) -> int:
    return axis - rank if chance.random() < 0.5 else axis


@pytest.mark.parametrize("seed", range(20))
def test_random_reshapes_are_typed_as_onnx_types_them(seed: int) -> None:
    chance = random.Random(seed)
    shape = [chance.randint(1, 4) for _ in range(chance.randint(1, 4))]
    rank = len(shape)
    target = chance.sample(shape, rank)
    if chance.random() < 0.7:
        target[chance.randrange(rank)] = -1
    assert_like_onnx("Reshape", [text(shape), ints(*target)], {})
    kept = chance.randrange(rank)
    assert_like_onnx("Reshape", [text(shape), ints(*[0] * kept, -1)], {})
    assert_like_onnx("Flatten", [text(shape)], {"axis": chance.randint(-rank, rank)})
    assert_like_onnx("Transpose", [text(shape)], {"perm": chance.sample(range(rank), rank)})
    ones = [axis for axis, dim in enumerate(shape) if dim == 1]
    assert_like_onnx("Squeeze", [text(shape)], {})
    if ones:
        axes = ints(*(signed(chance, axis, rank) for axis in ones))
        assert_like_onnx("Squeeze", [text(shape), axes], {})
    places = [signed(chance, axis, rank + 2) for axis in chance.sample(range(rank + 2), 2)]
    assert_like_onnx("Unsqueeze", [text(shape), ints(*places)], {})


@pytest.mark.parametrize("seed", range(20))
def test_random_joins_and_parts_are_typed_as_onnx_types_them(seed: int) -> None:
    chance = random.Random(seed)
    shape = [chance.randint(1, 6) for _ in range(chance.randint(1, 4))]
    rank, axis = len(shape), chance.randrange(len(shape))
    other = list(shape)
    other[axis] = chance.randint(0, 5)
    attributes = {"axis": signed(chance, axis, rank)}
    assert_like_onnx("Concat", [text(shape), text(other), text(shape)], attributes)
    cut = chance.randint(0, shape[axis])
    assert_like_onnx("Split", [text(shape), ints(cut, shape[axis] - cut)], attributes, 2)
    assert_like_onnx("Split", [text(shape)], {**attributes, "num_outputs": 2}, 2)
    repeats = ints(*(chance.randint(0, 3) for _ in shape))
    assert_like_onnx("Tile", [text(shape), repeats], {})
    pads = [chance.randint(0, 3) for _ in range(2 * rank)]
    assert_like_onnx("Pad", [text(shape), ints(*pads)], {})
    assert_like_onnx("Pad", [text(shape), ints(*pads[:2]), None, ints(attributes["axis"])], {})
    target = [chance.choice((1, dim)) for dim in shape]
    assert_like_onnx("Expand", [text(shape), ints(2, *target)], {})
    assert_like_onnx("CenterCropPad", [text(shape), ints(*pads[:rank])], {})
    assert_like_onnx("ReverseSequence", [text([2, *shape, 3][:3]), f"int64[{shape[0]}]"], {})


@pytest.mark.parametrize("seed", range(40))
def test_random_slices_are_typed_as_onnx_types_them(seed: int) -> None:
    chance = random.Random(seed)
    shape = [chance.randint(1, 6) for _ in range(chance.randint(1, 4))]
    axes = chance.sample(range(len(shape)), chance.randint(1, len(shape)))
    bounds = [[chance.choice([*range(-8, 9), FAR, -FAR]) for _ in axes] for _ in range(2)]
    steps = ints(*(chance.choice((-3, -2, -1, 1, 2, 3)) for _ in axes))
    given = [ints(*bounds[0]), ints(*bounds[1]), ints(*axes), steps]
    assert_like_onnx("Slice", [text(shape), *given], {})


@pytest.mark.parametrize("seed", range(40))
def test_random_images_are_typed_as_onnx_types_them(seed: int) -> None:
    chance = random.Random(seed)
    size = chance.randint(1, 3)
    height, width = chance.randint(1, 9), chance.randint(1, 9)
    image = text([2, 2 * size**2, height, width])
    assert_like_onnx("DepthToSpace", [image], {"blocksize": size})
    image = text([2, 3, height * size, width * size])
    assert_like_onnx("SpaceToDepth", [image], {"blocksize": size})
    image = text([2, 3, height, width])
    scales = np.float32([chance.choice((0.3, 0.5, 0.6, 0.7, 1, 1.1, 2, 3.3)) for _ in range(2)])
    assert_like_onnx("Resize", [image, None, np.append(np.float32([1, 1]), scales)], {})
    assert_like_onnx("Resize", [image, None, scales], {"axes": [2, -1]})
    sizes = ints(chance.randint(1, 20), chance.randint(1, 20))
    for policy in ("stretch", "not_larger", "not_smaller"):
        attributes = {"axes": [-2, 3], "keep_aspect_ratio_policy": policy}
        assert_like_onnx("Resize", [image, None, None, sizes], attributes)
