"""Which weights onnxruntime may read where the model has them.

A shared initializer keeps its content, whatever onnxruntime's optimiser does. But where a Transpose
is moved past an operator of several operands, the optimiser transposes or unsqueezes those of them
that are constants, and keeps their names: the session would go on with the numbers as they were.
"""

from __future__ import annotations

from ...runtime.graph import Value

__all__ = ["stays_as_it_is"]

_READ_IN_PLACE = frozenset(
    (
        "Gather",
        "GatherElements",
        "GatherND",
        "Gemm",
        "MatMul",
        "com.microsoft::EmbedLayerNormalization",
        "com.microsoft::FusedMatMul",
        "com.microsoft::GatherBlockQuantized",
        "com.microsoft::MatMulNBits",
    )
)
"""Operators past which no Transpose is moved, and whose kernels on the CPU can read weights as they
lie; other kernels behind which Transposes stay (Conv, LSTM, ...) repack them in any case."""


def stays_as_it_is(weight: Value) -> bool:
    """Return whether onnxruntime's optimiser leaves a weight's content alone; a pure decision."""
    return all(node.op in _READ_IN_PLACE for node in weight.consumers)
