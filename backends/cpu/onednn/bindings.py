"""oneDNN's objects in Python: the thin facade through which all of CPU talks to the library.

Nothing here runs in an inference: descriptors, primitives and memory objects are made while a plan
is built, and their addresses go into the step table. What is created depends on how many threads
the calling thread's team has, see ``Engine.with_threads``.

Source of names: oneDNN 3.2's C API (dnnl.h), stable within 3.x; the numbers are in numbers.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ....executors.cached_property import cached_property
from ....executors.shortage import check_memory
from ....runtime.graph import DType
from ....runtime.graph.slabs import Slabs
from ....runtime.lowering.strides import row_major
from ..native.extension import native_extension
from .attributes import Attributes
from .descs import (
    Desc,
    Descs,
    Numbers,
    can_describe,
    dims_of,
    dtype_number,
    is_overlapping,
    lengths_of,
)
from .handles import Handle, OneDnnError
from .headroom import COMPILE_BYTES
from .library import Version, adopt_threads, find_library, open_library
from .numbers import (
    ARG,
    BINARY_ALGORITHMS,
    DTYPE_OF,
    ELTWISE,
    FORWARD_INFERENCE,
    INVALID_ARGUMENTS,
    MAX_RANK,
    OUT_OF_MEMORY,
    QUERY_DTYPE,
    QUERY_IMPLEMENTATION,
    QUERY_MD,
    TAG_ANY,
)

__all__ = [
    "ARG",
    "BINARY_ALGORITHMS",
    "ELTWISE",
    "FORWARD_INFERENCE",
    "MAX_RANK",
    "Attributes",
    "Desc",
    "Descs",
    "Engine",
    "Memory",
    "Numbers",
    "OneDnnError",
    "Primitive",
    "PrimitiveDesc",
    "can_describe",
    "open_engine",
]


class Memory(Handle):
    """A memory object: a descriptor and an address, which does not keep the memory alive."""

    __slots__ = ()

    def __init__(self, engine: Engine, desc: Desc, address: int) -> None:
        made = c_void_p()
        engine.check("dnnl_memory_create", byref(made), desc, engine, c_void_p(address))
        assert made.value is not None
        super().__init__(made.value, engine.library.dnnl_memory_destroy)


class Primitive(Handle):
    """A primitive that is ready to run; may be executed on several streams at once."""

    __slots__ = ()

    def __init__(self, engine: Engine, handle: int) -> None:
        super().__init__(handle, engine.library.dnnl_primitive_destroy)


class PrimitiveDesc(Handle):
    """What oneDNN would run for an operation: its implementation and the layouts that it wants.

    ``call`` and ``arguments`` are what it was made from, to make it again for another team. Of
    ``thread_count`` threads: layouts depend on that, too.
    """

    __slots__ = ("arguments", "call", "engine", "thread_count")

    is_open = False
    """True if it reads lengths from the arguments of each run."""

    def __init__(self, engine: Engine, handle: int, call: str, arguments: tuple[Any, ...]) -> None:
        super().__init__(handle, engine.library.dnnl_primitive_desc_destroy)
        self.engine, self.call, self.arguments = engine, call, arguments
        self.thread_count = engine.thread_count

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
        return Desc(self.engine, found, "of", self, which, index)

    def argument(self, role: int) -> tuple[DType | None, int]:
        """Return the element type and the bytes of an argument; None if it takes none there."""
        if role == ARG.WEIGHT_SCALES:
            count = sum(item.scale_count for item in self.arguments if type(item) is Attributes)
            return (DType.FLOAT32, 4 * count) if count else (None, 0)
        if role >= ARG.POST_OP_BASE and not self._is_binary(role // ARG.POST_OP_BASE - 1):
            return None, 0
        library = self.engine.library
        found = library.dnnl_primitive_desc_query_md(self, QUERY_MD["exec_arg"], role)
        number = c_int(0)
        if not found or library.dnnl_memory_desc_query(found, QUERY_DTYPE, byref(number)):
            return None, 0
        return DTYPE_OF.get(number.value), int(library.dnnl_memory_desc_get_size(found))

    def _is_binary(self, place: int) -> bool:
        """True for a post-op with an operand; of others the library tells what nobody has set."""
        given = [item.post_ops for item in self.arguments if type(item) is Attributes]
        steps = given[0] if given else ()
        return 0 <= place < len(steps) and steps[place][1] is not None

    def find_misfit(self, arguments: Sequence[tuple[int, Desc]]) -> str | None:
        """Look for an argument that is described otherwise than in the call, or None.

        Of one that ``is_open``; elsewhere the library looks itself.
        """
        return None

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


class Engine:
    """oneDNN's CPU engine: makes descriptors, primitives and memory objects. Thread-safe."""

    is_traced = False
    """True if what it makes remembers how, for lengths that are SymInts."""

    def __init__(self) -> None:
        self._used: WeakValueDictionary[tuple[Any, ...], Desc] = WeakValueDictionary()
        """Descriptors that somebody holds: a plan asks for each of its own some times."""
        self.path = find_library()
        self.library, self.version = open_library(self.path)
        adopt_threads(self.library, self.path)
        _declare(self.library)
        made = c_void_p()
        self.check("dnnl_engine_create", byref(made), c_int(1), c_size_t(0))
        found = ctypes.cast(self.library.dnnl_memory_desc_query, c_void_p).value
        assert found is not None
        self.query_address: int = found
        self.library.dnnl_get_effective_cpu_isa()  # whose first call has others wait for it
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

    @cached_property
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
        key = tuple(dims), dtype, None if strides is None else tuple(strides)
        return self._used.get(key) or self._used.setdefault(key, self._plain(dims, dtype, strides))

    def _plain(self, dims: Sequence[int], dtype: DType, strides: Sequence[int] | None) -> Desc:
        if strides is None:
            strides = row_major(dims)
        elif 0 not in dims and is_overlapping(dims, strides):
            raise OneDnnError(f"descriptor of {list(dims)} at strides of {list(strides)}", 2)
        made = self._described("strides", dims, dtype, dims_of(strides))
        return Desc(self, made, "plain", tuple(dims), dtype, tuple(strides))

    @property
    def instruction_set(self) -> int:
        """The instructions that oneDNN uses on this CPU, as dnnl_cpu_isa_t."""
        return int(self.library.dnnl_get_effective_cpu_isa())

    def any_desc(self, dims: Sequence[int], dtype: DType) -> Desc:
        """Describe memory whose layout the primitive may choose; raises as ``desc`` does."""
        key = tuple(dims), dtype, "any"
        found = self._used.get(key)
        if found is None:
            made = self._described("tag", dims, dtype, c_int(TAG_ANY))
            found = self._used[key] = Desc(self, made, "open", tuple(dims), dtype)
        return found

    def _described(self, by: str, dims: Sequence[int], dtype: DType, layout: Any) -> int:
        made, shape = c_void_p(), (c_int(len(dims)), lengths_of(dims), dtype_number(dtype))
        self.check(f"dnnl_memory_desc_create_with_{by}", byref(made), *shape, layout)
        assert made.value is not None
        return made.value

    def primitive_desc(self, call: str, *arguments: Any) -> PrimitiveDesc:
        """Call ``dnnl_<call>_primitive_desc_create``; raises OneDnnError, or MemoryError.

        Arguments are objects of this room, numbers as ctypes, or None.
        """
        check_memory(COMPILE_BYTES)
        made = c_void_p()
        self.check(f"dnnl_{call}_primitive_desc_create", byref(made), *arguments)
        assert made.value is not None
        return PrimitiveDesc(self, made.value, call, arguments)

    @property
    def thread_count(self) -> int:
        """How many threads this thread creates and runs primitives for."""
        count: int = native_extension().team_threads()
        return count

    @contextlib.contextmanager
    def with_threads(self, count: int) -> Iterator[None]:
        """Make this thread create and run primitives for ``count`` threads."""
        before = self.thread_count
        native_extension().set_team_threads(count)
        try:
            yield
        finally:
            native_extension().set_team_threads(before)

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
