"""Where a value lies while a plan runs: a layout in a buffer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from ....executors.cached_property import cached_property
from ....runtime.graph import DType
from ....runtime.lowering.strides import row_major
from ..onednn.bindings import Desc, Engine, can_describe
from ..onednn.tags import layout_tag

__all__ = ["Buffer", "Layout", "Operand"]

BufferKind = Literal["arena", "constant", "input", "output"]


class Buffer:
    """Memory of a plan: a part of the arena, a constant, or an array of the run.

    ``index`` numbers the run's inputs and outputs. ``array`` holds a constant: bytes or the model's
    own array; packed weights get theirs when they are packed, before the first run; a network that
    closes takes them away. ``is_of_plan`` says of a constant that it was computed for the lengths
    of this plan.
    """

    __slots__ = ("__weakref__", "array", "index", "is_of_plan", "kind", "size_bytes")

    def __init__(
        self,
        kind: BufferKind,
        size_bytes: int,
        *,
        index: int = 0,
        array: np.ndarray[Any, Any] | None = None,
        is_of_plan: bool = False,
    ) -> None:
        self.kind: BufferKind = kind
        self.size_bytes = size_bytes
        self.index = index
        self.is_of_plan = is_of_plan
        self.array = array

    def __repr__(self) -> str:
        return f"<Buffer {self.kind} {self.size_bytes} bytes>"


class Layout:
    """Shape, element type and order in memory. ``strides`` (elements) is None for a blocked one.

    What oneDNN has no descriptor for (int64, bool, more than 12 axes) is always strided.
    ``own_desc`` is oneDNN's descriptor that it was taken from. Immutable.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        strides: tuple[int, ...] | None,
        own_desc: Desc | None = None,
    ) -> None:
        self.shape, self.dtype, self.strides, self.own_desc = shape, dtype, strides, own_desc
        self._known_desc = own_desc

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[object, ...]:
        return self.shape, self.dtype, self.strides, self.own_desc

    @classmethod
    def plain(
        cls, shape: Sequence[int], dtype: DType, strides: Sequence[int] | None = None
    ) -> Layout:
        """Describe row-major memory, or memory with these strides."""
        return cls(tuple(shape), dtype, tuple(row_major(shape) if strides is None else strides))

    @classmethod
    def of(cls, desc: Desc, shape: Sequence[int] | None = None) -> Layout:
        """Take oneDNN's descriptor; ``shape`` is the value's own where oneDNN sees another one.

        Only a plain row-major descriptor may have another shape.
        """
        strides = desc.strides
        if shape is None or tuple(shape) == desc.dims:
            return cls(desc.dims, desc.dtype, strides, desc)
        if strides != row_major(desc.dims):
            raise ValueError(f"{desc} cannot be seen as {list(shape)}")
        return cls.plain(shape, desc.dtype)

    @cached_property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def is_row_major(self) -> bool:
        """True for C order without gaps; strides of axes of length 1 do not matter."""
        if self.strides is None:
            return False
        wanted = row_major(self.shape)
        return all(
            dim <= 1 or have == want
            for dim, have, want in zip(self.shape, self.strides, wanted, strict=True)
        )

    @property
    def blocked_strides(self) -> tuple[int, int, tuple[int, ...]] | None:
        """The axis that is cut into blocks, their length, and the strides (there: of blocks).

        None for a layout without blocks, with nested blocks, or with padding.
        """
        desc = self.own_desc
        blocking = None if desc is None else desc.blocking
        if desc is None or blocking is None or len(blocking[1]) != 1 or desc.offset:
            return None
        strides, ((axis, length),) = blocking
        return None if self.shape[axis] % length else (axis, length, strides)

    @property
    def size_bytes(self) -> int:
        """Bytes from where it begins to behind the last element, padding of blocks included."""
        reach = self.reach
        if reach is None:
            assert self.own_desc is not None
            return self.own_desc.size_bytes
        return reach[1]

    @cached_property
    def reach(self) -> tuple[int, int] | None:
        """The first byte of its elements and the one behind them, from where it begins.

        The first one is negative where a stride is. None for a blocked layout.
        """
        if self.strides is None:
            return None
        if not self.count:
            return 0, 0
        steps = [(dim - 1) * step for dim, step in zip(self.shape, self.strides, strict=True)]
        item = self.dtype.item_bytes
        return sum(step for step in steps if step < 0) * item, (
            sum(step for step in steps if step > 0) + 1
        ) * item

    @cached_property
    def has_desc(self) -> bool:
        """True if oneDNN can describe it."""
        if self.own_desc is not None:
            return True
        return self.strides is not None and can_describe(self.shape, self.dtype, self.strides)

    def desc(self, engine: Engine) -> Desc:
        """Describe it to oneDNN; a scalar has one axis."""
        if self._known_desc is None:
            assert self.strides is not None
            shape, strides = (self.shape, self.strides) if self.shape else ((1,), (1,))
            self._known_desc = engine.desc(shape, self.dtype, strides)
        return self._known_desc

    @property
    def tag(self) -> str:
        """The order of the axes in memory, in oneDNN's notation: see ``layout_tag``."""
        if self.strides is not None:
            return layout_tag(self.shape, self.strides)
        assert self.own_desc is not None
        blocking = self.own_desc.blocking
        return "opaque" if blocking is None else layout_tag(self.shape, *blocking)

    def __str__(self) -> str:
        order = "blocked" if self.strides is None else "plain" if self.is_row_major else "strided"
        return f"{self.dtype.label}{list(self.shape)} {order}"

    def __repr__(self) -> str:
        return f"<Layout {self}>"


class Operand(NamedTuple):
    """A layout at an offset of a buffer."""

    buffer: Buffer
    layout: Layout
    offset_bytes: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the value."""
        return self.layout.shape

    @property
    def dtype(self) -> DType:
        """The element type in memory, which may be smaller than the value's own."""
        return self.layout.dtype

    def viewed(self, layout: Layout, offset_elements: int = 0) -> Operand:
        """View the same memory in another layout, from an element on."""
        offset = self.offset_bytes + offset_elements * self.dtype.item_bytes
        return Operand(self.buffer, layout, offset)
