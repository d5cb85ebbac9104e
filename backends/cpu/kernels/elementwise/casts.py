"""Conversions between element types."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....runtime.graph import DType, Node, TensorType
from ...plans.operand_layout import Layout
from ...plans.plan_builder import PlanBuilder
from ..registry import INTEGERS, kernel
from .fused_elementwise import lower_elementwise

__all__ = ["lower_cast"]

_FLOATS = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16})
_WHOLE = INTEGERS | {DType.BOOL}
_BY_NUMPY = frozenset({DType.FLOAT64, DType.UINT64})
_KNOWN = _FLOATS | _WHOLE | _BY_NUMPY


def _refuses(node: Node) -> str | None:
    for value in (node.inputs[0], node.outputs[0]):
        kind = None if value is None else value.type
        if isinstance(kind, TensorType) and kind.dtype not in _KNOWN:
            return f"CPU has no {node.op} from or to {kind.dtype.label}"
    return None


@kernel("Cast", "CastLike", dtypes=_KNOWN, refuses=_refuses)
def lower_cast(node: Node, builder: PlanBuilder) -> None:
    """Lower a conversion; floats are cut towards zero, and NaN is true."""
    source, (result,) = node.inputs[0], node.outputs
    assert source is not None
    builder.expect_shape(result, builder.shape(source))
    given, wanted = builder.dtype(source), builder.dtype(result)
    if given is wanted:
        builder.define(result, builder.operand(source))
    elif _fits_floats(given, wanted):
        lower_elementwise(builder, [source], result, [])
    elif given in _WHOLE and wanted is not DType.UINT64:
        lower_elementwise(builder, [source], result, [], kernel="integer_elementwise")
    else:
        made = builder.result(result, Layout.plain(builder.shape(result), wanted))
        if made.layout.count:
            builder.numpy(_convert, [builder.plain(source), made], knows_lengths=False)


def _fits_floats(given: DType, wanted: DType) -> bool:
    """True if nothing is lost by going through float32 that is not lost anyway."""
    if given is DType.FLOAT64:
        return wanted is DType.FLOAT32
    return given in _FLOATS and wanted is not DType.UINT64


def _convert(source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> None:
    target[...] = source.astype(target.dtype)
