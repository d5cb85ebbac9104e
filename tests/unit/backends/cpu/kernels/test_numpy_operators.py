"""What numpy computes between two native calls equals REFERENCE."""

import numpy as np
import pytest
from onnx import helper

from aioinfer import Core
from aioinfer.errors import TensorError
from unit.backends.cpu.arrays import ints, numbers
from unit.backends.cpu.comparing import assert_same_as_reference, model_of, run

node = helper.make_node


CASES = {
    "CumSum": ({"x": numbers(2, 3), "axis": np.array(1)}, {"reverse": 1, "exclusive": 1}),
    "EyeLike": ({"x": numbers(3, 4)}, {"k": 1, "dtype": 1}),
    "GatherElements": ({"x": numbers(3, 3), "i": np.array([[1, 2, 0], [-2, 0, 0]])}, {"axis": 0}),
    "GatherND": ({"x": numbers(2, 3, 4), "i": np.array([[0, 1], [1, -1]])}, {}),
    "ReverseSequence": (
        {"x": numbers(4, 3), "n": ints(2, 4, 1)},
        {"time_axis": 0, "batch_axis": 1},
    ),
    "ScatterElements": (
        {"x": numbers(3, 3), "i": np.array([[1, 0, 2]]), "u": numbers(1, 3)},
        {"reduction": "add"},
    ),
    "ScatterND": ({"x": numbers(4, 2), "i": np.array([[1], [3]]), "u": numbers(2, 2)}, {}),
    "Trilu": ({"x": numbers(3, 3), "k": np.array(1)}, {"upper": 0}),
}


@pytest.mark.parametrize("op", sorted(CASES))
@pytest.mark.parametrize("dynamic", [False, True])
def test_same_as_reference(core: Core, op: str, dynamic: bool) -> None:
    inputs, attributes = CASES[op]
    model = model_of([node(op, list(inputs), ["y"], **attributes)], inputs, dynamic=dynamic)
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.int32, np.int64, np.bool_])
def test_other_types(core: Core, dtype: type) -> None:
    inputs = {"x": numbers(4, 2).astype(dtype), "i": np.array([[1], [3]])}
    model = model_of([node("GatherND", list(inputs), ["y"])], inputs)
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gathered_elements_may_be_fewer_on_other_axes(core: Core, axis: int) -> None:
    x, indices = numbers(3, 4, 5), np.array([[[2, 0], [-1, 1]]])
    given = {"x": x, "i": indices}
    model = model_of([node("GatherElements", list(given), ["y"], axis=axis)], given)
    wanted = np.empty(indices.shape, np.float32)
    for place in np.ndindex(*indices.shape):
        found = list(place)
        found[axis] = indices[place]
        wanted[place] = x[tuple(found)]
    np.testing.assert_array_equal(run(core, model, "CPU", given)["y"], wanted)


COMBINE = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": max,
    "min": min,
}


@pytest.mark.parametrize("reduction", sorted(COMBINE))
@pytest.mark.parametrize("axis", [0, -1])
def test_scatter_elements(core: Core, reduction: str, axis: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 4)).astype(np.float32)
    inputs = {"x": x, "i": np.array([[2, 0, -1]]), "u": rng.standard_normal((1, 3)).astype("f")}
    attributes = {"axis": axis, "reduction": reduction}
    model = model_of([node("ScatterElements", list(inputs), ["y"], **attributes)], inputs)
    wanted = x.copy()
    for column, index in enumerate(inputs["i"][0]):
        place = (index, column) if axis == 0 else (0, index)
        wanted[place] = COMBINE[reduction](x[place], inputs["u"][0, column])
    np.testing.assert_allclose(run(core, model, "CPU", inputs)["y"], wanted, rtol=1e-6)


@pytest.mark.parametrize("reduction", sorted(COMBINE))
def test_scatter_nd(core: Core, reduction: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 4)).astype(np.float32)
    u = rng.standard_normal(3).astype(np.float32)
    inputs = {"x": x, "i": np.array([[2, 0], [-1, 1], [0, 3]]), "u": u}
    model = model_of([node("ScatterND", list(inputs), ["y"], reduction=reduction)], inputs)
    wanted = x.copy()
    for index, update in zip(inputs["i"], u, strict=True):
        wanted[tuple(index)] = COMBINE[reduction](x[tuple(index)], update)
    np.testing.assert_allclose(run(core, model, "CPU", inputs)["y"], wanted, rtol=1e-6)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_between_native_steps(core: Core, precision: str) -> None:
    """The table is split, and values cross from one part to the next in their own type."""
    inputs = {"x": numbers(2, 3) - 2, "i": np.array([[0, 2, 1], [1, 1, 0]])}
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("GatherElements", ["r", "i"], ["g"], axis=1),
        node("Sqrt", ["g"], ["s"]),
        node("CumSum", ["s", "axis"], ["c"]),
        node("Relu", ["c"], ["y"]),
    ]
    model = model_of(nodes, inputs, ["y"], {"axis": np.array(0)})
    bound = 3e-2 if precision == "bf16" else 1e-5
    assert_same_as_reference(core, model, inputs, bound=bound, INFERENCE_PRECISION_HINT=precision)


def test_one_hot(core: Core) -> None:
    inputs = {"x": ints(0, 2, -1), "values": np.array([-1, 5], np.float32)}
    nodes = [node("OneHot", ["x", "depth", "values"], ["y"], axis=0)]
    assert_same_as_reference(core, model_of(nodes, inputs, ["y"], {"depth": np.array(3)}), inputs)
    given = {**inputs, "depth": np.array(3)}
    for depth in (3, 4):
        given["depth"] = np.array(depth)
        assert_same_as_reference(core, model_of(nodes, given, dynamic=True), given)


def test_empty(core: Core) -> None:
    inputs = {"x": numbers(0, 3), "axis": np.array(1)}
    assert_same_as_reference(core, model_of([node("CumSum", list(inputs), ["y"])], inputs), inputs)


@pytest.mark.parametrize("op", ["GatherElements", "GatherND", "ScatterElements", "ScatterND"])
def test_a_bad_index_names_the_node(core: Core, op: str) -> None:
    inputs = {"x": numbers(2, 2), "i": np.array([[5, 0]])}
    if op.startswith("Scatter"):
        inputs["u"] = numbers(1, 2) if op == "ScatterElements" else numbers(1)
    model = model_of([node(op, list(inputs), ["y"], name="pick")], inputs)
    with core.load_network(model, "CPU") as network, pytest.raises(TensorError, match="'pick'"):
        network.create_infer_request().infer_sync(inputs)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("counts", [(3, 4, 5), (2, 3, 4)])
def test_places_that_repeat_write_whole_lines(
    core: Core, axis: int, counts: tuple[int, ...]
) -> None:
    """As an Expand makes them; the last of equal places wins, and others may be fewer."""
    x, updates = numbers(3, 4, 5), numbers(*counts) + 100
    line = np.array([1, -1, 1, 0, 2][: counts[axis]])
    indices = np.empty(counts, np.int64)
    np.moveaxis(indices, axis, -1)[...] = line
    inputs = {"x": x, "i": indices, "u": updates}
    model = model_of([node("ScatterElements", list(inputs), ["y"], axis=axis)], inputs)
    wanted = x.copy()
    for place in np.ndindex(*counts):
        found = list(place)
        found[axis] = indices[place]
        wanted[tuple(found)] = updates[place]
    np.testing.assert_array_equal(run(core, model, "CPU", inputs)["y"], wanted)
