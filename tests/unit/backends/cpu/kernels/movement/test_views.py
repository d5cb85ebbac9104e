"""Views on CPU equal REFERENCE, whatever layout they are taken of."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from aioinfer import Core
from exhaustive import drawn
from unit.backends.cpu.arrays import ints, numbers
from unit.backends.cpu.comparing import assert_same_as_reference, model_of, run
from unit.backends.cpu.kernels.stepping import implementations

EXAMPLES = settings(max_examples=drawn(30), derandomize=True)
DTYPES = [np.bool_, np.float16, ml_dtypes.bfloat16, np.int32, np.int64, np.float64, np.complex64]
node = helper.make_node


def check(core: Core, op: str, x: np.ndarray, constants: dict, outputs=("y",), **attributes):
    """Compare one node on x and constants, with static and with dynamic shapes."""
    nodes = [node(op, ["x", *constants], list(outputs), **attributes)]
    for dynamic in (False, True):
        model = model_of(nodes, {"x": x}, outputs, constants, dynamic=dynamic)
        assert_same_as_reference(core, model, {"x": x})


@pytest.mark.parametrize("dtype", DTYPES)
def test_types(core: Core, dtype: type) -> None:
    x = numbers(2, 3, 4, dtype=dtype)
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[2, 0, 1]),
        node("Reshape", ["t", "shape"], ["r"]),
        node("Slice", ["r", "begin", "end", "axes", "steps"], ["s"]),
        node("Split", ["s"], ["y", "z"], axis=0, num_outputs=2),
    ]
    constants = {
        "shape": ints(4, 6),
        "begin": ints(5, -4),
        "end": ints(-7, 4),
        "axes": ints(1, 0),
        "steps": ints(-2, 1),
    }
    model = model_of(nodes, {"x": x}, ["y", "z"], constants)
    got = run(core, model, "CPU", {"x": x})
    wanted = x.transpose(2, 0, 1).reshape(4, 6)[:, 5:-7:-2]
    assert got["y"].dtype == x.dtype
    np.testing.assert_array_equal(got["y"], wanted[:2])
    np.testing.assert_array_equal(got["z"], wanted[2:])


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0, 3), (2, 3), (2, 3, 4, 5)])
def test_shapes_of_all_kinds(core: Core, shape: tuple) -> None:
    x = numbers(*shape)
    check(core, "Identity", x, {})
    check(core, "Transpose", x, {})
    check(core, "Flatten", x, {}, axis=0)
    check(core, "Unsqueeze", x, {"axes": ints(0, -1)})
    if 0 not in shape:
        check(core, "Reshape", x, {"shape": ints(-1)})
        check(core, "Reshape", x, {"shape": ints(1, -1, 1)})


def test_reshape_copies_and_allows_zeros(core: Core) -> None:
    check(core, "Reshape", numbers(2, 3, 4), {"shape": ints(0, -1)})
    check(core, "Reshape", numbers(2, 0, 4), {"shape": ints(4, 0)}, allowzero=1)
    check(core, "Squeeze", numbers(1, 3, 1), {})
    check(core, "Squeeze", numbers(1, 3, 1), {"axes": ints(-1)})


@pytest.mark.parametrize(
    ("begin", "end", "step"),
    [(0, 5, 1), (1, -1, 2), (-1, -6, -1), (4, 0, -2), (-100, 100, 3), (100, -100, -3), (3, 3, 1)],
)
@pytest.mark.parametrize("axis", [0, -1])
def test_slices(core: Core, begin: int, end: int, step: int, axis: int) -> None:
    x = numbers(5, 5)
    constants = {"b": ints(begin), "e": ints(end), "a": ints(axis), "s": ints(step)}
    check(core, "Slice", x, constants)


@pytest.mark.parametrize(
    ("op", "others", "attributes"),
    [
        ("Conv", {"w": numbers(3, 2, 1, 1)}, {}),
        ("MatMul", {"w": numbers(2, 3)}, {}),
        ("LRN", {}, {"size": 3}),
        ("MaxPool", {}, {"kernel_shape": [2, 2]}),
        ("InstanceNormalization", {"a": numbers(2), "b": numbers(2)}, {}),
    ],
)
def test_every_other_channel_of_an_odd_count_is_read(
    core: Core, op: str, others: dict, attributes: dict
) -> None:
    """The last channel would end in the next image, which oneDNN takes for an overlap."""
    x = numbers(2, 3, 2, 2)
    constants = {"z": ints(0), "e": ints(3), "one": ints(1), "two": ints(2), **others}
    nodes = [
        node("Slice", ["x", "z", "e", "one", "two"], ["s"]),
        node(op, ["s", *others], ["y"], **attributes),
    ]
    assert_same_as_reference(core, model_of(nodes, {"x": x}, ["y"], constants), {"x": x})


def test_slices_to_the_largest_integer_and_without_axes(core: Core) -> None:
    x = numbers(4, 5)
    check(core, "Slice", x, {"b": ints(1, 2), "e": ints(2**63 - 1, 2**63 - 1)})
    constants = {"b": ints(-1), "e": ints(-(2**63)), "a": ints(0), "s": ints(-1)}
    check(core, "Slice", x, constants)


def test_splits(core: Core) -> None:
    x = numbers(7, 4)
    check(core, "Split", x, {}, ("y", "z", "w"), num_outputs=3)
    check(core, "Split", x, {"sizes": ints(2, 0, 5)}, ("y", "z", "w"))
    check(core, "Split", x, {"sizes": ints(1, 3)}, ("y", "z"), axis=-1)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("channels", [16, 18, 32])
def test_views_of_what_a_convolution_leaves(core: Core, threads: int, channels: int) -> None:
    """Channels may lie innermost or in blocks, and every view has to know."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 6, 5)).astype(np.float32)
    w = rng.standard_normal((channels, 3, 3, 3)).astype(np.float32)
    half = channels // 2
    constants = {
        "w": w,
        "flat": ints(0, -1),
        "b": ints(half, 1),
        "e": ints(channels, 4),
        "a": ints(1, 2),
        "sizes": ints(half, channels - half),
        "one": ints(1),
        "back": ints(-1),
        "far": ints(-100),
    }
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("Transpose", ["c"], ["transposed"], perm=[0, 2, 3, 1]),
        node("Reshape", ["c", "flat"], ["flattened"]),
        node("Slice", ["c", "b", "e", "a"], ["sliced"]),
        node("Relu", ["sliced"], ["rectified"]),
        node("Slice", ["c", "back", "far", "one", "back"], ["backwards"]),
        node("Split", ["c", "sizes"], ["first", "second"], axis=1),
        node("Sigmoid", ["second"], ["activated"]),
        node("Gather", ["c", "one"], ["taken"], axis=1),
        node("Concat", ["second", "first"], ["joined"], axis=1),
    ]
    outputs = ["transposed", "flattened", "rectified", "backwards", "first", "activated"]
    outputs += ["taken", "joined"]
    model = model_of(nodes, {"x": x}, outputs, constants)
    assert_same_as_reference(core, model, {"x": x}, INFERENCE_NUM_THREADS=threads)


def test_views_are_no_steps(core: Core) -> None:
    x = numbers(2, 6, 4)
    nodes = [
        node("Reshape", ["x", "shape"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=[0, 2, 1, 3]),
        node("Split", ["t"], ["s", "rest"], axis=1, num_outputs=2),
        node("Squeeze", ["s", "one"], ["q"]),
        node("Relu", ["q"], ["y"]),
    ]
    model = model_of(nodes, {"x": x}, ["y"], {"shape": ints(2, 3, 2, 4), "one": ints(1)})
    assert_same_as_reference(core, model, {"x": x})
    steps = {op for op, _ in implementations(core, model, {"x": x})}
    assert steps <= {"Relu", "Output"}


def test_texts_are_moved_by_steps_in_numpy(core: Core) -> None:
    x = np.array(["a", "b"], object)
    model = model_of(
        [node("Identity", ["x"], ["i"]), node("Reshape", ["i", "s"], ["y"])],
        {"x": x},
        ["y"],
        {"s": ints(2, 1)},
    )
    with core.load_network(model, "CPU") as network:
        made = network.create_infer_request().infer_sync({"x": x})["y"]
    assert made.tolist() == [["a"], ["b"]]


@given(data=st.data())
@EXAMPLES
def test_random_chains_of_views(core: Core, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    x = numbers(*shape)
    nodes, constants, current = [], {}, x
    for index in range(data.draw(st.integers(1, 5))):
        given_name, made = (f"v{index - 1}" if index else "x"), f"v{index}"
        rank = current.ndim
        kind = data.draw(st.sampled_from(["Transpose", "Reshape", "Slice", "Unsqueeze"]))
        if kind == "Transpose":
            order = list(data.draw(st.permutations(range(rank))))
            nodes.append(node(kind, [given_name], [made], perm=order))
            current = current.transpose(order)
        elif kind == "Reshape":
            divisor = data.draw(st.sampled_from([d for d in (1, 2, 3, 4) if current.size % d == 0]))
            constants[f"c{index}"] = ints(divisor, -1)
            nodes.append(node(kind, [given_name, f"c{index}"], [made]))
            current = current.reshape(divisor, -1)
        elif kind == "Unsqueeze":
            axis = data.draw(st.integers(0, rank))
            constants[f"c{index}"] = ints(axis)
            nodes.append(node(kind, [given_name, f"c{index}"], [made]))
            current = np.expand_dims(current, axis)
        else:
            axis = data.draw(st.integers(0, rank - 1))
            step = data.draw(st.sampled_from([1, 2, -1]))
            begin, end = (0, 2**31) if step > 0 else (-1, -(2**31))
            names = [f"{letter}{index}" for letter in "beas"]
            constants |= dict(zip(names, map(ints, (begin, end, axis, step)), strict=True))
            nodes.append(node(kind, [given_name, *names], [made]))
            current = np.flip(current, axis) if step < 0 else current
            current = current[(slice(None),) * axis + (slice(None, None, abs(step)),)]
    name = f"v{len(nodes) - 1}"
    model = model_of(nodes, {"x": x}, [name], constants)
    np.testing.assert_array_equal(run(core, model, "CPU", {"x": x})[name], current)


@pytest.mark.parametrize(("start", "end"), [(-10, -20), (-10, -2), (9, 0), (-3, -100)])
def test_a_slice_backwards_begins_within_its_axis(core: Core, start: int, end: int) -> None:
    x = np.arange(1, 5, dtype=np.float32)
    constants = {
        name: np.array([number], np.int64)
        for name, number in {"starts": start, "ends": end, "axes": 0, "steps": -1}.items()
    }
    node = helper.make_node("Slice", ["x", *constants], ["y"])
    model = model_of([node], {"x": x}, constants=constants)
    found = run(core, model, "CPU", {"x": x})["y"]
    np.testing.assert_array_equal(found, run(core, model, "REFERENCE", {"x": x})["y"])
