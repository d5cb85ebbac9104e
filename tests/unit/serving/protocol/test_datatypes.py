"""Raw tensors: every datatype there and back, views where they can be, refusals with the field."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from aioinfer.serving.protocol.datatypes import (
    DATATYPES,
    datatype_of,
    raw_bytes,
    read_raw,
    refuse_too_big,
)
from aioinfer.serving.protocol.limits import Limits
from aioinfer.serving.protocol.refusal import RefusedError

NUMBERS = [name for name in DATATYPES if name != "BYTES"]


@pytest.mark.parametrize("datatype", NUMBERS)
def test_numbers_come_back_as_they_were(datatype: str) -> None:
    dtype = DATATYPES[datatype].numpy
    array = np.arange(6).reshape(2, 3).astype(dtype)
    again = read_raw(memoryview(bytes(raw_bytes(array))), datatype, (2, 3), "x")
    assert again.dtype == dtype
    np.testing.assert_array_equal(again, array)
    assert datatype_of(DATATYPES[datatype]) == datatype


def test_texts_come_back_as_they_were() -> None:
    array = np.array([["", "a"], ["ü€", "\x00"]], object)
    again = read_raw(memoryview(bytes(raw_bytes(array))), "BYTES", (2, 2), "x")
    np.testing.assert_array_equal(again, array)


def test_numbers_that_are_aligned_are_a_view_and_others_a_copy() -> None:
    memory = np.arange(4, dtype=np.float32)
    data = memoryview(memory.view(np.uint8).data)
    assert np.shares_memory(read_raw(data[4:12], "FP32", (2,), "x"), memory)
    odd = read_raw(data[1:13], "FP32", (3,), "x")
    assert not np.shares_memory(odd, memory)
    assert odd.flags.aligned


def test_rows_that_are_not_contiguous_are_written_in_order() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3).T
    assert bytes(raw_bytes(array)) == array.tobytes()


def test_no_dimension_is_one_element() -> None:
    assert read_raw(memoryview(struct.pack("<i", 7)), "INT32", (), "x") == 7


def test_a_bool_is_whatever_is_not_zero() -> None:
    assert read_raw(memoryview(b"\x00\x02"), "BOOL", (2,), "x").tolist() == [False, True]


@pytest.mark.parametrize(
    ("data", "count", "told"),
    [
        (b"", 1, "too few"),
        (b"\x05\x00\x00\x00abc", 1, "inside element 0"),
        (b"\x01\x00\x00\x00abcd", 2, "element 1"),
        (b"\x01\x00\x00\x00ab", 1, "1 bytes follow"),
        (b"\xff\xff\xff\xff", 1, "inside element 0"),
        (b"\x01\x00\x00\x00\xff", 1, "UTF-8"),
    ],
)
def test_texts_that_are_cut_short_are_refused(data: bytes, count: int, told: str) -> None:
    with pytest.raises(RefusedError, match=told) as refused:
        read_raw(memoryview(data), "BYTES", (count,), "inputs[0]")
    assert refused.value.field.startswith("inputs[0]")


def test_another_number_of_bytes_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"in: 7 bytes; FP32 of shape \[2\] has 8"):
        read_raw(memoryview(bytes(7)), "FP32", (2,), "in")


def test_a_shape_that_is_too_big_is_refused_before_there_is_memory() -> None:
    with pytest.raises(RefusedError) as refused:
        refuse_too_big("FP64", (1 << 39, 1 << 39), "inputs[1]", Limits())
    assert (refused.value.status, refused.value.field) == (413, "inputs[1].shape")
