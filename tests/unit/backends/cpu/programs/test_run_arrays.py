"""The memory of a run: the caller's own wherever that is possible."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from aioinfer.backends.cpu.plans.plan import Form
from aioinfer.backends.cpu.programs.run_arrays import as_buffer, input_array, output_arrays
from aioinfer.errors import TensorError

pytestmark = pytest.mark.needs_no_library


def form(*shape: int) -> Form:
    return shape, np.dtype(np.float32)


def unaligned(count: int) -> np.ndarray:
    return np.zeros(4 * count + 1, np.uint8)[1:].view(np.float32)


def test_an_input_is_taken_as_it_is() -> None:
    array = np.zeros((2, 3), np.float32)
    array.flags.writeable = False
    assert input_array("x", array) is array


@pytest.mark.parametrize(
    "array",
    [np.arange(6, dtype=np.float32).reshape(3, 2).T, np.arange(6, dtype=np.float32)[::-1],
     np.broadcast_to(np.float32(1), (2, 3)), unaligned(6)],
)  # fmt: skip
def test_an_input_that_lies_otherwise_is_copied(array: np.ndarray) -> None:
    taken = input_array("x", array)
    assert taken.flags.c_contiguous
    assert taken.flags.aligned
    np.testing.assert_array_equal(taken, array)


def test_an_input_that_is_no_array_is_refused() -> None:
    with pytest.raises(TensorError, match="input 'x' is a list, and CPU takes arrays only"):
        input_array("x", [1.0])


def test_without_bound_memory_outputs_are_new() -> None:
    first, second = output_arrays(["y", "z"], [form(2, 3), form(0)], {}, [])
    assert (first.shape, first.dtype) == ((2, 3), np.float32)
    assert second.shape == (0,)


def test_bound_memory_is_written_in_place() -> None:
    bound = {"y": np.zeros((2, 3), np.float32)}
    assert output_arrays(["y"], [form(2, 3)], bound, [])[0] is bound["y"]


BASE = np.zeros(64, np.float32)


@pytest.mark.parametrize(
    "memory",
    [np.zeros((3, 2), np.float32), np.zeros((3, 2), np.float32).T, np.zeros((2, 3), np.float64),
     np.zeros((2, 6), np.float32)[:, ::2], unaligned(6).reshape(2, 3),
     np.broadcast_to(np.float32(1), (2, 3))],
)  # fmt: skip
def test_bound_memory_that_does_not_fit_is_left_alone(memory: np.ndarray) -> None:
    (made,) = output_arrays(["y"], [form(2, 3)], {"y": memory}, [])
    assert not np.may_share_memory(made, memory)


def test_bound_memory_that_an_input_shares_is_left_alone() -> None:
    source, memory = BASE[:6].reshape(2, 3), BASE[3:9].reshape(2, 3)
    (made,) = output_arrays(["y"], [form(2, 3)], {"y": memory}, [source])
    assert not np.may_share_memory(made, memory)
    apart = BASE[6:12].reshape(2, 3)
    assert output_arrays(["y"], [form(2, 3)], {"y": apart}, [source])[0] is apart


def test_bound_memory_that_another_output_shares_is_left_alone() -> None:
    bound = {"y": BASE[:4], "z": BASE[2:6]}
    first, second = output_arrays(["y", "z"], [form(4), form(4)], bound, [])
    assert first is bound["y"]
    assert not np.may_share_memory(second, BASE)


@pytest.mark.parametrize(
    "dtype", [np.float32, np.int64, np.bool_, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]
)
def test_every_type_has_a_buffer(dtype: type) -> None:
    for shape in [(), (2, 3), (0,)]:
        array = np.zeros(shape, dtype)
        assert memoryview(as_buffer(array)).nbytes == array.nbytes
