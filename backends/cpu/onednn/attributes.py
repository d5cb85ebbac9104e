"""What a primitive does beside its operation: post-ops, scales, and whose scratchpad it takes."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import byref, c_float, c_int, c_void_p
from typing import Any, Protocol

from .descs import Desc
from .handles import Handle
from .numbers import ARG, BINARY_ALGORITHMS, ELTWISE
from .post_ops import BINARY, UNARY, PostOp

__all__ = ["AttributeEngine", "Attributes"]


class AttributeEngine(Protocol):
    """What attributes ask of their engine."""

    library: Any

    def check(self, call: str, *arguments: Any) -> None: ...


class Attributes(Handle):
    """Post-ops, scales of int8 weights, and the mode of the scratchpad, always the user's.

    ``scale_count`` float32 factors of the sums, if any, are an argument: one (``scale_mask`` 0), or
    one along the axes of the weights that are set bits in it.
    """

    __slots__ = ("post_ops", "scale_count", "scale_mask")

    def __init__(
        self,
        engine: AttributeEngine,
        post_ops: Iterable[tuple[PostOp, Desc | None]] = (),
        scale_mask: int = 0,
        scale_count: int = 0,
    ) -> None:
        self.post_ops = tuple(post_ops)
        self.scale_mask, self.scale_count = scale_mask, scale_count
        made = c_void_p()
        engine.check("dnnl_primitive_attr_create", byref(made))
        assert made.value is not None
        super().__init__(made.value, engine.library.dnnl_primitive_attr_destroy)
        engine.check("dnnl_primitive_attr_set_scratchpad_mode", self, c_int(1))
        if scale_count:
            mask = c_int(scale_mask)
            engine.check("dnnl_primitive_attr_set_scales_mask", self, c_int(ARG.WEIGHTS), mask)
        if not self.post_ops:
            return
        handle = c_void_p()
        engine.check("dnnl_post_ops_create", byref(handle))
        try:
            for post_op, operand in self.post_ops:
                _append(engine, handle, post_op, operand)
            engine.check("dnnl_primitive_attr_set_post_ops", self, handle)
        finally:
            engine.library.dnnl_post_ops_destroy(handle)


def _append(
    engine: AttributeEngine, handle: c_void_p, post_op: PostOp, operand: Desc | None
) -> None:
    if post_op.name == "sum":
        engine.check("dnnl_post_ops_append_sum", handle, c_float(1.0), c_int(0), c_int(0))
    elif operand is not None:
        algorithm = BINARY_ALGORITHMS[BINARY[post_op.name]]
        engine.check("dnnl_post_ops_append_binary", handle, c_int(algorithm), operand)
    else:
        algorithm = ELTWISE[UNARY[post_op.name][0]]
        engine.check(
            "dnnl_post_ops_append_eltwise",
            handle,
            c_int(algorithm),
            c_float(post_op.alpha),
            c_float(post_op.beta),
        )
