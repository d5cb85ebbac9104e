from __future__ import annotations

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.errors import UnsupportedOpError
from unit.backends.accelerator.comparing import assert_same_as_reference, model_of, operator, run

X = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("is_known", [False, True])
def test_gather_looks_up_along_an_axis(axis: int, dtype: type, is_known: bool, core: Core) -> None:
    indices = np.array([[0, -1, 2], [-3, 1, 1]], dtype)
    inputs, constants = {"x": X, "indices": indices}, {}
    if is_known:
        constants["indices"] = inputs.pop("indices")
    node = operator("Gather", "x", "indices", axis=axis)
    assert_same_as_reference(core, model_of([node], inputs, constants=constants), inputs)


@pytest.mark.parametrize("index", [1, -1])
def test_gather_of_one_known_index_drops_the_axis(index: int, core: Core) -> None:
    constants = {"indices": np.array(index)}
    model = model_of([operator("Gather", "x", "indices", axis=1)], {"x": X}, constants=constants)
    assert_same_as_reference(core, model, {"x": X})


@pytest.mark.parametrize("dtype", [np.bool_, np.int16, np.float64])
def test_elements_of_any_size_are_looked_up(dtype: type, core: Core) -> None:
    inputs = {"x": (X * 10).astype(dtype), "indices": np.array([2, 0])}
    assert_same_as_reference(core, model_of([operator("Gather", "x", "indices")], inputs), inputs)


def test_a_run_finds_zeros_outside_of_the_axis(core: Core) -> None:
    inputs = {"x": X, "indices": np.array([3, 1, -4])}
    found = run(core, model_of([operator("Gather", "x", "indices")], inputs), "OPENCL", inputs)
    np.testing.assert_array_equal(found["y"], [0 * X[0], X[1], 0 * X[0]])


def test_a_known_index_outside_of_the_axis_is_refused(core: Core) -> None:
    constants = {"indices": np.array([0, 3])}
    model = model_of([operator("Gather", "x", "indices")], {"x": X}, constants=constants)
    with pytest.raises(UnsupportedOpError, match="index 3 is outside of an axis of length 3"):
        core.load_network(model, "OPENCL")


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_elements_has_an_index_for_each(axis: int, core: Core) -> None:
    chance = np.random.default_rng(axis + 1)
    shape, length = list(X.shape), X.shape[axis]
    shape[axis] = 7
    inputs = {"x": X, "indices": chance.integers(-length, length, shape)}
    node = operator("GatherElements", "x", "indices", axis=axis)
    assert_same_as_reference(core, model_of([node], inputs), inputs)


def test_gather_elements_may_leave_out_what_lies_beyond_its_indices(core: Core) -> None:
    inputs = {"x": X, "indices": np.random.default_rng(1).integers(0, 5, (2, 3, 6))}
    node = operator("GatherElements", "x", "indices", axis=-1)
    found = run(core, model_of([node], inputs), "OPENCL", inputs)
    expected = np.take_along_axis(X[:2, :3], inputs["indices"], axis=-1)
    np.testing.assert_array_equal(found["y"], expected)


@pytest.mark.parametrize(
    ("indices", "batch_dims"),
    [
        (np.array([[0, 1], [-1, -4]]), 0),
        (np.array([[[2]], [[-1]]]), 0),
        (np.array([[0, 1, 2], [2, 3, 4]]), 0),
        (np.array([[1], [-2], [0]]), 1),
        (np.array([[[0, 1], [1, -1]], [[2, 2], [3, 0]], [[1, 4], [-4, 2]]]), 1),
    ],
)
def test_gather_nd_looks_up_slices(indices: np.ndarray, batch_dims: int, core: Core) -> None:
    inputs = {"x": X, "indices": indices}
    node = operator("GatherND", "x", "indices", batch_dims=batch_dims)
    assert_same_as_reference(core, model_of([node], inputs), inputs)
