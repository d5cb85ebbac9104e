"""Element types: ONNX's names and numbers, and the numpy types that hold them."""

from __future__ import annotations

import enum
import functools
from typing import Any

import numpy as np

from ...executors.cached_property import cached_property
from ...executors.late_imports import late_imports

__all__ = ["DType"]


class DType(enum.Enum):
    """An ONNX element type; the value is ONNX's number (``TensorProto.DataType``).

    ``DType.FLOAT32.numpy`` is the numpy type; strings are held as ``object``, and the types that
    numpy lacks come from ml_dtypes.
    """

    FLOAT32 = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    FLOAT64 = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20
    UINT4 = 21
    INT4 = 22
    FLOAT4E2M1 = 23
    FLOAT8E8M0 = 24
    UINT2 = 25
    INT2 = 26

    __hash__ = object.__hash__  # there is one object of each; Enum's own is Python's

    @cached_property
    def label(self) -> str:
        """The name as users write it: ``float32``, ``int64``, ``string``."""
        return self.name.lower()

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The numpy type of one element in memory."""
        if self is DType.STRING:
            return np.dtype(object)
        if self.value >= DType.BFLOAT16.value:
            with late_imports:
                import ml_dtypes

            dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[self.name]))
            return dtype
        return np.dtype(self.label)

    @property
    def item_bytes(self) -> int:
        """Bytes of one element in memory; 4-bit and 2-bit types are held one to a byte."""
        return self.numpy.itemsize

    @property
    def is_floating(self) -> bool:
        """True for float16 to float64, bfloat16 and the small floats."""
        return "FLOAT" in self.name

    @classmethod
    def of(cls, dtype: np.dtype[Any]) -> DType:
        """Return the element type of a numpy array; raises KeyError for one that ONNX lacks."""
        if dtype.kind in "OUST":
            return cls.STRING
        found = _numpys_own().get(dtype)
        return _by_numpy()[dtype] if found is None else found


_ML_DTYPES = {
    "BFLOAT16": "bfloat16",
    "FLOAT8E4M3FN": "float8_e4m3fn",
    "FLOAT8E4M3FNUZ": "float8_e4m3fnuz",
    "FLOAT8E5M2": "float8_e5m2",
    "FLOAT8E5M2FNUZ": "float8_e5m2fnuz",
    "UINT4": "uint4",
    "INT4": "int4",
    "FLOAT4E2M1": "float4_e2m1fn",
    "FLOAT8E8M0": "float8_e8m0fnu",
    "UINT2": "uint2",
    "INT2": "int2",
}


@functools.cache
def _numpys_own() -> dict[np.dtype[Any], DType]:
    """Those of a model that needs no ml_dtypes, which takes longer to import than many to read."""
    of_numpy = set(DType) - {DType[name] for name in _ML_DTYPES} - {DType.STRING}
    return {dtype.numpy: dtype for dtype in of_numpy}


@functools.cache
def _by_numpy() -> dict[np.dtype[Any], DType]:
    return {dtype.numpy: dtype for dtype in DType if dtype is not DType.STRING}
