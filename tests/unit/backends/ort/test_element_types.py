import ml_dtypes
import numpy as np
import pytest

from aioinfer.backends.ort.element_types import (
    find_unexchangeable,
    is_numpy_type,
    output_cast_of,
    raw_memory_of,
    text_array,
)
from aioinfer.runtime.graph import DType, OptionalType, SequenceType, TensorType


def packed(values: list[float], dtype: DType) -> list[int]:
    return raw_memory_of(np.array(values).astype(dtype.numpy), dtype).view(np.uint8).tolist()


def test_four_bit_values_lie_two_to_a_byte_the_first_one_low() -> None:
    assert packed([1, -2, 3], DType.INT4)[:2] == [0xE1, 0x03]
    assert packed([1, 15], DType.UINT4)[:1] == [0xF1]


def test_two_bit_values_lie_four_to_a_byte_the_first_one_low() -> None:
    assert packed([1, -2, 0, -1, 1], DType.INT2)[:2] == [0b11_00_10_01, 0b01]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 3), (2, 0, 4)])
def test_packing_keeps_the_shape(shape: tuple[int, ...]) -> None:
    array = np.ones(shape, ml_dtypes.int4)
    assert raw_memory_of(array, DType.INT4).shape == shape


def test_other_memory_is_taken_as_it_is_if_its_order_is_right() -> None:
    array = np.ones((2, 3), ml_dtypes.bfloat16)
    assert np.shares_memory(raw_memory_of(array, DType.BFLOAT16), array)
    turned = raw_memory_of(array.T, DType.BFLOAT16)
    assert turned.flags.c_contiguous
    assert turned.shape == (3, 2)


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if not is_numpy_type(dtype)], ids=str)
def test_what_numpy_lacks_leaves_by_a_type_that_holds_all_its_values(dtype: DType) -> None:
    way = output_cast_of(TensorType(dtype, (4,)))
    assert way is not None
    assert is_numpy_type(way)
    if dtype.numpy.itemsize == 1:
        held = np.arange(256, dtype=np.uint8).view(dtype.numpy)
        there_and_back = held.astype(way.numpy).astype(dtype.numpy)
        np.testing.assert_array_equal(there_and_back.astype(float), held.astype(float))


def test_what_numpy_has_leaves_as_it_is() -> None:
    assert output_cast_of(TensorType(DType.FLOAT16, (4,))) is None
    assert output_cast_of(SequenceType(TensorType(DType.FLOAT32))) is None
    assert output_cast_of(None) is None


def test_text_of_any_kind_becomes_str_objects() -> None:
    for given in (np.array(["a", "é"]), np.array([b"a", "é".encode()], object), ["a", "é"]):
        array = text_array(np.array(given)) if isinstance(given, list) else text_array(given)
        assert array.dtype == object
        assert array.tolist() == ["a", "é"]
    assert text_array(np.array([[b"ab"], [b"c"]])).tolist() == [["ab"], ["c"]]
    assert [item.tolist() for item in text_array([np.array(["a"]), np.array(["b"])])] == [
        ["a"],
        ["b"],
    ]
    assert text_array(None) is None


def test_only_containers_of_what_numpy_lacks_cannot_pass() -> None:
    bfloat16 = TensorType(DType.BFLOAT16, (2,))
    assert find_unexchangeable(None) is None
    assert find_unexchangeable(bfloat16) is None
    assert find_unexchangeable(OptionalType(SequenceType(TensorType(DType.STRING)))) is None
    assert "seq(bfloat16[2])" in (find_unexchangeable(SequenceType(bfloat16)) or "")
