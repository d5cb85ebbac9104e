"""Taking elements along one axis by a table of places, and the tables as constants."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ....runtime.graph import DType
from ..elementwise.c_types import C_TYPES, ELEMENT_WORDS
from ..elementwise.fused_launch import line_groups
from ..operand import Operand
from .kernel_source import KernelSource
from .reach import elements, whole

if TYPE_CHECKING:
    from ..plan_builder import PlanBuilder

__all__ = ["PLACE_TYPES", "TAKEN_PLACE", "table_operand", "take"]

Array = np.ndarray[Any, Any]

PLACE_TYPES = (DType.INT32, DType.INT64)

TAKEN_PLACE = """
    {kind} place = {place};
    if (place < 0) place += length;
    const int is_inside = place >= 0 && place < length;
"""
"""C that reads a place as ONNX does, from the end if it is negative."""

_TEXT = """
__kernel void $name(__global const {word} *x, __global const {kind} *table, __global {word} *y,
                    const int count, const int picks, const int length, const int inner) {{
    const int i = get_global_id(0);
    if (i >= count) return;
    const int row = i / inner;
    {taken}
    const int from = (row / picks * length + (int)place) * inner + i % inner;
    y[i] = is_inside ? x[from] : 0;
}}
"""


def take(builder: PlanBuilder, source: Operand, target: Operand, axis: int, table: Operand) -> None:
    """Fill the target with the source's elements at the table's places along an axis.

    Instead of the axis the target has the table's axes. A place outside of the axis gives 0.
    """
    shape = source.shape
    kind = C_TYPES[table.dtype].memory
    text = _TEXT.format(
        word=ELEMENT_WORDS[source.dtype.item_bytes],
        kind=kind,
        taken=TAKEN_PLACE.format(kind=kind, place="table[row % picks]"),
    )
    inner = math.prod(shape[axis + 1 :])
    outer = math.prod(shape[:axis])
    if target.count != outer * table.count * inner:
        raise builder.contradiction(
            f"{table.count} places of an axis of {list(shape)} do not make {list(target.shape)}"
        )
    if table.dtype not in PLACE_TYPES:
        raise builder.contradiction(f"places are integers, and not {table.dtype.label}")
    numbers = (target.count, table.count, shape[axis], inner)
    source_text = KernelSource.of("take", text)
    groups = line_groups(builder, target.count)
    reaches = [
        elements(outer * shape[axis] * inner, source.dtype),
        whole(table),
        elements(target.count, source.dtype),
    ]
    builder.launch(source_text, [source, table, target, *numbers], *groups, reaches)


def table_operand(builder: PlanBuilder, table: Array) -> Operand:
    """Return the place of a computed table; equal ones are uploaded once for all plans."""
    dense = np.ascontiguousarray(table)
    name = f"table {dense.shape} {hashlib.sha256(dense.tobytes()).hexdigest()}"
    return builder.derived(name, [], DType.of(dense.dtype), lambda: dense, dense.shape)
