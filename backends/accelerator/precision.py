"""How exactly an accelerator computes with float32 values."""

from __future__ import annotations

from dataclasses import dataclass

from ...runtime.graph import DType

__all__ = ["F32", "Precision"]


@dataclass(frozen=True)
class Precision:
    """``held`` is what float32 values lie in between launches; kernels always sum in float32.

    ``has_tf32``: matmuls of float32 may round what they multiply to 10 bits of mantissa.
    """

    held: DType = DType.FLOAT32
    has_tf32: bool = False


F32 = Precision()
"""Float32 throughout."""
