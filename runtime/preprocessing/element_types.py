"""Element types by OpenVINO's names: ``u8``, ``f32``. Pure."""

from __future__ import annotations

import enum

import numpy as np
import numpy.typing as npt

from ...errors import TensorError, nearest
from ..graph import DType

__all__ = ["ElementType", "Type", "element_type_of", "short_name"]


class Type(enum.Enum):
    """The element types by OpenVINO's names; ``u8``, ``uint8``, ``np.uint8`` mean the same."""

    boolean = DType.BOOL
    bf16 = DType.BFLOAT16
    f16 = DType.FLOAT16
    f32 = DType.FLOAT32
    f64 = DType.FLOAT64
    i8 = DType.INT8
    i16 = DType.INT16
    i32 = DType.INT32
    i64 = DType.INT64
    u8 = DType.UINT8
    u16 = DType.UINT16
    u32 = DType.UINT32
    u64 = DType.UINT64
    string = DType.STRING


ElementType = str | Type | DType | npt.DTypeLike
"""What users may give for an element type."""


def element_type_of(given: ElementType) -> DType:
    """Return the element type that is meant; raises TensorError for what is none."""
    if isinstance(given, DType):
        return given
    if isinstance(given, Type):
        return given.value
    if isinstance(given, str):
        if given in Type.__members__:
            return Type[given].value
        if given.upper() in DType.__members__:
            return DType[given.upper()]
    try:
        if given is not None:
            return DType.of(np.dtype(given))
    except (TypeError, KeyError, ValueError):
        pass
    hint = nearest(given, Type.__members__) if isinstance(given, str) else ""
    raise TensorError(f"{given!r} is no element type{hint or f'; there are {[*Type.__members__]}'}")


def short_name(dtype: DType) -> str:
    """Return OpenVINO's name of an element type, or ours where it has none."""
    return Type(dtype).name if dtype in {kind.value for kind in Type} else dtype.label
