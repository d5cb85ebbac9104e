"""Whatever callers give as a tensor: seen without a copy, or refused, and never other numbers."""

from __future__ import annotations

import array
import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aioinfer.runtime.graph import DType
from aioinfer.runtime.tensors.array_like import as_array

BASE = np.arange(12, dtype=np.float32).reshape(3, 4)


class WithArray:
    def __init__(self, content: Any) -> None:
        self.content = content

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if isinstance(self.content, Exception):
            raise self.content
        return self.content


class WithInterface:
    def __init__(self, content: np.ndarray) -> None:
        self.content = content

    @property
    def __array_interface__(self) -> Any:
        return self.content.__array_interface__


class OnlyDlpack:
    def __init__(self, content: np.ndarray) -> None:
        self.content = content

    def __dlpack__(self, **options: Any) -> Any:
        return self.content.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.content.__dlpack_device__()


def matrix(content: np.ndarray) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        return np.matrix(content, copy=False)


@pytest.fixture
def memory_map(tmp_path: Path) -> np.ndarray:
    BASE.tofile(tmp_path / "map")
    return np.memmap(tmp_path / "map", np.float32, "r", shape=(3, 4))


@pytest.mark.parametrize(
    "given",
    [
        BASE,
        BASE[::-1, ::-2],
        np.asfortranarray(BASE),
        matrix(BASE),
        np.ma.array(BASE),
        WithArray(BASE),
        WithArray(matrix(BASE)),
        WithInterface(BASE),
        OnlyDlpack(BASE),
        BASE[0, 0],
    ],
    ids=lambda given: type(given).__name__,
)
def test_arrays_of_any_kind_are_seen_as_plain_ones_without_a_copy(given: Any) -> None:
    seen = as_array(given, DType.INT8)  # which is not asked for: the caller checks the type
    assert type(seen) is np.ndarray
    assert seen.dtype == np.float32
    if not isinstance(given, np.generic):
        assert np.shares_memory(seen, getattr(given, "content", given))
    np.testing.assert_array_equal(seen, np.asarray(getattr(given, "content", given)))


def test_a_memory_map_is_not_read_whole(memory_map: np.ndarray) -> None:
    seen = as_array(memory_map, DType.FLOAT32)
    assert type(seen) is np.ndarray
    assert np.shares_memory(seen, memory_map)


@pytest.mark.parametrize(
    ("given", "dtype", "expected"),
    [
        ([1, 2], DType.FLOAT32, np.array([1, 2], np.float32)),
        ([[1.5], [2]], DType.FLOAT64, np.array([[1.5], [2]])),
        ((1, 2), DType.UINT8, np.array([1, 2], np.uint8)),
        (3, DType.INT64, np.array(3, np.int64)),
        (2.5, DType.FLOAT16, np.array(2.5, np.float16)),
        ([1.5], DType.BFLOAT16, np.array([1.5], ml_dtypes.bfloat16)),
        ([7, -8], DType.INT4, np.array([7, -8], ml_dtypes.int4)),
        ([1, 2j], DType.COMPLEX64, np.array([1, 2j], np.complex64)),
        ([True, False], DType.BOOL, np.array([True, False])),
        ([True], DType.INT32, np.array([1], np.int32)),
        ([], DType.INT64, np.array([], np.int64)),
        ([[], []], DType.BOOL, np.zeros((2, 0), bool)),
        (range(3), DType.INT32, np.arange(3, dtype=np.int32)),
        (array.array("d", [1, 2]), DType.FLOAT32, np.array([1, 2], np.float32)),
        ([np.float32(1), np.float64(2)], DType.FLOAT32, np.array([1, 2], np.float32)),
        (["a", "bc"], DType.STRING, np.array(["a", "bc"], object)),
        ("text", DType.STRING, np.array("text", object)),
        ([], DType.STRING, np.array([], object)),
        ([1, 2], None, np.array([1, 2])),
    ],
)
def test_numbers_and_lists_take_the_wanted_type(
    given: Any, dtype: DType | None, expected: np.ndarray
) -> None:
    made = as_array(given, dtype)
    assert made.dtype == expected.dtype
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize(
    "given",
    [np.array(["a", "Grüße"]), np.array(["a", "Grüße"], np.dtypes.StringDType())],
    ids=["U", "T"],
)
def test_text_becomes_objects(given: np.ndarray) -> None:
    made = as_array(given, DType.STRING)
    assert made.dtype == object
    assert made.tolist() == ["a", "Grüße"]
    assert all(type(item) is str for item in made)


@pytest.mark.parametrize(
    ("given", "dtype", "message"),
    [
        ([1.5], DType.INT64, "a list that numpy sees as float64"),
        ([2.0], DType.INT64, "a list that numpy sees as float64"),
        ([1, 0], DType.BOOL, "a list that numpy sees as int64"),
        (["1"], DType.FLOAT32, "a list that numpy sees as <U1"),
        ([b"a"], DType.STRING, "a list that numpy sees as |S1"),
        ([1], DType.STRING, "a list that numpy sees as int64"),
        ([1j], DType.FLOAT32, "a list that numpy sees as complex128"),
        ({"a": 1}, DType.FLOAT32, "a dict that numpy sees as object"),
        ({1, 2}, DType.FLOAT32, "a set that numpy sees as object"),
        ((item for item in (1, 2)), DType.FLOAT32, "a generator that numpy sees as object"),
        (object(), DType.FLOAT32, "a object that numpy sees as object"),
        ([None], DType.FLOAT32, "a list that numpy sees as object"),
        ([[1], [2, 3]], DType.FLOAT32, "inhomogeneous"),
        ([300], DType.UINT8, "out of bounds"),
        ([-1], DType.UINT64, "out of bounds"),
        ([np.int64(300)], DType.UINT8, "out of the range of uint8"),
        ([100], DType.INT4, "out of the range of int4"),
        ([1 << 70], DType.INT64, "numpy sees as object"),
        ([1e300], DType.FLOAT32, "overflow"),
        (np.ma.array([1, 2], mask=[True, False]), DType.INT64, "a masked array with masked items"),
        (WithArray(KeyError("broken")), DType.FLOAT32, "broken"),
        (WithArray(5), DType.FLOAT32, "array"),
    ],
)
def test_what_would_become_other_numbers_is_refused(given: Any, dtype: DType, message: str) -> None:
    with pytest.raises(Exception, match=message):
        as_array(given, dtype)
