"""Operators on shapes: what is not folded runs all the same."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

from aioinfer import Core
from aioinfer.backends.cpu.kernels.movement.shapes import word_of
from unit.backends.cpu.comparing import assert_same_as_reference, model_of, run

node = helper.make_node


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 4)])
def test_shape_and_size(core: Core, shape: tuple) -> None:
    x = np.zeros(shape, np.float32)
    nodes = [
        node("Shape", ["x"], ["y"]),
        node("Shape", ["x"], ["part"], start=-2, end=-1),
        node("Size", ["x"], ["size"]),
    ]
    for dynamic in (False, True):
        model = model_of(nodes, {"x": x}, ["y", "part", "size"], dynamic=dynamic)
        assert_same_as_reference(core, model, {"x": x})


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.bool_, np.int8, np.int64, np.float64])
def test_constant_of_shape(core: Core, dtype: type) -> None:
    value = numpy_helper.from_array(np.ones(1, dtype))
    nodes = [node("ConstantOfShape", ["s"], ["y"], value=value)]
    with core.load_network(
        model_of(nodes, {"s": np.array([2, 3])}, dynamic=True), "CPU"
    ) as network:
        for shape in ((2, 3), (0, 1), (), (4,)):
            given = np.array(shape, np.int64)
            got = network.create_infer_request().infer_sync({"s": given})["y"]
            assert got.dtype == dtype
            np.testing.assert_array_equal(got, np.ones(shape, dtype))


def test_a_constant_that_is_too_large_to_fold(core: Core) -> None:
    count = (64 << 20) // 4 + 1
    nodes = [node("ConstantOfShape", ["s"], ["c"]), node("Slice", ["c", "b", "e"], ["y"])]
    constants = {"b": np.array([count - 2]), "e": np.array([count])}
    model = model_of(nodes, {"s": np.array([count])}, ["y"], constants)
    got = run(core, model, "CPU", {"s": np.array([count])})["y"]
    np.testing.assert_array_equal(got, np.zeros(2, np.float32))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32])
def test_range_of_inputs(core: Core, dtype: type) -> None:
    names = ["start", "limit", "step"]
    first = dict(zip(names, np.array([0, 5, 1], dtype), strict=True))
    inputs = {name: np.array(value, dtype) for name, value in first.items()}
    with core.load_network(model_of([node("Range", names, ["y"])], inputs), "CPU") as network:
        for start, limit, step in ((0, 5, 1), (3, -2, -2), (4, 4, 1)):
            given = [np.array(value, dtype) for value in (start, limit, step)]
            got = network.create_infer_request().infer_sync(dict(zip(names, given, strict=True)))
            np.testing.assert_array_equal(got["y"], np.arange(start, limit, step, dtype))


def test_words_of_elements() -> None:
    assert word_of(np.array([1.0], np.float32)) == 0x3F800000
    assert word_of(np.array(-1, np.int8)) == 0xFF
    assert word_of(np.array(-1, np.int64)) == -1
