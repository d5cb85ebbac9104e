import numpy as np
import onnx
import pytest

from aioinfer.runtime.graph import (
    DType,
    OptionalType,
    SequenceType,
    TensorType,
    is_static,
    shape_text,
    size_bytes,
)


def test_element_types_are_those_of_onnx() -> None:
    known = dict(onnx.TensorProto.DataType.items())
    del known["UNDEFINED"]
    assert sorted(dtype.value for dtype in DType) == sorted(known.values())


@pytest.mark.parametrize("dtype", list(DType), ids=lambda dtype: dtype.label)
def test_an_element_type_is_found_by_its_numpy_type(dtype: DType) -> None:
    assert DType.of(np.zeros(1, dtype.numpy).dtype) is dtype


def test_all_kinds_of_text_are_strings() -> None:
    for array in (np.array(["a"]), np.array([b"a"]), np.array(["a"], object)):
        assert DType.of(array.dtype) is DType.STRING


def test_an_element_type_that_onnx_lacks_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        DType.of(np.dtype("datetime64[s]"))


def test_floating_types_are_told_from_the_others() -> None:
    assert DType.BFLOAT16.is_floating
    assert DType.FLOAT8E5M2.is_floating
    assert not DType.INT4.is_floating
    assert not DType.COMPLEX64.is_floating


def test_types_are_written_as_users_read_them() -> None:
    tensor = TensorType(DType.FLOAT32, ("batch", 3, None))
    assert str(tensor) == "float32[batch,3,?]"
    assert str(SequenceType(TensorType(DType.INT64))) == "seq(int64[...])"
    assert str(OptionalType(None)) == "optional(?)"
    assert shape_text(()) == "[]"


def test_only_a_shape_without_gaps_is_static() -> None:
    assert is_static((2, 0))
    assert is_static(())
    assert not is_static((2, "n"))
    assert not is_static((2, None))
    assert not is_static(None)


def test_the_size_is_known_where_the_shape_is_static() -> None:
    assert size_bytes(TensorType(DType.FLOAT16, (2, 3))) == 12
    assert size_bytes(TensorType(DType.FLOAT16, ("n",))) is None
    assert size_bytes(SequenceType(None)) is None
    assert size_bytes(None) is None
