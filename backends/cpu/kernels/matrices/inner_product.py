"""Matmuls with constant weights as oneDNN's inner product, where its matmul would not pack them.

Without AVX-512 oneDNN's matmul reads weights row by row as they lie. Rows that lie a multiple of
2 KiB apart share few sets of a first-level cache, which halves its speed; the inner product has
them in blocks.
"""

from __future__ import annotations

from ctypes import c_int

from .....runtime.graph import DType
from ...onednn.bindings import (
    FORWARD_INFERENCE,
    Attributes,
    Desc,
    Engine,
    OneDnnError,
    PrimitiveDesc,
)

__all__ = ["INNER_PRODUCT", "inner_product", "row_desc"]

INNER_PRODUCT = "inner_product_forward"
_CONFLICTING_COLUMNS = 512
"""float32 rows of a multiple of these are a multiple of 2 KiB."""
_USUAL_ROWS = 64
"""Weights lie as this many rows want them, so that plans of all lengths share one packing."""


def inner_product(
    engine: Engine, left: Desc, columns: int, has_bias: bool, attributes: Attributes
) -> PrimitiveDesc | None:
    """Describe left (rows, inner) times weights (columns, inner), or None where it does not pay.

    The bias is ``row_desc`` of rank 1; ``weights`` of what is returned says how to pack them.
    """
    if left.dtype is not DType.FLOAT32 or columns % _CONFLICTING_COLUMNS:
        return None
    inner = left.dims[1]
    bias = row_desc(engine, 1, columns) if has_bias else None
    usual = engine.desc((_USUAL_ROWS, inner), DType.FLOAT32)
    try:
        if _is_packed_by_matmul(engine, usual, columns):
            return None
        any_weights = engine.any_desc((columns, inner), DType.FLOAT32)
        weights = _describe(engine, usual, any_weights, None, Attributes(engine)).desc("weights")
        made = _describe(engine, left, weights, bias, attributes)
    except OneDnnError:
        return None
    return made if made.implementation.startswith("brgemm") else None


def row_desc(engine: Engine, rank: int, columns: int) -> Desc:
    """Describe one row for all, with this many axes."""
    return engine.desc((*(1,) * (rank - 1), columns), DType.FLOAT32)


def _is_packed_by_matmul(engine: Engine, left: Desc, columns: int) -> bool:
    rows, inner = left.dims
    weights = engine.any_desc((inner, columns), DType.FLOAT32)
    result = engine.desc((rows, columns), DType.FLOAT32)
    made = engine.primitive_desc("matmul", engine, left, weights, None, result, Attributes(engine))
    return made.implementation.startswith("brg")


def _describe(
    engine: Engine, left: Desc, weights: Desc, bias: Desc | None, attributes: Attributes
) -> PrimitiveDesc:
    result = engine.desc((left.dims[0], weights.dims[0]), DType.FLOAT32)
    kind = c_int(FORWARD_INFERENCE)
    return engine.primitive_desc(
        INNER_PRODUCT, engine, kind, left, weights, bias, result, attributes
    )
