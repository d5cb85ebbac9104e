"""Concat, Expand, Tile, Gather and the exchange of channels and space equal REFERENCE."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from aioinfer import Core
from aioinfer.errors import TensorError
from exhaustive import drawn
from unit.backends.cpu.arrays import ints, numbers
from unit.backends.cpu.comparing import BF16_BOUND, assert_same_as_reference, model_of, run
from unit.backends.cpu.kernels.stepping import implementations

EXAMPLES = settings(max_examples=drawn(30), derandomize=True)
DTYPES = [
    np.bool_,
    np.uint8,
    np.float16,
    ml_dtypes.bfloat16,
    np.int32,
    np.float32,
    np.int64,
    np.float64,
]
node = helper.make_node


def outcome(core: Core, op: str, inputs: dict, constants=None, **attributes) -> np.ndarray:
    """Run one node with dynamic shapes; some of its inputs may be constants."""
    constants = constants or {}
    nodes = [node(op, [*inputs, *constants], ["y"], **attributes)]
    return run(core, model_of(nodes, inputs, ["y"], constants, dynamic=True), "CPU", inputs)["y"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_types(core: Core, dtype: type) -> None:
    x, z = numbers(2, 3, dtype=dtype), numbers(2, 1, dtype=dtype)
    expected = {
        "Concat": (outcome(core, "Concat", {"x": x, "z": z}, axis=1), np.concatenate([x, z], 1)),
        "Expand": (
            outcome(core, "Expand", {"x": z}, {"s": ints(3, 1, 4)}),
            np.broadcast_to(z, (3, 2, 4)),
        ),
        "Tile": (outcome(core, "Tile", {"x": x}, {"r": ints(2, 3)}), np.tile(x, (2, 3))),
        "Gather": (
            outcome(core, "Gather", {"x": x, "i": ints(2, -3, 0)}, axis=1),
            x[:, [2, -3, 0]],
        ),
    }
    for op, (got, wanted) in expected.items():
        assert got.dtype == x.dtype, op
        np.testing.assert_array_equal(got, wanted, op)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(core: Core, dtype: type, mode: str) -> None:
    x = (np.arange(1 * 12 * 2 * 3) % 100).reshape(1, 12, 2, 3).astype(dtype)
    got = outcome(core, "DepthToSpace", {"x": x}, blocksize=2, mode=mode)
    split = (1, 2, 2, 3, 2, 3) if mode == "DCR" else (1, 3, 2, 2, 2, 3)
    order = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    wanted = x.reshape(split).transpose(order).reshape(1, 3, 4, 6)
    np.testing.assert_array_equal(got, wanted)
    if mode == "DCR":
        np.testing.assert_array_equal(outcome(core, "SpaceToDepth", {"x": got}, blocksize=2), x)


def test_empty_parts(core: Core) -> None:
    x, empty = numbers(2, 3), numbers(2, 0)
    got = outcome(core, "Concat", {"e": empty, "x": x, "f": empty}, axis=-1)
    np.testing.assert_array_equal(got, x)
    assert outcome(core, "Concat", {"e": empty, "f": empty}, axis=1).shape == (2, 0)
    assert outcome(core, "Tile", {"x": x}, {"r": ints(0, 2)}).shape == (0, 6)
    assert outcome(core, "Expand", {"x": numbers(1, 3)}, {"s": ints(0, 3)}).shape == (0, 3)
    assert outcome(core, "Gather", {"x": x, "i": ints()}).shape == (0, 3)
    assert outcome(core, "Gather", {"x": empty, "i": ints(1)}).shape == (1, 0)
    four = numbers(0, 4, 2, 2)
    assert outcome(core, "DepthToSpace", {"x": four}, blocksize=2).shape == (0, 1, 4, 4)


def test_scalars_and_high_ranks(core: Core) -> None:
    scalar = np.array(7, np.float32)
    np.testing.assert_array_equal(
        outcome(core, "Expand", {"x": scalar}, {"s": ints(2, 2)}), np.full((2, 2), 7)
    )
    assert outcome(core, "Expand", {"x": scalar}, {"s": ints()}).shape == ()
    x = numbers(*[2] * 7)
    np.testing.assert_array_equal(
        outcome(core, "Tile", {"x": x}, {"r": ints(*[2] * 7)}), np.tile(x, [2] * 7)
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(
    "indices", [np.array(1), np.array(-2), np.array([[0, 1], [1, 0]]), np.array([1])]
)
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_gather(core: Core, axis: int, indices: np.ndarray, kind: type) -> None:
    x, indices = numbers(3, 2, 4), indices.astype(kind)
    wanted = np.take(x, indices, axis)
    got = outcome(core, "Gather", {"x": x, "i": indices}, axis=axis)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(
        outcome(core, "Gather", {"x": x}, {"i": indices}, axis=axis), wanted
    )


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("index", [3, -4])
def test_an_index_out_of_range_names_the_node(core: Core, is_constant: bool, index: int) -> None:
    x, indices = numbers(3, 2), {"i": ints(index)}
    inputs = {"x": x} if is_constant else {"x": x, **indices}
    nodes = [node("Gather", ["x", "i"], ["y"], name="lookup")]
    model = model_of(nodes, inputs, ["y"], indices if is_constant else {})
    with core.load_network(model, "CPU") as network:
        with pytest.raises(TensorError, match=r"'lookup'.*index in the data is out of range"):
            network.create_infer_request().infer_sync(inputs)
        if not is_constant:  # and the network goes on
            got = network.create_infer_request().infer_sync({"x": x, "i": ints(1)})["y"]
            np.testing.assert_array_equal(got, x[[1]])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_feature_maps_are_joined_by_one_step(core: Core, threads: int, precision: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 3, 8, 8)).astype(np.float32)
    constants = {
        "a": rng.standard_normal((16, 3, 3, 3)).astype(np.float32),
        "b": rng.standard_normal((32, 3, 1, 1)).astype(np.float32),
    }
    nodes = [
        node("Conv", ["x", "a"], ["c"], pads=[1, 1, 1, 1]),
        node("Conv", ["x", "b"], ["d"]),
        node("Concat", ["c", "d"], ["e"], axis=1),
        node("Relu", ["e"], ["y"]),
    ]
    model = model_of(nodes, {"x": x}, ["y"], constants)
    config = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": precision}
    bound = BF16_BOUND if precision == "bf16" else 1e-5
    assert_same_as_reference(core, model, {"x": x}, bound=bound, **config)
    steps = [
        name for op, name in implementations(core, model, {"x": x}, **config) if op == "Concat"
    ]
    assert len(steps) == 1
    assert "ref" not in steps[0]


def test_joining_what_lies_differently(core: Core) -> None:
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((2, 3, 4)).astype(np.float32), numbers(4, 3, 2)
    nodes = [
        node("Transpose", ["z"], ["t"], perm=[2, 1, 0]),
        node("Concat", ["x", "t", "x"], ["y"], axis=2),
    ]
    model = model_of(nodes, {"x": x, "z": z})
    for precision, bound in (("f32", 0.0), ("bf16", BF16_BOUND)):
        config = {"INFERENCE_PRECISION_HINT": precision}
        assert_same_as_reference(core, model, {"x": x, "z": z}, bound=bound, **config)


@given(data=st.data())
@EXAMPLES
def test_random_movements(core: Core, data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    x = numbers(*data.draw(st.lists(st.integers(0, 4), min_size=rank, max_size=rank)))
    op = data.draw(st.sampled_from(["Tile", "Expand", "Concat", "Gather"]))
    axis = data.draw(st.integers(-rank, rank - 1))
    if op == "Tile":
        repeats = data.draw(st.lists(st.integers(0, 3), min_size=rank, max_size=rank))
        got, wanted = outcome(core, op, {"x": x}, {"r": ints(*repeats)}), np.tile(x, repeats)
    elif op == "Expand":
        source = x.take(range(min(1, x.shape[axis])), axis)
        got = outcome(core, op, {"x": source}, {"s": ints(2, *x.shape)})
        wanted = np.broadcast_to(source, (2, *x.shape)) if x.size else np.zeros((2, *x.shape))
    elif op == "Concat":
        got = outcome(core, op, {"x": x, "z": x + 1}, axis=axis)
        wanted = np.concatenate([x, x + 1], axis)
    else:
        length = x.shape[axis]
        indices = (
            data.draw(st.lists(st.integers(-length, length - 1), max_size=4)) if length else []
        )
        got = outcome(core, op, {"x": x, "i": ints(*indices)}, axis=axis)
        wanted = np.take(x, np.array(indices, int), axis)
    np.testing.assert_array_equal(got, wanted)
