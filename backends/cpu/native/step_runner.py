"""Runs step tables by the native extension."""

from __future__ import annotations

import ctypes
import functools
import math
import struct
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import DeviceError
from ....executors.shortage import check_memory
from ....runtime.runs.atomic_run import AtomicTerms, Attempt
from ....runtime.runs.stage import NO_STOP, Stop
from ..onednn.bindings import Engine, Primitive, PrimitiveDesc
from ..onednn.headroom import COMPILE_BYTES
from .extension import native_extension

__all__ = [
    "KIND_KERNEL",
    "KIND_PARTS",
    "KIND_PRIMITIVE",
    "MOST_ATOMIC_ARRAYS",
    "STATUS_STOPPED",
    "Memories",
    "StepRunner",
    "build_mark",
    "step_runner",
]

KIND_END = 0
KIND_PRIMITIVE = 1
KIND_PARTS = 2
KIND_KERNEL = 3

STATUS_INDEX = 1001
STATUS_TABLE = 1002
STATUS_MEMORY = 1003
STATUS_BUFFER = 1004
STATUS_STOPPED = 1005
STATUS_REGION = 1006
STATUS_TEXTS = {
    STATUS_INDEX: "an index in the data is out of range",
    STATUS_TABLE: "the step table is damaged",
    STATUS_MEMORY: "there is not enough memory",
    STATUS_BUFFER: "an array is not as long as it should be",
    STATUS_STOPPED: "the run was stopped",
    STATUS_REGION: (
        "a region has more than 4194304 points along an axis, or the regions have too many points: "
        "of a region 268435456 values may be compared, of all regions as many or 64 for each "
        "element of the result; give smaller regions, or fewer"
    ),
}

MOST_ATOMIC_ARRAYS = 16
"""MAX_ARRAYS of atomic_runs.c."""

_MOST_THREADS = 8
_LEAST_EACH = 8
"""Primitives to compile for each thread: of fewer, others' CPUs cost more time than they save."""
_KEPT_BYTES = 1 << 20
"""What a primitive keeps at most, of those that were measured."""

Array = np.ndarray[Any, Any]
Failure = tuple[int, int]
Run = Callable[..., Failure | None]


class StepRunner:
    """Runs step tables; one call releases the GIL for all of their steps.

    ``run(table, buffers, threads, stop, times, spent)`` is as steps.c documents it.
    """

    def __init__(self, steps: Any) -> None:
        self.run: Run = steps.run
        self._steps = steps
        self.kinds = {name: KIND_KERNEL + index for index, name in enumerate(steps.kernels)}

    def atomic_runs(
        self,
        table: Array,
        thread_count: int,
        inputs: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]],
        outputs: Sequence[tuple[tuple[int, ...], np.dtype[Any]]],
        results: Sequence[tuple[str, int, Callable[[Array], Any] | None]],
        make_array: Callable[..., Array],
        terms: AtomicTerms,
    ) -> Attempt:
        """Make the call that makes runs whose arrays are of these names, shapes and types.

        They are MOST_ATOMIC_ARRAYS together, at most. ``results`` are names, of which output each
        is, and the call of C that makes it of that, if it is not that itself.
        """
        asked = tuple([(name, dtype, shape) for name, (shape, dtype) in inputs.items()])
        runs = self._steps.AtomicRuns(
            table,
            thread_count,
            asked,
            tuple(outputs),
            tuple(results),
            np.ndarray,
            make_array,
            terms,
        )
        attempt: Attempt = runs.attempt
        return attempt

    def memories(self, engine: Engine, descs: Array, addresses: Array) -> Memories:
        """Make oneDNN's memory objects, which do not keep the memory alive.

        ``descs`` are handles of descriptors. Raises OneDnnError or MemoryError.
        """
        return Memories(self._steps, engine, descs, addresses)

    def primitives(
        self, engine: Engine, descs: Sequence[PrimitiveDesc], thread_count: int
    ) -> list[Primitive]:
        """Compile primitives by up to that many threads, this one among them. Blocks.

        They are for as many threads as this one's team has. Raises OneDnnError or MemoryError.
        """
        helper_count = max(0, min(thread_count, len(descs) // _LEAST_EACH, _MOST_THREADS) - 1)
        check_memory(COMPILE_BYTES * (1 + helper_count) + _KEPT_BYTES * len(descs))
        handles = np.zeros(len(descs), np.int64)
        status = self._steps.make_primitives(
            np.array([desc.handle for desc in descs], np.int64),
            handles,
            engine.thread_count,
            helper_count,
        )
        engine.check_status("dnnl_primitive_create", status or 0)
        return [Primitive(engine, handle) for handle in handles.tolist()]

    def suppress_boxes(
        self,
        corners: Array,
        order: Array,
        limit: int,
        most_overlap: np.floating,
        stop: Stop = NO_STOP,
    ) -> Array:
        """Take boxes in this order, each unless one that was taken overlaps it by more.

        As ``box_suppression.keep``, for corners in float32; both arrays are the caller's alone.
        Raises IndexError for an order that names a box which is not there, or MemoryError, and the
        error of ``stop`` soon after that is set.
        """
        kept: Array = np.empty(min(limit, order.size), np.int64)
        corners = np.ascontiguousarray(corners, np.float32)
        order = np.ascontiguousarray(order, np.int64)
        found = self._steps.suppress_boxes(float(most_overlap), corners, order, kept, stop.word)
        return kept[: _counted(found, stop)]

    def order_floats(
        self,
        values: Array,
        limit: int,
        *,
        falls: bool,
        nan_last: bool,
        above: float = math.nan,
        stop: Stop = NO_STOP,
    ) -> Array:
        """Return the places of the first numbers of each row in rising or falling order, as int64.

        values: float32 (rows, length), or one row. Equal ones come by place, NaN last or first. Of
        one row only those ``above`` a number, unless that is NaN: there may be fewer than
        ``limit``, which is at most the length. Raises MemoryError, and the error of ``stop`` soon
        after that is set.
        """
        values = np.ascontiguousarray(values, np.float32)
        row_count = len(values) if values.ndim > 1 else 1
        places: Array = np.empty((*values.shape[:-1], limit), np.int64)
        if not places.size:
            return places
        found = self._steps.order_floats(
            above, falls, nan_last, row_count, values, places, stop.word
        )
        count = _counted(found, stop)
        return places if values.ndim > 1 else places[:count]

    def kind(self, kernel: str) -> int:
        """Return the number of a kernel in step tables; DeviceError if there is none."""
        if kernel not in self.kinds:
            raise DeviceError(f"CPU has no native kernel {kernel!r}: {mismatch_text()}")
        return self.kinds[kernel]


class Memories:
    """Memory objects of one owner, destroyed with it: see ``StepRunner.memories``."""

    def __init__(self, steps: Any, engine: Engine, descs: Array, addresses: Array) -> None:
        self.handles: Array = np.zeros(len(descs), np.int64)
        address = engine._as_parameter_.value
        status = steps.make_memories(address, descs, addresses, self.handles)
        engine.check_status("dnnl_memory_create", status or 0)
        weakref.finalize(self, steps.free_memories, self.handles).atexit = False


@functools.cache
def step_runner(engine: Engine) -> StepRunner:
    """Return the process's runner for an engine; DeviceError for a missing or other extension."""
    steps = native_extension()
    library = engine.library
    addresses = (
        _address(library.dnnl_primitive_execute),
        _address(library.dnnl_memory_set_data_handle),
        engine.stream,
        _address(library.dnnl_memory_create),
        _address(library.dnnl_memory_destroy),
        _address(library.dnnl_primitive_create),
        _address(library.dnnl_primitive_destroy),
    )
    try:
        steps.configure(*addresses)
    except TypeError as error:
        raise DeviceError(f"CPU cannot be used ({error}): {mismatch_text()}") from error
    return StepRunner(steps)


def build_mark() -> list[int]:
    """Return what tells this build of the native extension from another: its bytes, its time."""
    found = Path(native_extension().__file__).stat()
    return [found.st_size, found.st_mtime_ns]


def failure_text(status: int) -> str:
    """Return what a status of a run means."""
    if status == STATUS_TABLE:
        return f"{STATUS_TEXTS[status]}: {mismatch_text()}"
    return STATUS_TEXTS.get(status, f"oneDNN's status {status}")


def mismatch_text() -> str:
    """Return that extension and package do not belong together, and how to build it anew.

    An editable install has the C sources beside this file: those that are newer are named.
    """
    folder = Path(__file__).parent
    built = min((file.stat().st_mtime for file in folder.glob("_steps*.so")), default=0.0)
    sources = sorted([*folder.rglob("*.c"), *folder.rglob("*.h")])
    newer = [file.name for file in sources if file.stat().st_mtime > built]
    if newer:
        return (
            f"the native extension does not match its sources, of which {', '.join(newer)} changed "
            f"after it was built; run 'pip install --no-deps -e .' in the folder of the sources"
        )
    return "the native extension was not built from this package's sources; reinstall aioinfer"


def double_bits(number: float) -> int:
    """Return a number as a parameter of a native kernel."""
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


def _counted(found: int | None, stop: Stop) -> int:
    """Return what a native function has counted; of a run that was stopped, raise its error."""
    if found is None:
        assert stop.error is not None
        raise stop.error
    return found


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    if address is None:
        raise DeviceError(f"{function} has no address")
    return address
