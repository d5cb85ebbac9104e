"""What kernels read and write: a value's place in device memory. Always dense and row-major.

Kernels that take strides may read the elements of an operand in another way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ...runtime.graph import DType

__all__ = ["Buffer", "Operand"]


@dataclass(frozen=True, eq=False)
class Buffer:
    """A piece of device memory: of the slot's arena, or a constant that all slots share."""

    kind: Literal["arena", "constant"]
    size_bytes: int


@dataclass(frozen=True)
class Operand:
    """A value in a buffer; ``dtype`` is the element type in memory.

    It begins ``offset_bytes`` behind the buffer's start, a multiple of the device's
    ``align_bytes``, and has to end within the buffer.
    """

    buffer: Buffer
    shape: tuple[int, ...]
    dtype: DType
    offset_bytes: int = 0

    @property
    def count(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """How much memory its elements take."""
        return self.count * self.dtype.item_bytes

    def viewed(self, shape: Sequence[int]) -> Operand:
        """See the same elements, in the same order, in another shape."""
        return replace(self, shape=tuple(shape))


@dataclass(frozen=True)
class StridedOperand:
    """A value that does not lie dense: its shape, and its strides in elements of the operand."""

    operand: Operand
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def permuted(self, axes: Sequence[int]) -> StridedOperand:
        """See it with its axes in another order."""
        return StridedOperand(
            self.operand,
            tuple([self.shape[axis] for axis in axes]),
            tuple([self.strides[axis] for axis in axes]),
        )
