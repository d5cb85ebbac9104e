"""oneDNN's objects in Python: the thin facade through which all of CPU talks to the library.

Theory of operation. Objects are handles that are destroyed with their wrapper. Nothing here runs in
an inference: descriptors, primitives and memory objects are made while a plan is built, and their
addresses go into the step table. What is created depends on how many threads OpenMP would use on
the calling thread, see ``Engine.with_threads``.

Source of names: oneDNN 3.2's C API (dnnl.h), stable within 3.x; the numbers are in numbers.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p
from typing import Any

import numpy as np

from ....errors import DeviceError, NotSupportedError
from ....executors.shortage import check_memory
from ....runtime.graph import DType
from ....runtime.graph.slabs import Slabs
from ....runtime.graph.sym_int import plain_int
from ....runtime.lowering.strides import row_major
from .headroom import COMPILE_BYTES
from .library import Version, find_library, open_library, open_openmp
from .numbers import (
    ARG,
    BINARY_ALGORITHMS,
    DTYPE_NUMBERS,
    DTYPE_OF,
    ELTWISE,
    FORMAT_ANY,
    FORMAT_BLOCKED,
    FORWARD_INFERENCE,
    INVALID_ARGUMENTS,
    MAX_COUNT,
    MAX_LENGTH,
    MAX_RANK,
    OUT_OF_MEMORY,
    QUERY_BLOCK_AXES,
    QUERY_BLOCK_LENGTHS,
    QUERY_BLOCKS,
    QUERY_DIMS,
    QUERY_DTYPE,
    QUERY_FORMAT,
    QUERY_IMPLEMENTATION,
    QUERY_MD,
    QUERY_OFFSET,
    QUERY_RANK,
    QUERY_STRIDES,
    STATUS_TEXTS,
    TAG_ANY,
)
from .post_ops import BINARY, UNARY, PostOp

__all__ = [
    "ARG",
    "BINARY_ALGORITHMS",
    "ELTWISE",
    "FORWARD_INFERENCE",
    "MAX_RANK",
    "Desc",
    "Descs",
    "Engine",
    "Memory",
    "Numbers",
    "OneDnnError",
    "Primitive",
    "PrimitiveDesc",
    "open_engine",
]

_Dims = c_int64 * MAX_RANK


class OneDnnError(NotSupportedError):
    """oneDNN refused a call."""

    def __init__(self, call: str, status: int) -> None:
        super().__init__(f"oneDNN's {call} failed: {STATUS_TEXTS.get(status, f'status {status}')}")


class _Handle:
    """A handle of the library, destroyed with this object.

    Give the object itself to a call, so that it lives until the call is over; ``handle`` is the
    address as a number, for the step table. What shows the handle of another object, and keeps
    that, does not call ``__init__``.
    """

    __slots__ = ("_as_parameter_", "_destroy", "handle")

    def __init__(self, handle: int, destroy: Any) -> None:
        self.handle = handle
        self._as_parameter_ = c_void_p(handle)
        self._destroy = destroy

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        destroy = getattr(self, "_destroy", None)
        if destroy is not None and not is_finalizing():
            destroy(self._as_parameter_)


class Desc(_Handle):
    """A memory descriptor: logical dims, element type and the layout in memory. Immutable."""

    __slots__ = ("engine", "origin")

    def __init__(self, engine: Engine, handle: int, *origin: Any) -> None:
        super().__init__(handle, engine.library.dnnl_memory_desc_destroy)
        self.engine = engine
        self.origin: tuple[Any, ...] | None = origin or None
        """How it was made, to make it again: "plain", "open", "of" a primitive, "permuted" or
        "part", and what of."""

    def _query(self, what: int, kind: Any) -> Any:
        result = kind()
        if self.engine.library.dnnl_memory_desc_query(self, what, byref(result)):
            raise DeviceError(f"oneDNN's memory descriptor does not answer query {what}")
        return result

    @property
    def rank(self) -> int:
        """The number of dims."""
        return int(self._query(QUERY_RANK, c_int).value)

    @property
    def dims(self) -> tuple[int, ...]:
        """The logical lengths."""
        pointer = self._query(QUERY_DIMS, POINTER(c_int64))
        return tuple(pointer[: self.rank])

    @property
    def dtype(self) -> DType:
        """The element type."""
        return DTYPE_OF[self._query(QUERY_DTYPE, c_int).value]

    @property
    def offset(self) -> int:
        """Elements between the memory's start and the first of this part of it."""
        return int(self._query(QUERY_OFFSET, c_int64).value)

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
        if self._query(QUERY_FORMAT, c_int).value != FORMAT_BLOCKED:
            return None
        strides = self._query(QUERY_STRIDES, POINTER(c_int64))[: self.rank]
        count = self._query(QUERY_BLOCKS, c_int).value
        if not count:
            return tuple(strides), ()
        axes = self._query(QUERY_BLOCK_AXES, POINTER(c_int64))[:count]
        lengths = self._query(QUERY_BLOCK_LENGTHS, POINTER(c_int64))[:count]
        return tuple(strides), tuple(zip(axes, lengths, strict=True))

    @property
    def size_bytes(self) -> int:
        """Bytes of memory, padding of blocks included."""
        return int(self.engine.library.dnnl_memory_desc_get_size(self))

    @property
    def is_open(self) -> bool:
        """True if the layout is left to the primitive: see ``Engine.any_desc``."""
        return bool(self._query(QUERY_FORMAT, c_int).value == FORMAT_ANY)

    @property
    def reach_bytes(self) -> int:
        """Bytes up to the last element: less than ``size_bytes`` where outer axes have gaps."""
        strides = self.strides
        if strides is None or not self.size_bytes:
            return self.size_bytes
        return _reach(self.dims, strides) * self.dtype.item_bytes

    @property
    def is_absent(self) -> bool:
        """True for the descriptor of an argument that is not there."""
        return self.rank == 0

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
        made = self._derive(call, _lengths(dims), _lengths(offsets))
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


class Memory(_Handle):
    """A memory object: a descriptor and an address, which does not keep the memory alive."""

    __slots__ = ()

    def __init__(self, engine: Engine, desc: Desc, address: int) -> None:
        made = c_void_p()
        engine.check("dnnl_memory_create", byref(made), desc, engine, c_void_p(address))
        assert made.value is not None
        super().__init__(made.value, engine.library.dnnl_memory_destroy)


class Primitive(_Handle):
    """A primitive that is ready to run; may be executed on several streams at once."""

    __slots__ = ()

    def __init__(self, engine: Engine, handle: int) -> None:
        super().__init__(handle, engine.library.dnnl_primitive_destroy)


class PrimitiveDesc(_Handle):
    """What oneDNN would run for an operation: its implementation and the layouts that it wants.

    ``call`` and ``arguments`` are what it was made from, to make it again for another team.
    """

    __slots__ = ("arguments", "call", "engine")

    def __init__(self, engine: Engine, handle: int, call: str, arguments: tuple[Any, ...]) -> None:
        super().__init__(handle, engine.library.dnnl_primitive_desc_destroy)
        self.engine, self.call, self.arguments = engine, call, arguments

    @property
    def implementation(self) -> str:
        """OneDNN's name of the implementation: ``brgconv:avx512_core``, ``ref:any``."""
        text = c_char_p()
        library = self.engine.library
        library.dnnl_primitive_desc_query(self, QUERY_IMPLEMENTATION, 0, byref(text))
        return (text.value or b"").decode()

    def desc(self, which: str, index: int = 0) -> Desc:
        """Return the layout of ``src``, ``weights`` (index 1: bias), ``dst`` or ``scratchpad``.

        Raises OneDnnError where the primitive has none.
        """
        library = self.engine.library
        found = library.dnnl_primitive_desc_query_md(self, QUERY_MD[which], index)
        if not found:
            raise OneDnnError(f"dnnl_primitive_desc_query_md of {which} {index}", INVALID_ARGUMENTS)
        made = c_void_p()
        self.engine.check("dnnl_memory_desc_clone", byref(made), c_void_p(found))
        assert made.value is not None
        return Desc(self.engine, made.value, "of", self, which, index)

    def argument(self, role: int) -> tuple[DType | None, int]:
        """Return the element type and the bytes of an argument; None if it takes none there."""
        if role == ARG.WEIGHT_SCALES:
            count = sum(item.scale_count for item in self.arguments if type(item) is Attributes)
            return (DType.FLOAT32, 4 * count) if count else (None, 0)
        library = self.engine.library
        found = library.dnnl_primitive_desc_query_md(self, QUERY_MD["exec_arg"], role)
        number = c_int(0)
        if not found or library.dnnl_memory_desc_query(found, QUERY_DTYPE, byref(number)):
            return None, 0
        return DTYPE_OF.get(number.value), int(library.dnnl_memory_desc_get_size(found))

    def others(self) -> Iterator[PrimitiveDesc]:
        """Describe the call by the library's choices behind its first, from one to the next.

        Each is good until the next is asked for. This descriptor, which others may share, stays.
        What the library has compiled before it gives twice: it counts from where it found it.
        """
        other = self.engine.primitive_desc(self.call, *self.arguments)
        name = self.implementation
        while not self.engine.library.dnnl_primitive_desc_next_impl(other):
            if other.implementation != name:
                name = other.implementation
                yield other

    def create(self) -> Primitive:
        """Compile it; raises OneDnnError, or MemoryError."""
        check_memory(COMPILE_BYTES)
        made = c_void_p()
        self.engine.check("dnnl_primitive_create", byref(made), self)
        assert made.value is not None
        return Primitive(self.engine, made.value)


class Attributes(_Handle):
    """Post-ops, scales of int8 weights, and the mode of the scratchpad, always the user's.

    ``scale_mask`` and ``scale_count`` say that sums are multiplied by so many float32 numbers,
    which are an argument: one (mask 0), or one along the axes of the weights that are set bits.
    """

    __slots__ = ("post_ops", "scale_count", "scale_mask")

    def __init__(
        self,
        engine: Engine,
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


def _append(engine: Engine, handle: c_void_p, post_op: PostOp, operand: Desc | None) -> None:
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


class Engine:
    """oneDNN's CPU engine: makes descriptors, primitives and memory objects. Thread-safe."""

    def __init__(self) -> None:
        self.path = find_library()
        self.library, self.version = open_library(self.path)
        self.openmp = open_openmp()
        _declare(self.library)
        made = c_void_p()
        self.check("dnnl_engine_create", byref(made), c_int(1), c_size_t(0))
        self._as_parameter_ = made

    def check(self, call: str, *arguments: Any) -> None:
        """Call a function of the library; OneDnnError for any status but success.

        MemoryError where memory does not suffice: there another way of computing is no way out.
        """
        self.check_status(call, getattr(self.library, call)(*arguments))

    def check_status(self, call: str, status: int) -> None:
        """Raise what ``check`` does for what a function of the library has returned."""
        if status == OUT_OF_MEMORY:
            raise MemoryError(f"oneDNN's {call}")
        if status:
            raise OneDnnError(call, status)

    @functools.cached_property
    def stream(self) -> int:
        """A stream's address; on a CPU a stream has no state, so all threads may use it."""
        made = c_void_p()
        self.check("dnnl_stream_create", byref(made), self, c_uint(1))
        assert made.value is not None
        return made.value

    def desc(self, dims: Sequence[int], dtype: DType, strides: Sequence[int] | None = None) -> Desc:
        """Describe plain memory; without strides it is row-major. A scalar has dims (1,).

        Raises OneDnnError for a type that oneDNN does not know, for more than MAX_RANK axes or
        lengths beyond MAX_LENGTH, and where elements overlap.
        """
        if strides is None:
            strides = row_major(dims)
        elif 0 not in dims and _is_overlapping(dims, strides):
            raise OneDnnError(f"descriptor of {list(dims)} at strides of {list(strides)}", 2)
        made = c_void_p()
        self.check(
            "dnnl_memory_desc_create_with_strides",
            byref(made),
            c_int(len(dims)),
            _lengths(dims),
            _dtype_number(dtype),
            _dims(strides),
        )
        assert made.value is not None
        return Desc(self, made.value, "plain", tuple(dims), dtype, tuple(strides))

    @property
    def instruction_set(self) -> int:
        """The instructions that oneDNN uses on this CPU, as dnnl_cpu_isa_t."""
        return int(self.library.dnnl_get_effective_cpu_isa())

    def any_desc(self, dims: Sequence[int], dtype: DType) -> Desc:
        """Describe memory whose layout the primitive may choose; raises as ``desc`` does."""
        made = c_void_p()
        self.check(
            "dnnl_memory_desc_create_with_tag",
            byref(made),
            c_int(len(dims)),
            _lengths(dims),
            _dtype_number(dtype),
            c_int(TAG_ANY),
        )
        assert made.value is not None
        return Desc(self, made.value, "open", tuple(dims), dtype)

    def primitive_desc(self, call: str, *arguments: Any) -> PrimitiveDesc:
        """Call ``dnnl_<call>_primitive_desc_create``; raises OneDnnError, or MemoryError.

        Arguments are this module's objects, numbers as ctypes, or None.
        """
        check_memory(COMPILE_BYTES)
        made = c_void_p()
        self.check(f"dnnl_{call}_primitive_desc_create", byref(made), *arguments)
        assert made.value is not None
        return PrimitiveDesc(self, made.value, call, arguments)

    @contextlib.contextmanager
    def with_threads(self, count: int) -> Iterator[None]:
        """Make this thread create and run primitives for ``count`` threads."""
        before = self.openmp.omp_get_max_threads()
        if before == count:
            yield
            return
        self.openmp.omp_set_num_threads(count)
        try:
            yield
        finally:
            self.openmp.omp_set_num_threads(before)

    def execute(self, primitive: Primitive, arguments: Sequence[tuple[int, Memory]]) -> None:
        """Run a primitive on this thread, outside a step table: to pack weights."""
        array = (ExecArg * len(arguments))(
            *(ExecArg(role, memory.handle) for role, memory in arguments)
        )
        self.check(
            "dnnl_primitive_execute",
            primitive,
            c_void_p(self.stream),
            c_int(len(arguments)),
            array,
        )


class ExecArg(ctypes.Structure):
    """``dnnl_exec_arg_t``."""

    _fields_ = [("role", c_int), ("memory", c_void_p)]


def _dims(numbers: Sequence[int]) -> Any:
    if len(numbers) > MAX_RANK:
        raise OneDnnError(f"descriptor of {len(numbers)} axes", 2)
    return _Dims(*numbers)


def _lengths(dims: Sequence[int]) -> Any:
    """Make a dnnl_dims_t of lengths that oneDNN can count in its 32 bits, and divide by."""
    if dims and not 0 <= min(dims) <= max(dims) <= MAX_LENGTH:
        raise OneDnnError(f"descriptor of {list(dims)}: lengths of 0 to {MAX_LENGTH}", 2)
    if math.prod(dims) > MAX_COUNT:
        raise OneDnnError(f"descriptor of {list(dims)}: up to {MAX_COUNT} elements", 2)
    return _dims(dims)


def _is_overlapping(dims: Sequence[int], strides: Sequence[int]) -> bool:
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
    return not dims or 0 in dims or not _is_overlapping(dims, strides)


def _reach(dims: Sequence[int], strides: Sequence[int]) -> int:
    """Count the elements of memory up to the last one of these dims, none of which is 0."""
    return sum(dim * stride for dim, stride in zip(dims, strides, strict=True)) - sum(strides) + 1


def _dtype_number(dtype: DType) -> c_int:
    if dtype not in DTYPE_NUMBERS:
        raise OneDnnError(f"descriptor of {dtype.label}", 3)
    return c_int(DTYPE_NUMBERS[dtype])


def aligned_bytes(size_bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Allocate memory at a multiple of 64 bytes, the width of a cache line and a vector."""
    return Slabs().empty(size_bytes)


def _declare(library: ctypes.CDLL) -> None:
    """Declare what is not an int: pointers that are given as numbers, and results."""
    library.dnnl_memory_desc_query.argtypes = [c_void_p, c_int, c_void_p]
    library.dnnl_memory_desc_get_size.argtypes = [c_void_p]
    library.dnnl_memory_desc_get_size.restype = c_size_t
    library.dnnl_memory_desc_equal.argtypes = [c_void_p, c_void_p]
    library.dnnl_memory_create.argtypes = [c_void_p, c_void_p, c_void_p, c_void_p]
    library.dnnl_primitive_create.argtypes = [c_void_p, c_void_p]
    library.dnnl_primitive_desc_query.argtypes = [c_void_p, c_int, c_int, c_void_p]
    library.dnnl_primitive_desc_query_md.argtypes = [c_void_p, c_int, c_int]
    library.dnnl_primitive_desc_query_md.restype = c_void_p
    library.dnnl_primitive_desc_next_impl.argtypes = [c_void_p]
    library.dnnl_primitive_attr_set_scratchpad_mode.argtypes = [c_void_p, c_int]
    library.dnnl_primitive_attr_set_post_ops.argtypes = [c_void_p, c_void_p]
    library.dnnl_post_ops_append_binary.argtypes = [c_void_p, c_int, c_void_p]
    library.dnnl_stream_create.argtypes = [c_void_p, c_void_p, c_uint]
    library.dnnl_primitive_execute.argtypes = [c_void_p, c_void_p, c_int, c_void_p]


_engine_lock = threading.Lock()
_engines: list[Engine] = []


def open_engine() -> Engine:
    """Return the process's engine, opened by the first call; raises DeviceError if it cannot."""
    with _engine_lock:
        if not _engines:
            _engines.append(Engine())
        return _engines[0]


def version_text(version: Version) -> str:
    """Write a version as users read it."""
    return ".".join(map(str, version))
