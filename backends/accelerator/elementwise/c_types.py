"""Element types in kernel C: how they lie in memory, and what is computed with them.

Float16 and bfloat16 are loaded and stored as such by every device, and computed as float32, so that
a device without arithmetic in half precision runs them, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....runtime.graph import DType

__all__ = ["C_TYPES", "ELEMENT_WORDS", "FLOATS", "INTEGERS", "CType", "extremes", "literal"]


@dataclass(frozen=True)
class CType:
    """``memory`` is what pointers point to, ``register`` what is computed with."""

    memory: str
    register: str

    def load(self, pointer: str, index: str) -> str:
        """Write the expression that reads an element."""
        if self.memory == "half":
            return f"vload_half({index}, {pointer})"
        element = f"{pointer}[{index}]"
        return f"float_of_bfloat16({element})" if self.memory == "bfloat16" else element

    def store(self, value: str, pointer: str, index: str) -> str:
        """Write the statement that writes an element."""
        if self.memory == "half":
            return f"vstore_half({value}, {index}, {pointer});"
        if self.memory == "bfloat16":
            value = f"bfloat16_of_float({value})"
        return f"{pointer}[{index}] = {value};"


C_TYPES: Mapping[DType, CType] = {
    DType.FLOAT32: CType("float", "float"),
    DType.FLOAT16: CType("half", "float"),
    DType.BFLOAT16: CType("bfloat16", "float"),
    DType.BOOL: CType("uchar", "uchar"),
    DType.INT8: CType("char", "char"),
    DType.INT16: CType("short", "short"),
    DType.INT32: CType("int", "int"),
    DType.INT64: CType("long", "long"),
    DType.UINT8: CType("uchar", "uchar"),
    DType.UINT16: CType("ushort", "ushort"),
    DType.UINT32: CType("uint", "uint"),
    DType.UINT64: CType("ulong", "ulong"),
}
"""What kernels compute in."""

FLOATS = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16})
INTEGERS = frozenset(dtype for dtype in C_TYPES if dtype not in (*FLOATS, DType.BOOL))

ELEMENT_WORDS: Mapping[int, str] = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}
"""By size, the C type in which elements of any type are moved."""

_LIMITS: Mapping[DType, tuple[str, str]] = {
    DType.BOOL: ("0", "1"),
    DType.INT8: ("CHAR_MIN", "CHAR_MAX"),
    DType.INT16: ("SHRT_MIN", "SHRT_MAX"),
    DType.INT32: ("INT_MIN", "INT_MAX"),
    DType.INT64: ("LONG_MIN", "LONG_MAX"),
    DType.UINT8: ("0", "UCHAR_MAX"),
    DType.UINT16: ("0", "USHRT_MAX"),
    DType.UINT32: ("0", "UINT_MAX"),
    DType.UINT64: ("0", "ULONG_MAX"),
}


def extremes(dtype: DType) -> tuple[str, str]:
    """Write the least and the greatest value of a type; those of floats are infinite."""
    return ("(-INFINITY)", "INFINITY") if dtype in FLOATS else _LIMITS[dtype]


def literal(number: float) -> str:
    """Write a float constant, exactly."""
    if number != number:
        return "NAN"
    if number in (float("inf"), float("-inf")):
        return "INFINITY" if number > 0 else "(-INFINITY)"
    return f"({float(number).hex()}f)"
