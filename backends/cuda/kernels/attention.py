"""Attention by cuDNN, in one launch; what it does not have is lowered as on all accelerators."""

from __future__ import annotations

from ....runtime.graph import DType, Node
from ...accelerator.elementwise.fused_step import ACCELERATOR_DOMAIN
from ...accelerator.kernels import attention as shared
from ...accelerator.kernels.attention import HeadColumns, Heads
from ...accelerator.launching.strided_copy import strided_copy
from ...accelerator.operand import Operand
from ...accelerator.plan_builder import PlanBuilder
from .library_call import call_library
from .registry import kernel

__all__ = ["does_fit"]

_DEPTH_STEP = 8
_MOST_DEPTH = 128
"""Columns of a head that cuDNN's kernels have on every GPU which has them."""


@kernel("Attention", domain=ACCELERATOR_DOMAIN)
def lower_attention(node: Node, builder: PlanBuilder) -> None:
    """Lower a fused node to cuDNN's operation if that has it."""
    heads = shared.read_heads(node, builder)
    parts = (heads.query, heads.key, heads.value)
    values = [part.value for part in parts]
    values += [] if heads.mask is None else [heads.mask]
    dtypes = {builder.held_dtype(value) for value in values}
    mask_shape = None if heads.mask is None else _four_axes(builder.shape(heads.mask))
    dtype = builder.held_dtype(node.outputs[0])
    fits = dtypes == {dtype} and does_fit(heads, dtype, mask_shape)
    if not builder.has_library("cudnn") or not fits:
        shared.lower_attention(node, builder)
        return
    placed = [_placed(heads, part, builder) for part in parts]
    inputs = [operand for operand, _ in placed]
    inputs += [] if heads.mask is None else [builder.operand(heads.mask)]
    made = builder.result(node.outputs[0])
    call_library(
        builder,
        "cudnn",
        "attention",
        inputs,
        made,
        batch=heads.batch,
        heads=heads.heads,
        queries=heads.queries,
        keys=heads.keys,
        head=heads.depth,
        scale=heads.scale,
        has_mask=mask_shape is not None,
        mask_shape=mask_shape,
        q_strides=placed[0][1],
        k_strides=placed[1][1],
        v_strides=placed[2][1],
        o_strides=heads.result.strides(heads.depth),
    )


def _placed(
    heads: Heads, columns: HeadColumns, builder: PlanBuilder
) -> tuple[Operand, tuple[int, int, int, int]]:
    """Return what begins with the first head, and its strides; a copy if it can begin nowhere."""
    whole, strides = builder.operand(columns.value), columns.strides(heads.depth)
    if not columns.first:
        return whole, strides
    part = builder.part(whole, columns.first)
    if part is not None:
        return part, strides
    width = heads.result.pitch
    copied = builder.temporary((heads.batch, columns.rows, width), whole.dtype)
    row_strides = (strides[0], columns.pitch, 1)
    strided_copy(builder, whole, copied, copied.shape, row_strides, columns.first)
    return copied, HeadColumns(columns.value, columns.rows, width).strides(heads.depth)


def does_fit(heads: Heads, dtype: DType, mask_shape: tuple[int, ...] | None) -> bool:
    """True if cuDNN has a kernel: of half precision, for heads of this many columns.

    A mask has a number for each key. Rows without a key give NaN there, so what asks for zeros
    does not fit. Pure.
    """
    has_type = dtype in (DType.FLOAT16, DType.BFLOAT16)
    has_depth = heads.depth % _DEPTH_STEP == 0 and 0 < heads.depth <= _MOST_DEPTH
    has_keys = mask_shape is None or mask_shape[3] == heads.keys
    return has_type and has_depth and has_keys and not heads.zeroes_empty_rows


def _four_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (1,) * (4 - len(shape)) + shape
