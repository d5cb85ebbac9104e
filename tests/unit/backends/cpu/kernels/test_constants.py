"""What has to be known when a plan is made: by shapes, by the content of inputs, or not at all."""

import itertools
import random

import numpy as np
import pytest
from onnx import TensorProto, helper

from aioinfer import Core
from aioinfer.backends.cpu.kernels.registry import KERNELS
from unit.backends.cpu.arrays import ints, numbers
from unit.backends.cpu.comparing import model_of, run

node = helper.make_node


def test_a_plan_for_each_content(core: Core) -> None:
    x = numbers(2, 6)
    model = model_of([node("Reshape", ["x", "s"], ["y"])], {"x": x, "s": ints(3, 4)}, dynamic=True)
    with core.load_network(model, "CPU") as network:
        for count, shape in ((1, (3, 4)), (2, (12,)), (2, (3, 4)), (3, (4, -1)), (4, ())):
            data = x if shape else x[:1, :1]
            given = {"x": data, "s": ints(*shape)}
            got = network.create_infer_request().infer_sync(given)["y"]
            np.testing.assert_array_equal(got, data.reshape(shape))
            assert network.get_metric("PLAN_COUNT") == count


def test_static_models_wait_for_their_content(core: Core) -> None:
    x = numbers(2, 6)
    model = model_of([node("Reshape", ["x", "s"], ["y"])], {"x": x, "s": ints(3, 4)})
    with core.load_network(model, "CPU") as network:
        assert network.get_metric("PLAN_COUNT") == 0
        got = network.create_infer_request().infer_sync({"x": x, "s": ints(4, 3)})["y"]
        np.testing.assert_array_equal(got, x.reshape(4, 3))


SHAPE_ARITHMETIC = [
    node("Shape", ["x"], ["length"], start=1, end=2, name="shape"),
    node("Slice", ["table", "zero", "length", "zero"], ["rows"], name="slice"),
    node("Shape", ["x"], ["all"], name="all"),
    node("Gather", ["all", "zero"], ["batch"], name="gather"),
    node("Concat", ["batch", "length", "two", "rest"], ["target"], axis=0, name="concat"),
    node("Relu", ["x"], ["positive"], name="relu"),
    node("Add", ["positive", "rows"], ["added"], name="add"),
    node("Reshape", ["added", "target"], ["shaped"], name="reshape"),
    node("Transpose", ["shaped"], ["y"], perm=[0, 2, 1, 3], name="transpose"),
]
CONSTANTS = {"table": numbers(10, 4), "zero": ints(0), "two": ints(2), "rest": ints(-1)}


def arithmetic(x: np.ndarray) -> np.ndarray:
    added = np.maximum(x, 0) + CONSTANTS["table"][: x.shape[1]]
    return added.reshape(*x.shape[:2], 2, -1).transpose(0, 2, 1, 3)


def test_shape_arithmetic_of_dynamic_models(core: Core) -> None:
    x = numbers(2, 3, 4)
    model = model_of(SHAPE_ARITHMETIC, {"x": x}, ["y"], CONSTANTS, dynamic=True)
    assert KERNELS.shape_tensors(core.read_model(model).graph) == []
    with core.load_network(model, "CPU") as network:
        for shape in ((2, 3, 4), (1, 10, 4), (5, 1, 4), (2, 3, 4)):
            x = numbers(*shape) - 5
            got = network.create_infer_request().infer_sync({"x": x})["y"]
            np.testing.assert_array_equal(got, arithmetic(x))
        assert network.get_metric("PLAN_COUNT") == 3


@pytest.mark.parametrize("seed", range(20))
def test_any_cut_through_shape_arithmetic(core: Core, seed: int) -> None:
    """What CPU says it can run, it runs beside REFERENCE, wherever the cuts are."""
    x = numbers(2, 3, 4) - 5
    model = model_of(SHAPE_ARITHMETIC, {"x": x}, ["y"], CONSTANTS, dynamic=True)
    support = core.query_network(model, "CPU")
    assert all(support[item.name].supported for item in model.graph.node), support
    draw = random.Random(seed)
    for item in model.graph.node:
        entry = item.metadata_props.add()
        entry.key, entry.value = "affinity", draw.choice(["CPU", "REFERENCE"])
    with core.load_network(model, "HETERO:CPU,REFERENCE") as network:
        for shape in ((2, 3, 4), (1, 5, 4)):
            x = numbers(*shape) - 5
            got = network.create_infer_request().infer_sync({"x": x})["y"]
            np.testing.assert_array_equal(got, arithmetic(x))


def test_cuts_through_floats_of_sizes(core: Core) -> None:
    """Sizes may be scaled as floats and come back; the float may be what crosses the cut."""
    nodes = [
        node("Shape", ["x"], ["s"], name="shape"),
        node("Cast", ["s"], ["f"], to=1, name="to_float"),
        node("Mul", ["f", "half"], ["h"], name="mul"),
        node("Cast", ["h"], ["i"], to=7, name="to_int"),
        node("Slice", ["x", "begin", "i"], ["y"], name="slice"),
    ]
    constants = {"half": np.array([1.0, 0.5], np.float32), "begin": ints(0, 0)}
    x = numbers(4, 6)
    names = [item.name for item in nodes]
    for cut in range(len(names) + 1):
        model = model_of(nodes, {"x": x}, ["y"], constants, dynamic=True)
        for place, item in enumerate(model.graph.node):
            entry = item.metadata_props.add()
            entry.key, entry.value = "affinity", "REFERENCE" if place < cut else "CPU"
        got = run(core, model, "HETERO:CPU,REFERENCE", {"x": x})["y"]
        np.testing.assert_array_equal(got, x[:, :3])


def test_what_data_determines_is_a_step_of_its_own(core: Core) -> None:
    nodes = [
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("Cast", ["m"], ["i"], to=7),
        node("Unsqueeze", ["i", "zero"], ["end"]),
        node("Slice", ["x", "zero", "end", "zero"], ["y"], name="cut_off"),
    ]
    x = np.zeros((2, 60), np.float32)
    model = model_of(nodes, {"x": x}, ["y"], {"zero": ints(0)})
    assert core.query_network(model, "CPU")["cut_off"].supported
    with core.load_network(model, "CPU") as network:
        for largest in (1, 0, 2):
            x[1, 7] = largest
            found = network.create_infer_request().infer_sync({"x": x})["y"]
            assert np.array_equal(found, x[:largest])


def test_long_chains_of_content_are_asked_about_quickly(core: Core) -> None:
    nodes = [
        node("Slice", [before, "zero", before], [after], name=after)
        for before, after in itertools.pairwise(f"v{index}" for index in range(60))
    ]
    model = model_of(nodes, {"v0": ints(1)}, ["v59"], {"zero": ints(0)})
    got = run(core, model, "CPU", {"v0": ints(1)})["v59"]
    np.testing.assert_array_equal(got, [1])


GRID = [
    node("Shape", ["x"], ["s"], name="shape"),
    node("Slice", ["s", "zero", "two"], ["s2"], name="slice"),
    node(
        "ConstantOfShape",
        ["s2"],
        ["grid"],
        name="grid",
        value=helper.make_tensor("v", TensorProto.INT64, [1], [2]),
    ),
    node("ReduceMax", ["grid"], ["most"], keepdims=0, name="most"),
    node("Unsqueeze", ["most", "zero"], ["times"], name="times"),
    node("Tile", ["y", "times"], ["z"], name="tile"),
]


@pytest.mark.parametrize("there", [item.name for item in GRID])
def test_a_cut_may_go_through_a_tensor_of_any_size(core: Core, there: str) -> None:
    given = {"x": numbers(10, 12, 2), "y": numbers(4)}
    constants = {"zero": ints(0), "two": ints(2)}
    model = model_of(GRID, given, ["z"], constants, dynamic=True)
    assert all(answer.supported for answer in core.query_network(model, "CPU").values())
    for item in model.graph.node:
        entry = item.metadata_props.add()
        entry.key, entry.value = "affinity", "REFERENCE" if item.name == there else "CPU"
    got = run(core, model, "HETERO:CPU,REFERENCE", given)["z"]
    np.testing.assert_array_equal(got, np.tile(given["y"], 2))
