"""oneDNN's memory descriptors: what memory holds, in which layout, and what can be described."""

from __future__ import annotations

import math
from collections.abc import Sequence
from ctypes import byref, c_int, c_int64, c_void_p
from typing import Any, NamedTuple, Protocol

from ....errors import DeviceError
from ....runtime.graph import DType
from ....runtime.graph.sym_int import plain_int
from ..native.extension import native_extension
from .handles import Handle, OneDnnError
from .numbers import (
    DTYPE_NUMBERS,
    DTYPE_OF,
    FORMAT_ANY,
    FORMAT_BLOCKED,
    MAX_COUNT,
    MAX_LENGTH,
    MAX_RANK,
)

__all__ = [
    "Desc",
    "Descs",
    "Numbers",
    "can_describe",
    "dims_of",
    "dtype_number",
    "is_overlapping",
    "lengths_of",
    "reach_of",
]

_Dims = c_int64 * MAX_RANK


class DescEngine(Protocol):
    """What a descriptor asks of its engine."""

    @property
    def library(self) -> Any:
        """The library that is called."""

    @property
    def query_address(self) -> int:
        """Where its function ``dnnl_memory_desc_query`` is."""


class _Facts(NamedTuple):
    """What the library says of a descriptor, in its own numbers; see ``describe_memory``."""

    dims: tuple[int, ...]
    dtype: int
    format: int
    offset: int
    strides: tuple[int, ...]
    block_axes: tuple[int, ...]
    block_lengths: tuple[int, ...]


class Desc(Handle):
    """A memory descriptor: logical dims, element type and the layout in memory. Immutable."""

    __slots__ = ("__weakref__", "_known", "engine", "origin")

    def __init__(self, engine: DescEngine, handle: int, *origin: Any) -> None:
        # That of a primitive is the primitive's, which the origin keeps.
        is_own = origin[:1] != ("of",)
        super().__init__(handle, engine.library.dnnl_memory_desc_destroy if is_own else None)
        self.engine = engine
        self.origin: tuple[Any, ...] | None = origin or None
        """How it was made, to make it again: "plain", "open", "of" a primitive, "permuted" or
        "part", and what of."""
        self._known: _Facts | None = None

    @property
    def _facts(self) -> _Facts:
        """What the library has answered once: a plan asks for it again and again."""
        known = self._known
        if known is None:
            known = self._known = self._ask()
        return known

    def _ask(self) -> _Facts:
        found = native_extension().describe_memory(self.engine.query_address, self.handle)
        if isinstance(found, int):
            raise DeviceError(f"oneDNN's memory descriptor does not answer query {found}")
        return _Facts._make(found)

    @property
    def rank(self) -> int:
        """The number of dims."""
        return len(self._facts.dims)

    @property
    def dims(self) -> tuple[int, ...]:
        """The logical lengths."""
        return self._facts.dims

    @property
    def dtype(self) -> DType:
        """The element type."""
        return DTYPE_OF[self._facts.dtype]

    @property
    def offset(self) -> int:
        """Elements between the memory's start and the first of this part of it."""
        return self._facts.offset

    @property
    def strides(self) -> tuple[int, ...] | None:
        """The distance of neighbours in elements, or None for a blocked or opaque layout."""
        blocking = self.blocking
        return None if blocking is None or blocking[1] else blocking[0]

    @property
    def blocking(self) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]] | None:
        """The strides of the axes, of blocks where they are cut, and (axis, length) of each block.

        Blocks go from outer to inner. None for an opaque layout.
        """
        facts = self._facts
        if facts.format != FORMAT_BLOCKED:
            return None
        return facts.strides, tuple(zip(facts.block_axes, facts.block_lengths, strict=True))

    @property
    def size_bytes(self) -> int:
        """Bytes of memory, padding of blocks included."""
        return int(self.engine.library.dnnl_memory_desc_get_size(self))

    @property
    def is_open(self) -> bool:
        """True if the layout is left to the primitive: see ``Engine.any_desc``."""
        return self._facts.format == FORMAT_ANY

    @property
    def reach_bytes(self) -> int:
        """Bytes up to the last element: less than ``size_bytes`` where outer axes have gaps."""
        strides = self.strides
        if strides is None or not self.size_bytes:
            return self.size_bytes
        return reach_of(self.dims, strides) * self.dtype.item_bytes

    @property
    def is_absent(self) -> bool:
        """True for the descriptor of an argument that is not there."""
        return self.rank == 0

    def fixed(self) -> Desc:
        """Return what describes the same for all lengths of a trace: itself, where none is open."""
        return self

    def permuted(self, permutation: Sequence[int]) -> Desc:
        """View the same memory with permuted axes: axis i of the result is permutation[i] of this.

        Raises OneDnnError where the layout cannot show that.
        """
        inverse = [0] * len(permutation)
        for new, old in enumerate(permutation):
            inverse[old] = new
        order = (c_int * len(inverse))(*inverse)
        made = self._derive("dnnl_memory_desc_permute_axes", order)
        made.origin = "permuted", self, tuple(permutation)
        return made

    def part(self, dims: Sequence[int], offsets: Sequence[int]) -> Desc:
        """View a box of the memory; raises OneDnnError where blocks would be cut."""
        call = "dnnl_memory_desc_create_submemory"
        made = self._derive(call, lengths_of(dims), lengths_of(offsets))
        made.origin = "part", self, tuple(dims), tuple(offsets)
        return made

    def _derive(self, call: str, *arguments: Any) -> Desc:
        made = c_void_p()
        status = getattr(self.engine.library, call)(byref(made), self, *arguments)
        if status:
            raise OneDnnError(call, status)
        assert made.value is not None
        return Desc(self.engine, made.value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Desc):
            return NotImplemented
        equal = self.engine.library.dnnl_memory_desc_equal
        return self.handle == other.handle or bool(equal(self, other))

    def __hash__(self) -> int:
        return hash((self.dims, self.dtype))

    def __repr__(self) -> str:
        layout = self.strides or f"blocked, {self.size_bytes} bytes"
        return f"<Desc {self.dtype.label} {list(self.dims)} {layout}>"


class Descs:
    """An array of descriptors as an argument of a call; keeps them alive."""

    def __init__(self, descs: Sequence[Desc]) -> None:
        self.descs = tuple(descs)
        self._as_parameter_ = (c_void_p * len(descs))(*(desc.handle for desc in descs))


class Numbers:
    """An array of numbers as an argument of a call."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = tuple(numbers)
        plain = [plain_int(number) for number in numbers]
        self._as_parameter_ = (c_int64 * len(plain))(*plain)


def dims_of(numbers: Sequence[int]) -> Any:
    """Make a dnnl_dims_t of any numbers; raises OneDnnError for more than MAX_RANK."""
    if len(numbers) > MAX_RANK:
        raise OneDnnError(f"descriptor of {len(numbers)} axes", 2)
    return _Dims(*numbers)


def lengths_of(dims: Sequence[int]) -> Any:
    """Make a dnnl_dims_t of lengths that oneDNN can count in its 32 bits, and divide by."""
    if dims and not 0 <= min(dims) <= max(dims) <= MAX_LENGTH:
        raise OneDnnError(f"descriptor of {list(dims)}: lengths of 0 to {MAX_LENGTH}", 2)
    if math.prod(dims) > MAX_COUNT:
        raise OneDnnError(f"descriptor of {list(dims)}: up to {MAX_COUNT} elements", 2)
    return dims_of(dims)


def is_overlapping(dims: Sequence[int], strides: Sequence[int]) -> bool:
    """True if oneDNN takes axes to overlap: one begins before the next smaller one has ended.

    That is where its elements would end if there were one more; some such elements lie apart.
    """
    if min(strides, default=0) < 0:
        return True
    end = 1
    for stride, dim in sorted(zip(strides, dims, strict=True)):
        if stride == 0 or dim == 1:
            continue
        if stride < end:
            return True
        end = stride * dim
    return False


def can_describe(dims: Sequence[int], dtype: DType, strides: Sequence[int]) -> bool:
    """True if ``Engine.desc`` describes such memory; a scalar counts as one axis of length 1."""
    if dtype not in DTYPE_NUMBERS or len(dims) > MAX_RANK:
        return False
    return not dims or 0 in dims or not is_overlapping(dims, strides)


def reach_of(dims: Sequence[int], strides: Sequence[int]) -> int:
    """Count the elements of memory up to the last one of these dims, none of which is 0."""
    return sum(dim * stride for dim, stride in zip(dims, strides, strict=True)) - sum(strides) + 1


def dtype_number(dtype: DType) -> c_int:
    """Return oneDNN's number of an element type; raises OneDnnError where it has none."""
    if dtype not in DTYPE_NUMBERS:
        raise OneDnnError(f"descriptor of {dtype.label}", 3)
    return c_int(DTYPE_NUMBERS[dtype])
